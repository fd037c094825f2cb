//! Tests of single frames: which bytes count as one, and that nothing else does.

use std::path::Path;

use bytes::Bytes;

use super::frame::FRAME_HEADER_BYTES;
use super::replay::{FrameReader, Window};
use super::segment::{SEGMENT_HEADER_BYTES, Segment};
use super::{CommitLog, LogIdentity, LogOptions, NewFrame, Payload, frame_layout};
use crate::base::hash::HashKey;
use crate::base::rules::BrokenRules;
use crate::base::types::{AppliedCommit, CommitSequence, EngineId, SegmentId};
use crate::testing::SimulatedDisk;
use crate::testing::internals::fuzz::{decode_frame, pack_segments, replay_segment};

const LOG: LogIdentity = LogIdentity {
    engine: EngineId(0x0123_4567_89ab_cdef),
    secret: HashKey([0x0011_2233_4455_6677, 0x8899_aabb_ccdd_eeff]),
};
const START: usize = SEGMENT_HEADER_BYTES as usize;

fn batch(length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// A segment of one frame, with the place before it.
fn segment(write_batch: &[u8], batches: &[Vec<u8>]) -> (SimulatedDisk, AppliedCommit, Vec<u8>) {
    let disk = SimulatedDisk::new(1);
    let directory = Path::new("/log");
    let log = CommitLog::create(disk.process(), directory, LOG, LogOptions::default()).unwrap();
    let payload = |bytes: &Vec<u8>| Payload {
        head: Bytes::new(),
        body: Bytes::copy_from_slice(bytes),
        crc: crc32c::crc32c(&bytes[21..]),
    };
    let payloads: Vec<Payload> = batches.iter().map(payload).collect();
    let payload_bytes = batches.iter().map(|batch| batch.len() as u64).sum();
    let layout = frame_layout(write_batch.len(), payloads.len(), payload_bytes);
    log.place_group(layout.frame_bytes, false).unwrap();
    let sequence = CommitSequence(1);
    let frame =
        NewFrame { sequence, append_time_ms: 1_700_000_000_000, write_batch, payloads: &payloads };
    log.append_group(&[frame]).unwrap();
    let bytes = disk.contents(Path::new("/log/00000000000000000001.log")).unwrap();
    assert_eq!(bytes.len(), START + layout.frame_bytes as usize);
    (disk, log.first_place(), bytes)
}

fn counts(disk: &SimulatedDisk, last: &AppliedCommit, bytes: Vec<u8>) -> bool {
    disk.tamper(Path::new("/log/00000000000000000001.log"), |file| *file = bytes);
    let segment = Segment::open(disk, Path::new("/log"), SegmentId(1)).unwrap();
    let mut reader = FrameReader::new(LOG.secret, BrokenRules::NONE);
    let mut window = Window::new(&segment, u64::MAX).unwrap();
    reader.next(&mut window, SEGMENT_HEADER_BYTES, last).unwrap().is_some()
}

#[test]
fn a_frame_has_the_bytes_that_are_drawn() {
    let (.., bytes) = segment(b"changes", &[batch(61), batch(70)]);
    let mut expected = b"tlf\x02".to_vec();
    expected.extend([0x39, 0x30, 0x4f, 0x0f]);
    expected.extend(1u64.to_le_bytes());
    expected.extend(0u64.to_le_bytes());
    expected.extend(1u64.to_le_bytes());
    expected.extend(4096u64.to_le_bytes());
    expected.extend(1_700_000_000_000i64.to_le_bytes());
    expected.extend(131u64.to_le_bytes());
    expected.extend([0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0]);
    expected.extend([0x68, 0xba, 0x85, 0x5d, 0xa6, 0xd4, 0x06, 0xd6]);
    expected.extend(b"changes");
    expected.extend(61u32.to_le_bytes());
    expected.extend(batch(61)[17..21].iter().rev());
    expected.extend(70u32.to_le_bytes());
    expected.extend(batch(70)[17..21].iter().rev());
    expected.extend(batch(61));
    expected.extend(batch(70));
    expected.extend([0, 0]);
    assert_eq!(expected.len() % 8, 0);
    assert_eq!(bytes[START..], expected);
}

#[test]
fn a_frame_that_is_truncated_anywhere_does_not_count() {
    let (disk, last, bytes) = segment(b"changes", &[batch(61), batch(70)]);
    assert!(counts(&disk, &last, bytes.clone()));
    for length in START..bytes.len() {
        assert!(!counts(&disk, &last, bytes[..length].to_vec()), "truncated at {length}");
    }
}

#[test]
fn one_wrong_bit_in_any_field_and_a_frame_does_not_count() {
    let batches = [batch(61), batch(70)];
    let (disk, last, bytes) = segment(b"changes", &batches);
    let payloads_at = START + frame_layout(7, 2, 0).payloads_at as usize;
    // Base offset, length, leader epoch and magic of a batch are the index's, and padding nobody's.
    let free = [
        payloads_at..payloads_at + 17,
        payloads_at + 61..payloads_at + 61 + 17,
        payloads_at + 131..bytes.len(),
    ];
    for at in START..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            let is_free = free.iter().any(|place| place.contains(&at));
            assert_eq!(counts(&disk, &last, bytes), is_free, "byte {at} bit {bit}");
        }
    }
}

#[test]
fn a_header_that_says_anything_else_is_none_also_where_it_was_summed_anew() {
    let (disk, last, bytes) = segment(b"changes", &[]);
    let head = 8..FRAME_HEADER_BYTES - 8;
    let sum = |bytes: &[u8]| crc32c::crc32c(&[&bytes[head.clone()], b"changes"].concat());
    assert_eq!(bytes[START + 4..START + 8], sum(&bytes[START..]).to_le_bytes());
    for bit in head.start * 8..head.end * 8 {
        let mut bytes = bytes.clone();
        bytes[START + bit / 8] ^= 1 << (bit % 8);
        let crc = sum(&bytes[START..]);
        bytes[START + 4..START + 8].copy_from_slice(&crc.to_le_bytes());
        disk.tamper(Path::new("/log/00000000000000000001.log"), |file| *file = bytes);
        let segment = Segment::open(&disk, Path::new("/log"), SegmentId(1)).unwrap();
        let mut reader = FrameReader::new(LOG.secret, BrokenRules::NONE);
        let mut window = Window::new(&segment, u64::MAX).unwrap();
        assert_eq!(reader.find(&mut window, SEGMENT_HEADER_BYTES).unwrap(), None, "bit {bit}");
        assert!(reader.next(&mut window, SEGMENT_HEADER_BYTES, &last).unwrap().is_none());
    }
}

#[test]
fn a_frame_counts_only_after_the_one_that_it_names() {
    let (disk, last, bytes) = segment(b"changes", &[]);
    for other in [
        AppliedCommit { sequence: CommitSequence(1), ..last },
        AppliedCommit { frame_crc: 1, ..last },
    ] {
        assert!(!counts(&disk, &other, bytes.clone()));
    }
    assert!(counts(&disk, &last, bytes));
}

#[test]
fn arbitrary_bytes_neither_panic_nor_count_by_accident() {
    let (.., bytes) = segment(b"changes", &[batch(61)]);
    let (header, frame) = bytes.split_at(START);
    decode_frame(frame);
    decode_frame(&[]);
    for seed in 0..300u64 {
        let mut random = seed;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize
        };
        let mut data: Vec<u8> = frame.iter().chain(frame).chain(frame).copied().collect();
        for _ in 0..next() % 6 {
            let at = next() % data.len();
            data[at] = next() as u8;
        }
        data.truncate(next() % (data.len() + 1));
        decode_frame(&data);
        let mut input = pack_segments(0, [&[header, &data[..]].concat()[..]]);
        for repairs in 0..8 {
            input[0] = repairs;
            replay_segment(&input);
        }
    }
}

#[test]
fn bytes_made_to_look_like_many_frames_do_not_take_forever() {
    // A header every 80 bytes that claims all that follows: each must be summed to be refused.
    let mut data = vec![0; START];
    data[24] = 1;
    let count = 4_000u64;
    for at in 0..count {
        let mut header = [0u8; 80];
        header[0..4].copy_from_slice(b"tlf\x02");
        header[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        header[24..32].copy_from_slice(&1u64.to_le_bytes());
        header[32..40].copy_from_slice(&(SEGMENT_HEADER_BYTES + at * 80).to_le_bytes());
        let rest = (count - at) * 80 - 80;
        header[60..64].copy_from_slice(&(rest as u32).to_le_bytes());
        data.extend(header);
    }
    let mut input = pack_segments(0, [&data[..]]);
    // The header alone is repaired.
    input[0] = 1;
    replay_segment(&input);
}
