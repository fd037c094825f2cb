//! What tests need and no caller has: transactions of producers whose ids and epochs the test chooses.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, ProducerIdentity, TimestampMs};
use crate::commit::{Change, Failure, FramePlan};
use crate::core::{HeldId, Shared};
use crate::index::keyspace::{ProducerTransactionRow, ProducerTransactionState};
use crate::record::MarkerKind;
use crate::state::catalog::Partition;
use crate::state::producer::transaction::Ending;
use crate::write::producer_transaction::PlannedEnding;

/// Until the engine is closed, this producer has a transaction open under this id that may write
/// to the partition. Nothing is stored.
pub fn pretend_open(shared: &Shared, id: &str, producer: ProducerIdentity, partition: &Partition) {
    let held = held(producer, partition);
    shared.transactions.lock().put(id.to_owned(), held);
}

/// Writes the marker that ends a producer's transaction in one partition, also where none is open.
///
/// # Errors
/// What the storage says.
pub fn write_marker(
    shared: &Arc<Shared>,
    producer: ProducerIdentity,
    partition: &Partition,
    kind: MarkerKind,
) -> Result<(), StorageError> {
    let ending = Ending {
        kind,
        producer_id: producer.producer_id,
        marker_epoch: producer.producer_epoch,
        partitions: vec![partition.cell().id()],
        groups: Vec::new(),
    };
    let held = held(producer, partition);
    shared.commit(MarkerChange { shared: Arc::clone(shared), ending, held })?
}

fn held(producer: ProducerIdentity, partition: &Partition) -> HeldId {
    let id = partition.cell().id();
    let row = ProducerTransactionRow {
        current: producer,
        previous: ProducerIdentity::NONE,
        timeout_ms: i32::MAX,
        state: ProducerTransactionState::Ongoing,
        started_at: TimestampMs::MAX,
        updated_at: TimestampMs::MAX,
        partitions: vec![id],
        groups: Vec::new(),
    };
    HeldId { partitions: BTreeMap::from([(id, partition.clone())]), ..HeldId::new(row) }
}

struct MarkerChange {
    shared: Arc<Shared>,
    ending: Ending,
    held: HeldId,
}

impl Change for MarkerChange {
    type Planned = PlannedEnding;
    type Refusal = StorageError;
    type Answer = Result<(), StorageError>;

    fn queued_bytes(&self) -> u64 {
        512
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<PlannedEnding, StorageError> {
        PlannedEnding::plan(&self.shared, &self.ending, &self.held, frame)
    }

    fn durability(&self, _planned: &PlannedEnding) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, planned: PlannedEnding) {
        planned.undo(&self.shared);
    }

    fn publish(&mut self, planned: PlannedEnding, sequence: CommitSequence) -> Self::Answer {
        planned.publish(&self.shared, sequence);
        Ok(())
    }

    fn fail(self, failure: Failure<StorageError>) -> Self::Answer {
        Err(failure.into_refusal().unwrap_or_else(|error| error))
    }
}
