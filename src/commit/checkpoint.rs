//! Checkpoints: the log is synced, then the index is flushed as of one commit, so that recovery starts after it.
//!
//! INVARIANT (I3, by rule S4): the store never holds a commit that is not synced while a flush can
//! run. A checkpoint is begun by whoever holds the committer: sync the log, then begin the flush;
//! what is written later is not in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::effects::Effects;
use super::pipeline::Pipeline;
use super::queue::BetweenGroups;
use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::base::types::{AppliedCommit, CommitSequence};

/// How long a wait for the store's own flush sleeps between two checks of it.
pub const FLUSH_POLL: Duration = Duration::from_micros(500);

/// When a checkpoint is due, and how much memory the part of the index may hold that is not in one.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointLimits {
    /// Bytes of unflushed index after which a checkpoint is due.
    pub index_bytes: u64,
    /// Bytes of log after which a checkpoint is due.
    pub log_bytes: u64,
    /// Range deletes after which a checkpoint is due.
    pub range_deletes: u64,
    /// Bytes of unflushed index at which the committer waits for a checkpoint.
    pub index_memory_bytes: u64,
    /// Bytes of unsynced log at which it is synced in the background.
    pub background_sync_bytes: u64,
}

/// How far checkpoints are behind what is written.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    flush: Mutex<Flush>,
    log_bytes: AtomicU64,
    log_bytes_at_last: AtomicU64,
    range_deletes: AtomicU64,
}

/// The flush of a checkpoint. Locked while the store is asked: else the end of one is taken for
/// that of the next.
#[derive(Debug, Default)]
struct Flush {
    /// Whether one was begun and is not known to be complete.
    is_running: bool,
    /// The last commit of the checkpoint that was begun last.
    through: Option<CommitSequence>,
}

impl Checkpoints {
    pub(super) fn note_written(&self, log_bytes: u64, range_deletes: u64) {
        self.log_bytes.fetch_add(log_bytes, Ordering::Relaxed);
        self.range_deletes.fetch_add(range_deletes, Ordering::Relaxed);
    }

    fn note_begun(&self) {
        let log_bytes = self.log_bytes.load(Ordering::Relaxed);
        let before = self.log_bytes_at_last.swap(log_bytes, Ordering::Relaxed);
        assert!(before <= log_bytes, "the log has not become shorter since the last checkpoint");
        self.range_deletes.store(0, Ordering::Relaxed);
    }

    fn is_due(&self, limits: &CheckpointLimits) -> bool {
        let log_bytes = self.log_bytes.load(Ordering::Relaxed);
        let since = log_bytes - self.log_bytes_at_last.load(Ordering::Relaxed).min(log_bytes);
        since >= limits.log_bytes
            || self.range_deletes.load(Ordering::Relaxed) >= limits.range_deletes
    }
}

impl Pipeline {
    /// Whether a checkpoint is due.
    #[must_use]
    pub fn is_checkpoint_due(&self) -> bool {
        self.store.unflushed_bytes() >= self.limits.index_bytes
            || self.checkpoints.is_due(&self.limits)
    }

    /// Begins a checkpoint: everything applied so far will be in it, and is synced.
    ///
    /// # Errors
    /// What log or store say; then the engine has halted.
    pub fn begin_checkpoint(
        &self,
        _committer: &BetweenGroups,
    ) -> Result<AppliedCommit, StorageError> {
        self.begin_checkpoint_in_group()
    }

    /// As [`Pipeline::begin_checkpoint`]. REQUIRES: the committer is held, and no group is between
    /// its write and its application.
    pub(super) fn begin_checkpoint_in_group(&self) -> Result<AppliedCommit, StorageError> {
        // INVARIANT (I13): also where all is synced, and so nobody has reported yet.
        self.halted().map_or(Ok(()), Err)?;
        self.finish_checkpoint()?;
        let applied = self.applied();
        let is_broken = self.broken.breaks(Rule::S4SyncFirst)
            || self.broken.breaks(Rule::S4CheckpointUnderLock);
        if !is_broken {
            self.sync(applied.sequence)?;
            assert!(self.synced() >= applied.sequence, "what is flushed is synced (S4)");
        }
        self.begin_flush(applied.sequence)?;
        self.checkpoints.note_begun();
        Ok(applied)
    }

    fn begin_flush(&self, through: CommitSequence) -> Result<(), StorageError> {
        let mut flush = self.checkpoints.flush.lock();
        assert!(!flush.is_running, "one flush runs at a time");
        assert!(flush.through <= Some(through), "a checkpoint is not older than the one before it");
        (flush.is_running, flush.through) = (true, Some(through));
        let begun = self.store.begin_flush();
        drop(flush);
        begun.inspect_err(|error| self.halt_after_store_error(error))
    }

    /// Waits until the checkpoint that was begun last is complete.
    ///
    /// # Errors
    /// What the store says; then the engine has halted, and either checkpoint may be found at the
    /// next open.
    pub fn finish_checkpoint(&self) -> Result<(), StorageError> {
        loop {
            let mut flush = self.checkpoints.flush.lock();
            if !flush.is_running {
                return Ok(());
            }
            if let Some(cause) = self.halted() {
                return Err(cause);
            }
            let flushed = self.store.is_flushed();
            flush.is_running = !matches!(flushed, Ok(true));
            drop(flush);
            match flushed {
                Ok(true) => return Ok(()),
                Ok(false) => std::thread::park_timeout(FLUSH_POLL),
                Err(error) => {
                    self.halt_after_store_error(&error);
                    return Err(error);
                }
            }
        }
    }
}
