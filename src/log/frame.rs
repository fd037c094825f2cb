//! One frame of the commit log: its bytes, its checksum, and where its parts lie.
//!
//! ```text
//! frame, little-endian:
//!   0  magic             4   "tlf" 0x02
//!   4  crc               4   CRC-32C over bytes 8 .. 68 and write batch and payload table
//!   8  sequence          8   number of the commit
//!  16  synced            8   highest commit that was known to be synced when this one was written
//!  24  segment           8   id of the segment that holds the frame
//!  32  position          8   byte of that segment at which the frame starts, a multiple of 8
//!  40  append time       8   milliseconds, signed
//!  48  payload bytes     8   sum of the lengths in the table
//!  56  previous crc      4   crc of the frame of commit sequence - 1; 0 before the first
//!  60  write batch bytes 4
//!  64  payload count     4
//!  68  seal              8   SipHash-2-4 over bytes 0 .. 68 with the log's secret
//!  76  write batch
//!   .  payload table         for each payload: length u32, CRC-32C u32
//!   .  payloads              back to back
//!   .  zeros                 up to the next multiple of 8
//! ```
//!
//! Nothing in a header is believed before its seal holds, and nothing is summed: what a client
//! sends lies in the same file, and may look like a frame in all but the seal.
//!
//! A payload is an encoded record batch. Its checksum in the table is the batch's own: it covers
//! the batch from byte 21 on and stands, big-endian, in its bytes 17 to 20. Bytes 0 to 16 (base
//! offset, length, leader epoch, magic) are under no sum; who reads a batch stamps them from the
//! index.

use crate::base::hash::{HashKey, seal};
use crate::base::types::{CommitSequence, SegmentId};

/// Bytes of a frame before its write batch.
pub(crate) const FRAME_HEADER_BYTES: usize = 76;
/// Frames start at multiples of this.
pub(crate) const FRAME_ALIGNMENT: u64 = 8;
/// A payload has at least the header of a record batch.
pub(crate) const MIN_PAYLOAD_BYTES: usize = 61;
/// The checksum of a record batch covers it from here on.
pub(crate) const PAYLOAD_SUMMED_FROM: u64 = 21;
/// Where the checksum of a record batch stands in it.
pub(crate) const PAYLOAD_CRC_AT: std::ops::Range<usize> = 17..21;
/// Bytes of a payload's entry in the table.
pub(crate) const TABLE_ENTRY_BYTES: usize = 8;

pub(super) const MAGIC: [u8; 4] = *b"tlf\x02";
/// The checksum covers what lies after it, up to the seal.
const SUMMED_FROM: usize = 8;
/// The seal stands here, and covers all before it.
const SEAL_AT: usize = 68;

/// The sizes of a frame, for who must know where its payloads will lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLayout {
    /// All of the frame, up to the next multiple of 8.
    pub frame_bytes: u64,
    /// Where the first payload starts, from the frame's start; the others follow back to back.
    pub payloads_at: u64,
}

/// The layout of a frame with a write batch of this size and payloads of these sizes.
#[must_use]
pub fn frame_layout(
    write_batch_bytes: usize,
    payload_count: usize,
    payload_bytes: u64,
) -> FrameLayout {
    let table_bytes = payload_count as u64 * TABLE_ENTRY_BYTES as u64;
    let payloads_at = FRAME_HEADER_BYTES as u64 + write_batch_bytes as u64 + table_bytes;
    let frame_bytes = (payloads_at + payload_bytes).next_multiple_of(FRAME_ALIGNMENT);
    debug_assert!(payloads_at + payload_bytes <= frame_bytes, "payloads lie in their frame");
    FrameLayout { frame_bytes, payloads_at }
}

/// The fields of a frame before its write batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) crc: u32,
    pub(crate) sequence: CommitSequence,
    pub(crate) synced: CommitSequence,
    pub(crate) segment: SegmentId,
    pub(crate) position: u64,
    pub(crate) append_time_ms: i64,
    pub(crate) payload_bytes: u64,
    pub(crate) previous_crc: u32,
    pub(crate) write_batch_bytes: u32,
    pub(crate) payload_count: u32,
    pub(crate) seal: u64,
}

impl FrameHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.synced.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.position.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.append_time_ms.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.previous_crc.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.write_batch_bytes.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.payload_count.to_le_bytes());
        bytes[SEAL_AT..].copy_from_slice(&self.seal.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` where the magic does not stand. Nothing else is checked.
    pub(crate) fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Option<Self> {
        if bytes[0..4] != MAGIC {
            return None;
        }
        Some(Self {
            crc: u32_at(bytes, 4),
            sequence: CommitSequence(u64_at(bytes, 8)),
            synced: CommitSequence(u64_at(bytes, 16)),
            segment: SegmentId(u64_at(bytes, 24)),
            position: u64_at(bytes, 32),
            append_time_ms: u64_at(bytes, 40).cast_signed(),
            payload_bytes: u64_at(bytes, 48),
            previous_crc: u32_at(bytes, 56),
            write_batch_bytes: u32_at(bytes, 60),
            payload_count: u32_at(bytes, 64),
            seal: u64_at(bytes, SEAL_AT),
        })
    }

    /// Bytes from the frame's start to its first payload. It cannot overflow: the counts are u32.
    pub(crate) fn head_bytes(&self) -> u64 {
        let table_bytes = u64::from(self.payload_count) * TABLE_ENTRY_BYTES as u64;
        FRAME_HEADER_BYTES as u64 + u64::from(self.write_batch_bytes) + table_bytes
    }

    /// The size of the frame with its padding; `None` where the lengths are absurd.
    pub(crate) fn frame_bytes(&self) -> Option<u64> {
        let bytes = self.head_bytes().checked_add(self.payload_bytes)?;
        bytes.checked_next_multiple_of(FRAME_ALIGNMENT)
    }
}

/// Starts the checksum of a frame with the part of its header that it covers.
pub(super) fn sum_header(header: &[u8; FRAME_HEADER_BYTES]) -> u32 {
    crc32c::crc32c(&header[SUMMED_FROM..SEAL_AT])
}

/// The checksum of a frame's head.
pub(crate) fn sum_head(header: &[u8; FRAME_HEADER_BYTES], write_batch: &[u8], table: &[u8]) -> u32 {
    let sum = crc32c::crc32c_append(sum_header(header), write_batch);
    crc32c::crc32c_append(sum, table)
}

/// Gives an encoded header its checksum, and after that its seal, which covers the checksum too.
pub(crate) fn finish_header(secret: HashKey, header: &mut [u8; FRAME_HEADER_BYTES], crc: u32) {
    header[4..SUMMED_FROM].copy_from_slice(&crc.to_le_bytes());
    let seal = seal_of(secret, header);
    header[SEAL_AT..].copy_from_slice(&seal.to_le_bytes());
}

/// The seal that an encoded header must have, by all that stands before it.
pub(crate) fn seal_of(secret: HashKey, header: &[u8; FRAME_HEADER_BYTES]) -> u64 {
    seal(secret, &header[..SEAL_AT])
}

/// A payload's entry in the table.
pub(crate) fn encode_table_entry(length_bytes: u32, crc: u32) -> [u8; TABLE_ENTRY_BYTES] {
    let mut entry = [0; TABLE_ENTRY_BYTES];
    entry[0..4].copy_from_slice(&length_bytes.to_le_bytes());
    entry[4..8].copy_from_slice(&crc.to_le_bytes());
    entry
}

/// The entries of a payload table, as (length, checksum).
pub(crate) fn table_entries(table: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    table.chunks_exact(TABLE_ENTRY_BYTES).map(|entry| (u32_at(entry, 0), u32_at(entry, 4)))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were taken"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were taken"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FrameHeader = FrameHeader {
        crc: 0x0102_0304,
        sequence: CommitSequence(0x1112_1314_1516_1718),
        synced: CommitSequence(0x2122_2324_2526_2728),
        segment: SegmentId(0x3132_3334_3536_3738),
        position: 0x4142_4344_4546_4748,
        append_time_ms: -2,
        payload_bytes: 0x6162_6364_6566_6768,
        previous_crc: 0x7172_7374,
        write_batch_bytes: 0x8182_8384,
        payload_count: 0x9192_9394,
        seal: 0xa1a2_a3a4_a5a6_a7a8,
    };

    #[test]
    fn the_header_has_the_bytes_that_are_drawn() {
        let mut expected = vec![b't', b'l', b'f', 2, 4, 3, 2, 1];
        expected.extend([0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        expected.extend([0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21]);
        expected.extend([0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31]);
        expected.extend([0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41]);
        expected.extend([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        expected.extend([0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61]);
        expected.extend([0x74, 0x73, 0x72, 0x71, 0x84, 0x83, 0x82, 0x81]);
        expected.extend([0x94, 0x93, 0x92, 0x91]);
        expected.extend([0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1]);
        assert_eq!(HEADER.encode()[..], expected);
        assert_eq!(FrameHeader::decode(&HEADER.encode()), Some(HEADER));
    }

    #[test]
    fn only_the_magic_makes_a_header() {
        for byte in 0..4 {
            let mut bytes = HEADER.encode();
            bytes[byte] ^= 0x20;
            assert_eq!(FrameHeader::decode(&bytes), None);
        }
    }

    #[test]
    fn lengths_that_no_file_can_have_are_no_frame() {
        assert!(HEADER.frame_bytes().is_some());
        for payload_bytes in [u64::MAX, u64::MAX - HEADER.head_bytes()] {
            assert_eq!(FrameHeader { payload_bytes, ..HEADER }.frame_bytes(), None);
        }
    }

    #[test]
    fn the_layout_is_that_of_the_header() {
        for (write_batch_bytes, payload_count, payload_bytes) in
            [(0, 0, 0), (1, 0, 0), (4, 0, 0), (5, 1, 61), (100, 3, 1_000_000)]
        {
            let layout =
                frame_layout(write_batch_bytes as usize, payload_count as usize, payload_bytes);
            let header = FrameHeader { write_batch_bytes, payload_count, payload_bytes, ..HEADER };
            assert_eq!(layout.payloads_at, header.head_bytes());
            assert_eq!(Some(layout.frame_bytes), header.frame_bytes());
            assert_eq!(layout.frame_bytes % 8, 0);
        }
        let whole = FrameLayout { frame_bytes: 80, payloads_at: 80 };
        assert_eq!(frame_layout(4, 0, 0), whole, "a frame that needs no padding has none");
    }

    #[test]
    fn the_seal_covers_each_bit_before_it_and_no_other_secret_makes_it() {
        let bytes = HEADER.encode();
        let secret = HashKey([1, 2]);
        let mut seals = std::collections::BTreeSet::from([seal_of(secret, &bytes)]);
        assert!(seals.insert(seal_of(HashKey([1, 3]), &bytes)));
        assert!(seals.insert(seal_of(HashKey([0, 2]), &bytes)));
        for bit in 0..SEAL_AT * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(seals.insert(seal_of(secret, &bytes)), "bit {bit}");
        }
        let mut other = bytes;
        other[SEAL_AT..].fill(0);
        assert_eq!(seal_of(secret, &other), seal_of(secret, &bytes));
    }

    #[test]
    fn a_head_is_summed_without_its_magic_its_sum_and_its_seal() {
        let bytes = HEADER.encode();
        let sum = sum_head(&bytes, b"changes", b"");
        assert_eq!(sum, sum_head(&bytes, b"chan", b"ges"));
        assert_eq!(sum, crc32c::crc32c(&[&bytes[8..68], b"changes"].concat()));
    }
}
