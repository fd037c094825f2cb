//! One run of retention over all partitions: finds what has expired, and removes it in few commits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::change::{Trim, Trimmed, trim};
use super::rule::{Aged, Expiry, Reason};
use crate::base::error::StorageError;
use crate::base::types::{Durability, PartitionId, TimestampMs};
use crate::config::TopicSettings;
use crate::core::{Ahead, Oldest, Prefix, Shared};
use crate::state::catalog::Partition;

/// Partitions whose log start moves in one commit: few frames, and none of them large.
const PARTITIONS_PER_COMMIT: usize = 256;

/// What a run of retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RetentionReport {
    /// Partitions whose log start moved.
    pub moved_partitions: u64,
    /// Batches that were removed because of their age.
    pub expired_batches: u64,
    /// Batches that were removed because of their partition's size.
    pub oversize_batches: u64,
    /// Bytes of both.
    pub removed_bytes: u64,
    /// Partitions that could not be looked at because their index is damaged.
    pub damaged_partitions: u64,
}

/// What a look at a partition found.
struct Expired {
    trim: Trim,
    by_time: u64,
    by_size: u64,
}

/// Removes from every partition what has expired by its topic's settings.
///
/// Damage of one partition's index is counted, and stops no other partition's retention.
///
/// # Errors
/// What the storage says. What was removed before stays removed.
pub fn run_retention(shared: &Arc<Shared>) -> Result<RetentionReport, StorageError> {
    let mut run =
        Run { now: shared.clock.now_ms(), before: shared.oldest.take(), after: HashMap::new() };
    let report = look_at_all(shared, &mut run);
    if report.is_err() {
        // What was not looked at is known as it was.
        for (id, oldest) in run.before.drain() {
            run.after.entry(id).or_insert(oldest);
        }
    }
    shared.oldest.put(run.after);
    report
}

/// One run of retention: its time, the oldest batches that the run before it left, and its own.
struct Run {
    now: TimestampMs,
    before: HashMap<PartitionId, Oldest>,
    after: HashMap<PartitionId, Oldest>,
}

fn look_at_all(shared: &Arc<Shared>, run: &mut Run) -> Result<RetentionReport, StorageError> {
    let mut report = RetentionReport::default();
    let mut found = Vec::new();
    for topic in shared.catalog.topics() {
        let settings = topic.settings();
        if Expiry::new(settings.effective(), run.now, 0).is_none() {
            continue;
        }
        for partition in topic.partitions() {
            match look_at(shared, &partition, &settings, run) {
                Ok(Some(expired)) => found.push(expired),
                Ok(None) => {}
                Err(StorageError::Corruption(_)) => {
                    shared.pipeline.counters.corruptions.add(1);
                    report.damaged_partitions += 1;
                }
                Err(error) => return Err(error),
            }
            if found.len() >= PARTITIONS_PER_COMMIT {
                remove(shared, std::mem::take(&mut found), &mut report)?;
            }
        }
    }
    remove(shared, found, &mut report)?;
    Ok(report)
}

fn look_at(
    shared: &Shared,
    partition: &Partition,
    settings: &Arc<TopicSettings>,
    run: &mut Run,
) -> Result<Option<Expired>, StorageError> {
    let cell = partition.cell();
    let (size_bytes, until, mark) = cell.read(|state| {
        let high_watermark = state.watermarks().high_watermark;
        (state.row().size_bytes, high_watermark, state.removal_mark())
    });
    let expiry = || Expiry::new(settings.effective(), run.now, size_bytes);
    let Some(mut rule) = expiry().filter(|_| size_bytes > 0) else { return Ok(None) };
    let before = run.before.get(&cell.id()).copied();
    let seen_ahead = before.and_then(|oldest| oldest.ahead);
    let known = before.filter(|oldest| oldest.mark == mark);
    if let Some(oldest) = known
        && expiry().is_some_and(|mut rule| rule.next(Aged::from(&oldest)).is_none())
    {
        run.after.insert(cell.id(), oldest);
        return Ok(None);
    }
    let (mut by_time, mut by_size, mut oldest, mut ahead) = (0, 0, None, None);
    let prefix = Prefix::look_up(&*shared.pipeline.store, cell, until, 0, |located| {
        let batch = Aged::of(&located.entry).at_most(run.now, seen_ahead, located.last_offset);
        if located.entry.written_at() > run.now {
            let seen = seen_ahead.filter(|seen| located.last_offset < seen.below);
            ahead = seen.or(Some(Ahead { since: run.now, below: until }));
        }
        oldest.get_or_insert(batch);
        let reason = rule.next(batch);
        by_time += u64::from(reason == Some(Reason::Time));
        by_size += u64::from(reason == Some(Reason::Size));
        reason.is_some()
    })?;
    let taken = prefix.removed().batch_count;
    assert_eq!(taken, by_time + by_size, "each batch that goes has its reason");
    let is_bounded = !prefix.moves() || prefix.new_start() <= until;
    assert!(is_bounded, "nothing goes that is not committed");
    if let Some(Aged { written_at, length_bytes }) =
        oldest.filter(|_| !prefix.moves() || ahead.is_some())
    {
        run.after.insert(cell.id(), Oldest { mark, written_at, length_bytes, ahead });
    }
    if !prefix.moves() {
        return Ok(None);
    }
    let settings = Some(Arc::clone(settings));
    let trim = Trim { partition: partition.clone(), prefix, settings };
    Ok(Some(Expired { trim, by_time, by_size }))
}

/// Removes what was found; what has changed meanwhile is left to the next run.
fn remove(
    shared: &Arc<Shared>,
    found: Vec<Expired>,
    report: &mut RetentionReport,
) -> Result<(), StorageError> {
    if found.is_empty() {
        return Ok(());
    }
    let mut counts = Vec::with_capacity(found.len());
    let mut trims = Vec::with_capacity(found.len());
    for Expired { trim, by_time, by_size } in found {
        counts.push((by_time, by_size, trim.prefix.removed().size_bytes));
        trims.push(trim);
    }
    let trimmed = trim(shared, trims, Durability::Buffered)?;
    assert_eq!(trimmed.len(), counts.len(), "each has its outcome");
    for (_, (by_time, by_size, bytes)) in
        trimmed.iter().zip(counts).filter(|(trimmed, _)| **trimmed == Trimmed::Done)
    {
        report.moved_partitions += 1;
        report.expired_batches += by_time;
        report.oversize_batches += by_size;
        report.removed_bytes += bytes;
    }
    Ok(())
}

impl fmt::Display for RetentionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "moved_partitions={} expired_batches={} oversize_batches={} removed_bytes={} \
             damaged_partitions={}",
            self.moved_partitions,
            self.expired_batches,
            self.oversize_batches,
            self.removed_bytes,
            self.damaged_partitions
        )
    }
}
