//! Segments that the writer has left: what their frames changed, and their removal (rules F1, F4).

use super::CommitLog;
use super::frame::FrameSeed;
use super::replay::{FrameReader, Window};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, file_name};
use crate::error::StorageError;
use crate::types::SegmentId;

impl CommitLog {
    /// Shows the encoded write batch of every frame of a segment, in order. Tells whether the
    /// segment could be followed to its end: damage, and what a crash left behind the end of the
    /// log, stop it.
    ///
    /// # Errors
    /// What the system says.
    pub fn walk(&self, id: SegmentId, visit: &mut dyn FnMut(&[u8])) -> Result<bool, StorageError> {
        let segment = Segment::open(&*self.files, &self.directory, id)?;
        let mut window = Window::on_heads(&segment, u64::MAX)?;
        let mut reader = FrameReader::new(FrameSeed::new(self.engine), self.options.broken);
        let mut position = SEGMENT_HEADER_BYTES;
        while let Some((write_batch, end)) = reader.changes(&mut window, position)? {
            visit(write_batch);
            position = end;
        }
        Ok(position >= window.end())
    }

    /// Removes a segment's file, durably, and tells its length; who has it open can still read it.
    /// REQUIRES: the log cannot begin in it or before it (F1).
    ///
    /// # Errors
    /// What the system says. Then the file may be there again at the next open, where it is dead.
    ///
    /// # Panics
    /// If the segment is being written.
    pub fn remove_segment(&self, id: SegmentId) -> Result<u64, StorageError> {
        assert!(id < self.writer.lock().segment.id, "the segment was left");
        let length_bytes = self.segments.forget(id);
        let path = self.directory.join(file_name(id));
        self.files.remove(&path).map_err(|error| StorageError::io("remove", &path, error))?;
        let synced = self.files.sync_directory(&self.directory);
        synced.map_err(|error| StorageError::io("sync the directory", &self.directory, error))?;
        Ok(length_bytes)
    }

    /// Lets the next group begin a new segment, so that what it holds is not mixed with what was
    /// written before.
    pub fn leave_segment(&self) {
        let mut writer = self.writer.lock();
        writer.must_leave |= writer.position > SEGMENT_HEADER_BYTES;
    }
}
