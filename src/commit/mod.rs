//! The commit path: one queue, a committer that writes and applies groups, and a second stage that syncs.
//!
//! A commit takes these steps:
//!
//! 1. It enters the queue, bounded in bytes. One committer at a time drains it: a caller that
//!    blocks and finds nobody draining does it itself; one thread does it for what was submitted.
//! 2. The committer takes a *group*, lets each change **plan** in queue order (check what it
//!    expects, assign offsets, build its write batch), and **writes** the frames with one call.
//! 3. It **applies** the write batches to the index as one, and **publishes** all of the group in
//!    one step, so that a reader who sees a transaction in one partition sees it in all.
//! 4. Buffered commits are answered. Those that asked for a sync wait in the second stage; **one
//!    sync** answers every commit that it covers, and no buffered commit waits for it.
//!
//! INVARIANT: frames are written, applied and published in the order of their sequences, because
//! one committer does all three. INVARIANT: a commit is answered as committed only once it is
//! published, and, if it asked for that, synced.
//!
//! What write, apply and sync do comes in as [`Effects`], so the path is tested without files.
//!
//! Locks: `state` (the queue), then none. No callback runs under a lock of this module.

mod plan;
mod queue;
mod sync;
#[cfg(test)]
mod tests;
mod ticket;

pub use plan::{FramePlan, Moment, unplaced};
pub use queue::{CommitQueue, QueueLimits};
pub use ticket::{Promise, Ticket};

use crate::base::error::StorageError;
use crate::base::types::{AppliedCommit, CommitSequence, Durability, TimestampMs};
use crate::index::write_batch::WriteBatch;
use crate::log::AppendFailure;

/// One commit in the hands of the committer.
pub trait Change: Send {
    /// What it counts against the queue's bound.
    fn queued_bytes(&self) -> u64;

    /// What it has to survive before it is answered.
    fn durability(&self) -> Durability;

    /// Whether it must be alone in its group, because it plans by what is published.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Whether it may use the space that is held back for what gives space back.
    fn may_use_reserve(&self) -> bool {
        false
    }

    /// Checks what it expects, and plans its frame on top of what was planned before it.
    ///
    /// Where it returns [`Verdict::Refused`] it has planned nothing, and keeps the reason for
    /// [`Change::answer`].
    fn plan(&mut self, moment: &Moment, plan: &mut FramePlan) -> Verdict;

    /// Takes back what it planned: its group was not written.
    fn undo(&mut self);

    /// Makes it visible. Called for the whole group under the publication lock.
    fn publish(&mut self, sequence: CommitSequence);

    /// Tells whoever waits. Called once, without locks.
    fn answer(self: Box<Self>, outcome: Outcome);
}

/// What planning decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The frame is planned.
    Planned,
    /// The change cannot be made.
    Refused,
}

/// How a commit ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It exists, as durable as it asked.
    Committed {
        /// Its place in the order of all commits.
        sequence: CommitSequence,
    },
    /// Planning refused it; nothing exists.
    Refused,
    /// The storage below could not take it; nothing exists.
    NotWritten(StorageError),
    /// It may exist: reopening decides.
    Unknown(StorageError),
}

/// What the committer does to the world.
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
    /// # Errors
    /// [`AppendFailure`] says whether any of it can exist.
    fn write(
        &self,
        group: &mut [FramePlan],
        may_use_reserve: bool,
    ) -> Result<AppliedCommit, AppendFailure>;

    /// Applies the group to the index, and then calls `publish` under the publication lock.
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

impl<E: Effects + ?Sized> Effects for std::sync::Arc<E> {
    fn now_ms(&self) -> TimestampMs {
        (**self).now_ms()
    }

    fn halted(&self) -> Option<StorageError> {
        (**self).halted()
    }

    fn halt(&self, cause: &StorageError) {
        (**self).halt(cause);
    }

    fn last_written(&self) -> CommitSequence {
        (**self).last_written()
    }

    fn write(
        &self,
        group: &mut [FramePlan],
        may_use_reserve: bool,
    ) -> Result<AppliedCommit, AppendFailure> {
        (**self).write(group, may_use_reserve)
    }

    fn apply(
        &self,
        batches: &[&WriteBatch],
        last: AppliedCommit,
        publish: &mut dyn FnMut(),
    ) -> Result<(), StorageError> {
        (**self).apply(batches, last, publish)
    }

    fn sync(&self, through: CommitSequence) -> Result<(), StorageError> {
        (**self).sync(through)
    }

    fn synced(&self) -> CommitSequence {
        (**self).synced()
    }

    fn wants_background_sync(&self) -> bool {
        (**self).wants_background_sync()
    }

    fn after_progress(&self) {
        (**self).after_progress();
    }
}
