//! One file of the commit log: its name, its header block, and how it comes into being (rule W3).
//!
//! ```text
//! segment, little-endian:
//!    0  magic              8   "tidelog" 0x00
//!    8  crc                4   CRC-32C over bytes 12 .. 4096; of every format version
//!   12  format version     4   1
//!   16  engine id          8
//!   24  segment id         8   also the file's name: 20 digits and ".log"
//!   32  epoch              4   one more at every open of the engine
//!   36  previous crc       4   crc of the last frame before this segment; 0 where there is none
//!   40  previous segment   8   the segment that the log comes from; 0 for the first
//!   48  previous end       8   the byte of it at which the log leaves it
//!   56  previous sequence  8   the last commit before this segment
//!   64  synced             8   highest commit that was known to be synced
//!   72  zeros                  up to byte 4096
//! 4096  frames
//! ```
//!
//! INVARIANT (W1): an id is given once. INVARIANT (W3): the name is durable before the header is
//! written, and the header before the first frame; so a file with frames has a header, and a file
//! without a readable header has no commit.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{u32_at, u64_at};
use crate::error::{Corruption, StorageError};
use crate::io::{File, Files};
use crate::rules::{BrokenRules, Rule};
use crate::types::{CommitSequence, EngineId, SegmentId};

/// Bytes of the header block; the first frame stands behind it.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;

/// The format version of segments that this code writes and reads.
pub const SEGMENT_FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"tidelog\0";
const SUMMED_FROM: usize = 12;
const BLOCK: usize = SEGMENT_HEADER_BYTES as usize;
const NAME_DIGITS: usize = 20;
/// Ids are given from 1 up and never reach this: a name with a greater one is none of ours.
pub(super) const MAX_SEGMENT_ID: u64 = u64::MAX >> 1;
const NAME_SUFFIX: &str = ".log";

/// What the header block of a segment tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) engine: EngineId,
    pub(super) id: SegmentId,
    pub(super) epoch: u32,
    pub(super) previous_crc: u32,
    pub(super) previous_segment: SegmentId,
    pub(super) previous_end: u64,
    pub(super) previous_sequence: CommitSequence,
    pub(super) synced: CommitSequence,
}

/// Why a header block is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// The block is cut short, or magic or checksum do not hold.
    Unreadable,
    /// The block is whole, of a format that is not known here.
    UnknownVersion(u32),
    /// The block is whole, of another engine's log.
    OtherEngine,
    /// The block is whole, and the file has another segment's name.
    OtherSegment,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[0..8].copy_from_slice(&MAGIC);
        block[12..16].copy_from_slice(&SEGMENT_FORMAT_VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&self.engine.0.to_le_bytes());
        block[24..32].copy_from_slice(&self.id.0.to_le_bytes());
        block[32..36].copy_from_slice(&self.epoch.to_le_bytes());
        block[36..40].copy_from_slice(&self.previous_crc.to_le_bytes());
        block[40..48].copy_from_slice(&self.previous_segment.0.to_le_bytes());
        block[48..56].copy_from_slice(&self.previous_end.to_le_bytes());
        block[56..64].copy_from_slice(&self.previous_sequence.0.to_le_bytes());
        block[64..72].copy_from_slice(&self.synced.0.to_le_bytes());
        let crc = crc32c::crc32c(&block[SUMMED_FROM..]);
        block[8..12].copy_from_slice(&crc.to_le_bytes());
        block
    }

    pub(super) fn decode(
        block: &[u8],
        engine: EngineId,
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
        if u64_at(block, 16) != engine.0 {
            return Err(HeaderFault::OtherEngine);
        }
        if u64_at(block, 24) != id.0 {
            return Err(HeaderFault::OtherSegment);
        }
        Ok(Self {
            engine,
            id,
            epoch: u32_at(block, 32),
            previous_crc: u32_at(block, 36),
            previous_segment: SegmentId(u64_at(block, 40)),
            previous_end: u64_at(block, 48),
            previous_sequence: CommitSequence(u64_at(block, 56)),
            synced: CommitSequence(u64_at(block, 64)),
        })
    }
}

/// The name of a segment's file.
pub(super) fn file_name(id: SegmentId) -> String {
    format!("{:020}{NAME_SUFFIX}", id.0)
}

/// The segment whose file has this name; `None` for any other name.
pub(super) fn parse_file_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_suffix(NAME_SUFFIX)?;
    let is_ours = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|&id| is_ours && id <= MAX_SEGMENT_ID).map(SegmentId)
}

/// An open segment, on the descriptor that writes it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: SegmentId,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
}

impl Segment {
    pub(super) fn open(
        files: &dyn Files,
        directory: &Path,
        id: SegmentId,
    ) -> Result<Self, StorageError> {
        let path = directory.join(file_name(id));
        let file = files.open(&path).map_err(|error| StorageError::io("open", &path, error))?;
        Ok(Self { id, path, file })
    }

    pub(super) fn sync(&self) -> Result<(), StorageError> {
        self.file.sync_data().map_err(|error| StorageError::io("sync", &self.path, error))
    }

    pub(super) fn length(&self) -> Result<u64, StorageError> {
        self.file.length().map_err(|error| StorageError::io("measure", &self.path, error))
    }
}

/// Why a segment did not come into being.
#[derive(Debug)]
pub(super) enum CreateFailure {
    /// Nothing that matters has happened; a later try, under a later id, may succeed.
    NotMade(StorageError),
    /// A sync or a write failed in a way after which nothing may be trusted: halt.
    Fatal(StorageError),
}

impl CreateFailure {
    pub(super) fn into_error(self) -> StorageError {
        match self {
            Self::NotMade(error) | Self::Fatal(error) => error,
        }
    }
}

/// Makes a segment: its file, its name durable, its header, the header durable, in this order.
/// Only after that may a frame be written (W3).
pub(super) fn create_segment(
    files: &dyn Files,
    directory: &Path,
    header: &SegmentHeader,
    broken: BrokenRules,
) -> Result<Segment, CreateFailure> {
    let segment = create_unsynced(files, directory, header, broken)?;
    segment.sync().map_err(CreateFailure::Fatal)?;
    Ok(segment)
}

/// All of [`create_segment`] but the last step.
pub(super) fn create_unsynced(
    files: &dyn Files,
    directory: &Path,
    header: &SegmentHeader,
    broken: BrokenRules,
) -> Result<Segment, CreateFailure> {
    if header.id.0 > MAX_SEGMENT_ID {
        let what = "there is no id left for the segment behind it";
        let error = Corruption::in_segment(header.previous_segment, 0, what);
        return Err(CreateFailure::NotMade(error.into()));
    }
    let path = directory.join(file_name(header.id));
    let wrap = |operation, error| StorageError::io(operation, &path, error);
    let created = match files.create(&path) {
        Err(_) if broken.breaks(Rule::W1SegmentIdOnce) => files.open(&path),
        created => created,
    };
    let file = created.map_err(|error| CreateFailure::NotMade(wrap("create", error)))?;
    if !broken.breaks(Rule::W3DirectorySynced) {
        let synced = files.sync_directory(directory);
        synced.map_err(|error| {
            CreateFailure::Fatal(StorageError::io("sync the directory", directory, error))
        })?;
    }
    if let Err(error) = file.write_at(0, &[IoSlice::new(&header.encode())]) {
        if !crate::io::is_disk_full(&error) {
            return Err(CreateFailure::Fatal(wrap("write", error)));
        }
        // What is left has no whole header and no frame: it is dead whether or not it goes.
        drop(files.remove(&path));
        return Err(CreateFailure::NotMade(wrap("write", error)));
    }
    Ok(Segment { id: header.id, path, file })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        engine: EngineId(0x1112_1314_1516_1718),
        id: SegmentId(0x2122_2324_2526_2728),
        epoch: 0x3132_3334,
        previous_crc: 0x4142_4344,
        previous_segment: SegmentId(0x5152_5354_5556_5758),
        previous_end: 0x6162_6364_6566_6768,
        previous_sequence: CommitSequence(0x7172_7374_7576_7778),
        synced: CommitSequence(0x8182_8384_8586_8788),
    };

    #[test]
    fn the_header_block_has_the_bytes_that_are_drawn() {
        let block = HEADER.encode();
        let mut expected = b"tidelog\0".to_vec();
        expected.extend([0x57, 0x7b, 0x36, 0x36, 1, 0, 0, 0]);
        for field in [HEADER.engine.0, HEADER.id.0] {
            expected.extend(field.to_le_bytes());
        }
        expected.extend([0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41]);
        expected.extend([0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51]);
        expected.extend([0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61]);
        expected.extend([0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71]);
        expected.extend([0x88, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81]);
        assert_eq!(block[..72], expected);
        assert_eq!(block[72..], [0; 4096 - 72]);
        assert_eq!(SegmentHeader::decode(&block, HEADER.engine, HEADER.id), Ok(HEADER));
    }

    #[test]
    fn a_block_that_is_cut_or_has_one_wrong_bit_cannot_be_read() {
        let block = HEADER.encode();
        let decode = |block: &[u8]| SegmentHeader::decode(block, HEADER.engine, HEADER.id);
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
        let other = EngineId(7);
        let decoded = SegmentHeader::decode(&block, other, HEADER.id);
        assert_eq!(decoded, Err(HeaderFault::OtherEngine));
        let decoded = SegmentHeader::decode(&block, HEADER.engine, SegmentId(7));
        assert_eq!(decoded, Err(HeaderFault::OtherSegment));
        let mut newer = block;
        newer[12] = 2;
        let crc = crc32c::crc32c(&newer[12..]);
        newer[8..12].copy_from_slice(&crc.to_le_bytes());
        let decoded = SegmentHeader::decode(&newer, other, HEADER.id);
        assert_eq!(decoded, Err(HeaderFault::UnknownVersion(2)));
    }

    #[test]
    fn file_names_have_twenty_digits_and_nothing_else_is_a_segment() {
        assert_eq!(file_name(SegmentId(42)), "00000000000000000042.log");
        for id in [0, 42, MAX_SEGMENT_ID] {
            assert_eq!(parse_file_name(&file_name(SegmentId(id))), Some(SegmentId(id)));
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
        }
    }
}
