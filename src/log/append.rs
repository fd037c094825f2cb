//! Appending: where a group of frames goes, and the one vectored write that puts it there.
//!
//! INVARIANT (W1): a group lies in one segment; the roll happens between groups. INVARIANT (W8):
//! a group is written only while less than `max_unsynced_bytes` is unsynced, or alone. INVARIANT
//! (E4): a file that had an error is never written again.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;

use super::CommitLog;
use super::create::{CreateFailure, Creator};
use super::frame::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, MIN_PAYLOAD_BYTES, TABLE_ENTRY_BYTES,
    encode_table_entry, finish_header, frame_layout, sum_head,
};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::writer::{PAGE_BYTES, Writer};
use crate::base::error::StorageError;
use crate::base::io::is_disk_full;
use crate::base::rules::Rule;
use crate::base::types::{CommitSequence, SegmentId};

/// What a group is filled up with to the end of its last page.
const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

const PADDING: [u8; FRAME_ALIGNMENT as usize] = [0; FRAME_ALIGNMENT as usize];

/// One record batch of a frame, in the caller's own buffers.
#[derive(Debug, Clone)]
pub struct Payload {
    /// The batch's header where it was rewritten, and else empty.
    pub head: Bytes,
    /// The batch, or what follows its header.
    pub body: Bytes,
    /// The batch's CRC-32C: it stands in bytes 17 to 20 of head and body, and covers all after.
    pub crc: u32,
}

impl Payload {
    /// The length of the batch.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

/// A commit to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewFrame<'a> {
    /// Its number: one more than that of the frame before.
    pub sequence: CommitSequence,
    /// When it was formed.
    pub append_time_ms: i64,
    /// The encoded changes of the index.
    pub write_batch: &'a [u8],
    /// The record batches that the changes point to.
    pub payloads: &'a [Payload],
}

/// Where the next group will be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPlace {
    /// The segment.
    pub segment: SegmentId,
    /// The byte of it at which the group's first frame starts.
    pub position: u64,
}

/// Where a frame was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramePlace {
    /// The byte of the group's segment at which it starts.
    pub position: u64,
    /// Its checksum.
    pub frame_crc: u32,
}

/// How an append failed.
#[derive(Debug, Clone)]
pub enum AppendFailure {
    /// Nothing of the group exists, now or after any crash.
    NotWritten(StorageError),
    /// The group may be found after a reopen, or not. The log is halted.
    Unknown(StorageError),
}

impl fmt::Display for AppendFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWritten(_) => f.write_str("the commit was not written"),
            Self::Unknown(_) => f.write_str("whether the commit was written is not known"),
        }
    }
}

impl std::error::Error for AppendFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotWritten(cause) | Self::Unknown(cause) => Some(cause),
        }
    }
}

impl CommitLog {
    /// Gives the next group its place: waits until less than `max_unsynced_bytes` is unsynced
    /// (W8), looks at the free space (E5), and starts a new segment where the group does not fit
    /// in this one. A group larger than a segment gets one of its own. Committer only.
    ///
    /// # Errors
    /// [`AppendFailure::NotWritten`] always: nothing of the group was written. With
    /// [`StorageError::DiskFull`] it may be tried again; after any other error the log may be
    /// halted.
    pub fn place_group(
        &self,
        group_bytes: u64,
        may_use_reserve: bool,
    ) -> Result<GroupPlace, AppendFailure> {
        self.place(group_bytes, may_use_reserve).map_err(AppendFailure::NotWritten)
    }

    fn place(&self, group_bytes: u64, may_use_reserve: bool) -> Result<GroupPlace, StorageError> {
        self.progress.check_running()?;
        if !self.options.broken.breaks(Rule::W8Bound) {
            let room = self.options.max_unsynced_bytes.saturating_sub(group_bytes);
            self.progress.sync_down_to(room)?;
            // One committer writes, so nothing is added meanwhile.
            debug_assert!(
                self.progress.unsynced_bytes() <= room,
                "what is unsynced is bounded (W8)"
            );
        }
        // Segments that were left stay open until they are synced.
        self.progress.sync_segments_below(self.options.max_open_segments)?;
        let mut writer = self.writer.lock();
        writer.placed_bytes = None;
        if !may_use_reserve {
            self.check_space(&mut writer, group_bytes)?;
        }
        let is_empty = writer.position == SEGMENT_HEADER_BYTES;
        let is_too_large = writer.position.saturating_add(group_bytes) > self.options.segment_bytes;
        if writer.must_leave || (is_too_large && !is_empty) {
            self.roll(&mut writer)?;
        }
        assert!(!writer.must_leave, "a file that had an error is never written again (E4)");
        writer.assert_sound();
        writer.placed_bytes = Some(group_bytes);
        Ok(GroupPlace { segment: writer.segment.id, position: writer.position })
    }

    /// Writes a group at the place that [`CommitLog::place_group`] gave, straight from the
    /// callers' buffers. When it returns, the group survives a killed process; [`CommitLog::sync`]
    /// makes it survive power loss. Committer only.
    ///
    /// # Errors
    /// [`AppendFailure::NotWritten`] where the disk was full and the file was truncated, durably
    /// (E1); the next group gets a new segment. [`AppendFailure::Unknown`] after any other
    /// failure, and then the log is halted.
    ///
    /// # Panics
    /// If the group has no place, is larger than its place, is empty, or does not number its
    /// frames from the last one on; if a payload is shorter than a record batch can be.
    pub fn append_group(&self, frames: &[NewFrame<'_>]) -> Result<Vec<FramePlace>, AppendFailure> {
        self.progress.check_running().map_err(AppendFailure::NotWritten)?;
        let mut guard = self.writer.lock();
        let writer = &mut *guard;
        debug_assert_eq!(self.progress.written(), writer.last_sequence, "one place tells the end");
        let synced = self.progress.synced();
        let places = self.encode_group(writer, frames, synced);
        let end = places.last().expect("a group has a frame").end;
        let group_bytes = end - writer.position;
        let placed_bytes = writer.placed_bytes.take().expect("place_group was called");
        assert!(group_bytes <= placed_bytes, "the group fits in its place");
        let is_alone = writer.position == SEGMENT_HEADER_BYTES;
        assert!(end <= self.options.segment_bytes || is_alone, "a group lies in one segment (W1)");

        let mut slices = gather(frames, &writer.heads);
        let rest_of_page = &ZEROS[..writer.rest_of_page(end)];
        let gathered_bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        assert_eq!(gathered_bytes as u64, group_bytes, "each frame has the size that is planned");
        slices.extend((!rest_of_page.is_empty()).then(|| IoSlice::new(rest_of_page)));
        if let Err(error) = writer.segment.file.write_at(writer.position, &slices) {
            return Err(self.take_back(writer, error));
        }
        let last = places.last().expect("a group has a frame");
        writer.position = end;
        self.note_tail(writer);
        writer.last_sequence = frames[frames.len() - 1].sequence;
        writer.last_crc = last.place.frame_crc;
        writer.told = synced;
        writer.unchecked_bytes = writer.unchecked_bytes.saturating_sub(group_bytes);
        self.segments.set_length(writer.segment.id, end);
        writer.assert_sound();
        self.progress.add_written(writer.last_sequence, group_bytes);
        Ok(places.into_iter().map(|encoded| encoded.place).collect())
    }

    /// Builds headers and payload tables of all frames in `writer.heads`, back to back.
    fn encode_group(
        &self,
        writer: &mut Writer,
        frames: &[NewFrame<'_>],
        synced: CommitSequence,
    ) -> Vec<Encoded> {
        let (mut sequence, mut previous_crc) = (writer.last_sequence, writer.last_crc);
        let mut position = writer.position;
        writer.heads.clear();
        let encode = |frame: &NewFrame<'_>| {
            sequence = sequence.next();
            assert_eq!(frame.sequence, sequence, "frames are numbered without gaps");
            let payload_bytes = frame.payloads.iter().map(|p| p.length_bytes() as u64).sum();
            let mut header = FrameHeader {
                crc: 0,
                sequence,
                synced,
                segment: writer.segment.id,
                position,
                append_time_ms: frame.append_time_ms,
                payload_bytes,
                previous_crc,
                write_batch_bytes: length_u32(frame.write_batch.len()),
                payload_count: length_u32(frame.payloads.len()),
                seal: 0,
            };
            let mut bytes = header.encode();
            debug_assert!(position.is_multiple_of(FRAME_ALIGNMENT), "frames are aligned");
            debug_assert!(synced < sequence, "a frame is written before it is synced");
            let header_at = writer.heads.len();
            writer.heads.extend_from_slice(&bytes);
            for payload in frame.payloads {
                assert!(payload.length_bytes() >= MIN_PAYLOAD_BYTES, "a payload is a record batch");
                let length_bytes = length_u32(payload.length_bytes());
                writer.heads.extend_from_slice(&encode_table_entry(length_bytes, payload.crc));
            }
            let table = &writer.heads[header_at + FRAME_HEADER_BYTES..];
            header.crc = sum_head(&bytes, frame.write_batch, table);
            finish_header(self.identity.secret, &mut bytes, header.crc);
            writer.heads[header_at..header_at + FRAME_HEADER_BYTES].copy_from_slice(&bytes);
            previous_crc = header.crc;
            let place = FramePlace { position, frame_crc: header.crc };
            let layout = frame_layout(frame.write_batch.len(), frame.payloads.len(), payload_bytes);
            position += layout.frame_bytes;
            Encoded { place, end: position }
        };
        frames.iter().map(encode).collect()
    }

    /// Makes what a failed write left undone, if that can be done for certain (E1).
    fn take_back(&self, writer: &mut Writer, error: io::Error) -> AppendFailure {
        let cause = StorageError::io("write", &writer.segment.path, error);
        self.segments.distrust(writer.segment.id);
        let is_full = matches!(&cause, StorageError::Io { source, .. } if is_disk_full(source));
        // In a file that is written over, truncation takes what lay after it, too.
        let truncated = if is_full { self.truncate(writer) } else { Err(cause.clone()) };
        writer.stale_end = 0;
        self.note_tail(writer);
        match truncated {
            Ok(()) => {
                writer.must_leave = !self.options.broken.breaks(Rule::E4NewFileAfterError);
                writer.unchecked_bytes = 0;
                AppendFailure::NotWritten(self.disk_full(0))
            }
            Err(error) => {
                self.progress.halt(error);
                AppendFailure::Unknown(cause)
            }
        }
    }

    fn truncate(&self, writer: &Writer) -> Result<(), StorageError> {
        let segment = &writer.segment;
        let truncated = segment.file.set_length(writer.position);
        truncated.map_err(|error| StorageError::io("truncate", &segment.path, error))?;
        if self.options.broken.breaks(Rule::E1TruncationSynced) {
            return Ok(());
        }
        self.progress.sync_alone(segment)
    }

    /// Leaves this segment, which may stay unsynced (W6), and starts the next.
    fn roll(&self, writer: &mut Writer) -> Result<(), StorageError> {
        let header = SegmentHeader {
            identity: self.identity,
            id: writer.next_id,
            epoch: writer.epoch,
            previous_crc: writer.last_crc,
            previous_segment: writer.segment.id,
            previous_end: writer.position,
            previous_sequence: writer.last_sequence,
            synced: self.progress.synced(),
            reused_bytes: 0,
        };
        assert!(header.id > header.previous_segment, "ids of segments only rise (W1)");
        writer.next_id = SegmentId(header.id.0 + 1);
        let made = self.creator().make(header);
        let segment = Arc::new(made.map_err(|failure| self.not_begun(writer, failure))?);
        self.truncate_tail(writer);
        writer.segment = segment.clone();
        writer.position = SEGMENT_HEADER_BYTES;
        writer.told = header.synced;
        writer.stale_end = segment.reused_bytes;
        if segment.reused_bytes == 0 {
            let left = writer.unchecked_bytes.saturating_sub(SEGMENT_HEADER_BYTES);
            writer.unchecked_bytes = left;
        }
        writer.must_leave = false;
        writer.assert_sound();
        self.note_tail(writer);
        self.segments.begin(segment.id);
        self.progress.add_segment(segment);
        Ok(())
    }

    /// What to tell where no segment could be begun.
    fn not_begun(&self, writer: &mut Writer, failure: CreateFailure) -> StorageError {
        match &failure {
            CreateFailure::NotMade(_) => {}
            CreateFailure::EndsSegment(_) => writer.must_leave = true,
            CreateFailure::Fatal(error) => {
                self.progress.halt(error.clone());
                return failure.into_error();
            }
        }
        let error = failure.into_error();
        let is_full = matches!(&error, StorageError::Io { source, .. } if is_disk_full(source));
        if is_full { self.disk_full(0) } else { error }
    }

    fn creator(&self) -> Creator<'_> {
        let (files, directory) = (&*self.files, self.directory.as_path());
        Creator { files, directory, free: &self.free, broken: self.options.broken }
    }

    pub(super) fn disk_full(&self, free_bytes: u64) -> StorageError {
        StorageError::DiskFull { free_bytes, reserve_bytes: self.options.reserve_bytes }
    }
}

/// A frame whose head is in the buffer.
struct Encoded {
    place: FramePlace,
    /// The byte of the segment after the frame and its padding.
    end: u64,
}

/// The slices of a group in the order of its bytes.
fn gather<'a>(frames: &'a [NewFrame<'a>], mut heads: &'a [u8]) -> Vec<IoSlice<'a>> {
    let payload_count: usize = frames.iter().map(|frame| frame.payloads.len()).sum();
    let mut slices = Vec::with_capacity(4 * frames.len() + 2 * payload_count);
    for frame in frames {
        let (header, rest) = heads.split_at(FRAME_HEADER_BYTES);
        let (table, rest) = rest.split_at(frame.payloads.len() * TABLE_ENTRY_BYTES);
        heads = rest;
        debug_assert_eq!(table.len(), frame.payloads.len() * TABLE_ENTRY_BYTES);
        let mut frame_bytes = header.len() + frame.write_batch.len() + table.len();
        slices.extend([header, frame.write_batch, table].map(IoSlice::new));
        for payload in frame.payloads {
            frame_bytes += payload.length_bytes();
            slices.extend([&payload.head[..], &payload.body[..]].map(IoSlice::new));
        }
        let padding = frame_bytes.next_multiple_of(PADDING.len()) - frame_bytes;
        slices.push(IoSlice::new(&PADDING[..padding]));
    }
    assert!(heads.is_empty(), "each head belongs to a frame");
    slices.retain(|slice| !slice.is_empty());
    slices
}

fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("the limits of a transaction keep every length below 4 GiB")
}
