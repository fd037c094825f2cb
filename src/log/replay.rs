//! Reading frames back from a segment: which of them count (R6), and what the others prove (R7).
//!
//! Nothing here sums or believes a header whose seal does not hold, so a search takes a time that
//! grows with the bytes alone, whatever clients have put into them. Nothing trusts a length before
//! the checksum over it holds, and memory is bounded: a window on the file, and the head of one
//! frame whose checksum holds.

use std::ops::Range;

use super::frame::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, MAGIC, MIN_PAYLOAD_BYTES, PAYLOAD_CRC_AT,
    PAYLOAD_SUMMED_FROM, seal_of, sum_header, table_entries,
};
use super::segment::Segment;
use crate::base::error::StorageError;
use crate::base::hash::HashKey;
use crate::base::rules::{BrokenRules, Rule};
use crate::base::types::AppliedCommit;
#[cfg(any(test, feature = "test-util"))]
use crate::base::types::PayloadLocation;

/// Bytes of a file that are looked at in one piece.
const WINDOW_BYTES: usize = 256 * 1024;

/// Bytes of a file that are read at once where payloads are passed over.
const HEAD_WINDOW_BYTES: usize = 4 * 1024;

/// A commit that was read back from the log.
#[cfg_attr(
    not(any(test, feature = "test-util")),
    expect(dead_code, reason = "the engine replays write batches; tests read all of a frame")
)]
#[derive(Debug, Clone, Copy)]
pub struct ReplayedFrame<'a> {
    /// Its number, and where its frame lies.
    pub applied: AppliedCommit,
    /// When it was formed.
    pub append_time_ms: i64,
    /// The encoded changes of the index.
    pub write_batch: &'a [u8],
    table: &'a [u8],
    payloads_at: u64,
}

/// A record batch of a commit that was read back.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayedPayload {
    /// Where it lies.
    pub location: PayloadLocation,
    /// Its CRC-32C.
    pub crc: u32,
}

#[cfg(any(test, feature = "test-util"))]
impl ReplayedFrame<'_> {
    /// The record batches of the frame, in order. Each has been summed.
    pub fn payloads(&self) -> impl Iterator<Item = ReplayedPayload> + '_ {
        table_entries(self.table).scan(self.payloads_at, |position, (length_bytes, crc)| {
            let segment = self.applied.segment;
            let location = PayloadLocation { segment, position: *position, length_bytes };
            *position += u64::from(length_bytes);
            Some(ReplayedPayload { location, crc })
        })
    }
}

/// A frame that counts, and where the next one starts.
pub(crate) struct Counted<'a> {
    pub(crate) frame: ReplayedFrame<'a>,
    pub(crate) end: u64,
}

/// A part of a file in memory, moved over it on demand.
pub(crate) struct Window<'s> {
    segment: &'s Segment,
    /// What lies beyond this is not there.
    end: u64,
    start: u64,
    bytes: Vec<u8>,
    /// How much is read ahead.
    piece_bytes: usize,
}

impl<'s> Window<'s> {
    /// A window on a segment up to `end`, or the end of the file if that comes first.
    pub(crate) fn new(segment: &'s Segment, end: u64) -> Result<Self, StorageError> {
        let end = end.min(segment.length()?);
        Ok(Self { segment, end, start: 0, bytes: Vec::new(), piece_bytes: WINDOW_BYTES })
    }

    /// The same for one that passes over payloads.
    pub(super) fn on_heads(segment: &'s Segment, end: u64) -> Result<Self, StorageError> {
        Ok(Self { piece_bytes: HEAD_WINDOW_BYTES, ..Self::new(segment, end)? })
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The bytes of a place; `None` where it reaches beyond the end.
    pub(super) fn get(
        &mut self,
        position: u64,
        length: usize,
    ) -> Result<Option<&[u8]>, StorageError> {
        assert!(length <= WINDOW_BYTES, "larger things are read in pieces");
        if position.checked_add(length as u64).is_none_or(|end| end > self.end) {
            return Ok(None);
        }
        let after = self.start + self.bytes.len() as u64;
        if position < self.start || position + length as u64 > after {
            self.fill(position, length)?;
            if self.bytes.len() < length {
                return Ok(None);
            }
        }
        debug_assert!(position >= self.start, "the window was moved there");
        let at = (position - self.start) as usize;
        Ok(Some(&self.bytes[at..at + length]))
    }

    fn fill(&mut self, position: u64, wanted: usize) -> Result<(), StorageError> {
        assert!(position + wanted as u64 <= self.end, "what is asked for lies in the file");
        let length = (self.end - position).min(self.piece_bytes.max(wanted) as u64) as usize;
        self.start = position;
        self.bytes.resize(length, 0);
        let found = self.segment.file.read_at(position, &mut self.bytes).map_err(|error| {
            self.bytes.clear();
            StorageError::io("read", &self.segment.path, error)
        })?;
        self.bytes.truncate(found);
        Ok(())
    }

    /// The first place from this one on at which a frame may start, as far as its magic and the
    /// bytes in memory tell: there is none before it.
    fn next_magic(&mut self, position: u64) -> Result<u64, StorageError> {
        if self.get(position, FRAME_HEADER_BYTES)?.is_none() {
            return Ok(position);
        }
        let ahead = &self.bytes[(position - self.start) as usize..];
        let places = ahead.chunks_exact(FRAME_ALIGNMENT as usize);
        debug_assert!(position.is_multiple_of(FRAME_ALIGNMENT), "frames are aligned");
        let passed = places.take_while(|place| !place.starts_with(&MAGIC)).count() as u64;
        Ok(position + passed * FRAME_ALIGNMENT)
    }

    /// Shows the bytes of a place piece by piece; `false` where it reaches beyond the end.
    fn each_piece(
        &mut self,
        place: Range<u64>,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<bool, StorageError> {
        debug_assert!(place.start <= place.end, "a place ends after its begin");
        let mut position = place.start;
        while position < place.end {
            let length = (place.end - position).min(WINDOW_BYTES as u64) as usize;
            let Some(piece) = self.get(position, length)? else { return Ok(false) };
            visit(piece);
            position += length as u64;
        }
        Ok(true)
    }
}

/// Reads the frames of one log.
#[derive(Debug)]
pub(crate) struct FrameReader {
    secret: HashKey,
    broken: BrokenRules,
    /// Write batch and payload table of the frame that was read last.
    head: Vec<u8>,
}

impl FrameReader {
    pub(crate) fn new(secret: HashKey, broken: BrokenRules) -> Self {
        Self { secret, broken, head: Vec::new() }
    }

    /// The header at a place, if the head of the frame there checks: magic, segment, position,
    /// seal, lengths within the window's end, checksum.
    pub(super) fn head(
        &self,
        window: &mut Window<'_>,
        position: u64,
    ) -> Result<Option<FrameHeader>, StorageError> {
        let Some(header) = self.sealed(window, position)? else { return Ok(None) };
        Ok(self.sum_holds(window, &header)?.then_some(header))
    }

    /// The header at a place, if this log has written it there: magic, segment, position, seal.
    /// What it says was true when it was written; whether its frame is there is not known by it.
    fn sealed(
        &self,
        window: &mut Window<'_>,
        position: u64,
    ) -> Result<Option<FrameHeader>, StorageError> {
        let id = window.segment.id;
        let Some(bytes) = window.get(position, FRAME_HEADER_BYTES)? else { return Ok(None) };
        let bytes: &[u8; FRAME_HEADER_BYTES] = bytes.try_into().expect("a whole header");
        let Some(header) = FrameHeader::decode(bytes) else { return Ok(None) };
        let is_its_place = header.position == position
            && position.is_multiple_of(FRAME_ALIGNMENT)
            && (header.segment == id || self.broken.breaks(Rule::W2SegmentInFrame));
        // Commits are numbered from 1 up and never come as far: after this one there is no number.
        let has_number = header.sequence.0 < u64::MAX;
        // The seal comes last: it costs most.
        let is_taken = is_its_place
            && has_number
            && (header.seal == seal_of(self.secret, bytes) || self.broken.breaks(Rule::W2Seal));
        Ok(is_taken.then_some(header))
    }

    /// Whether the frame of a sealed header lies before the window's end, and its head checks.
    fn sum_holds(
        &self,
        window: &mut Window<'_>,
        header: &FrameHeader,
    ) -> Result<bool, StorageError> {
        let position = header.position;
        let after = header.frame_bytes().and_then(|bytes| position.checked_add(bytes));
        if after.is_none_or(|after| after > window.end) {
            return Ok(false);
        }
        let Some(bytes) = window.get(position, FRAME_HEADER_BYTES)? else { return Ok(false) };
        let mut sum = sum_header(bytes.try_into().expect("a whole header"));
        let rest = position + FRAME_HEADER_BYTES as u64..position + header.head_bytes();
        let is_whole = window.each_piece(rest, |piece| sum = crc32c::crc32c_append(sum, piece))?;
        Ok(is_whole && sum == header.crc)
    }

    /// The frame at a place, if it counts as the one after `last` (R6).
    pub(crate) fn next(
        &mut self,
        window: &mut Window<'_>,
        position: u64,
        last: &AppliedCommit,
    ) -> Result<Option<Counted<'_>>, StorageError> {
        let Some(header) = self.head(window, position)? else { return Ok(None) };
        let follows =
            header.sequence == last.sequence.next() && header.previous_crc == last.frame_crc;
        if !follows || !self.load_head(window, &header)? {
            return Ok(None);
        }
        assert_eq!(
            self.head.len() as u64 + FRAME_HEADER_BYTES as u64,
            header.head_bytes(),
            "the head is in memory as a whole"
        );
        let (write_batch, table) = self.head.split_at(header.write_batch_bytes as usize);
        let payloads_at = position + header.head_bytes();
        if !self.payloads_hold(window, table, payloads_at, header.payload_bytes)? {
            return Ok(None);
        }
        let frame_bytes = header.frame_bytes().expect("a head that checks has legal lengths");
        assert!(payloads_at + header.payload_bytes <= position + frame_bytes, "payloads fit");
        assert!(position + frame_bytes <= window.end, "a frame lies in its segment (W1)");
        let applied = AppliedCommit {
            sequence: header.sequence,
            segment: window.segment.id,
            position,
            frame_crc: header.crc,
        };
        let append_time_ms = header.append_time_ms;
        let frame = ReplayedFrame { applied, append_time_ms, write_batch, table, payloads_at };
        Ok(Some(Counted { frame, end: position + frame_bytes }))
    }

    /// The write batch of the frame at a place, whose head checks, and where the frame ends.
    pub(super) fn changes(
        &mut self,
        window: &mut Window<'_>,
        position: u64,
    ) -> Result<Option<(&[u8], u64)>, StorageError> {
        let Some(header) = self.head(window, position)? else { return Ok(None) };
        if !self.load_head(window, &header)? {
            return Ok(None);
        }
        let frame_bytes = header.frame_bytes().expect("a head that checks has legal lengths");
        Ok(Some((&self.head[..header.write_batch_bytes as usize], position + frame_bytes)))
    }

    /// Takes write batch and table into memory. REQUIRES: the head's checksum holds, so the file
    /// really has as many bytes as the lengths say.
    fn load_head(
        &mut self,
        window: &mut Window<'_>,
        header: &FrameHeader,
    ) -> Result<bool, StorageError> {
        self.head.clear();
        let start = header.position + FRAME_HEADER_BYTES as u64;
        let end = header.position + header.head_bytes();
        window.each_piece(start..end, |piece| self.head.extend_from_slice(piece))
    }

    /// Whether every payload has the length and the checksum that the table tells.
    fn payloads_hold(
        &self,
        window: &mut Window<'_>,
        table: &[u8],
        payloads_at: u64,
        payload_bytes: u64,
    ) -> Result<bool, StorageError> {
        let sum: u64 = table_entries(table).map(|(length, _)| u64::from(length)).sum();
        if sum != payload_bytes {
            return Ok(false);
        }
        if self.broken.breaks(Rule::W2PayloadTable) {
            return Ok(true);
        }
        let mut position = payloads_at;
        for (length, crc) in table_entries(table) {
            let end = position + u64::from(length);
            let Some(start) = window.get(position, MIN_PAYLOAD_BYTES.min(length as usize))? else {
                return Ok(false);
            };
            if start.len() < MIN_PAYLOAD_BYTES || start[PAYLOAD_CRC_AT] != crc.to_be_bytes() {
                return Ok(false);
            }
            let mut found = 0;
            let summed = position + PAYLOAD_SUMMED_FROM..end;
            let is_whole =
                window.each_piece(summed, |piece| found = crc32c::crc32c_append(found, piece))?;
            if !is_whole || found != crc {
                return Ok(false);
            }
            position = end;
        }
        assert_eq!(position, payloads_at + payload_bytes, "the table tells each payload once");
        Ok(true)
    }

    /// Whether all of the frame is there whose sealed header this is.
    pub(super) fn is_whole(
        &mut self,
        window: &mut Window<'_>,
        header: &FrameHeader,
    ) -> Result<bool, StorageError> {
        if !self.sum_holds(window, header)? || !self.load_head(window, header)? {
            return Ok(false);
        }
        let table = &self.head[header.write_batch_bytes as usize..];
        let payloads_at = header.position + header.head_bytes();
        self.payloads_hold(window, table, payloads_at, header.payload_bytes)
    }

    /// The first sealed header from a place on. It is looked for at every position that is legal
    /// for one, since what lies in between cannot be trusted.
    pub(crate) fn find(
        &self,
        window: &mut Window<'_>,
        from: u64,
    ) -> Result<Option<FrameHeader>, StorageError> {
        let mut position = from.next_multiple_of(FRAME_ALIGNMENT);
        while position + FRAME_HEADER_BYTES as u64 <= window.end {
            let likely = window.next_magic(position)?;
            if likely > position {
                position = likely;
                continue;
            }
            if let Some(header) = self.sealed(window, position)? {
                return Ok(Some(header));
            }
            position += FRAME_ALIGNMENT;
        }
        Ok(None)
    }
}
