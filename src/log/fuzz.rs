//! Entry points for fuzzers: arbitrary bytes as a frame, and as a segment. They must neither
//! panic, hang, nor take memory by lengths that nothing backs.

use std::path::Path;

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameSeed, set_crc};
use super::replay::{FrameReader, Window};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, file_name};
use super::{CommitLog, LogOptions, NewFrame};
use crate::io::simulated::SimulatedDisk;
use crate::rules::BrokenRules;
use crate::types::{AppliedCommit, CommitSequence, EngineId, SegmentId};

const ENGINE: EngineId = EngineId(1);
const ID: SegmentId = SegmentId(1);
const DIRECTORY: &str = "/log";
const FIRST_PLACE: AppliedCommit = AppliedCommit {
    sequence: CommitSequence::NONE,
    segment: ID,
    position: SEGMENT_HEADER_BYTES,
    frame_crc: 0,
};

/// Takes bytes for the first frame of a segment: as they are, and with the fields set that a
/// fuzzer cannot guess. Returns whether either counts.
///
/// # Panics
/// If a frame that counts is not within the bytes, or is not found by a search: a finding.
pub fn decode_frame(data: &[u8]) -> bool {
    let mut mended = data.to_vec();
    mend_frame(&mut mended, SEGMENT_HEADER_BYTES, &FIRST_PLACE);
    [data, &mended].map(counts).contains(&true)
}

fn counts(data: &[u8]) -> bool {
    let disk = disk_with(segment_of(data));
    let segment = Segment::open(&disk, Path::new(DIRECTORY), ID).expect("the file is there");
    let mut reader = FrameReader::new(FrameSeed::new(ENGINE), BrokenRules::NONE);
    let mut window = Window::new(&segment, u64::MAX).expect("the disk does not fail");
    let next = reader.next(&mut window, SEGMENT_HEADER_BYTES, &FIRST_PLACE);
    let Some(counted) = next.expect("the disk does not fail") else { return false };
    let end = SEGMENT_HEADER_BYTES + data.len() as u64;
    assert!(counted.end <= end, "a frame that counts is whole");
    for payload in counted.frame.payloads() {
        let behind = payload.location.position + u64::from(payload.location.length_bytes);
        assert!(behind <= counted.end, "a payload is within its frame");
    }
    let place = SEGMENT_HEADER_BYTES..u64::MAX;
    let found = reader.find(&segment, place, |_| true).expect("the disk does not fail");
    assert_eq!(found.map(|header| header.position), Some(SEGMENT_HEADER_BYTES));
    true
}

/// Takes bytes for a segment and opens a log on it, and if that succeeds once more. The first byte
/// chooses what is mended before: nothing, the header block, or the header and all frames.
///
/// # Panics
/// If the second open finds another log than the first: a finding.
pub fn replay_segment(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let bytes = match mode % 3 {
        0 => data.to_vec(),
        1 => segment_of(data),
        _ => {
            let mut bytes = segment_of(data);
            mend_all_frames(&mut bytes);
            bytes
        }
    };
    let disk = disk_with(bytes);
    let Some((log, mut batches)) = open(&disk) else { return };
    append(&log);
    disk.kill();
    batches.push(APPENDED.to_vec());
    let (_, found) = open(&disk).expect("what opened once opens again");
    assert_eq!(found, batches, "and finds the same, and what was appended");
}

/// The write batch of the commit that goes behind what was found.
const APPENDED: &[u8] = b"appended";

fn append(log: &CommitLog) {
    let sequence = log.written().next();
    let frame = NewFrame { sequence, append_time_ms: 0, write_batch: APPENDED, payloads: &[] };
    let frame_bytes = super::frame_layout(APPENDED.len(), 0, 0).frame_bytes;
    log.place_group(frame_bytes, true).expect("the disk does not fail");
    log.append_group(&[frame]).expect("the disk does not fail");
}

fn open(disk: &SimulatedDisk) -> Option<(CommitLog, Vec<Vec<u8>>)> {
    let mut batches = Vec::new();
    let mut replay = |frame: super::ReplayedFrame<'_>| {
        batches.push(frame.write_batch.to_vec());
        Ok(())
    };
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    let options = LogOptions::default();
    let opened =
        CommitLog::open(files, directory, ENGINE, options, FIRST_PLACE, &mut replay).ok()?;
    Some((opened.0, batches))
}

/// A segment with a right header block and these bytes behind it.
fn segment_of(data: &[u8]) -> Vec<u8> {
    let header = SegmentHeader {
        engine: ENGINE,
        id: ID,
        epoch: 1,
        previous_crc: 0,
        previous_segment: SegmentId(0),
        previous_end: 0,
        previous_sequence: CommitSequence::NONE,
        synced: CommitSequence::NONE,
    };
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

fn disk_with(bytes: Vec<u8>) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    disk.plant(&Path::new(DIRECTORY).join(file_name(ID)), bytes);
    disk
}

/// Goes from frame to frame and sets what ties each to its place.
fn mend_all_frames(segment: &mut [u8]) {
    let mut last = FIRST_PLACE;
    let mut position = SEGMENT_HEADER_BYTES;
    while let Some(rest) = segment.get_mut(position as usize..) {
        let Some((applied, frame_bytes)) = mend_frame(rest, position, &last) else { return };
        last = applied;
        position += frame_bytes;
    }
}

/// Sets magic, sequence, segment, position and checksums of the frame that the bytes start with,
/// if its lengths fit. Gives its place and its length.
fn mend_frame(
    bytes: &mut [u8],
    position: u64,
    last: &AppliedCommit,
) -> Option<(AppliedCommit, u64)> {
    bytes.get_mut(0..4)?.copy_from_slice(b"tlf\x01");
    let header: &[u8; FRAME_HEADER_BYTES] = bytes.get(..FRAME_HEADER_BYTES)?.try_into().ok()?;
    let mut header = FrameHeader::decode(header)?;
    header.sequence = last.sequence.next();
    header.segment = ID;
    header.position = position;
    header.previous_crc = last.frame_crc;
    let frame_bytes = header.frame_bytes()?;
    let head_bytes = usize::try_from(header.head_bytes()).ok()?;
    if frame_bytes > bytes.len() as u64 {
        return None;
    }
    let encoded = header.encode();
    bytes[..FRAME_HEADER_BYTES].copy_from_slice(&encoded);
    let rest = &bytes[FRAME_HEADER_BYTES..head_bytes];
    let crc = FrameSeed::new(ENGINE).sum_head(&encoded, rest, &[]);
    set_crc(bytes, crc);
    let sequence = header.sequence;
    Some((AppliedCommit { sequence, segment: ID, position, frame_crc: crc }, frame_bytes))
}
