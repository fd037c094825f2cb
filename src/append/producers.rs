//! The producers of an append transaction: which of its batches are new, which are stored, what each producer is then.

use std::collections::BTreeMap;

use super::error::Refusal;
use super::transaction::{AppendTransaction, PendingBatch};
use crate::catalog::Partition;
use crate::commit::FramePlan;
use crate::keyspace::{SequencedBatch, producer_key};
use crate::producer::transaction::{ProducerTransactionError, check_append};
use crate::producer::{NewBatch, ProducerState, SequenceCheck};
use crate::record::{TimestampType, ValidatedBatch};
use crate::types::{Offset, PartitionId, ProducerId, ProducerIdentity, TimestampMs};
use crate::write_batch::Family;

/// What an append does to the producers of its batches.
#[derive(Debug, Default)]
pub(super) struct ProducerPlan {
    /// Of each batch, where it is stored already.
    stored: Vec<Option<SequencedBatch>>,
    /// By partition in the transaction, and producer.
    changed: BTreeMap<(usize, ProducerId), ProducerState>,
    /// What was known before, in the order of the changes.
    replaced: Vec<(usize, ProducerId, Option<ProducerState>)>,
}

/// What belongs to a producer transaction must belong to the open one of its transactional id.
fn check_transaction(transaction: &AppendTransaction) -> Result<(), Refusal> {
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
            Refusal::ProducerTransaction { partition: partition.cloned(), source }
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
    ) -> Result<Self, Refusal> {
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
        let known = transaction.partitions.iter().map(|partition| partition.cell().producers());
        let new = known.enumerate().map(|(position, known)| {
            let changed = plan.changed.range((position, 0)..=(position, ProducerId::MAX));
            changed.filter(|((_, id), _)| known.get(*id).is_none()).count() as u64
        });
        transaction.shared.check_producers(new.sum()).map_err(Refusal::TooManyProducers)?;
        Ok(plan)
    }

    fn look_at(
        &mut self,
        (position, partition): (usize, &Partition),
        batch: &ValidatedBatch,
        base_offset: Offset,
        transaction: &AppendTransaction,
        append_time: TimestampMs,
    ) -> Result<Option<SequencedBatch>, Refusal> {
        let header = batch.header();
        let new = NewBatch {
            producer_id: header.producer_id(),
            epoch: header.producer_epoch(),
            first_sequence: header.base_sequence(),
            record_count: batch.record_count(),
            is_transactional: batch.is_transactional(),
        };
        let key = (position, new.producer_id);
        let changed = self.changed.get(&key).copied();
        let known = changed.or_else(|| partition.cell().producers().get(new.producer_id).copied());
        let begins_at_zero = new.is_transactional && transaction.begins_at_zero();
        match ProducerState::check(known.as_ref(), &new, begins_at_zero) {
            Ok(SequenceCheck::Next) => {
                let timestamp = match batch.timestamp_type() {
                    TimestampType::CreateTime => batch.max_timestamp(),
                    TimestampType::LogAppendTime => append_time,
                };
                let known = known.as_ref();
                let state =
                    ProducerState::appended(known, &new, base_offset, timestamp, append_time);
                self.changed.insert(key, state);
                Ok(None)
            }
            Ok(SequenceCheck::Stored(stored)) => Ok(Some(stored)),
            Err(source) => Err(Refusal::Sequence { partition: partition.clone(), source }),
        }
    }

    /// Where a batch of the transaction is stored already, if it is.
    pub(super) fn stored(&self, index: usize) -> Option<&SequencedBatch> {
        self.stored.get(index).and_then(Option::as_ref)
    }

    /// Makes the changes, and plans the producers' rows. What a partition's oldest open transaction
    /// is goes into its state, whose row is planned later.
    pub(super) fn install(&mut self, transaction: &AppendTransaction, plan: &mut FramePlan) {
        let mut row = Vec::new();
        for ((position, id), state) in &self.changed {
            let cell = transaction.partitions[*position].cell();
            let mut planned = cell.planned();
            let mut producers = cell.producers();
            let before = producers.set(*id, Some(*state));
            planned.set_first_unstable(producers.first_unstable());
            state.row().encode(&mut row);
            plan.write_batch.put(Family::Producers, &producer_key(cell.id(), *id), &row);
            self.replaced.push((*position, *id, before));
        }
        transaction.shared.count_producers(self.new_count());
    }

    /// Takes the changes back. The states of the partitions are taken back by whoever planned them.
    pub(super) fn undo(&mut self, transaction: &AppendTransaction) {
        transaction.shared.forget_producers(self.new_count());
        for (position, id, before) in self.replaced.drain(..).rev() {
            transaction.partitions[position].cell().producers().set(id, before);
        }
    }

    fn new_count(&self) -> u64 {
        self.replaced.iter().filter(|(.., before)| before.is_none()).count() as u64
    }
}
