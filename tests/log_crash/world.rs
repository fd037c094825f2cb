//! A model of what the log has promised, driven beside a real log on a simulated disk.
//!
//! A run is a number of lives. In each the log is opened, perhaps with crashes on the way, is held
//! against the model, takes commits, and is stopped: killed or by a power loss, in the middle of a
//! call or between two. What must hold after each open:
//!
//! - the commits are a prefix of those that were made, each as it was made, payloads included;
//! - it has at least those that the log called synced, and after a kill all that were written;
//! - a commit that was answered as "not written" is not there;
//! - the log opens, but where the test itself has done damage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidelog::error::{Place, StorageError};
use tidelog::io::SimulatedDisk;
use tidelog::io::simulated::{EIO, ENOSPC, Fault, Operation, PowerLoss};
use tidelog::log::{
    AppendFailure, CommitLog, LogOptions, NewFrame, Payload, ReplayedFrame, SEGMENT_HEADER_BYTES,
    frame_layout,
};
use tidelog::rules::BrokenRules;
use tidelog::types::{AppliedCommit, EngineId, PayloadLocation, SegmentId};

pub(crate) const ENGINE: EngineId = EngineId(0xfeed_5eed);
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
        segment_bytes: SEGMENT_HEADER_BYTES + 4000,
        background_sync_bytes: 4000,
        max_unsynced_bytes: 8000,
        reserve_bytes: 0,
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
    let applied = |(frame, place): (&NewFrame<'_>, &tidelog::log::FramePlace)| AppliedCommit {
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
#[derive(Default)]
pub(crate) struct Timeline {
    /// Commit n is at n - 1.
    pub(crate) made: Vec<Made>,
    /// How many the log has called synced.
    pub(crate) acked: u64,
    /// How many must be there after a kill.
    pub(crate) written: u64,
    next_content: u64,
}

pub(crate) type Shared = Arc<Mutex<Timeline>>;

pub(crate) struct World {
    pub(crate) disk: SimulatedDisk,
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    pub(crate) timeline: Shared,
    pub(crate) applied: AppliedCommit,
    pub(crate) log: Option<Arc<CommitLog>>,
    /// How many crashes were survived, those inside an open included.
    pub(crate) crash_count: u64,
    /// After damage: the first commit that it hit, and whether something proves that it was synced.
    damage: Option<(u64, bool)>,
}

/// Runs a world by its seed to its end, or to the first promise that does not hold.
pub(crate) fn run(seed: u64, settings: Settings) -> Result<u64, String> {
    let mut world = World::new(seed, settings)?;
    for _ in 0..settings.lives {
        if !world.open()? {
            break;
        }
        world.live()?;
        world.stop();
    }
    if world.damage.is_none() {
        world.open()?;
    }
    Ok(world.crash_count)
}

/// Runs many worlds; the first promise that does not hold, with its seed.
pub(crate) fn search(seeds: std::ops::Range<u64>, settings: Settings) -> Result<u64, String> {
    let mut crash_count = 0;
    for seed in seeds {
        crash_count += run(seed, settings).map_err(|what| format!("seed {seed}: {what}"))?;
    }
    Ok(crash_count)
}

impl World {
    pub(crate) fn new(seed: u64, settings: Settings) -> Result<Self, String> {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new(random.next());
        disk.set_write_back(settings.write_back_percent);
        disk.set_stale_bytes(settings.stale_bytes);
        let mut crash_count = 0;
        let directory = Path::new(DIRECTORY);
        let log = loop {
            if random.chance(40) && crash_count < 3 {
                disk.crash_after_calls(random.below(6));
            }
            let made =
                CommitLog::create(disk.process(), directory, ENGINE, options(settings.broken));
            if let Ok(log) = made {
                break log;
            }
            if !disk.has_crashed() {
                return Err(format!("a log could not be made: {made:?}"));
            }
            crash_count += 1;
            stop_disk(&disk, &mut random, 50);
        };
        disk.clear_faults();
        let applied = log.first_place();
        let timeline = Shared::default();
        Ok(Self {
            disk,
            settings,
            random,
            timeline,
            applied,
            log: Some(Arc::new(log)),
            crash_count,
            damage: None,
        })
    }

    /// Opens the log, with up to three crashes on the way; `false` where damage made it refuse.
    pub(crate) fn open(&mut self) -> Result<bool, String> {
        self.log = None;
        let mut crashes = 0;
        for _ in 0..20 {
            if crashes < 3 && self.random.chance(35) {
                self.disk.crash_after_calls(self.random.below(10));
            }
            let mut replayed = Vec::new();
            let mut replay = |frame: ReplayedFrame<'_>| {
                let payloads: Vec<_> = frame.payloads().collect();
                replayed.push((frame.applied, frame.write_batch.to_vec(), payloads));
                Ok(())
            };
            let opened = CommitLog::open(
                self.disk.process(),
                Path::new(DIRECTORY),
                ENGINE,
                options(self.settings.broken),
                self.applied,
                &mut replay,
            );
            match opened {
                Ok((log, found)) => {
                    self.disk.crash_after_calls(u64::MAX);
                    if found.last.sequence.0 != self.applied.sequence.0 + replayed.len() as u64 {
                        return Err("the last commit is not the last that was replayed".into());
                    }
                    self.check(&log, &replayed)?;
                    self.log = Some(Arc::new(log));
                    return Ok(true);
                }
                Err(_) if self.disk.has_crashed() => {
                    crashes += 1;
                    self.crash_count += 1;
                    if stop_disk(&self.disk, &mut self.random, 50) {
                        self.forget_buffered();
                    }
                }
                // A sync that was planned to fail, or a full disk: the next try finds it well.
                Err(StorageError::Io { .. }) => {
                    self.disk.clear_faults();
                    self.disk.kill();
                    self.forget_buffered();
                }
                Err(error) => return self.judge_refusal(&error),
            }
        }
        Err("the log does not open after 20 tries".into())
    }

    fn judge_refusal(&self, error: &StorageError) -> Result<bool, String> {
        let Some((hit, _)) = self.damage else {
            return Err(format!("the log refuses to open: {error}"));
        };
        let StorageError::Corruption(corruption) = error else {
            return Err(format!("damage is reported as something else: {error}"));
        };
        match &corruption.place {
            Place::Commits { first, last } if first.0 == hit && last >= first => Ok(false),
            Place::Segment { .. } => Ok(false),
            _ => Err(format!("commit {hit} is damaged, and told is: {error}")),
        }
    }

    /// Holds what was found against the model, and lets the model go on from there.
    fn check(
        &mut self,
        log: &CommitLog,
        replayed: &[(AppliedCommit, Vec<u8>, Vec<tidelog::log::ReplayedPayload>)],
    ) -> Result<(), String> {
        let mut timeline = self.timeline.lock();
        let last = self.applied.sequence.0 + replayed.len() as u64;
        if let Some((hit, is_proven)) = self.damage {
            if is_proven {
                return Err(format!("commit {hit} was synced, is damaged, and goes unnoticed"));
            }
            timeline.acked = timeline.acked.min(hit - 1);
            timeline.written = timeline.written.min(hit - 1);
        }
        if last < timeline.acked {
            return Err(format!(
                "commits {}..={} were synced and are lost",
                last + 1,
                timeline.acked
            ));
        }
        if last < timeline.written {
            return Err(format!("a kill took commits {}..={}", last + 1, timeline.written));
        }
        if last > timeline.made.len() as u64 {
            return Err(format!("commit {last} was never made, or was called not written"));
        }
        timeline.made.truncate(last as usize);
        for (applied, write_batch, payloads) in replayed {
            let made = &mut timeline.made[applied.sequence.0 as usize - 1];
            if *write_batch != made.commit.write_batch {
                return Err(format!("commit {} holds the changes of another", applied.sequence));
            }
            if payloads.len() != made.commit.batches.len() {
                return Err(format!("commit {} has other payloads", applied.sequence));
            }
            let made_at = applied.position + made.commit.payloads_at();
            if payloads.first().is_some_and(|first| first.location.position != made_at) {
                return Err(format!("the payloads of commit {} are elsewhere", applied.sequence));
            }
            made.place = Some(*applied);
        }
        for (at, made) in timeline.made.iter().enumerate() {
            let place = made.place.ok_or("a commit has no place")?;
            if place.sequence.0 != at as u64 + 1 {
                return Err("a commit has another's place".into());
            }
            read_back(log, &made.commit, place)?;
        }
        if log.written().0 != last || log.synced().0 != last {
            return Err("what was recovered is not written and synced".into());
        }
        timeline.acked = last;
        timeline.written = last;
        Ok(())
    }

    /// One life: appends, syncs, checkpoints, until a call fails or enough was done.
    fn live(&mut self) -> Result<(), String> {
        let log = self.log.clone().expect("the log is open");
        self.plan_faults();
        for _ in 0..1 + self.random.below(self.settings.steps) {
            if self.random.chance(self.settings.full_percent) {
                let used = used_bytes(&log);
                self.disk.set_capacity(Some(used + self.random.below(1500)));
            } else if self.random.chance(20) {
                self.disk.set_capacity(None);
            }
            let goes_on = match self.random.below(10) {
                0..=5 => append_some(&log, &self.timeline, &mut self.random, self.settings)?,
                6 | 7 => self.sync(&log)?,
                8 => self.checkpoint(&log)?,
                _ => break,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn plan_faults(&mut self) {
        if self.random.chance(self.settings.sync_fails_percent) {
            let fault = Fault::next(Operation::Sync, self.settings.sync_errno);
            self.disk.plan(fault.after_calls(self.random.below(6)));
        }
        if self.random.chance(self.settings.crash_percent) {
            self.disk.crash_after_calls(self.random.below(60));
        }
    }

    /// Syncs, perhaps with commits that are appended in the middle of it.
    fn sync(&mut self, log: &Arc<CommitLog>) -> Result<bool, String> {
        let failure = Arc::new(Mutex::new(None));
        if self.random.chance(self.settings.interleave_percent) {
            let (log, timeline) = (Arc::downgrade(log), self.timeline.clone());
            let (mut random, settings) = (Random(self.random.next()), self.settings);
            let failure = failure.clone();
            self.disk.during_next_sync(move || {
                // An append that has to sync would wait for the sync that it stands in.
                let log = log.upgrade().expect("the log lives as long as its sync");
                if log.unsynced_bytes() < 2000 {
                    *failure.lock() =
                        append_some_inside(&log, &timeline, &mut random, settings).err();
                }
            });
        }
        let synced = log.sync(log.written());
        self.disk.during_next_sync(|| {});
        if let Some(failure) = failure.lock().take() {
            return Err(failure);
        }
        let mut timeline = self.timeline.lock();
        timeline.acked = timeline.acked.max(log.synced().0);
        if synced.is_err() && !self.disk.has_crashed() {
            timeline.written = timeline.acked;
        }
        // With a broken rule the log may go on after a failed sync; then so does its caller.
        Ok(synced.is_ok() || !log.is_halted() && !self.disk.has_crashed())
    }

    fn checkpoint(&mut self, log: &Arc<CommitLog>) -> Result<bool, String> {
        if !self.sync(log)? {
            return Ok(false);
        }
        let timeline = self.timeline.lock();
        let synced = log.synced().0;
        if let Some(made) = synced.checked_sub(1).map(|at| &timeline.made[at as usize]) {
            self.applied = made.place.expect("a synced commit was written");
        }
        Ok(true)
    }

    /// Stops the process, and perhaps does damage.
    fn stop(&mut self) {
        // A failed sync has halted it: what was buffered may be gone although the machine runs on.
        let has_failed = self.log.take().is_some_and(|log| log.is_halted());
        if has_failed && !self.disk.has_crashed() {
            self.forget_buffered();
        }
        self.disk.set_capacity(None);
        self.disk.crash_after_calls(u64::MAX);
        self.crash_count += 1;
        if stop_disk(&self.disk, &mut self.random, self.settings.power_percent) {
            self.forget_buffered();
        }
        if self.random.chance(self.settings.rot_percent) {
            self.damage = self.rot_a_frame();
        } else if self.random.chance(self.settings.header_rot_percent) {
            self.damage = self.rot_a_header();
        }
    }

    fn forget_buffered(&self) {
        let mut timeline = self.timeline.lock();
        timeline.written = timeline.acked;
    }

    /// A place of a commit that the index does not hold and that is synced.
    fn acked_place(&mut self) -> Option<(u64, Made)> {
        let timeline = self.timeline.lock();
        let first = self.applied.sequence.0 + 1;
        if timeline.acked < first {
            return None;
        }
        let hit = first + self.random.below(timeline.acked - first + 1);
        Some((hit, timeline.made[hit as usize - 1].clone()))
    }

    /// Flips a bit in a synced commit, in bytes that a sum covers.
    fn rot_a_frame(&mut self) -> Option<(u64, bool)> {
        let (hit, made) = self.acked_place()?;
        let place = made.place?;
        let head_bytes = made.commit.payloads_at();
        let mut offset = self.random.below(head_bytes);
        if let Some(first) = made.commit.batches.first().filter(|_| self.random.chance(50)) {
            offset = head_bytes + 17 + self.random.below(first.len() as u64 - 17);
        }
        let path = segment_path(place.segment);
        let is_proven = self.is_proven(hit, place);
        self.disk.flip_bit(&path, (place.position + offset) * 8 + self.random.below(8));
        Some((hit, is_proven))
    }

    /// Flips a bit in the header of a segment with a synced commit.
    fn rot_a_header(&mut self) -> Option<(u64, bool)> {
        let (_, made) = self.acked_place()?;
        let segment = made.place?.segment;
        let timeline = self.timeline.lock();
        let is_in = |made: &&Made| made.place.is_some_and(|place| place.segment == segment);
        let first = timeline.made.iter().find(is_in)?.place?;
        let bit = self.random.below(SEGMENT_HEADER_BYTES * 8);
        self.disk.flip_bit(&segment_path(segment), bit);
        Some((first.sequence.0, true))
    }

    /// Whether a synced frame behind a commit, or the header of its segment or a later one, says
    /// that the commit was synced. Unsynced ones may say so too; then the log may refuse or not.
    fn is_proven(&self, hit: u64, place: AppliedCommit) -> bool {
        let timeline = self.timeline.lock();
        let synced_of = |segment: SegmentId, at: u64| {
            let bytes = self.disk.contents(&segment_path(segment)).expect("it holds commits");
            u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().expect("8 bytes"))
        };
        let behind = timeline.made[hit as usize..timeline.acked as usize].iter();
        let mut places = behind.clone().filter_map(|made| made.place);
        places.any(|place| synced_of(place.segment, place.position + 16) >= hit)
            || behind
                .filter_map(|made| made.place.map(|place| place.segment))
                .chain([place.segment])
                .any(|segment| synced_of(segment, 64) >= hit)
    }
}

/// Appends a group of random commits; `false` where the life is over.
fn append_some(
    log: &CommitLog,
    timeline: &Shared,
    random: &mut Random,
    settings: Settings,
) -> Result<bool, String> {
    let commits = invent(timeline, random, settings);
    let bytes: u64 = commits.iter().map(Commit::frame_bytes).sum();
    let is_written = append_these(log, timeline, commits)?;
    let bound = options(settings.broken).max_unsynced_bytes.max(bytes);
    if is_written && log.unsynced_bytes() > bound {
        return Err(format!("unsynced_bytes={} limit={bound}", log.unsynced_bytes()));
    }
    Ok(!log.is_halted())
}

/// The same in the middle of a sync, where the group must be small enough not to need another.
fn append_some_inside(
    log: &CommitLog,
    timeline: &Shared,
    random: &mut Random,
    settings: Settings,
) -> Result<(), String> {
    let mut commits = invent(timeline, random, settings);
    commits.truncate(1);
    if commits[0].frame_bytes() < 4000 {
        append_these(log, timeline, commits)?;
    }
    Ok(())
}

/// Appends a group and tells the model; `true` if it was written.
fn append_these(log: &CommitLog, timeline: &Shared, commits: Vec<Commit>) -> Result<bool, String> {
    let result = append(log, &commits);
    let is_written = result.is_ok();
    let mut timeline = timeline.lock();
    // The place may have had to sync.
    timeline.acked = timeline.acked.max(log.synced().0);
    match result {
        Ok(places) => {
            let placed = commits.into_iter().zip(places);
            timeline.made.extend(placed.map(|(commit, at)| Made { commit, place: Some(at) }));
            timeline.written = timeline.made.len() as u64;
        }
        Err(AppendFailure::Unknown(_)) => {
            timeline.made.extend(commits.into_iter().map(|commit| Made { commit, place: None }));
        }
        Err(AppendFailure::NotWritten(_)) => {}
    }
    if timeline.made.last().is_none_or(|last| last.place.is_some())
        && log.written().0 != timeline.made.len() as u64
    {
        return Err("the log counts other commits than were answered".into());
    }
    Ok(is_written)
}

fn invent(timeline: &Shared, random: &mut Random, settings: Settings) -> Vec<Commit> {
    let commit = |number| {
        if settings.equal_frames {
            let batches = (0..random.below(5).min(1)).map(|_| batch(0, 600));
            return Commit::new(number, batches.collect());
        }
        let sizes = [61, 64, 100, 300, 511, 512, 700, 1500];
        let count = random.pick(&[0, 1, 1, 1, 2, 3]);
        let size = if random.chance(2) { 6000 } else { random.pick(&sizes) };
        Commit::new(number, (0..count).map(|at| batch(number * 8 + at, size)).collect())
    };
    let mut timeline = timeline.lock();
    let first = timeline.next_content;
    timeline.next_content += 3;
    drop(timeline);
    let count = 1 + Random(first).below(3);
    (first..first + count).map(commit).collect()
}

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

fn used_bytes(log: &CommitLog) -> u64 {
    log.segments().iter().map(|segment| segment.length_bytes).sum()
}

/// The fault of a full disk while syncing.
pub(crate) const SYNC_FULL: i32 = ENOSPC;
