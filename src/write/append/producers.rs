//! The producers of an append transaction: which of its batches are new, which are stored, what each producer is then.

use std::collections::HashMap;

use super::error::CommitRefusal;
use super::transaction::{AppendTransaction, PendingBatch};
use crate::base::types::{Offset, PartitionId, ProducerId, ProducerIdentity, TimestampMs};
use crate::commit::FramePlan;
use crate::index::keyspace::{SequencedBatch, producer_key};
use crate::index::write_batch::Family;
use crate::record::{TimestampType, ValidatedBatch};
use crate::state::catalog::Partition;
use crate::state::producer::transaction::{ProducerTransactionError, check_append};
use crate::state::producer::{NewBatch, ProducerState, SequenceCheck};

/// What an append does to the producers of its batches.
#[derive(Debug, Default)]
pub(super) struct ProducerPlan {
    /// Of each batch, where it is stored already.
    stored: Vec<Option<SequencedBatch>>,
    changed: Vec<Changed>,
    /// Where a producer of a partition stands in `changed`, where those are many.
    positions: HashMap<(usize, ProducerId), usize>,
}

/// A producer that the append changes.
#[derive(Debug)]
struct Changed {
    /// The partition's place in the transaction.
    partition: usize,
    producer_id: ProducerId,
    /// What is known of it then.
    state: ProducerState,
    /// What was known of it before.
    before: Option<ProducerState>,
}

/// Above so many changed producers the linear search for one becomes a lookup.
const LINEAR_SEARCH_MAX: usize = 8;

/// What belongs to a producer transaction must belong to the open one of its transactional id.
fn check_transaction(transaction: &AppendTransaction) -> Result<(), CommitRefusal> {
    let Some(transactional) = transaction.transactional() else { return Ok(()) };
    let inside = transaction.batches.iter().filter(|pending| pending.batch.is_transactional());
    let mut places: Vec<(ProducerIdentity, usize)> = Vec::new();
    for PendingBatch { partition, batch } in inside {
        let (producer_id, producer_epoch) =
            (batch.header().producer_id(), batch.header().producer_epoch());
        places.push((ProducerIdentity { producer_id, producer_epoch }, *partition));
    }
    let held = transaction.shared.transactions.lock();
    let row = held.get(&transactional.id).map(|held| &held.row);
    for same in places.chunk_by(|(one, _), (other, _)| one == other) {
        let ids = same.iter().map(|(_, position)| transaction.partitions[*position].cell().id());
        let ids: Vec<PartitionId> = ids.collect();
        let checked = check_append(row, same[0].0, &ids, false, 0);
        let _unchanged = checked.map_err(|source| {
            let missing = match source {
                ProducerTransactionError::PartitionNotAdded { partition } => Some(partition),
                _ => None,
            };
            let mut partitions = transaction.partitions.iter();
            let partition = partitions.find(|partition| Some(partition.cell().id()) == missing);
            CommitRefusal::ProducerTransaction { partition: partition.cloned(), source }
        })?;
    }
    Ok(())
}

impl ProducerPlan {
    /// Looks at every batch in order, each on top of those before it; changes nothing.
    ///
    /// A batch that is stored already counts as accepted, and the others are appended; one that its
    /// producer may not append refuses them all.
    pub(super) fn look(
        transaction: &AppendTransaction,
        append_time: TimestampMs,
    ) -> Result<Self, CommitRefusal> {
        check_transaction(transaction)?;
        let mut plan = Self::default();
        let ends = transaction.partitions.iter();
        let mut ends: Vec<Offset> =
            ends.map(|partition| partition.cell().planned().watermarks().log_end).collect();
        plan.stored.reserve_exact(transaction.batches.len());
        for PendingBatch { partition, batch } in &transaction.batches {
            let stored = if batch.has_producer_id() {
                let place = (*partition, &transaction.partitions[*partition]);
                plan.look_at(place, batch, ends[*partition], transaction, append_time)?
            } else {
                None
            };
            if stored.is_none() {
                ends[*partition] += i64::from(batch.record_count());
            }
            plan.stored.push(stored);
        }
        assert!(plan.stored.len() == transaction.batches.len(), "each batch was looked at");
        transaction
            .shared
            .check_producers(plan.new_count())
            .map_err(CommitRefusal::TooManyProducers)?;
        Ok(plan)
    }

    fn look_at(
        &mut self,
        (position, partition): (usize, &Partition),
        batch: &ValidatedBatch,
        base_offset: Offset,
        transaction: &AppendTransaction,
        append_time: TimestampMs,
    ) -> Result<Option<SequencedBatch>, CommitRefusal> {
        let header = batch.header();
        let new = NewBatch {
            producer_id: header.producer_id(),
            epoch: header.producer_epoch(),
            first_sequence: header.base_sequence(),
            record_count: batch.record_count(),
            is_transactional: batch.is_transactional(),
        };
        let place = self.find(position, new.producer_id);
        let known = match place {
            Some(place) => Some(self.changed[place].state),
            None => partition.cell().producers().get(new.producer_id).copied(),
        };
        let begins_at_zero = new.is_transactional && transaction.begins_at_zero();
        match ProducerState::check(known.as_ref(), &new, begins_at_zero) {
            Ok(SequenceCheck::Next) => {
                let timestamp = match batch.timestamp_type() {
                    TimestampType::CreateTime => batch.max_timestamp(),
                    TimestampType::LogAppendTime => append_time,
                };
                let before = known.as_ref();
                let state =
                    ProducerState::appended(before, &new, base_offset, timestamp, append_time);
                let last_sequence = state.row().last_sequence();
                debug_assert!(last_sequence == new.last_sequence(), "sequences have no gaps");
                debug_assert!(
                    state.row().epoch == new.epoch,
                    "who wrote last is known by its epoch"
                );
                match place {
                    Some(place) => self.changed[place].state = state,
                    None => self.add(position, new.producer_id, state, known),
                }
                Ok(None)
            }
            Ok(SequenceCheck::Stored(stored)) => {
                debug_assert!(stored.last_offset < base_offset, "it was stored before");
                Ok(Some(stored))
            }
            Err(source) => Err(CommitRefusal::Sequence { partition: partition.clone(), source }),
        }
    }

    fn find(&self, partition: usize, producer_id: ProducerId) -> Option<usize> {
        if self.changed.len() > LINEAR_SEARCH_MAX {
            return self.positions.get(&(partition, producer_id)).copied();
        }
        let key = (partition, producer_id);
        self.changed.iter().position(|changed| (changed.partition, changed.producer_id) == key)
    }

    fn add(
        &mut self,
        partition: usize,
        producer_id: ProducerId,
        state: ProducerState,
        before: Option<ProducerState>,
    ) {
        debug_assert!(self.find(partition, producer_id).is_none(), "each producer stands once");
        self.changed.push(Changed { partition, producer_id, state, before });
        let count = self.changed.len();
        if count > LINEAR_SEARCH_MAX {
            let from = if count == LINEAR_SEARCH_MAX + 1 { 0 } else { count - 1 };
            let added = self.changed[from..].iter().zip(from..);
            let places = added.map(|(one, at)| ((one.partition, one.producer_id), at));
            self.positions.extend(places);
        }
    }

    /// Where a batch of the transaction is stored already, if it is.
    pub(super) fn stored(&self, index: usize) -> Option<&SequencedBatch> {
        self.stored.get(index).and_then(Option::as_ref)
    }

    /// Makes the changes, and plans the producers' rows. What a partition's oldest open transaction
    /// is goes into its state, whose row is planned later.
    pub(super) fn install(&self, transaction: &AppendTransaction, plan: &mut FramePlan) {
        let mut row = Vec::new();
        for changed in &self.changed {
            let cell = transaction.partitions[changed.partition].cell();
            let mut planned = cell.planned();
            let mut producers = cell.producers();
            let before = producers.set(changed.producer_id, Some(changed.state));
            let known = (before.is_some(), changed.before.is_some());
            debug_assert!(known.0 == known.1, "nothing comes between a look and its change");
            planned.set_first_unstable(producers.first_unstable());
            drop((planned, producers));
            changed.state.row().encode(&mut row);
            let key = producer_key(cell.id(), changed.producer_id);
            plan.write_batch.put(Family::Producers, &key, &row);
        }
        transaction.shared.count_producers(self.new_count());
    }

    /// Takes the changes back. The states of the partitions are taken back by whoever planned them.
    pub(super) fn undo(&self, transaction: &AppendTransaction) {
        transaction.shared.forget_producers(self.new_count());
        for changed in &self.changed {
            let mut producers = transaction.partitions[changed.partition].cell().producers();
            producers.set(changed.producer_id, changed.before);
        }
    }

    fn new_count(&self) -> u64 {
        self.changed.iter().filter(|changed| changed.before.is_none()).count() as u64
    }
}
