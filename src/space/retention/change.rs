//! The commit that moves log starts, of several partitions at once; each is compared with what was looked up.

use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, Offset};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict};
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
    told: Promise<Result<Vec<Trimmed>, StorageError>>,
    /// What planning decided of each, and the log end then.
    planned: Vec<(Trimmed, Offset)>,
}

/// Moves log starts in one commit, and tells of each what became of it.
pub(super) fn trim(
    shared: &Arc<Shared>,
    trims: Vec<Trim>,
    durability: Durability,
) -> Result<Vec<Trimmed>, StorageError> {
    let make = |told| -> Box<dyn Change> {
        let shared = Arc::clone(shared);
        Box::new(TrimChange { shared, trims, durability, told, planned: Vec::new() })
    };
    shared.commit(make)?
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
    fn moved(&self) -> impl Iterator<Item = (&Trim, Offset)> {
        let planned = self.trims.iter().zip(&self.planned);
        planned.filter(|(_, (trimmed, _))| *trimmed == Trimmed::Done).map(|(t, (_, end))| (t, *end))
    }
}

impl Change for TrimChange {
    fn queued_bytes(&self) -> u64 {
        // A row and up to 64 deleted keys of two families each, at most about.
        4096 * self.trims.len() as u64
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        self.planned.clear();
        for trim in &self.trims {
            let trimmed = Self::plan_one(trim, plan);
            let log_end = trim.partition.cell().planned().watermarks().log_end;
            self.planned.push((trimmed, log_end));
        }
        if self.moved().next().is_some() { Verdict::Planned } else { Verdict::Refused }
    }

    fn undo(&mut self) {
        self.moved().for_each(|(trim, _)| trim.partition.cell().undo());
    }

    fn publish(&mut self, sequence: CommitSequence) {
        let pipeline = &self.shared.pipeline;
        let synced = pipeline.log.synced();
        for (trim, log_end) in self.moved() {
            trim.partition.cell().publish(sequence, log_end, synced);
            pipeline.touch(sequence, trim.partition.cell());
            let removed = trim.prefix.removed();
            pipeline.counters.removed_batches.add(removed.batch_count);
            pipeline.counters.removed_bytes.add(removed.size_bytes);
        }
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        let trimmed = self.planned.iter().map(|(trimmed, _)| *trimmed).collect();
        self.told.fulfil(Shared::expect_committed(outcome).map(|()| trimmed));
    }
}
