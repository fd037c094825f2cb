//! The commit log: every commit is one frame in it, written once, synced once, and never moved.
//!
//! It is the redo log of the index and the home of the record batches at the same time. The rules
//! W that the comments name are those of docs/format.md, R and E those of docs/design.md.
//!
//! One committer at a time calls [`CommitLog::place_group`] and [`CommitLog::append_group`]; all
//! else may be called by anyone at any time.

mod append;
mod chain;
mod create;
mod directory;
mod frame;
mod free;
mod identity;
mod options;
mod proof;
mod reader;
mod recovery;
mod replay;
mod reserve;
mod segment;
mod sync;
#[cfg(test)]
mod tests;
mod walk;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::error::StorageError;
use crate::base::io::Files;
use crate::base::types::{AppliedCommit, CommitSequence, PayloadLocation};

pub use append::{AppendFailure, NewFrame, Payload};
pub use frame::{FrameLayout, frame_layout};
pub use identity::LogIdentity;
pub use options::{LogOptions, max_open_segments};
pub use reader::SegmentInfo;
pub use recovery::RecoveredLog;
pub use replay::ReplayedFrame;
pub use segment::SEGMENT_HEADER_BYTES;

/// What `testing` takes apart and puts together by hand.
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod parts {
    pub use super::append::{FramePlace, GroupPlace};
    pub use super::free::FreeSegments;
    pub use super::replay::ReplayedPayload;
    pub use super::segment::SEGMENT_FORMAT_VERSION;

    pub(crate) use super::frame::{
        FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, MIN_PAYLOAD_BYTES, PAYLOAD_CRC_AT,
        PAYLOAD_SUMMED_FROM, TABLE_ENTRY_BYTES, encode_table_entry, finish_header, seal_of,
        sum_head, table_entries, u32_at, u64_at,
    };
    pub(crate) use super::replay::{FrameReader, Window};
    pub(crate) use super::segment::{MAX_SEGMENT_ID, Segment, SegmentHeader, file_name};
}

use free::FreeFiles;
use reader::Segments;
use sync::SyncProgress;
use writer::Writer;

/// The commit log of an engine.
pub struct CommitLog {
    files: Arc<dyn Files>,
    directory: PathBuf,
    identity: LogIdentity,
    options: LogOptions,
    first_place: AppliedCommit,
    writer: Mutex<Writer>,
    progress: SyncProgress,
    segments: Segments,
    free: FreeFiles,
}

impl CommitLog {
    /// The last commit that is written.
    #[must_use]
    pub fn written(&self) -> CommitSequence {
        self.progress.written()
    }

    /// The last commit that is known to survive power loss.
    #[must_use]
    pub fn synced(&self) -> CommitSequence {
        self.progress.synced()
    }

    /// Bytes of frames that are written and not known to be synced.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        self.progress.unsynced_bytes()
    }

    /// Bytes of frames that were written since the log was opened.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.progress.written_bytes()
    }

    /// How many callers wait for a sync that another of them runs.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn waiting_syncs(&self) -> usize {
        self.progress.waiting_count()
    }

    /// What an index that holds no commit keeps as its applied commit: the place of the first
    /// frame of this open's segment.
    #[must_use]
    pub fn first_place(&self) -> AppliedCommit {
        self.first_place
    }

    /// Makes every commit up to `through` survive power loss; returns at once if it does. Leads a
    /// sync of all that is written, or waits for the one that runs. Appends go on meanwhile.
    ///
    /// # Errors
    /// The failure of the sync, or [`StorageError::Halted`]. After a failure the log is halted,
    /// and which unsynced commits exist is decided when it is opened again.
    ///
    /// # Panics
    /// If `through` is not written.
    pub fn sync(&self, through: CommitSequence) -> Result<(), StorageError> {
        self.progress.sync(through)
    }

    /// Reads the bytes of a record batch. That they are the batch that was meant is to be checked
    /// against the index (W4).
    ///
    /// # Errors
    /// [`StorageError::Corruption`] where the log has no such place, and what the system says.
    ///
    /// # Panics
    /// If the buffer has not the batch's length.
    pub fn read(&self, location: PayloadLocation, buffer: &mut [u8]) -> Result<(), StorageError> {
        self.segments.read(location, buffer)
    }

    /// Lets go of every segment's file: later reads fail with [`StorageError::Closed`], those under
    /// way too.
    pub fn close(&self) {
        self.segments.close();
    }

    /// Whether a storage failure has stopped all writes.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.progress.check_running().is_err()
    }

    /// Stops all writes: no append and no sync succeeds from now on, and reads go on. The first
    /// cause is kept.
    pub fn halt(&self, cause: StorageError) {
        self.progress.halt(cause);
    }

    /// Fails once the log is halted.
    ///
    /// # Errors
    /// [`StorageError::Halted`] with the first cause.
    pub fn check_running(&self) -> Result<(), StorageError> {
        self.progress.check_running()
    }

    /// All segments, by id.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.segments.all()
    }

    /// Bytes that can still be written to the file system of the log, and all that it has.
    ///
    /// # Errors
    /// What the system says.
    pub fn free_and_total_bytes(&self) -> Result<(u64, u64), StorageError> {
        let found = self.files.free_bytes(&self.directory).and_then(|free_bytes| {
            let total_bytes = self.files.total_bytes(&self.directory)?;
            Ok((free_bytes, total_bytes))
        });
        let failed = |error| StorageError::io("look at the free space of", &self.directory, error);
        found.map_err(failed)
    }

    /// The directory that holds the segments.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl fmt::Debug for CommitLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CommitLog");
        shown.field("directory", &self.directory).field("engine", &self.identity.engine);
        shown.field("written", &self.written()).field("synced", &self.synced());
        shown.finish_non_exhaustive()
    }
}
