//! What the committer does outside of the queue: write, apply, publish, sync. Tests put their own in its place.

use super::plan::FramePlan;
use crate::base::error::StorageError;
use crate::base::types::{AppliedCommit, CommitSequence, TimestampMs};
use crate::index::write_batch::WriteBatch;
use crate::log::AppendFailure;

/// What the committer does outside of the queue. [`Pipeline`](super::Pipeline) is the engine's.
pub trait Effects: Send + Sync {
    /// The time of day, for the append time of a group.
    fn now_ms(&self) -> TimestampMs;

    /// The failure that has stopped all writes, if one has.
    fn halted(&self) -> Option<StorageError>;

    /// Stops all writes from now on; the first cause is kept.
    fn halt(&self, cause: &StorageError);

    /// The last commit that was written.
    fn last_written(&self) -> CommitSequence;

    /// Places and writes a group of frames; tells the last one.
    ///
    /// REQUIRES: the committer is held, the group has a frame, and its sequences follow the last
    /// one that was written without a gap.
    ///
    /// # Errors
    /// [`AppendFailure`] says whether any of it can exist.
    fn write(
        &self,
        group: &mut [FramePlan],
        may_use_reserve: bool,
    ) -> Result<AppliedCommit, AppendFailure>;

    /// Applies the group to the index, and then calls `publish` under the publication lock.
    ///
    /// REQUIRES: the committer is held, and the group was the last to be written.
    ///
    /// # Errors
    /// What the index store says; then nothing was applied or published.
    fn apply(
        &self,
        batches: &[&WriteBatch],
        last: AppliedCommit,
        publish: &mut dyn FnMut(),
    ) -> Result<(), StorageError>;

    /// Waits until everything up to this commit survives power loss.
    ///
    /// # Errors
    /// The failure of the sync, which has halted the log.
    fn sync(&self, through: CommitSequence) -> Result<(), StorageError>;

    /// The last commit that survives power loss.
    fn synced(&self) -> CommitSequence;

    /// Whether enough is unsynced that it should be synced in the background.
    fn wants_background_sync(&self) -> bool;

    /// Called after a group was published or a sync has succeeded, without locks.
    fn after_progress(&self);
}
