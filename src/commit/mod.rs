//! The commit path, from top to bottom: how a change gets into the log, the index and what readers see.
//!
//! ```text
//!   callers        submit: reserve room, push        commit: push, then drain or wait
//!                              |                               |
//!                              v                               v
//!                  +--------------------------------------------------+   room.rs: who
//!   queue.rs       |  queue, bounded in bytes, first in first out     |   waits for room
//!                  +--------------------------------------------------+
//!                              |  one group at a time
//!                              v
//!                  1 plan      check, assign offsets, build each frame    change.rs, plan.rs
//!   committer.rs   2 write     all frames with one call of the log        pipeline.rs
//!   (one thread    3 apply     all write batches to the index, as one     pipeline.rs
//!    at a time)    4 publish   all changes in one step for readers        change.rs
//!                  5 answer    those that are buffered                    ticket.rs
//!                              |
//!                              v  those that asked for a sync
//!                  +--------------------------------------------------+
//!   sync.rs        |  6 sync: one answers every commit that it covers |
//!                  +--------------------------------------------------+
//! ```
//!
//! # The stages
//!
//! **Enter.** The caller's thread, under the queue's lock. Room is reserved first
//! ([`CommitQueue::reserve`]); a full queue takes nothing, unless nothing waits in it. A change
//! that is pushed is answered, whatever happens: also when a panic passes through whoever has it.
//!
//! **Drain.** One thread at a time is the *committer*: a caller that blocks and finds none, or the
//! engine's own thread for what was submitted, or whoever waits for a ticket where the engine has
//! no threads. It takes a *group*: changes in queue order up to a bound. An exclusive change is a
//! group alone, and what may use the disk's reserve is in no group with what may not.
//!
//! **Plan.** The committer, without locks of the queue. Each change checks what it expects on top
//! of what was planned before it, and fills its frame. A refused change takes no sequence and is
//! answered after the group. *After it:* the sequences of the frames follow the last written one
//! without a gap.
//!
//! **Write.** The committer. Each frame gets its place, and each index entry the place of its
//! record batch; then all are written with one call. *If it fails:* what was planned is undone
//! from its end. Either nothing can exist, or the outcome is unknown and the engine halts.
//!
//! **Apply.** The committer, under the `apply` lock. The write batches and the mark of the last
//! applied commit go to the index in one write. *If it fails:* the frames are in the log, so the
//! outcome is unknown and the engine halts.
//!
//! **Publish.** The committer, still under `apply`, and under the publication lock. *After it:* a
//! reader who sees a commit in one partition sees it in all, and watermarks are in their order.
//!
//! **Answer.** Buffered commits are answered by the committer, without locks. What an answer calls
//! back may commit and close, on the committer's own thread.
//!
//! **Sync.** A caller that blocks leads it, else the engine's sync thread. One sync answers every
//! commit that it covers, and no buffered commit waits for it. *If it fails:* all who wait are
//! told that their outcome is unknown, and the engine halts.
//!
//! Between two groups others may be let in, with the committer held: a checkpoint
//! ([`Pipeline::begin_checkpoint`]), or who must see nothing that is planned only. They take turns
//! with groups, so that neither starves the other.
//!
//! # Invariants
//!
//! - Frames are written, applied and published in the order of their sequences, because one
//!   committer does all three. Sequences are dense.
//! - A commit is answered as committed only once it is published, and synced if it asked for that.
//! - A change is planned once, and then published once, or undone once.
//! - The index never holds a commit that is not synced while a flush can run (I3, by rule S4).
//! - Once halted, the engine writes nothing more: whatever waits is answered as not written.
//!
//! # Locks
//!
//! In this order: the queue's `state`, alone; then, in the committer, `apply`, `publication`, a
//! partition's own. No callback runs under a lock of this module.
//!
//! What write, apply and sync do comes in as [`Effects`], so the path is tested without files.

mod change;
mod checkpoint;
mod committer;
mod effects;
mod live;
mod notify;
mod pipeline;
mod plan;
mod queue;
mod room;
mod sync;
#[cfg(test)]
mod tests;
mod ticket;

pub use change::{Change, Failure};
pub use checkpoint::{CheckpointLimits, FLUSH_POLL};
pub use effects::Effects;
pub use live::{Live, LiveSegments};
pub use pipeline::Pipeline;
pub use plan::{FramePlan, unplaced};
pub use queue::{CommitQueue, NoRoom, QueueLimits};
pub(crate) use ticket::Driver;
pub use ticket::{Promise, Ticket};
