//! The engine's own work, in the background or step by step: checkpoints, retention, cleaning, freeing.
//!
//! A step takes a checkpoint if one is due. At an interval it makes a *round*: it removes what has
//! expired, cleans what is due, frees what is dead, and begins to relocate if too much is dead. A
//! relocation that is under way goes on in every step, as far as its rate allows.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::checkpoint::checkpoint;
use crate::cleaner::clean_round;
use crate::commit::Effects;
use crate::error::StorageError;
use crate::freeing::{doom, free_doomed, seemingly_dead};
use crate::relocation;
use crate::retention::{RetentionReport, run_retention};
use crate::rules::Rule;
use crate::shared::{Cut, Shared, count_live};

/// How long the thread waits for more of the relocation's rate.
const RELOCATION_PAUSE: Duration = Duration::from_millis(50);

/// What one step of maintenance did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MaintenanceStep {
    /// Whether a checkpoint was due, or something could be freed by one, and it was taken.
    pub took_checkpoint: bool,
    /// What retention removed, if its time had come.
    pub retention: Option<RetentionReport>,
    /// Segments that were removed.
    pub freed_segments: u64,
    /// Bytes of them.
    pub freed_bytes: u64,
    /// Bytes of record batches that were moved out of segments that are mostly dead.
    pub relocated_bytes: u64,
    /// Whether there is more to be moved as soon as the rate allows it.
    pub is_relocating: bool,
    /// How long it is, in milliseconds, until more is due by the clock.
    pub next_in_ms: u64,
    /// Partitions over which the cleaner made a pass.
    pub cleaner_passes: u64,
    /// Partitions that could not be cleaned; the next step tries again.
    pub cleaner_failures: u64,
}

/// Does what is due now, on this thread.
///
/// # Errors
/// What the storage says. Unless the engine has halted, the next step tries again.
pub fn run_step(shared: &Arc<Shared>) -> Result<MaintenanceStep, StorageError> {
    let mut step = MaintenanceStep::default();
    if shared.pipeline.is_cut_due() {
        checkpoint(shared)?;
        step.took_checkpoint = true;
    }
    if shared.schedule.begin_round(shared.clock.monotonic()) {
        run_round(shared, &mut step)?;
    }
    if relocation::is_under_way(shared) {
        let allowance = shared.schedule.allowance(shared.clock.monotonic());
        let relocated = relocation::go_on(shared, allowance)?;
        shared.schedule.spend(relocated.bytes);
        step.relocated_bytes = relocated.bytes;
        if relocated.has_ended {
            // What it has emptied can go, and there may be more to move.
            shared.schedule.hurry(shared.clock.monotonic());
        }
    }
    step.is_relocating = relocation::is_under_way(shared);
    let until_round = shared.schedule.until_round(shared.clock.monotonic());
    let next_in = if step.is_relocating { until_round.min(RELOCATION_PAUSE) } else { until_round };
    step.next_in_ms = u64::try_from(next_in.as_millis()).unwrap_or(u64::MAX);
    Ok(step)
}

fn run_round(shared: &Arc<Shared>, step: &mut MaintenanceStep) -> Result<(), StorageError> {
    let age = Duration::from_millis(shared.config.max_snapshot_age_ms);
    if let Some(taken_before) = shared.clock.monotonic().checked_sub(age) {
        shared.pins.expire(taken_before);
    }
    // A full disk may refuse it, and space be freed all the same.
    let retained = run_retention(shared);
    let cleaned = clean_round(shared, &mut |_| match shared.pipeline.is_ending() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })?;
    step.cleaner_passes = cleaned.passes.len() as u64;
    step.cleaner_failures = cleaned.failures.len() as u64;
    check_count(shared);
    let trusts_count = shared.pipeline.broken().breaks(Rule::F1LookUp);
    if shared.pipeline.space.live().is_none() && !trusts_count {
        count_live(&shared.pipeline)?;
    }
    let dead = seemingly_dead(shared);
    if !dead.is_empty() {
        let cut = if shared.pipeline.broken().breaks(Rule::F1IndexAtCheckpoint) {
            let pipeline = &shared.pipeline;
            Cut { applied: pipeline.applied(), index: pipeline.store.snapshot() }
        } else {
            step.took_checkpoint = true;
            checkpoint(shared)?
        };
        doom(shared, &cut, &dead)?;
    }
    let freed = free_doomed(shared)?;
    step.freed_segments = freed.segment_count;
    step.freed_bytes = freed.bytes;
    step.retention = Some(retained?);
    relocation::begin(shared)?;
    Ok(())
}

/// Has what is alive counted anew where the count and the partitions' own sums have drifted apart:
/// a hint that is far too high would keep dead space.
fn check_count(shared: &Shared) {
    if let Some(live) = shared.pipeline.space.live() {
        let counted: u64 = live.values().map(|live| live.bytes).sum();
        if counted.abs_diff(shared.live_bytes()) > shared.config.segment_bytes / 4 {
            shared.pipeline.space.forget();
        }
    }
}

/// Does what is due whenever it is, until the engine is closed or has halted: the maintenance
/// thread.
pub fn run_background(shared: &Arc<Shared>) {
    let mut timeout = Duration::ZERO;
    while shared.pipeline.wait_for_work(timeout) {
        timeout = match run_step(shared) {
            Ok(step) => Duration::from_millis(step.next_in_ms),
            // A failure that has halted the engine is told to every caller by its cause.
            Err(_) if shared.pipeline.halted().is_some() || shared.check_open().is_err() => return,
            Err(_) => {
                shared.pipeline.counters.failed_maintenance.add(1);
                Duration::from_millis(shared.config.maintenance_interval_ms)
            }
        };
    }
}
