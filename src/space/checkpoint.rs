//! A checkpoint: sync the log, flush the index as of one commit, so that recovery starts after it (rules S3, S4).

use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::commit::Effects;
use crate::core::{Checkpoint, Shared};

/// Takes a checkpoint and waits until it is complete. Commits go on while the flush runs; they are
/// held up only for the sync of what little is unsynced and the switch of the memtables. Returns
/// the index as it was made durable.
///
/// # Errors
/// What log or store say. Then the engine has halted; the next open finds the old checkpoint or
/// the new one, and replays what comes after it.
pub fn checkpoint(shared: &Shared) -> Result<Checkpoint, StorageError> {
    let began = shared.clock.monotonic();
    // Most is synced before the committer is taken, so that it is held for a short time only.
    if !shared.pipeline.broken().breaks(Rule::S4SyncFirst) {
        shared.pipeline.sync(shared.pipeline.last_written())?;
    }
    let begun: Result<Checkpoint, StorageError> = shared.queue.exclusively(|committer| {
        let applied = shared.pipeline.begin_checkpoint(committer)?;
        Ok(Checkpoint { applied, index: shared.pipeline.store.snapshot() })
    });
    let checkpoint = begun?;
    shared.pipeline.finish_checkpoint()?;
    shared.pipeline.counters.checkpoints.add(1);
    let took = shared.clock.monotonic().saturating_sub(began);
    shared.pipeline.counters.checkpoint_time.record(took);
    Ok(checkpoint)
}
