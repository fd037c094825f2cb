//! The commit that moves log starts, of several partitions at once; each is compared with what was looked up.

use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, Offset};
use crate::commit::{Change, Failure, FramePlan};
use crate::config::TopicSettings;
use crate::core::{Prefix, Shared};
use crate::state::catalog::Partition;

/// A log start that is to move.
pub(super) struct Trim {
    pub(super) partition: Partition,
    pub(super) prefix: Prefix,
    /// Settings that must still be the topic's.
    pub(super) settings: Option<Arc<TopicSettings>>,
}

/// What became of a [`Trim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trimmed {
    /// The log start has moved.
    Done,
    /// The partition or its topic's settings changed since the look: look again.
    Changed,
    /// The topic is gone.
    Gone,
}

pub(super) struct TrimChange {
    shared: Arc<Shared>,
    trims: Vec<Trim>,
    durability: Durability,
}

/// Moves log starts in one commit, and tells of each what became of it.
pub(super) fn trim(
    shared: &Arc<Shared>,
    trims: Vec<Trim>,
    durability: Durability,
) -> Result<Vec<Trimmed>, StorageError> {
    shared.commit(TrimChange { shared: Arc::clone(shared), trims, durability })?
}

/// What planning decided of a trim, and the log end then.
type Planned = (Trimmed, Offset);

fn without_ends(planned: &[Planned]) -> Vec<Trimmed> {
    planned.iter().map(|(trimmed, _)| *trimmed).collect()
}

impl TrimChange {
    fn plan_one(trim: &Trim, plan: &mut FramePlan) -> Trimmed {
        let topic = trim.partition.topic();
        if topic.is_deleted() {
            return Trimmed::Gone;
        }
        let has_settings =
            trim.settings.as_ref().is_none_or(|seen| Arc::ptr_eq(seen, &topic.settings()));
        if has_settings && trim.prefix.plan(trim.partition.cell(), plan) {
            Trimmed::Done
        } else {
            Trimmed::Changed
        }
    }

    /// The partitions whose log start moves, each with the log end of its planning.
    fn moved<'a>(&'a self, planned: &'a [Planned]) -> impl Iterator<Item = (&'a Trim, Offset)> {
        let planned = self.trims.iter().zip(planned);
        planned.filter(|(_, (trimmed, _))| *trimmed == Trimmed::Done).map(|(t, (_, end))| (t, *end))
    }
}

impl Change for TrimChange {
    type Planned = Vec<Planned>;
    /// None of the log starts moves.
    type Refusal = Vec<Trimmed>;
    type Answer = Result<Vec<Trimmed>, StorageError>;

    fn queued_bytes(&self) -> u64 {
        // A row and up to 64 deleted keys of two families each, at most about.
        4096 * self.trims.len() as u64
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<Vec<Planned>, Vec<Trimmed>> {
        let mut planned = Vec::with_capacity(self.trims.len());
        for trim in &self.trims {
            let trimmed = Self::plan_one(trim, frame);
            let log_end = trim.partition.cell().planned().watermarks().log_end;
            planned.push((trimmed, log_end));
        }
        if self.moved(&planned).next().is_none() {
            return Err(without_ends(&planned));
        }
        Ok(planned)
    }

    fn durability(&self, _planned: &Vec<Planned>) -> Durability {
        self.durability
    }

    fn undo(&mut self, planned: Vec<Planned>) {
        self.moved(&planned).for_each(|(trim, _)| trim.partition.cell().undo());
    }

    fn publish(&mut self, planned: Vec<Planned>, sequence: CommitSequence) -> Self::Answer {
        let pipeline = &self.shared.pipeline;
        let synced = pipeline.log.synced();
        for (trim, log_end) in self.moved(&planned) {
            trim.partition.cell().publish(sequence, log_end, synced);
            pipeline.touch(sequence, trim.partition.cell());
            let removed = trim.prefix.removed();
            pipeline.counters.removed_batches.add(removed.batch_count);
            pipeline.counters.removed_bytes.add(removed.size_bytes);
        }
        Ok(without_ends(&planned))
    }

    fn fail(self, failure: Failure<Vec<Trimmed>>) -> Self::Answer {
        failure.into_refusal()
    }
}
