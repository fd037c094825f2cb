//! The engine's own work, in the background or step by step: checkpoints, retention, cleaning, freeing.
//!
//! A step takes a checkpoint if one is due. At an interval it makes a *round*: it removes what has
//! expired, cleans what is due, frees what is dead, and begins to relocate if too much is dead. A
//! relocation that is under way goes on in every step, as far as its rate allows. Each step ends
//! with a proof of the last sync, if the log has none yet.
//!
//! On the engine's thread a pass of the cleaner waits for its own rate; meanwhile all the rest goes
//! on. Where the disk is behind, what is moved and cleaned counts several times against its rate:
//! appends go first, and it still comes to an end. A caller who drives the steps waits for nothing.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::commit::Effects;
use crate::core::{Checkpoint, Shared, count_live};
use crate::space::checkpoint::checkpoint;
use crate::space::cleaner::clean_round;
use crate::space::freeing::{doom, free_doomed, release_free, seemingly_dead};
use crate::space::proof::prove_sync;
use crate::space::relocation;
use crate::space::retention::{RetentionReport, run_retention};
use crate::write::producer_transaction::{ExpireReport, expire};

/// How often a byte counts against its rate while the disk is behind.
const COST_BEHIND: u64 = 4;

/// How long the thread waits for more of a rate.
const PAUSE: Duration = Duration::from_millis(20);

/// What one step of maintenance did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MaintenanceStep {
    /// Whether a checkpoint was due, or something could be freed by one, and it was taken.
    pub took_checkpoint: bool,
    /// What retention removed, if its time had come.
    pub retention: Option<RetentionReport>,
    /// Segments that were freed.
    pub freed_segments: u64,
    /// Bytes of them.
    pub freed_bytes: u64,
    /// How often the file of a freed segment could not be removed; the next round tries again.
    pub failed_removals: u64,
    /// Bytes of record batches that were moved out of segments that are mostly dead.
    pub relocated_bytes: u64,
    /// What became of producers that were late or silent, if its time had come.
    pub producers: Option<ExpireReport>,
    /// Whether there is more to be moved as soon as the rate allows it.
    pub is_relocating: bool,
    /// How long it is, in milliseconds, until more is due by the clock.
    pub next_in_ms: u64,
    /// Partitions over which the cleaner made a pass.
    pub cleaner_passes: u64,
    /// Partitions that could not be cleaned; the next round tries again.
    pub cleaner_failures: u64,
}

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Caller,
    Thread,
}

/// Does what is due now, on this thread.
///
/// # Errors
/// What the storage says. Unless the engine has halted, the next step tries again.
pub fn run_step(shared: &Arc<Shared>) -> Result<MaintenanceStep, StorageError> {
    step(shared, Driver::Caller)
}

fn step(shared: &Arc<Shared>, driver: Driver) -> Result<MaintenanceStep, StorageError> {
    let mut step = MaintenanceStep::default();
    take_due_checkpoint(shared, &mut step)?;
    if shared.schedule.begin_round(shared.clock.monotonic()) {
        run_round(shared, driver, &mut step)?;
    }
    relocate(shared, driver, &mut step)?;
    prove_sync(shared)?;
    step.is_relocating = relocation::is_under_way(shared);
    let until_round = shared.schedule.until_round(shared.clock.monotonic());
    let next_in = if step.is_relocating { until_round.min(PAUSE) } else { until_round };
    step.next_in_ms = u64::try_from(next_in.as_millis()).unwrap_or(u64::MAX);
    Ok(step)
}

/// What so many bytes count against a rate. The disk is behind where more than half of what may be
/// unsynced is.
fn cost(shared: &Shared, driver: Driver, bytes: u64) -> u64 {
    let config = &shared.config;
    let bound = (config.max_unsynced_bytes / 2).max(config.background_sync_bytes);
    let is_behind = shared.pipeline.log.unsynced_bytes() > bound;
    if driver == Driver::Thread && is_behind { bytes.saturating_mul(COST_BEHIND) } else { bytes }
}

fn take_due_checkpoint(shared: &Shared, step: &mut MaintenanceStep) -> Result<(), StorageError> {
    if shared.pipeline.is_checkpoint_due() {
        checkpoint(shared)?;
        step.took_checkpoint = true;
    }
    Ok(())
}

fn relocate(
    shared: &Arc<Shared>,
    driver: Driver,
    step: &mut MaintenanceStep,
) -> Result<(), StorageError> {
    if !relocation::is_under_way(shared) {
        return Ok(());
    }
    let rate = &shared.schedule.relocation;
    let relocated = relocation::go_on(shared, rate.allowance(shared.clock.monotonic()))?;
    rate.spend(cost(shared, driver, relocated.bytes));
    step.relocated_bytes += relocated.bytes;
    if relocated.has_ended {
        // What it has emptied can go, and there may be more to move.
        shared.schedule.hurry(shared.clock.monotonic());
    }
    Ok(())
}

fn run_round(
    shared: &Arc<Shared>,
    driver: Driver,
    step: &mut MaintenanceStep,
) -> Result<(), StorageError> {
    let began = shared.clock.monotonic();
    expire_pins(shared);
    // A full disk may refuse them, and space be freed all the same.
    let expired = expire(shared);
    let retained = retain(shared, began);
    let cleaned = clean(shared, driver, step);
    give_back(shared, step)?;
    cleaned?;
    step.producers = Some(expired?);
    step.retention = retained?;
    relocation::begin(shared)?;
    count_round(shared, began);
    Ok(())
}

/// Removes what has expired, if it is to be checked again.
fn retain(shared: &Arc<Shared>, now: Duration) -> Result<Option<RetentionReport>, StorageError> {
    if !shared.schedule.begin_retention(now) {
        return Ok(None);
    }
    run_retention(shared).map(Some)
}

fn count_round(shared: &Shared, began: Duration) {
    shared.pipeline.counters.maintenance_rounds.add(1);
    let took = shared.clock.monotonic().saturating_sub(began);
    shared.pipeline.counters.maintenance_time.record(took);
}

fn expire_pins(shared: &Shared) {
    let age = Duration::from_millis(shared.config.max_snapshot_age_ms);
    if let Some(taken_before) = shared.clock.monotonic().checked_sub(age) {
        shared.pins.expire(taken_before);
    }
}

/// Cleans all partitions for which a pass is due.
fn clean(
    shared: &Arc<Shared>,
    driver: Driver,
    step: &mut MaintenanceStep,
) -> Result<(), StorageError> {
    let mut failure = None;
    let cleaned = clean_round(shared, &mut |bytes| {
        let goes_on = match driver {
            Driver::Caller => Ok(!shared.pipeline.is_ending()),
            Driver::Thread => wait_for_rate(shared, bytes),
        };
        match goes_on {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    step.cleaner_passes = cleaned.passes.len() as u64;
    step.cleaner_failures = cleaned.failures.len() as u64;
    failure.map_or(Ok(()), Err)
}

/// Waits until the cleaner may go on behind so many bytes, and does meanwhile what else is due.
/// False if the pass has to end.
fn wait_for_rate(shared: &Arc<Shared>, bytes: u64) -> Result<bool, StorageError> {
    let rate = &shared.schedule.cleaner;
    rate.spend(cost(shared, Driver::Thread, bytes));
    loop {
        if shared.pipeline.is_ending() || shared.cleaning.is_paused() {
            return Ok(false);
        }
        tend(shared)?;
        let wait = rate.wait(shared.clock.monotonic());
        if wait.is_zero() {
            return Ok(true);
        }
        shared.pipeline.wait_for_work(wait.min(PAUSE));
    }
}

/// What goes on while the cleaner works: all but another pass.
fn tend(shared: &Arc<Shared>) -> Result<(), StorageError> {
    let mut step = MaintenanceStep::default();
    take_due_checkpoint(shared, &mut step)?;
    let began = shared.clock.monotonic();
    if shared.schedule.begin_round(began) {
        expire_pins(shared);
        let expired = expire(shared);
        let retained = retain(shared, began);
        give_back(shared, &mut step)?;
        expired?;
        retained?;
        relocation::begin(shared)?;
        count_round(shared, began);
    }
    relocate(shared, Driver::Thread, &mut step)
}

/// Frees what is dead, and gives back what was kept of it and is not needed.
fn give_back(shared: &Arc<Shared>, step: &mut MaintenanceStep) -> Result<(), StorageError> {
    check_count(shared);
    let trusts_count = shared.pipeline.broken().breaks(Rule::F1LookUp);
    if shared.pipeline.live.get().is_none() && !trusts_count {
        count_live(&shared.pipeline)?;
    }
    let dead = seemingly_dead(shared);
    if !dead.is_empty() {
        let checkpoint = if shared.pipeline.broken().breaks(Rule::F1IndexAtCheckpoint) {
            let pipeline = &shared.pipeline;
            Checkpoint { applied: pipeline.applied(), index: pipeline.store.snapshot() }
        } else {
            step.took_checkpoint = true;
            checkpoint(shared)?
        };
        doom(shared, &checkpoint, &dead)?;
    }
    let freed = free_doomed(shared)?;
    step.freed_segments += freed.segment_count;
    step.freed_bytes += freed.bytes;
    let has_failed = release_free(shared)?;
    // Whoever cannot remove a file can do all the rest.
    let failed_removals = freed.failed_removals + u64::from(has_failed);
    shared.pipeline.counters.failed_maintenance.add(failed_removals);
    step.failed_removals += failed_removals;
    Ok(())
}

/// Has what is alive counted anew where the count and the partitions' own sums have drifted apart:
/// a hint that is far too high would keep dead space.
fn check_count(shared: &Shared) {
    if let Some(live) = shared.pipeline.live.get() {
        let counted: u64 = live.values().map(|live| live.bytes).sum();
        if counted.abs_diff(shared.live_bytes()) > shared.config.segment_bytes / 4 {
            shared.pipeline.live.forget();
        }
    }
}

/// Does what is due whenever it is, until the engine is closed or has halted: the maintenance
/// thread.
pub fn run_background(shared: &Arc<Shared>) {
    let mut timeout = Duration::ZERO;
    while shared.pipeline.wait_for_work(timeout) {
        timeout = match step(shared, Driver::Thread) {
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
