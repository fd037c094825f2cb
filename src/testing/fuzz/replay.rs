//! Any bytes as the segments of a log: opening them ends, tells what it found, and finds it again.
//!
//! ```text
//! input   := repairs u8 | damage | applied u8 | segment*
//! repairs    bit 0: the sums of segment headers; bit 1: place, sums and seal of each frame;
//!            bit 2: number and predecessor of each frame, and what headers tell of it
//! damage  := segment u8 | position u16 | change u8      after the repairs;  0 changes nothing
//! applied    how many frames of the first segment the index holds
//! segment := header, its first 72 bytes | frame bytes u32 | frames
//! ```
//!
//! Numbers are little-endian. A file has the name that its header tells.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::base::error::StorageError;
use crate::base::hash::HashKey;
use crate::base::types::{AppliedCommit, CommitSequence, EngineId, SegmentId};
use crate::log::parts::{
    FRAME_HEADER_BYTES, FrameHeader, MAX_SEGMENT_ID, MIN_PAYLOAD_BYTES, PAYLOAD_CRC_AT,
    PAYLOAD_SUMMED_FROM, SegmentHeader, finish_header, sum_head, u32_at, u64_at,
};
use crate::log::{
    CommitLog, LogIdentity, LogOptions, NewFrame, Payload, RecoveredLog, SEGMENT_HEADER_BYTES,
    frame_layout,
};
use crate::testing::disk::{PowerLoss, SimulatedDisk};

/// The log of the input. What is repaired has its secret, and so gets beyond the seal.
const LOG: LogIdentity = LogIdentity { engine: EngineId(1), secret: HashKey([1, 2]) };
const HEADER_FIELDS: usize = 72;
/// More would only make a run longer.
const MAX_SEGMENTS: usize = 4;
const DIRECTORY: &str = "/log";

/// A segment of the input: all bytes of its file.
type File = Vec<u8>;

struct Input {
    segments: Vec<File>,
    applied: AppliedCommit,
}

/// What an open found: the numbers and write batches of what was replayed, and its own report.
type Opened = (CommitLog, RecoveredLog, Vec<(CommitSequence, Vec<u8>)>);

/// Opens `data` as the segments of a log, appends a commit, and opens it again.
///
/// # Panics
/// If what was found contradicts itself or the second open, or if a failed open changed a file.
pub fn replay_segment(data: &[u8]) {
    let Some(input) = parse(data) else { return };
    let disk = SimulatedDisk::new(0);
    for segment in &input.segments {
        disk.plant(&path_of(id_of(segment)), segment.clone());
    }
    match open(&disk, input.applied) {
        Err(error) => {
            for segment in input.segments.iter().rev() {
                let path = path_of(id_of(segment));
                let is_newest = input.segments.iter().rfind(|s| id_of(s) == id_of(segment));
                assert_eq!(
                    disk.contents(&path).as_ref(),
                    is_newest,
                    "a failed open changes nothing"
                );
            }
            let again = open(&disk, input.applied).map(|_| ()).expect_err("it failed before");
            assert_eq!(again.to_string(), error.to_string(), "it fails again in the same way");
        }
        Ok(opened) => check_opened(&disk, &input, opened),
    }
}

fn check_opened(disk: &SimulatedDisk, input: &Input, (log, found, frames): Opened) {
    assert_eq!(frames.len() as u64, found.replayed_count);
    let numbers = frames.iter().map(|(sequence, _)| sequence.0);
    assert!(numbers.eq((input.applied.sequence.0 + 1..).take(frames.len())), "no gaps");
    assert_eq!(found.last.sequence.0, input.applied.sequence.0 + frames.len() as u64);
    assert_eq!((log.written(), log.synced()), (found.last.sequence, found.last.sequence));
    // Nothing comes after the last number, the last epoch and the last segment.
    let Some(next) = found.last.sequence.0.checked_add(1).map(CommitSequence) else { return };
    let newest = log.segments().last().map(|segment| segment.id.0);
    if found.epoch == u32::MAX || newest >= Some(MAX_SEGMENT_ID) {
        return;
    }
    let payloads = [payload()];
    let frame =
        NewFrame { sequence: next, append_time_ms: 0, write_batch: b"\x01", payloads: &payloads };
    log.place_group(frame_layout(1, 1, MIN_PAYLOAD_BYTES as u64).frame_bytes, true)
        .expect("the disk is empty");
    log.append_group(&[frame]).expect("the disk is empty");
    log.sync(next).expect("syncs do not fail");
    drop(log);

    disk.power_loss(PowerLoss::Nothing);
    let (log, again, mut after) = open(disk, input.applied).expect("what was opened opens again");
    assert_eq!(again.last.sequence, next);
    assert!(again.epoch > found.epoch, "each open has an epoch of its own");
    assert_eq!(again.torn_bytes, 0, "what was torn is not taken on");
    assert_eq!(after.pop(), Some((next, b"\x01".to_vec())), "a commit that was synced is there");
    assert_eq!(after, frames, "the commits before it are the same");
    drop(log);
}

/// The shortest batch there can be.
fn payload() -> Payload {
    let mut body = vec![0; MIN_PAYLOAD_BYTES];
    let crc = crc32c::crc32c(&body[PAYLOAD_SUMMED_FROM as usize..]);
    body[PAYLOAD_CRC_AT].copy_from_slice(&crc.to_be_bytes());
    Payload { head: Bytes::new(), body: body.into(), crc }
}

fn open(disk: &SimulatedDisk, applied: AppliedCommit) -> Result<Opened, StorageError> {
    let mut frames = Vec::new();
    let mut payloads = Vec::new();
    let options = LogOptions::default();
    let directory = Path::new(DIRECTORY);
    let files = disk.process();
    let opened =
        CommitLog::open(Arc::clone(&files), directory, LOG, options, applied, &mut |frame| {
            frames.push((frame.applied.sequence, frame.write_batch.to_vec()));
            payloads.extend(frame.payloads());
            Ok(())
        });
    let (log, found) = opened?;
    for payload in payloads {
        let mut bytes = vec![0; payload.location.length_bytes as usize];
        log.read(payload.location, &mut bytes).expect("what was replayed can be read");
        assert_eq!(crc32c::crc32c(&bytes[PAYLOAD_SUMMED_FROM as usize..]), payload.crc);
    }
    Ok((log, found, frames))
}

/// The path of a segment by what its header says, also where the log would never give such an id.
fn path_of(id: SegmentId) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{:020}.log", id.0))
}

fn id_of(segment: &[u8]) -> SegmentId {
    SegmentId(u64_at(segment, 24))
}

/// The input that makes these files of segments, with everything repaired and nothing damaged.
///
/// # Panics
/// If a file is shorter than a segment's header, or holds more than 4 GiB of frames.
#[must_use]
pub fn pack_segments<'a>(applied: u8, files: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut input = vec![7, 0, 0, 0, 0, applied];
    for file in files {
        let (header, frames) = file.split_at(SEGMENT_HEADER_BYTES as usize);
        input.extend_from_slice(&header[..HEADER_FIELDS]);
        let frame_bytes = u32::try_from(frames.len()).expect("the frames are few");
        input.extend_from_slice(&frame_bytes.to_le_bytes());
        input.extend_from_slice(frames);
    }
    input
}

fn parse(data: &[u8]) -> Option<Input> {
    let (&[repairs, damaged, low, high, change, applied], mut rest) = data.split_first_chunk()?;
    let mut segments = Vec::new();
    while segments.len() < MAX_SEGMENTS
        && let Some((header, later)) = rest.split_first_chunk::<HEADER_FIELDS>()
        && let Some((&length, later)) = later.split_first_chunk::<4>()
    {
        let length = (u32::from_le_bytes(length) as usize).min(later.len());
        let (frames, later) = later.split_at(length);
        rest = later;
        let mut file = header.to_vec();
        file.resize(SEGMENT_HEADER_BYTES as usize, 0);
        file.extend_from_slice(frames);
        segments.push(file);
    }
    let first = segments.first()?;
    let first_id = id_of(first);
    let mut chain = Chain { sequence: 0, crc: u32_at(first, 36), segment: 0, end: 0 };
    let mut after = Vec::new();
    for (index, segment) in segments.iter_mut().enumerate() {
        let ends = chain.repair(segment, repairs);
        if index == 0 {
            after = ends;
        }
    }
    let none = AppliedCommit {
        sequence: CommitSequence::NONE,
        segment: first_id,
        position: SEGMENT_HEADER_BYTES,
        frame_crc: 0,
    };
    let applied = applied.checked_sub(1).and_then(|index| after.get(usize::from(index)).copied());
    if let Some(segment) = segments.get_mut(usize::from(damaged)) {
        let at = usize::from(u16::from_le_bytes([low, high])) % segment.len();
        // The file would have another name with another id.
        if !(24..32).contains(&at) {
            segment[at] ^= change;
        }
    }
    Some(Input { segments, applied: applied.unwrap_or(none) })
}

/// How far the repair of a log is.
struct Chain {
    sequence: u64,
    crc: u32,
    segment: u64,
    end: u64,
}

impl Chain {
    /// Repairs a segment as `repairs` says; gives what an index tells that holds each frame.
    fn repair(&mut self, segment: &mut [u8], repairs: u8) -> Vec<AppliedCommit> {
        let (headers, places, chain) = (repairs & 1 != 0, repairs & 2 != 0, repairs & 4 != 0);
        let id = id_of(segment);
        if headers {
            let mut header = SegmentHeader {
                identity: LOG,
                id,
                epoch: u32_at(segment, 32),
                previous_crc: u32_at(segment, 36),
                previous_segment: SegmentId(u64_at(segment, 40)),
                previous_end: u64_at(segment, 48),
                previous_sequence: CommitSequence(u64_at(segment, 56)),
                synced: CommitSequence(u64_at(segment, 64)),
                reused_bytes: 0,
            };
            if chain {
                header.previous_crc = self.crc;
                header.previous_segment = SegmentId(self.segment);
                header.previous_end = self.end;
                header.previous_sequence = CommitSequence(self.sequence);
            }
            segment[..SEGMENT_HEADER_BYTES as usize].copy_from_slice(&header.encode());
        }
        let mut after = Vec::new();
        let mut position = SEGMENT_HEADER_BYTES as usize;
        while let Some(header) =
            self.repair_frame(&mut segment[position..], id, position, places, chain)
        {
            let applied = AppliedCommit {
                sequence: header.sequence,
                segment: id,
                position: position as u64,
                frame_crc: header.crc,
            };
            after.push(applied);
            (self.sequence, self.crc) = (header.sequence.0, header.crc);
            let bytes = header.frame_bytes().expect("it fits in the segment");
            position += bytes as usize;
        }
        (self.segment, self.end) = (id.0, position as u64);
        after
    }

    /// Repairs the frame at the front, if its lengths fit.
    fn repair_frame(
        &self,
        bytes: &mut [u8],
        segment: SegmentId,
        position: usize,
        places: bool,
        chain: bool,
    ) -> Option<FrameHeader> {
        let mut header = FrameHeader::decode(bytes.first_chunk()?)?;
        if header.frame_bytes()? > bytes.len() as u64 {
            return None;
        }
        if !places {
            return Some(header);
        }
        (header.segment, header.position) = (segment, position as u64);
        if chain {
            header.sequence = CommitSequence(self.sequence + 1);
            header.previous_crc = self.crc;
        }
        bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode());
        let (first, rest) = bytes.split_first_chunk().expect("a header was read");
        let (write_batch, rest) = rest.split_at(header.write_batch_bytes as usize);
        let table_bytes = header.head_bytes() as usize - FRAME_HEADER_BYTES - write_batch.len();
        header.crc = sum_head(first, write_batch, &rest[..table_bytes]);
        let first = bytes.first_chunk_mut().expect("a header was read");
        finish_header(LOG.secret, first, header.crc);
        Some(header)
    }
}
