//! Where the log is written: the newest segment, the place in it, and what came before.

use std::sync::Arc;

use super::frame::FRAME_ALIGNMENT;
use super::segment::{SEGMENT_HEADER_BYTES, Segment};
use crate::base::types::{CommitSequence, SegmentId};

/// What a file system caches and reads at a time.
pub(super) const PAGE_BYTES: u64 = 4096;

/// What only the committer touches.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) segment: Arc<Segment>,
    /// Where the next frame goes.
    pub(super) position: u64,
    /// The file reaches so far with what an earlier use left; 0 if nothing is after the frames.
    pub(super) stale_end: u64,
    pub(super) last_sequence: CommitSequence,
    pub(super) last_crc: u32,
    /// The highest commit of which a frame or a header tells that it is synced.
    pub(super) told: CommitSequence,
    /// The last commit that is there to tell so, and for nothing else.
    pub(super) proof: CommitSequence,
    pub(super) epoch: u32,
    pub(super) next_id: SegmentId,
    /// The segment had an error: the next group goes to a new one.
    pub(super) must_leave: bool,
    /// Bytes of the group that has got its place and was not written yet.
    pub(super) placed_bytes: Option<u64>,
    /// Bytes that may be written before the free space is looked at again.
    pub(super) unchecked_bytes: u64,
    /// Headers and payload tables of a group, kept for their allocation.
    pub(super) heads: Vec<u8>,
}

impl Writer {
    /// What every change of the writer leaves true.
    pub(super) fn assert_sound(&self) {
        assert!(self.position >= SEGMENT_HEADER_BYTES, "frames stand after the header block");
        assert!(self.position.is_multiple_of(FRAME_ALIGNMENT), "frames are aligned");
        assert!(self.next_id > self.segment.id, "ids of segments only rise (W1)");
        assert!(self.told <= self.last_sequence, "only what was written is synced");
        assert!(self.epoch > 0, "each open has an epoch of its own");
        let is_reused = self.stale_end == self.segment.reused_bytes;
        assert!(self.stale_end == 0 || is_reused, "only an earlier use leaves bytes after the end");
    }

    /// Bytes after the end of a group that are written over with it, where an earlier use of the
    /// file left some: of a page that is written only in part, and not cached, the system would
    /// first read the rest from the device.
    pub(super) fn rest_of_page(&self, end: u64) -> usize {
        debug_assert!(end >= self.position, "a group ends after its begin");
        let page_end = end.next_multiple_of(PAGE_BYTES).min(self.stale_end);
        usize::try_from(page_end.saturating_sub(end)).expect("it is less than a page")
    }
}
