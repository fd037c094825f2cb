//! An append transaction in the committer's hands: offsets assigned, the frame planned, the answer told.

use bytes::Bytes;

use super::error::{CommitError, NotWritten, Refusal};
use super::transaction::{AppendTransaction, Committed, CommittedBatch, PendingBatch};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict, unplaced};
use crate::keyspace::{BatchEntry, batch_key, partition_key};
use crate::log::Payload;
use crate::partition::{Assigned, BatchFacts};
use crate::record::TimestampType;
use crate::types::{CommitSequence, Durability, Offset};
use crate::write_batch::Family;

pub(super) struct AppendChange {
    transaction: AppendTransaction,
    durability: Durability,
    promise: Promise<Result<Committed, CommitError>>,
    committed: Vec<CommittedBatch>,
    /// The log end that this commit makes, of each partition.
    log_ends: Vec<Offset>,
    refusal: Option<Refusal>,
}

impl AppendChange {
    pub(super) fn new(
        transaction: AppendTransaction,
        durability: Durability,
        promise: Promise<Result<Committed, CommitError>>,
    ) -> Self {
        let committed = Vec::with_capacity(transaction.batches.len());
        Self { transaction, durability, promise, committed, log_ends: Vec::new(), refusal: None }
    }

    fn check(&self) -> Result<(), Refusal> {
        let records =
            self.transaction.batches.iter().map(|pending| u64::from(pending.batch.record_count()));
        let record_count = records.sum();
        for partition in &self.transaction.partitions {
            if partition.topic().is_deleted() {
                return Err(Refusal::UnknownPartition { partition: partition.clone() });
            }
            let room = partition.cell().planned().check_room(record_count);
            room.map_err(|source| Refusal::OffsetsExhausted {
                partition: partition.clone(),
                source,
            })?;
        }
        Ok(())
    }

    fn plan_batch(&mut self, index: usize, moment: &Moment, plan: &mut FramePlan) {
        let leader_epoch = self.transaction.shared.session.leader_epoch;
        let PendingBatch { partition, batch } = &self.transaction.batches[index];
        let cell = self.transaction.partitions[*partition].cell();
        let stored = batch.stored(moment.append_time);
        let length_bytes = u32::try_from(batch.size_bytes()).expect("a batch is below 2 GiB");
        let facts = BatchFacts {
            record_count: batch.record_count(),
            length_bytes,
            max_timestamp: stored.max_timestamp,
        };
        let mut planned = cell.planned();
        let log_start = planned.watermarks().log_start;
        let assigned = planned.append(&facts, leader_epoch);
        drop(planned);
        let Assigned { base_offset, last_offset, index_entry } = assigned;
        let attributes = batch.header().attributes().with_timestamp_type(batch.timestamp_type());
        let entry = BatchEntry {
            base_offset,
            record_count: facts.record_count,
            crc: stored.crc,
            attributes: attributes.bits(),
            max_timestamp: stored.max_timestamp,
            append_time: moment.append_time,
            leader_epoch,
            location: unplaced(length_bytes),
        };
        let head = stored.head.map_or(Bytes::new(), |head| Bytes::copy_from_slice(&head));
        let payload = Payload { head, body: stored.body, crc: stored.crc };
        let key = batch_key(cell.id(), last_offset);
        plan.add_batch(&key, &entry, payload);
        if let Some(index_entry) = index_entry {
            plan.write_batch.put(Family::Index, &key, &index_entry.encode());
        }
        let is_log_time = batch.timestamp_type() == TimestampType::LogAppendTime;
        self.log_ends[*partition] = last_offset + 1;
        self.committed.push(CommittedBatch {
            base_offset,
            last_offset,
            append_time: moment.append_time,
            log_append_time: is_log_time.then_some(moment.append_time),
            log_start,
        });
    }
}

impl Change for AppendChange {
    fn queued_bytes(&self) -> u64 {
        // What the frame and the entries cost beside the batches themselves, about.
        const PER_BATCH: u64 = 256;
        self.transaction.size_bytes() + PER_BATCH * self.transaction.batch_count() as u64
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn plan(&mut self, moment: &Moment, plan: &mut FramePlan) -> Verdict {
        if let Err(refusal) = self.check() {
            self.refusal = Some(refusal);
            return Verdict::Refused;
        }
        self.committed.clear();
        self.log_ends = vec![0; self.transaction.partitions.len()];
        for index in 0..self.transaction.batches.len() {
            self.plan_batch(index, moment, plan);
        }
        let mut row = Vec::new();
        for partition in &self.transaction.partitions {
            let cell = partition.cell();
            cell.planned().row().encode(&mut row);
            plan.write_batch.put(Family::Partitions, &partition_key(cell.id()), &row);
        }
        Verdict::Planned
    }

    fn undo(&mut self) {
        for partition in &self.transaction.partitions {
            partition.cell().undo();
        }
    }

    fn publish(&mut self, sequence: CommitSequence) {
        let pipeline = &self.transaction.shared.pipeline;
        let synced = pipeline.log.synced();
        for (partition, log_end) in self.transaction.partitions.iter().zip(&self.log_ends) {
            partition.cell().publish(sequence, *log_end, synced);
            pipeline.touch(sequence, partition.cell());
        }
        let records = self.transaction.batches.iter();
        let record_count = records.map(|pending| u64::from(pending.batch.record_count())).sum();
        pipeline.counters.appended_batches.add(self.transaction.batch_count() as u64);
        pipeline.counters.appended_records.add(record_count);
        pipeline.counters.appended_bytes.add(self.transaction.size_bytes());
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        let this = *self;
        let counters = &this.transaction.shared.pipeline.counters;
        let result = match (outcome, this.refusal) {
            (Outcome::Committed { sequence }, _) => {
                Ok(Committed { sequence: Some(sequence), batches: this.committed })
            }
            (Outcome::Unknown(error), _) => Err(CommitError::OutcomeUnknown(error)),
            (Outcome::NotWritten(error), _) => {
                counters.unwritten_commits.add(1);
                Err(CommitError::NotWritten {
                    reason: NotWritten::Storage(error),
                    transaction: Box::new(this.transaction),
                })
            }
            (Outcome::Refused, reason) => {
                counters.refused_transactions.add(1);
                let reason = reason.expect("a refused change keeps its reason");
                Err(CommitError::Refused { reason, transaction: Box::new(this.transaction) })
            }
        };
        this.promise.fulfil(result);
    }
}
