//! What the runs of a log are made of: commits, what the model knows of them, and random choices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidelog::internals::hash::HashKey;
use tidelog::internals::log::{
    AppendFailure, CommitLog, LogIdentity, LogOptions, NewFrame, Payload, SEGMENT_HEADER_BYTES,
    frame_layout,
};
use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{EIO, ENOSPC, PowerLoss, SimulatedDisk};
use tidelog::types::{AppliedCommit, EngineId, PayloadLocation, SegmentId};

pub(crate) const LOG: LogIdentity = LogIdentity {
    engine: EngineId(0xfeed_5eed),
    secret: HashKey([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]),
};
pub(crate) const DIRECTORY: &str = "/data/log";

/// A small random generator (splitmix64): a seed tells all of a run.
#[derive(Clone)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// What a run is made of.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) broken: BrokenRules,
    pub(crate) lives: u64,
    /// The most steps in a life.
    pub(crate) steps: u64,
    /// Chance in a hundred that a life is cut off in the middle of a call.
    pub(crate) crash_percent: u64,
    /// Chance in a hundred that a stop is a power loss.
    pub(crate) power_percent: u64,
    /// Chance in a hundred that a life has a sync that fails.
    pub(crate) sync_fails_percent: u64,
    /// What the failing sync answers.
    pub(crate) sync_errno: i32,
    /// Chance in a hundred, at each step, that the disk becomes nearly full.
    pub(crate) full_percent: u64,
    /// Chance in a hundred that a write is followed by some writing back.
    pub(crate) write_back_percent: u64,
    pub(crate) stale_bytes: bool,
    /// Frames have one of two sizes, and all batches are the same.
    pub(crate) equal_frames: bool,
    /// Chance in a hundred that commits are appended while a sync runs.
    pub(crate) interleave_percent: u64,
    /// Chance in a hundred that a life ends with a flipped bit in an acknowledged commit.
    pub(crate) rot_percent: u64,
    /// The same for the header of a segment with acknowledged commits.
    pub(crate) header_rot_percent: u64,
}

impl Settings {
    pub(crate) const PLAIN: Self = Self {
        broken: BrokenRules::NONE,
        lives: 6,
        steps: 24,
        crash_percent: 60,
        power_percent: 65,
        sync_fails_percent: 0,
        sync_errno: EIO,
        full_percent: 0,
        write_back_percent: 20,
        stale_bytes: false,
        equal_frames: false,
        interleave_percent: 30,
        rot_percent: 0,
        header_rot_percent: 0,
    };
}

pub(crate) fn options(broken: BrokenRules) -> LogOptions {
    LogOptions {
        max_open_segments: 8,
        segment_bytes: SEGMENT_HEADER_BYTES + 4000,
        max_unsynced_bytes: 8000,
        reserve_bytes: 0,
        max_free_segments: 2,
        broken,
    }
}

/// A commit as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) write_batch: Vec<u8>,
    pub(crate) batches: Vec<Vec<u8>>,
}

/// Bytes that are a record batch as far as the log cares.
pub(crate) fn batch(content: u64, length: usize) -> Vec<u8> {
    let mut random = Random(content);
    let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

impl Commit {
    pub(crate) fn new(number: u64, batches: Vec<Vec<u8>>) -> Self {
        Self { write_batch: number.to_le_bytes().repeat(4), batches }
    }

    pub(crate) fn payloads(&self) -> Vec<Payload> {
        let payload = |bytes: &Vec<u8>| Payload {
            head: Bytes::copy_from_slice(&bytes[..bytes.len() / 3]),
            body: Bytes::copy_from_slice(&bytes[bytes.len() / 3..]),
            crc: crc32c::crc32c(&bytes[21..]),
        };
        self.batches.iter().map(payload).collect()
    }

    pub(crate) fn frame_bytes(&self) -> u64 {
        let payload_bytes = self.batches.iter().map(|batch| batch.len() as u64).sum();
        frame_layout(self.write_batch.len(), self.batches.len(), payload_bytes).frame_bytes
    }

    pub(crate) fn payloads_at(&self) -> u64 {
        frame_layout(self.write_batch.len(), self.batches.len(), 0).payloads_at
    }
}

/// Writes commits as one group; says where their frames lie.
pub(crate) fn append(
    log: &CommitLog,
    commits: &[Commit],
) -> Result<Vec<AppliedCommit>, AppendFailure> {
    let group = log.place_group(commits.iter().map(Commit::frame_bytes).sum(), false)?;
    let payloads: Vec<Vec<Payload>> = commits.iter().map(Commit::payloads).collect();
    let mut sequence = log.written();
    let mut frame = |(commit, payloads)| {
        let (commit, payloads): (&Commit, &Vec<Payload>) = (commit, payloads);
        sequence = sequence.next();
        NewFrame { sequence, append_time_ms: 7, write_batch: &commit.write_batch, payloads }
    };
    let frames: Vec<NewFrame<'_>> = commits.iter().zip(&payloads).map(&mut frame).collect();
    let places = log.append_group(&frames)?;
    let applied =
        |(frame, place): (&NewFrame<'_>, &tidelog::internals::log::FramePlace)| AppliedCommit {
            sequence: frame.sequence,
            segment: group.segment,
            position: place.position,
            frame_crc: place.frame_crc,
        };
    Ok(frames.iter().zip(&places).map(applied).collect())
}

/// A commit that exists as far as the model knows.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) commit: Commit,
    /// Where its frame lies; unknown after an append that was cut off.
    pub(crate) place: Option<AppliedCommit>,
}

/// What the model knows of the commits; shared with what runs in the middle of a sync.
#[derive(Clone, Default)]
pub(crate) struct Timeline {
    /// Commit n is at n - 1.
    pub(crate) made: Vec<Made>,
    /// How many the log has called synced.
    pub(crate) acked: u64,
    /// How many must be there after a kill.
    pub(crate) written: u64,
    pub(crate) next_content: u64,
    /// Segments that were freed: nobody reads what they held.
    pub(crate) freed: BTreeSet<SegmentId>,
}

pub(crate) type Shared = Arc<Mutex<Timeline>>;

/// Stops the machine or the process; `true` for a power loss.
pub(crate) fn stop_disk(disk: &SimulatedDisk, random: &mut Random, power_percent: u64) -> bool {
    if !random.chance(power_percent) {
        disk.kill();
        return false;
    }
    let changes = disk.unsynced_changes() as u64;
    disk.power_loss(match random.below(8) {
        0 => PowerLoss::Nothing,
        1 => PowerLoss::Everything,
        2 => PowerLoss::First(random.below(changes + 1) as usize),
        _ => PowerLoss::Random(random.next()),
    });
    true
}

/// Reads all payloads of a commit and holds them against what was written.
pub(crate) fn read_back(
    log: &CommitLog,
    commit: &Commit,
    place: AppliedCommit,
) -> Result<(), String> {
    let mut position = place.position + commit.payloads_at();
    for expected in &commit.batches {
        let length_bytes = expected.len() as u32;
        let location = PayloadLocation { segment: place.segment, position, length_bytes };
        let mut found = vec![0; expected.len()];
        log.read(location, &mut found)
            .map_err(|error| format!("commit {} cannot be read: {error}", place.sequence))?;
        if found != *expected {
            return Err(format!("commit {} has another's bytes", place.sequence));
        }
        position += u64::from(length_bytes);
    }
    Ok(())
}

pub(crate) fn segment_path(segment: SegmentId) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{:020}.log", segment.0))
}

/// The file of a freed segment.
pub(crate) fn free_path(segment: SegmentId) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{:020}.free", segment.0))
}

pub(crate) fn used_bytes(log: &CommitLog) -> u64 {
    let segments = log.segments();
    let bytes: u64 = segments.iter().map(|segment| segment.length_bytes).sum();
    bytes + log.free_segments().bytes
}

/// The fault of a full disk while syncing.
pub(crate) const SYNC_FULL: i32 = ENOSPC;
