//! What tests need and no caller has: transactions of producers whose ids and epochs the test chooses.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ending::PlannedEnding;
use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, ProducerIdentity, TimestampMs};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict};
use crate::core::{HeldId, Shared};
use crate::index::keyspace::{ProducerTransactionRow, ProducerTransactionState};
use crate::record::MarkerKind;
use crate::state::catalog::Partition;
use crate::state::producer::transaction::Ending;

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
    let outcome = shared.commit(|told| {
        let shared = Arc::clone(shared);
        Box::new(MarkerChange { shared, ending, held, told, planned: None })
    });
    Shared::expect_committed(outcome?)
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
    told: Promise<Outcome>,
    planned: Option<PlannedEnding>,
}

impl Change for MarkerChange {
    fn queued_bytes(&self) -> u64 {
        512
    }

    fn durability(&self) -> Durability {
        Durability::Buffered
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        self.planned = PlannedEnding::plan(&self.shared, &self.ending, &self.held, plan).ok();
        if self.planned.is_some() { Verdict::Planned } else { Verdict::Refused }
    }

    fn undo(&mut self) {
        if let Some(planned) = &mut self.planned {
            planned.undo(&self.shared);
        }
    }

    fn publish(&mut self, sequence: CommitSequence) {
        if let Some(planned) = &self.planned {
            planned.publish(&self.shared, sequence);
        }
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        self.told.fulfil(outcome);
    }
}
