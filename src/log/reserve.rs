//! The room that the log may take: the reserve (rule E5), and what is kept to be written over.

use super::CommitLog;
use super::free::FreeSegments;
use super::writer::Writer;
use crate::base::error::StorageError;

/// After a look at the free space, this much may be written before the next one.
const BYTES_BETWEEN_SPACE_CHECKS: u64 = 16 * 1024 * 1024;

impl CommitLog {
    /// E5: refuses a group that would take the free space below the reserve, once nothing is kept
    /// any more to be written over. The system is asked at most once in
    /// [`BYTES_BETWEEN_SPACE_CHECKS`], but always when space was short.
    pub(super) fn check_space(
        &self,
        writer: &mut Writer,
        group_bytes: u64,
    ) -> Result<(), StorageError> {
        if self.options.reserve_bytes == 0 || group_bytes <= writer.unchecked_bytes {
            return Ok(());
        }
        let mut free_bytes = self.free_bytes()?;
        let room_in = |free_bytes: u64| free_bytes.saturating_sub(self.options.reserve_bytes);
        if group_bytes > room_in(free_bytes) && self.free.state().bytes > 0 {
            self.truncate_tail(writer);
            // What cannot be removed now is tried again; whether there is room, the disk tells.
            drop(self.free.release());
            free_bytes = self.free_bytes()?;
        }
        let room = room_in(free_bytes);
        if group_bytes > room {
            return Err(self.disk_full(free_bytes));
        }
        writer.unchecked_bytes = room.min(BYTES_BETWEEN_SPACE_CHECKS.max(group_bytes));
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, StorageError> {
        self.files
            .free_bytes(&self.directory)
            .map_err(|error| StorageError::io("look at the free space of", &self.directory, error))
    }

    /// What is kept to be written over.
    #[must_use]
    pub fn free_segments(&self) -> FreeSegments {
        self.free.state()
    }

    /// Ends a round of maintenance: removes what could not be removed before, and gives the space
    /// of what is kept to be written over back to the disk, as far as it is more than the log will
    /// need until the next round; all of it, if the disk has less space than the reserve, or in any
    /// case.
    ///
    /// # Errors
    /// What the system says, after all that could be done, or that the log is halted (E3). A file
    /// that could not be removed is tried again in the next round.
    pub fn release_free(&self, only_if_short: bool) -> Result<(), StorageError> {
        self.progress.check_running()?;
        let ended = self.free.end_round();
        if self.free.state().bytes == 0 {
            return ended;
        }
        let is_kept = only_if_short && self.free_bytes()? >= self.options.reserve_bytes;
        if is_kept {
            return ended;
        }
        // Commits go on while the files are removed.
        let mut writer = self.writer.lock();
        // E4: a group that has got its place is written there, also where this truncation failed.
        if writer.placed_bytes.is_none() {
            self.truncate_tail(&mut writer);
        }
        drop(writer);
        ended.and(self.free.release())
    }

    /// Leaves nothing after the end of the log that an earlier use of its last file has left. For
    /// the end of a log that is closed.
    pub fn trim(&self) {
        if self.progress.check_running().is_ok() {
            self.truncate_tail(&mut self.writer.lock());
        }
    }

    /// Truncates what an earlier use left after the end of the segment that is being written. No
    /// sync follows: where a crash takes that back, those bytes still fail by their segment id.
    pub(super) fn truncate_tail(&self, writer: &mut Writer) {
        let is_longer = writer.stale_end > writer.position;
        if is_longer && writer.segment.file.set_length(writer.position).is_err() {
            self.segments.distrust(writer.segment.id);
            // E4: where the segment is not left anyway, the next group goes to a new one.
            writer.must_leave = true;
        }
        writer.stale_end = 0;
        self.note_tail(writer);
    }

    pub(super) fn note_tail(&self, writer: &Writer) {
        self.free.note_tail(writer.stale_end.saturating_sub(writer.position));
    }
}
