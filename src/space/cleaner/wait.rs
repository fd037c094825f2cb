//! Waits until a partition is clean: for the engine's thread, or by work on the caller's own.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::error::CleanError;
use super::plan::plan;
use super::round::{When, clean_partition};
use crate::commit::Effects;
use crate::config::Maintenance;
use crate::core::Shared;
use crate::state::catalog::Partition;

/// How long a wait lasts before the plan is made again.
const PAUSE: Duration = Duration::from_millis(20);

/// Blocks until no pass is due in a partition, or the time is over; returns whether it was the
/// first. Under manual maintenance this thread makes the passes.
///
/// # Errors
/// [`CleanError`]: the topic is gone, or why the partition could not be cleaned.
pub fn wait_until_cleaned(
    shared: &Arc<Shared>,
    partition: &Partition,
    timeout: Duration,
) -> Result<bool, CleanError> {
    let id = partition.cell().id();
    let began = shared.clock.monotonic();
    // The injected clock may stand still, so what was waited counts too.
    let mut waited = Duration::ZERO;
    shared.cleaning.note(id, None);
    loop {
        if shared.config.maintenance == Maintenance::Manual {
            clean_partition(shared, partition, When::Due, &mut |_| ControlFlow::Continue(()))?;
        }
        if !plan(shared, partition)?.is_due {
            return Ok(true);
        }
        shared.check_open()?;
        // A halted engine cleans no more.
        if let Some(cause) = shared.pipeline.halted() {
            return Err(CleanError::Storage(cause));
        }
        if let Some(failure) = shared.cleaning.failure(id) {
            return Err(CleanError::Storage(failure));
        }
        let passed = shared.clock.monotonic().saturating_sub(began).max(waited);
        let left = timeout.saturating_sub(passed);
        if left.is_zero() {
            return Ok(false);
        }
        shared.schedule.hurry(shared.clock.monotonic());
        shared.pipeline.request_work();
        waited = waited.saturating_add(rest(left.min(PAUSE)));
    }
}

/// Rests for a while, and returns for how long.
fn rest(pause: Duration) -> Duration {
    let nobody = Mutex::new(());
    Condvar::new().wait_for(&mut nobody.lock(), pause);
    pause
}
