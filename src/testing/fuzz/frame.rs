//! Any bytes as a frame: it counts if and only if everything in it checks.

use std::path::Path;

use crate::base::hash::HashKey;
use crate::base::rules::BrokenRules;
use crate::base::types::{AppliedCommit, CommitSequence, SegmentId};
use crate::log::SEGMENT_HEADER_BYTES;
use crate::log::parts::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, FrameReader, MIN_PAYLOAD_BYTES,
    PAYLOAD_CRC_AT, PAYLOAD_SUMMED_FROM, Segment, TABLE_ENTRY_BYTES, Window, encode_table_entry,
    file_name, finish_header, seal_of, sum_head, table_entries,
};
use crate::testing::disk::SimulatedDisk;

/// The log's secret, so that what is repaired gets beyond the seal.
const SECRET: HashKey = HashKey([1, 2]);
const SEGMENT: SegmentId = SegmentId(1);

/// Reads `data` as the first frame of a segment: as it is, with place and checksums repaired, and
/// repaired with one bit flipped.
///
/// # Panics
/// If a frame counts that must not, does not count although it must, or shows other bytes.
pub fn decode_frame(data: &[u8]) {
    look_at(data);
    let Some(mut repaired) = repair(data) else { return };
    look_at(&repaired);
    // The time says which bit: nothing checks it but the sum.
    let bit = data[40] as usize | (data[41] as usize) << 8;
    let at = bit / 8 % repaired.len();
    repaired[at] ^= 1 << (bit % 8);
    look_at(&repaired);
}

fn look_at(data: &[u8]) {
    let header = data.first_chunk::<FRAME_HEADER_BYTES>().and_then(FrameHeader::decode);
    if let Some(header) = header {
        assert_eq!(header.encode(), data[..FRAME_HEADER_BYTES], "a header is its fields");
    }
    let disk = SimulatedDisk::new(0);
    let directory = Path::new("/log");
    let mut file = vec![0; SEGMENT_HEADER_BYTES as usize];
    file.extend_from_slice(data);
    disk.plant(&directory.join(file_name(SEGMENT)), file);
    let segment = Segment::open(&*disk.process(), directory, SEGMENT).expect("it was planted");
    let mut reader = FrameReader::new(SECRET, BrokenRules::NONE);

    let mut window = Window::new(&segment, u64::MAX).expect("simulated files have a length");
    let found = reader.find(&mut window, SEGMENT_HEADER_BYTES).expect("simulated files are read");
    assert_eq!(
        found.is_some_and(|header| header.position == SEGMENT_HEADER_BYTES),
        header.is_some_and(|header| is_sealed(data, &header)),
        "what is looked for is found"
    );

    let last = AppliedCommit {
        sequence: CommitSequence(header.map_or(0, |header| header.sequence.0.saturating_sub(1))),
        segment: SEGMENT,
        position: 0,
        frame_crc: header.map_or(0, |header| header.previous_crc),
    };
    let counted = reader.next(&mut window, SEGMENT_HEADER_BYTES, &last);
    let counted = counted.expect("simulated files can be read");
    let must_count = header.filter(|header| checks(data, header));
    assert_eq!(counted.is_some(), must_count.is_some(), "a frame counts if all of it checks");
    let Some((counted, header)) = counted.zip(must_count) else { return };

    let write_batch_at = FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.write_batch_bytes as usize;
    assert_eq!(counted.frame.write_batch, &data[write_batch_at]);
    assert_eq!(counted.frame.append_time_ms, header.append_time_ms);
    assert_eq!(counted.frame.applied.sequence, header.sequence);
    assert_eq!(Some(counted.end - SEGMENT_HEADER_BYTES), header.frame_bytes());
    let mut at = SEGMENT_HEADER_BYTES + header.head_bytes();
    for payload in counted.frame.payloads() {
        assert_eq!(payload.location.position, at, "payloads lie back to back");
        at += u64::from(payload.location.length_bytes);
        let from = (payload.location.position - SEGMENT_HEADER_BYTES) as usize;
        assert_eq!(data[from..][PAYLOAD_CRC_AT], payload.crc.to_be_bytes());
    }
    assert!(at <= counted.end && counted.end - at < FRAME_ALIGNMENT, "padding is all that is left");
}

/// Whether the header of a frame must be believed.
fn is_sealed(data: &[u8], header: &FrameHeader) -> bool {
    let is_its_place = (header.segment, header.position) == (SEGMENT, SEGMENT_HEADER_BYTES);
    let has_number = header.sequence.0 < u64::MAX;
    let bytes = data.first_chunk().expect("a header was read");
    is_its_place && has_number && header.seal == seal_of(SECRET, bytes)
}

/// Whether the head of a frame must be taken, judged by the bytes as a whole.
fn head_checks(data: &[u8], header: &FrameHeader) -> bool {
    let fits = header.frame_bytes().is_some_and(|bytes| bytes <= data.len() as u64);
    fits && is_sealed(data, header) && header.crc == head_sum(data, header)
}

fn checks(data: &[u8], header: &FrameHeader) -> bool {
    if !head_checks(data, header) || header.sequence == CommitSequence::NONE {
        return false;
    }
    let (table, payloads) = table_and_payloads(data, header);
    let lengths: u64 = table_entries(table).map(|(length, _)| u64::from(length)).sum();
    if lengths != header.payload_bytes {
        return false;
    }
    let mut rest = payloads;
    table_entries(table).all(|(length, crc)| {
        let (payload, later) = rest.split_at(length as usize);
        rest = later;
        payload.len() >= MIN_PAYLOAD_BYTES
            && payload[PAYLOAD_CRC_AT] == crc.to_be_bytes()
            && crc32c::crc32c(&payload[PAYLOAD_SUMMED_FROM as usize..]) == crc
    })
}

/// REQUIRES: the head lies within the data.
fn table_and_payloads<'a>(data: &'a [u8], header: &FrameHeader) -> (&'a [u8], &'a [u8]) {
    let table_at = FRAME_HEADER_BYTES + header.write_batch_bytes as usize;
    data[table_at..].split_at(header.payload_count as usize * TABLE_ENTRY_BYTES)
}

/// REQUIRES: the head lies within the data.
fn head_sum(data: &[u8], header: &FrameHeader) -> u32 {
    let (bytes, rest) = data.split_first_chunk().expect("the head lies within the data");
    let (write_batch, rest) = rest.split_at(header.write_batch_bytes as usize);
    let table = &rest[..header.payload_count as usize * TABLE_ENTRY_BYTES];
    sum_head(bytes, write_batch, table)
}

/// The frame with the place, the sums and the padding that it should have; nothing if the lengths
/// in it do not fit in the data.
fn repair(data: &[u8]) -> Option<Vec<u8>> {
    let mut frame = data.to_vec();
    let tail = frame.len().next_multiple_of(FRAME_ALIGNMENT as usize);
    frame.resize(tail, 0);
    frame.get_mut(0..4)?.copy_from_slice(b"tlf\x02");
    let mut header = FrameHeader::decode(frame.first_chunk()?)?;
    (header.segment, header.position) = (SEGMENT, SEGMENT_HEADER_BYTES);
    if header.head_bytes() > frame.len() as u64 {
        return None;
    }
    repair_payloads(&mut frame, &mut header);
    frame[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode());
    let crc = head_sum(&frame, &header);
    finish_header(SECRET, frame.first_chunk_mut()?, crc);
    Some(frame)
}

/// Gives each payload its checksum, and the header their sum, as far as all of them fit.
fn repair_payloads(frame: &mut [u8], header: &mut FrameHeader) {
    let (head, mut rest) = frame.split_at_mut(header.head_bytes() as usize);
    let table = FRAME_HEADER_BYTES + header.write_batch_bytes as usize..;
    let entries: Vec<_> = table_entries(&head[table.clone()]).collect();
    let lengths: u64 = entries.iter().map(|(length, _)| u64::from(*length)).sum();
    if lengths > rest.len() as u64 {
        return;
    }
    header.payload_bytes = lengths;
    for ((length, _), entry) in
        entries.into_iter().zip(head[table].chunks_exact_mut(TABLE_ENTRY_BYTES))
    {
        let (payload, later) = rest.split_at_mut(length as usize);
        rest = later;
        if payload.len() < MIN_PAYLOAD_BYTES {
            continue;
        }
        let crc = crc32c::crc32c(&payload[PAYLOAD_SUMMED_FROM as usize..]);
        payload[PAYLOAD_CRC_AT].copy_from_slice(&crc.to_be_bytes());
        entry.copy_from_slice(&encode_table_entry(length, crc));
    }
}
