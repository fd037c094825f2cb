//! A checkpoint: sync the log, flush the index as one cut, so that recovery starts behind it (rules S3, S4).

use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::commit::Effects;
use crate::core::{Cut, Shared};

/// Takes a checkpoint and waits until it is complete. Commits go on while the flush runs; they are
/// held up only for the sync of what little is unsynced and the switch of the memtables. Returns
/// the index as it was made durable.
///
/// # Errors
/// What log or store say. Then the engine has halted; the next open finds the old cut or the new
/// one, and replays what is behind it.
pub fn checkpoint(shared: &Shared) -> Result<Cut, StorageError> {
    let began = shared.clock.monotonic();
    // Most is synced before the committer is taken, so that it is held for a short time only.
    if !shared.pipeline.broken().breaks(Rule::S4SyncFirst) {
        shared.pipeline.sync(shared.pipeline.last_written())?;
    }
    let cut: Result<Cut, StorageError> = shared.queue.exclusively(|| {
        let applied = shared.pipeline.begin_cut()?;
        Ok(Cut { applied, index: shared.pipeline.store.snapshot() })
    });
    let cut = cut?;
    shared.pipeline.finish_cut()?;
    shared.pipeline.counters.checkpoints.add(1);
    let took = shared.clock.monotonic().saturating_sub(began);
    shared.pipeline.counters.checkpoint_time.record(took);
    Ok(cut)
}
