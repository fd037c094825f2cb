//! One file of the commit log: its name and its header block.
//!
//! ```text
//! segment, little-endian:
//!    0  magic              8   "tidelog" 0x00
//!    8  crc                4   CRC-32C over bytes 12 .. 4096; of every format version
//!   12  format version     4   2
//!   16  engine id          8
//!   24  segment id         8   also the file's name: 20 digits and ".log", or ".free" when freed
//!   32  epoch              4   one more at every open of the engine
//!   36  previous crc       4   crc of the last frame before this segment; 0 where there is none
//!   40  previous segment   8   the segment that the log comes from; 0 for the first
//!   48  previous end       8   the byte of it at which the log leaves it
//!   56  previous sequence  8   the last commit before this segment
//!   64  synced             8   highest commit that was known to be synced
//!   72  reused bytes       8   length of the freed segment that was written over; 0 for a new file
//!   80  secret            16   of the log; it seals the frames
//!   96  zeros                  up to byte 4096
//! 4096  frames
//! ```
//!
//! Behind the last frame of a file that was written over lie frames of its earlier use. They have
//! another segment id, and so count nowhere.
//!
//! INVARIANT (W1): an id is given once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{u32_at, u64_at};
use super::identity::LogIdentity;
use crate::base::error::StorageError;
use crate::base::io::{File, Files};
use crate::base::types::{CommitSequence, SegmentId};

/// Bytes of the header block; the first frame stands after it.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;

/// The format version of segments that this code writes and reads.
pub const SEGMENT_FORMAT_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"tidelog\0";
const SUMMED_FROM: usize = 12;
const BLOCK: usize = SEGMENT_HEADER_BYTES as usize;
const NAME_DIGITS: usize = 20;
/// Ids are given from 1 up and never reach this: a name with a greater one is none of ours.
pub(crate) const MAX_SEGMENT_ID: u64 = u64::MAX >> 1;
const NAME_SUFFIX: &str = ".log";
const FREE_SUFFIX: &str = ".free";

/// What the header block of a segment tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: LogIdentity,
    pub(crate) id: SegmentId,
    pub(crate) epoch: u32,
    pub(crate) previous_crc: u32,
    pub(crate) previous_segment: SegmentId,
    pub(crate) previous_end: u64,
    pub(crate) previous_sequence: CommitSequence,
    pub(crate) synced: CommitSequence,
    pub(crate) reused_bytes: u64,
}

/// Why a header block is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// The block is too short, or magic or checksum do not hold.
    Unreadable,
    /// The block is whole, of a format that is not known here.
    UnknownVersion(u32),
    /// The block is whole, of another engine's log.
    OtherEngine,
    /// The block is whole, and has another secret than this engine's log.
    OtherSecret,
    /// The block is whole, and of this segment, whose name the file has not.
    OtherSegment(SegmentId),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[0..8].copy_from_slice(&MAGIC);
        block[12..16].copy_from_slice(&SEGMENT_FORMAT_VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&self.identity.engine.0.to_le_bytes());
        block[24..32].copy_from_slice(&self.id.0.to_le_bytes());
        block[32..36].copy_from_slice(&self.epoch.to_le_bytes());
        block[36..40].copy_from_slice(&self.previous_crc.to_le_bytes());
        block[40..48].copy_from_slice(&self.previous_segment.0.to_le_bytes());
        block[48..56].copy_from_slice(&self.previous_end.to_le_bytes());
        block[56..64].copy_from_slice(&self.previous_sequence.0.to_le_bytes());
        block[64..72].copy_from_slice(&self.synced.0.to_le_bytes());
        block[72..80].copy_from_slice(&self.reused_bytes.to_le_bytes());
        let [low, high] = self.identity.secret.0;
        block[80..88].copy_from_slice(&low.to_le_bytes());
        block[88..96].copy_from_slice(&high.to_le_bytes());
        let crc = crc32c::crc32c(&block[SUMMED_FROM..]);
        block[8..12].copy_from_slice(&crc.to_le_bytes());
        block
    }

    pub(super) fn decode(
        block: &[u8],
        identity: LogIdentity,
        id: SegmentId,
    ) -> Result<Self, HeaderFault> {
        let summed = block.get(SUMMED_FROM..BLOCK).ok_or(HeaderFault::Unreadable)?;
        if block[0..8] != MAGIC || u32_at(block, 8) != crc32c::crc32c(summed) {
            return Err(HeaderFault::Unreadable);
        }
        let version = u32_at(block, 12);
        if version != SEGMENT_FORMAT_VERSION {
            return Err(HeaderFault::UnknownVersion(version));
        }
        if u64_at(block, 16) != identity.engine.0 {
            return Err(HeaderFault::OtherEngine);
        }
        if [u64_at(block, 80), u64_at(block, 88)] != identity.secret.0 {
            return Err(HeaderFault::OtherSecret);
        }
        let found = SegmentId(u64_at(block, 24));
        if found != id {
            return Err(HeaderFault::OtherSegment(found));
        }
        Ok(Self {
            identity,
            id,
            epoch: u32_at(block, 32),
            previous_crc: u32_at(block, 36),
            previous_segment: SegmentId(u64_at(block, 40)),
            previous_end: u64_at(block, 48),
            previous_sequence: CommitSequence(u64_at(block, 56)),
            synced: CommitSequence(u64_at(block, 64)),
            reused_bytes: u64_at(block, 72),
        })
    }
}

/// The name of a segment's file.
pub(crate) fn file_name(id: SegmentId) -> String {
    debug_assert!(id.0 <= MAX_SEGMENT_ID, "no greater id is given");
    format!("{:020}{NAME_SUFFIX}", id.0)
}

/// The name of the file of a freed segment that is kept to be written over.
pub(super) fn free_name(id: SegmentId) -> String {
    debug_assert!(id.0 <= MAX_SEGMENT_ID, "no greater id is given");
    format!("{:020}{FREE_SUFFIX}", id.0)
}

/// The segment whose file has this name; `None` for any other name.
pub(super) fn parse_file_name(name: &str) -> Option<SegmentId> {
    parse_name(name, NAME_SUFFIX)
}

/// The freed segment whose file has this name; `None` for any other name.
pub(super) fn parse_free_name(name: &str) -> Option<SegmentId> {
    parse_name(name, FREE_SUFFIX)
}

fn parse_name(name: &str, suffix: &str) -> Option<SegmentId> {
    let digits = name.strip_suffix(suffix)?;
    let is_ours = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|&id| is_ours && id <= MAX_SEGMENT_ID).map(SegmentId)
}

/// An open segment, on the descriptor that writes it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(super) id: SegmentId,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    /// The length of the file that it was made of; 0 where it was made new, or opened to be read.
    pub(super) reused_bytes: u64,
}

impl Segment {
    pub(crate) fn open(
        files: &dyn Files,
        directory: &Path,
        id: SegmentId,
    ) -> Result<Self, StorageError> {
        let path = directory.join(file_name(id));
        let file = files.open(&path).map_err(|error| StorageError::io("open", &path, error))?;
        Ok(Self { id, path, file, reused_bytes: 0 })
    }

    pub(super) fn sync(&self) -> Result<(), StorageError> {
        self.file.sync_data().map_err(|error| StorageError::io("sync", &self.path, error))
    }

    pub(super) fn length(&self) -> Result<u64, StorageError> {
        self.file.length().map_err(|error| StorageError::io("measure", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::HashKey;
    use crate::base::types::EngineId;

    const HEADER: SegmentHeader = SegmentHeader {
        identity: LogIdentity {
            engine: EngineId(0x1112_1314_1516_1718),
            secret: HashKey([0xa1a2_a3a4_a5a6_a7a8, 0xb1b2_b3b4_b5b6_b7b8]),
        },
        id: SegmentId(0x2122_2324_2526_2728),
        epoch: 0x3132_3334,
        previous_crc: 0x4142_4344,
        previous_segment: SegmentId(0x5152_5354_5556_5758),
        previous_end: 0x6162_6364_6566_6768,
        previous_sequence: CommitSequence(0x7172_7374_7576_7778),
        synced: CommitSequence(0x8182_8384_8586_8788),
        reused_bytes: 0x9192_9394_9596_9798,
    };

    #[test]
    fn the_header_block_has_the_bytes_that_are_drawn() {
        let block = HEADER.encode();
        let mut expected = b"tidelog\0".to_vec();
        expected.extend([0x43, 0x5c, 0x31, 0x9a, 2, 0, 0, 0]);
        for field in [HEADER.identity.engine.0, HEADER.id.0] {
            expected.extend(field.to_le_bytes());
        }
        expected.extend([0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41]);
        expected.extend([0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51]);
        expected.extend([0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61]);
        expected.extend([0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71]);
        expected.extend([0x88, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81]);
        expected.extend([0x98, 0x97, 0x96, 0x95, 0x94, 0x93, 0x92, 0x91]);
        expected.extend([0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1]);
        expected.extend([0xb8, 0xb7, 0xb6, 0xb5, 0xb4, 0xb3, 0xb2, 0xb1]);
        assert_eq!(block[..96], expected);
        assert_eq!(block[96..], [0; 4096 - 96]);
        assert_eq!(SegmentHeader::decode(&block, HEADER.identity, HEADER.id), Ok(HEADER));
    }

    #[test]
    fn a_block_that_is_truncated_or_has_one_wrong_bit_cannot_be_read() {
        let block = HEADER.encode();
        let decode = |block: &[u8]| SegmentHeader::decode(block, HEADER.identity, HEADER.id);
        for length in 0..BLOCK {
            assert_eq!(decode(&block[..length]), Err(HeaderFault::Unreadable));
        }
        for bit in 0..BLOCK * 8 {
            let mut block = block;
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&block), Err(HeaderFault::Unreadable), "bit {bit}");
        }
    }

    #[test]
    fn a_whole_block_of_something_else_is_told_apart() {
        let block = HEADER.encode();
        let other = LogIdentity { engine: EngineId(7), ..HEADER.identity };
        let decoded = SegmentHeader::decode(&block, other, HEADER.id);
        assert_eq!(decoded, Err(HeaderFault::OtherEngine));
        for secret in [[0, HEADER.identity.secret.0[1]], [HEADER.identity.secret.0[0], 0]] {
            let other = LogIdentity { secret: HashKey(secret), ..HEADER.identity };
            let decoded = SegmentHeader::decode(&block, other, HEADER.id);
            assert_eq!(decoded, Err(HeaderFault::OtherSecret));
        }
        let decoded = SegmentHeader::decode(&block, HEADER.identity, SegmentId(7));
        assert_eq!(decoded, Err(HeaderFault::OtherSegment(HEADER.id)));
        let mut newer = block;
        newer[12] = 3;
        let crc = crc32c::crc32c(&newer[12..]);
        newer[8..12].copy_from_slice(&crc.to_le_bytes());
        let decoded = SegmentHeader::decode(&newer, other, HEADER.id);
        assert_eq!(decoded, Err(HeaderFault::UnknownVersion(3)));
    }

    #[test]
    fn file_names_have_twenty_digits_and_nothing_else_is_a_segment() {
        assert_eq!(file_name(SegmentId(42)), "00000000000000000042.log");
        assert_eq!(free_name(SegmentId(42)), "00000000000000000042.free");
        for id in [0, 42, MAX_SEGMENT_ID].map(SegmentId) {
            assert_eq!(parse_file_name(&file_name(id)), Some(id));
            assert_eq!(parse_free_name(&free_name(id)), Some(id));
            assert_eq!(parse_file_name(&free_name(id)), None);
            assert_eq!(parse_free_name(&file_name(id)), None);
        }
        for name in [
            "42.log",
            "+0000000000000000042.log",
            "0000000000000000004x.log",
            "00000000000000000042",
            "00000000000000000042.log.bak",
            "000000000000000000042.log",
            "18446744073709551615.log",
            "99999999999999999999.log",
            "LOCK",
        ] {
            assert_eq!(parse_file_name(name), None, "{name}");
            let freed = name.replace(".log", ".free");
            assert_eq!(parse_free_name(&freed), None, "{freed}");
        }
    }
}
