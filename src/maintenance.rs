//! The engine's own work: when a checkpoint runs. In the background, or step by step for a caller that drives it.

use std::ops::ControlFlow;

use crate::checkpoint::checkpoint;
use crate::cleaner::clean_round;
use crate::error::StorageError;
use crate::shared::Shared;

/// What one step of maintenance did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MaintenanceStep {
    /// Whether a checkpoint was due, and was taken.
    pub took_checkpoint: bool,
    /// Partitions over which the cleaner made a pass.
    pub cleaner_passes: u64,
    /// Partitions that could not be cleaned; the next step tries again.
    pub cleaner_failures: u64,
}

/// Does what is due now, on this thread.
///
/// # Errors
/// What the storage says; then the engine has halted.
pub fn run_step(shared: &Shared) -> Result<MaintenanceStep, StorageError> {
    // The checkpoint first: a round of the cleaner may take long, and it bounds memory.
    let took_checkpoint = shared.pipeline.is_cut_due();
    if took_checkpoint {
        checkpoint(shared)?;
    }
    let round = clean_round(shared, &mut |_| ControlFlow::Continue(()))?;
    Ok(MaintenanceStep {
        took_checkpoint,
        cleaner_passes: round.passes.len() as u64,
        cleaner_failures: round.failures.len() as u64,
    })
}

/// Does what is due whenever it is, until the engine is closed or has halted: the maintenance
/// thread.
pub fn run_background(shared: &Shared) {
    while shared.pipeline.wait_for_work() {
        // A failure has halted the engine, which tells its cause to every caller.
        if run_step(shared).is_err() {
            return;
        }
    }
}
