//! What tests need and no caller has: to make all of a partition dirty again, and to skip offsets.

use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, Offset};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict};
use crate::core::{Pipeline, Shared};
use crate::index::keyspace::{PartitionRow, partition_key};
use crate::index::write_batch::Family;
use crate::state::catalog::Partition;
use crate::state::partition::PartitionState;

/// Counts all of a partition as dirty again.
///
/// # Errors
/// What the storage says.
pub fn forget_cleaned(shared: &Shared, partition: &Partition) -> Result<(), StorageError> {
    change_row(shared, partition, |row| row.first_dirty = row.log_start)
}

/// Moves the log end forward to an offset, as if records had been there.
///
/// # Errors
/// What the storage says.
pub fn skip_offsets(
    shared: &Shared,
    partition: &Partition,
    log_end: Offset,
) -> Result<(), StorageError> {
    change_row(shared, partition, move |row| row.log_end = row.log_end.max(log_end))
}

fn change_row(
    shared: &Shared,
    partition: &Partition,
    change: impl Fn(&mut PartitionRow) + Send + 'static,
) -> Result<(), StorageError> {
    let (pipeline, partition) = (Arc::clone(&shared.pipeline), partition.clone());
    let change = Box::new(change);
    let outcome =
        shared.commit(|told| Box::new(RowChange { pipeline, partition, change, told, log_end: 0 }));
    Shared::expect_committed(outcome?)
}

struct RowChange {
    pipeline: Arc<Pipeline>,
    partition: Partition,
    change: Box<dyn Fn(&mut PartitionRow) + Send>,
    told: Promise<Outcome>,
    log_end: Offset,
}

impl Change for RowChange {
    fn queued_bytes(&self) -> u64 {
        256
    }

    fn durability(&self) -> Durability {
        Durability::Buffered
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        if self.partition.topic().is_deleted() {
            return Verdict::Refused;
        }
        let cell = self.partition.cell();
        let mut planned = cell.planned();
        let mut row = planned.row().clone();
        (self.change)(&mut row);
        self.log_end = row.log_end;
        let mut value = Vec::new();
        row.encode(&mut value);
        *planned = PartitionState::new(row);
        plan.write_batch.put(Family::Partitions, &partition_key(cell.id()), &value);
        Verdict::Planned
    }

    fn undo(&mut self) {
        self.partition.cell().undo();
    }

    fn publish(&mut self, sequence: CommitSequence) {
        let synced = self.pipeline.log.synced();
        self.partition.cell().publish(sequence, self.log_end, synced);
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        self.told.fulfil(outcome);
    }
}
