//! Which partitions are cleaned, in which order; one that fails stops no other.

use std::collections::BTreeSet;

use super::error::CleanError;
use super::plan::{CleanerPlan, may_be_due, plan, survey};
use super::{CleanerPass, Pace, pass};
use crate::base::error::StorageError;
use crate::core::{CleanerLag, Shared};
use crate::state::catalog::Partition;

/// What one round over all partitions did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CleanerRound {
    /// The passes, in their order.
    pub passes: Vec<(Partition, CleanerPass)>,
    /// Partitions that could not be cleaned. The next round tries again.
    pub failures: Vec<(Partition, CleanError)>,
}

/// When a partition is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// When a pass is due.
    Due,
    /// Now, if anything can be cleaned.
    Now,
}

/// Cleans a partition, if it is time and the cleaner is not paused.
///
/// # Errors
/// [`CleanError`]: the topic is gone, or the partition cannot be read, or written again. What was
/// committed before is kept, and is right.
pub fn clean_partition(
    shared: &Shared,
    partition: &Partition,
    when: When,
    pace: &mut Pace<'_>,
) -> Result<Option<CleanerPass>, CleanError> {
    let _running = shared.cleaning.run();
    let id = partition.cell().id();
    if shared.cleaning.is_paused() {
        return Ok(None);
    }
    let survey = survey(shared, partition)?;
    let is_time = match when {
        When::Due => survey.plan.is_due,
        When::Now => {
            (survey.plan.cleanable_bytes > 0 || survey.plan.horizon_reached)
                && is_compacted(partition)
        }
    };
    if !is_time {
        shared.cleaning.note(id, None);
        return Ok(None);
    }
    let counters = &shared.pipeline.counters;
    let (done, ended) = pass::run(shared, partition, &survey, pace);
    assert!(done.from <= done.cleaned_to, "what is clean stays clean");
    assert!(done.cleaned_to <= done.uncleanable, "what is open stays");
    counters.cleaner_read_bytes.add(done.read_bytes);
    counters.cleaner_written_bytes.add(done.written_bytes);
    counters.cleaner_removed_records.add(done.removed_records);
    match ended {
        Ok(()) => {
            shared.cleaning.note(id, None);
            if done.is_finished && done.cleaned_to >= done.uncleanable {
                shared.cleaning.note_lag(id, CleanerLag::default());
            }
            counters.cleaner_passes.add(done.is_finished.into());
            Ok(Some(done))
        }
        Err(error) => {
            counters.cleaner_failures.add(1);
            if let CleanError::Storage(error) = &error {
                if matches!(error, StorageError::Corruption(_)) {
                    counters.corruptions.add(1);
                }
                shared.cleaning.note(id, Some(error.clone()));
            }
            Err(error)
        }
    }
}

fn is_compacted(partition: &Partition) -> bool {
    partition.topic().settings().effective().cleanup_policy.compact
}

/// Cleans all partitions for which a pass is due, the dirtiest first, each once.
///
/// # Errors
/// [`StorageError`] where no partition can be cleaned any more: the engine is closed or has
/// halted. What is wrong with one partition is in the answer.
pub fn clean_round(shared: &Shared, pace: &mut Pace<'_>) -> Result<CleanerRound, StorageError> {
    let mut round = CleanerRound::default();
    let now = shared.clock.now_ms();
    let mut due: Vec<(Partition, CleanerPlan)> = Vec::new();
    let mut compacted = BTreeSet::new();
    for topic in shared.catalog.topics() {
        if !topic.settings().effective().cleanup_policy.compact {
            continue;
        }
        for partition in topic.partitions() {
            compacted.insert(partition.cell().id());
            let id = partition.cell().id();
            if !may_be_due(&partition, now) {
                shared.cleaning.note_lag(id, CleanerLag::default());
                drop(shared.cleaning.take_dirty(id));
                continue;
            }
            match plan(shared, &partition) {
                Ok(plan) => {
                    shared.cleaning.note_lag(id, plan.lag());
                    if plan.is_due {
                        due.push((partition, plan));
                    }
                }
                Err(CleanError::UnknownPartition { .. }) => {}
                Err(error) => round.failures.push((partition, error)),
            }
        }
    }
    shared.cleaning.keep(|partition| compacted.contains(&partition));
    due.sort_by(|(_, a), (_, b)| b.dirty_ratio.total_cmp(&a.dirty_ratio));
    for (partition, _) in due {
        match clean_partition(shared, &partition, When::Due, pace) {
            Ok(Some(pass)) => {
                let is_finished = pass.is_finished;
                round.passes.push((partition, pass));
                if !is_finished && shared.cleaning.is_paused() {
                    break;
                }
            }
            Ok(None) | Err(CleanError::UnknownPartition { .. }) => {}
            Err(CleanError::Storage(
                error @ (StorageError::Halted { .. } | StorageError::Closed),
            )) => return Err(error),
            Err(error) => round.failures.push((partition, error)),
        }
    }
    Ok(round)
}
