//! The commit path.
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
