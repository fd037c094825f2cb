//! What there is to clean in a partition, and whether a pass is due: figures from the index alone.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::error::CleanError;
use super::reader::{LOCATE_BYTES, attributes};
use super::rules::{dirty_ratio, is_reached, is_too_young, overdue_ms};
use crate::base::types::{Offset, TimestampMs};
use crate::core::{CleanerLag, DirtyPart, Located, Shared, visit};
use crate::state::catalog::Partition;
use crate::state::partition::RemovalMark;

/// What there is to clean in a partition.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct CleanerPlan {
    /// The offset from which on nothing was cleaned yet.
    pub first_dirty: Offset,
    /// The offset from which on nothing can be cleaned yet.
    pub uncleanable: Offset,
    /// Bytes of the batches below the first dirty offset.
    pub clean_bytes: u64,
    /// Bytes of the batches between the two offsets.
    pub cleanable_bytes: u64,
    /// Records in them, at most.
    pub cleanable_records: u64,
    /// The part of these two that can be cleaned, from 0 to 1.
    pub dirty_ratio: f64,
    /// By how much cleaning is later than `max.compaction.lag.ms` allows; 0 if it is not.
    pub overdue_ms: u64,
    /// Whether a tombstone or a marker may have reached the time at which it goes.
    pub horizon_reached: bool,
    /// Whether a pass starts now.
    pub is_due: bool,
}

/// What one look at the index tells a pass.
#[derive(Debug)]
pub(super) struct Survey {
    pub plan: CleanerPlan,
    /// Whether no batch that can be cleaned is of a producer transaction or has a horizon.
    pub is_plain: bool,
    /// Parts of what is dirty, in the order of offsets: where each begins.
    pub part_starts: Vec<Offset>,
}

impl CleanerPlan {
    /// How far cleaning lags.
    pub(super) fn lag(&self) -> CleanerLag {
        CleanerLag {
            // From 0 to 100.
            dirty_percent: (self.dirty_ratio * 100.0).round() as u32,
            overdue_ms: if self.cleanable_bytes > 0 { self.overdue_ms } else { 0 },
        }
    }
}

/// Whether a partition of a compacted topic has anything to plan for: cheap, from memory.
pub(super) fn may_be_due(partition: &Partition, now: TimestampMs) -> bool {
    partition.cell().read(|state| {
        let row = state.row();
        row.first_dirty.max(row.log_start) < row.log_end || is_reached(row.next_horizon, now)
    })
}

/// Looks what there is to clean.
///
/// # Errors
/// [`CleanError`]: the topic is gone, or the index cannot be read.
pub fn plan(shared: &Shared, partition: &Partition) -> Result<CleanerPlan, CleanError> {
    Ok(survey(shared, partition)?.plan)
}

/// Looks what there is to clean, and how it can be.
pub(super) fn survey(shared: &Shared, partition: &Partition) -> Result<Survey, CleanError> {
    if !shared.catalog.holds(partition.topic()) {
        return Err(CleanError::UnknownPartition { partition: partition.clone() });
    }
    let now = shared.clock.now_ms();
    // Before the entries: what is removed while they are looked at makes the next look begin anew.
    let (row, marks, mark) = partition
        .cell()
        .read(|state| (state.row().clone(), state.watermarks(), state.removal_mark()));
    let first_dirty = row.first_dirty.max(row.log_start);
    let mut dirty = dirty_part(shared, partition, (first_dirty, mark), now);
    let settings = Arc::clone(&dirty.settings);
    let settings = settings.effective();
    let (store, id) = (&*shared.pipeline.store, partition.cell().id());
    visit(store, id, dirty.seen_to, row.log_end, &mut |located| {
        see(&mut dirty, &located);
        ControlFlow::Continue(())
    })?;
    dirty.seen_to = row.log_end;
    let mut plan = CleanerPlan::new(first_dirty, marks.last_stable);
    visit(store, id, dirty.cleanable_to, plan.uncleanable, &mut |located| {
        if is_too_young(&located.entry, settings, now) {
            plan.uncleanable = located.entry.base_offset.max(first_dirty);
            return ControlFlow::Break(());
        }
        add(&mut dirty, &located);
        ControlFlow::Continue(())
    })?;
    assert!(plan.first_dirty <= plan.uncleanable, "the dirty part ends after its begin");
    assert!(plan.uncleanable <= marks.last_stable.max(first_dirty), "what is open stays");
    debug_assert!(dirty.part_starts.is_sorted(), "parts stand in the order of offsets");
    plan.cleanable_bytes = dirty.cleanable_bytes;
    plan.cleanable_records = dirty.cleanable_records;
    plan.clean_bytes = row.size_bytes.saturating_sub(dirty.dirty_bytes);
    plan.overdue_ms = overdue_ms(dirty.oldest, settings, now);
    plan.dirty_ratio = dirty_ratio(plan.clean_bytes, plan.cleanable_bytes);
    plan.horizon_reached = is_reached(row.next_horizon, now);
    let is_dirty_enough = plan.cleanable_bytes > 0
        && (plan.dirty_ratio > settings.min_cleanable_dirty_ratio || plan.overdue_ms > 0);
    plan.is_due = settings.cleanup_policy.compact && (is_dirty_enough || plan.horizon_reached);
    let survey = Survey { plan, is_plain: dirty.is_plain, part_starts: dirty.part_starts.clone() };
    shared.cleaning.put_dirty(id, dirty);
    Ok(survey)
}

impl CleanerPlan {
    fn new(first_dirty: Offset, last_stable: Offset) -> Self {
        Self {
            first_dirty,
            uncleanable: last_stable.max(first_dirty),
            clean_bytes: 0,
            cleanable_bytes: 0,
            cleanable_records: 0,
            dirty_ratio: 0.0,
            overdue_ms: 0,
            horizon_reached: false,
            is_due: false,
        }
    }
}

/// What the last look counted of the dirty part, if that still holds; else nothing is counted yet.
fn dirty_part(
    shared: &Shared,
    partition: &Partition,
    (first_dirty, mark): (Offset, RemovalMark),
    now: TimestampMs,
) -> DirtyPart {
    let settings = partition.topic().settings();
    let holds = |dirty: &DirtyPart| {
        let is_same = dirty.mark == mark && dirty.first_dirty == first_dirty;
        is_same && Arc::ptr_eq(&dirty.settings, &settings) && dirty.looked_at <= now
    };
    match shared.cleaning.take_dirty(partition.cell().id()).filter(holds) {
        Some(dirty) => DirtyPart { looked_at: now, ..dirty },
        None => DirtyPart {
            mark,
            first_dirty,
            settings,
            looked_at: now,
            seen_to: first_dirty,
            dirty_bytes: 0,
            oldest: None,
            cleanable_to: first_dirty,
            cleanable_bytes: 0,
            cleanable_records: 0,
            is_plain: true,
            part_starts: Vec::new(),
            part_bytes: 0,
        },
    }
}

/// Counts the next dirty batch.
fn see(dirty: &mut DirtyPart, located: &Located) {
    let entry = &located.entry;
    dirty.dirty_bytes += u64::from(entry.location.length_bytes);
    if entry.max_timestamp > 0 {
        let oldest = dirty.oldest.unwrap_or(entry.max_timestamp);
        dirty.oldest = Some(oldest.min(entry.max_timestamp));
    }
}

/// Counts the next batch that can be cleaned.
fn add(dirty: &mut DirtyPart, located: &Located) {
    let bytes = u64::from(located.entry.location.length_bytes);
    debug_assert!(located.last_offset >= dirty.cleanable_to, "batches come in their order");
    dirty.cleanable_to = located.last_offset + 1;
    dirty.cleanable_bytes += bytes;
    dirty.cleanable_records += u64::from(located.entry.record_count);
    let attributes = attributes(located);
    dirty.is_plain &= !attributes.is_transactional() && !attributes.has_delete_horizon();
    if dirty.part_starts.is_empty() || dirty.part_bytes + bytes > LOCATE_BYTES {
        dirty.part_starts.push(located.entry.base_offset.max(dirty.first_dirty));
        dirty.part_bytes = 0;
    }
    dirty.part_bytes += bytes;
}
