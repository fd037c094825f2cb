//! How a segment comes into being (rule W3): of a new file, or of a freed one that is written over.
//!
//! INVARIANT (W3): the name is durable before the header is written, and the header before the
//! first frame; so a file with frames has a header, and a file without a header of its own id has
//! no commit.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use super::frame::FRAME_ALIGNMENT;
use super::free::{FreeFile, FreeFiles};
use super::segment::{MAX_SEGMENT_ID, Segment, SegmentHeader, file_name};
use crate::base::error::{Corruption, StorageError};
use crate::base::io::{File, Files, is_disk_full};
use crate::base::rules::{BrokenRules, Rule};

/// Why a segment did not come into being.
#[derive(Debug)]
pub(super) enum CreateFailure {
    /// Nothing that matters has happened; a later try, under a later id, may succeed.
    NotMade(StorageError),
    /// The same, but a whole header may be found, which tells that the segment before it ends here:
    /// of a file that is written over the rest is zeros already. Nothing is to be written there.
    EndsSegment(StorageError),
    /// A sync or a write failed in a way after which nothing may be trusted: halt.
    Fatal(StorageError),
}

impl CreateFailure {
    pub(super) fn into_error(self) -> StorageError {
        match self {
            Self::NotMade(error) | Self::EndsSegment(error) | Self::Fatal(error) => error,
        }
    }
}

/// What segments are made of, and where.
#[derive(Clone, Copy)]
pub(super) struct Creator<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) directory: &'a Path,
    /// Freed segments, which are taken first.
    pub(super) free: &'a FreeFiles,
    pub(super) broken: BrokenRules,
}

impl Creator<'_> {
    /// Makes a segment: its file, its name durable, its header, the header durable, in this order.
    /// Only after that may a frame be written (W3). What the file was made of is added to the
    /// header.
    pub(super) fn make(&self, header: SegmentHeader) -> Result<Segment, CreateFailure> {
        let segment = self.make_unsynced(header)?;
        segment.sync().map_err(CreateFailure::Fatal)?;
        Ok(segment)
    }

    /// All of [`Creator::make`] but the last step.
    pub(super) fn make_unsynced(&self, header: SegmentHeader) -> Result<Segment, CreateFailure> {
        if header.id.0 > MAX_SEGMENT_ID {
            let what = "there is no id left for the segment after it";
            let error = Corruption::in_segment(header.previous_segment, 0, what);
            return Err(CreateFailure::NotMade(error.into()));
        }
        assert!(header.id > header.previous_segment, "ids of segments only rise (W1)");
        assert!(header.epoch > 0, "each open has an epoch of its own");
        assert!(header.synced <= header.previous_sequence, "only what was written is synced");
        assert!(header.previous_end.is_multiple_of(FRAME_ALIGNMENT), "the log ends after a frame");
        let path = self.directory.join(file_name(header.id));
        let wrap = |operation, error| StorageError::io(operation, &path, error);
        let naming = self.free.naming();
        let freed = self.free.take();
        let is_reused = freed.is_some();
        let (file, reused_bytes) = match freed {
            Some(freed) => {
                assert!(freed.id < header.id, "a freed segment is older than what is made of it");
                self.rename(freed, &path).map_err(not_made)?
            }
            None => (self.create(&path).map_err(|error| not_made(wrap("create", error)))?, 0),
        };
        self.sync_directory(is_reused)?;
        drop(naming);
        let header = SegmentHeader { reused_bytes, ..header };
        assert!(is_reused || reused_bytes == 0, "a new file holds nothing");
        if let Err(error) = file.write_at(0, &[IoSlice::new(&header.encode())]) {
            if !is_disk_full(&error) {
                return Err(CreateFailure::Fatal(wrap("write", error)));
            }
            // What is left has no frame: it is dead, gone or not.
            let length_bytes = file.length().unwrap_or(reused_bytes);
            drop(self.free.discard(vec![path.clone()], length_bytes));
            let error = wrap("write", error);
            return Err(match is_reused {
                true => CreateFailure::EndsSegment(error),
                false => CreateFailure::NotMade(error),
            });
        }
        self.free.count_begun(is_reused);
        Ok(Segment { id: header.id, path, file, reused_bytes })
    }

    fn create(&self, path: &Path) -> std::io::Result<Arc<dyn File>> {
        match self.files.create(path) {
            Err(_) if self.broken.breaks(Rule::W1SegmentIdOnce) => self.files.open(path),
            created => created,
        }
    }

    /// Gives a freed segment its new name; its length is what will lie after the new frames.
    fn rename(&self, freed: FreeFile, path: &Path) -> Result<(Arc<dyn File>, u64), StorageError> {
        let old_path = self.free.path(freed.id);
        self.files.rename(&old_path, path).map_err(|error| {
            // Nobody knows of it any more, and it had an error (F5).
            drop(self.free.discard(vec![old_path.clone(), path.to_owned()], freed.length_bytes));
            StorageError::io("rename", &old_path, error)
        })?;
        let opened = self.files.open(path).and_then(|file| {
            let length = file.length()?;
            Ok((file, length))
        });
        opened.map_err(|error| {
            drop(self.free.discard(vec![path.to_owned()], freed.length_bytes));
            StorageError::io("open", path, error)
        })
    }

    fn sync_directory(&self, is_reused: bool) -> Result<(), CreateFailure> {
        let is_left_out = self.broken.breaks(Rule::W3DirectorySynced)
            || is_reused && self.broken.breaks(Rule::W3RenameSynced);
        if is_left_out {
            return Ok(());
        }
        self.files.sync_directory(self.directory).map_err(|error| {
            CreateFailure::Fatal(StorageError::io("sync the directory", self.directory, error))
        })
    }
}

fn not_made(error: StorageError) -> CreateFailure {
    CreateFailure::NotMade(error)
}
