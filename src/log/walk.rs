//! Segments that the writer has left: what their frames changed, and their end (rules F1, F4, F5).

use super::CommitLog;
use super::free::FreeFile;
use super::replay::{FrameReader, Window};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use crate::base::error::StorageError;
use crate::base::types::SegmentId;

impl CommitLog {
    /// Shows the encoded write batch of every frame of a segment, in order. Tells whether the
    /// segment could be followed to its end; damage stops it.
    ///
    /// # Errors
    /// What the system says.
    pub fn walk(&self, id: SegmentId, visit: &mut dyn FnMut(&[u8])) -> Result<bool, StorageError> {
        let walked = self.walk_whole(id, visit);
        if !matches!(walked, Ok(true)) {
            self.segments.distrust(id);
        }
        walked
    }

    fn walk_whole(
        &self,
        id: SegmentId,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, StorageError> {
        let segment = Segment::open(&*self.files, &self.directory, id)?;
        let mut window = Window::on_heads(&segment, u64::MAX)?;
        let mut reader = FrameReader::new(self.identity.secret, self.options.broken);
        let mut position = SEGMENT_HEADER_BYTES;
        while let Some((write_batch, end)) = reader.changes(&mut window, position)? {
            visit(write_batch);
            assert!(end > position, "each frame takes the walk on");
            position = end;
        }
        Ok(position >= window.end() || self.successor_says(id)? == Some(position))
    }

    /// Where the log leaves a segment, as its successor's header says: after it may lie what a
    /// crash left, and what an earlier use did. `None` where the successor is gone.
    fn successor_says(&self, id: SegmentId) -> Result<Option<u64>, StorageError> {
        let Some(next) = self.segments.after(id) else { return Ok(None) };
        let segment = Segment::open(&*self.files, &self.directory, next)?;
        let mut window = Window::on_heads(&segment, SEGMENT_HEADER_BYTES)?;
        let block = window.get(0, SEGMENT_HEADER_BYTES as usize)?.unwrap_or_default();
        let header = SegmentHeader::decode(block, self.identity, next).ok();
        Ok(header.filter(|header| header.previous_segment == id).map(|header| header.previous_end))
    }

    /// Notes that a segment holds something else than was written: when it is freed, its file is
    /// removed and not written over.
    pub fn distrust(&self, id: SegmentId) {
        self.segments.distrust(id);
    }

    /// Frees a segment, durably, and tells its length: its file is kept to be written over (F5), or
    /// removed. Does nothing if it is gone.
    /// REQUIRES: the log cannot begin in it or before it (F1), and no reader's pin holds it (F3).
    ///
    /// # Errors
    /// What the system says. Then the file may still be there, and be counted in
    /// [`CommitLog::free_segments`] until a later round of maintenance has removed it; or it is
    /// there again at the next open, where it is dead. The segment is gone in any case.
    ///
    /// # Panics
    /// If the segment is being written.
    pub fn free_segment(&self, id: SegmentId) -> Result<u64, StorageError> {
        assert!(id < self.writer.lock().segment.id, "the segment was left");
        // E3: a halted log frees nothing.
        self.progress.check_running()?;
        // From here on nobody begins to read it.
        let Some((length_bytes, is_clean)) = self.segments.forget(id) else { return Ok(0) };
        debug_assert!(!self.segments.knows(id), "a freed segment is read no more");
        self.free.keep_or_remove(FreeFile { id, length_bytes }, is_clean)?;
        Ok(length_bytes)
    }

    /// Lets the next group begin a new segment, so that what it holds is not mixed with what was
    /// written before.
    pub fn leave_segment(&self) {
        let mut writer = self.writer.lock();
        writer.must_leave |= writer.position > SEGMENT_HEADER_BYTES;
    }
}
