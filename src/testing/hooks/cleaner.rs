//! What tests need and no caller has: to make all of a partition dirty again, and to skip offsets.

use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, Offset};
use crate::commit::{Change, Failure, FramePlan, Pipeline};
use crate::core::Shared;
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
    shared.commit(RowChange { pipeline, partition, change })?
}

struct RowChange {
    pipeline: Arc<Pipeline>,
    partition: Partition,
    change: Box<dyn Fn(&mut PartitionRow) + Send>,
}

impl Change for RowChange {
    /// The log end.
    type Planned = Offset;
    /// The topic is gone.
    type Refusal = ();
    type Answer = Result<(), StorageError>;

    fn queued_bytes(&self) -> u64 {
        256
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<Offset, ()> {
        if self.partition.topic().is_deleted() {
            return Err(());
        }
        let cell = self.partition.cell();
        let mut planned = cell.planned();
        let mut row = planned.row().clone();
        (self.change)(&mut row);
        let log_end = row.log_end;
        let mut value = Vec::new();
        row.encode(&mut value);
        *planned = PartitionState::new(row);
        frame.write_batch.put(Family::Partitions, &partition_key(cell.id()), &value);
        Ok(log_end)
    }

    fn durability(&self, _planned: &Offset) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, _planned: Offset) {
        self.partition.cell().undo();
    }

    fn publish(&mut self, log_end: Offset, sequence: CommitSequence) -> Self::Answer {
        let synced = self.pipeline.log.synced();
        self.partition.cell().publish(sequence, log_end, synced);
        Ok(())
    }

    fn fail(self, failure: Failure<()>) -> Self::Answer {
        failure.into_refusal()
    }
}
