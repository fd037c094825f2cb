//! An append transaction in the committer's hands: offsets assigned, the frame planned, the answer told.

use bytes::Bytes;

use super::error::{CommitError, NotWritten, Refusal};
use super::producers::ProducerPlan;
use super::transaction::{AppendTransaction, Committed, CommittedBatch, PendingBatch};
use crate::base::callback::call;
use crate::base::types::{CommitSequence, Durability, Offset};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict};
use crate::core::{PlacedBatch, plan_batch, plan_row};
use crate::log::Payload;
use crate::record::TimestampType;
use crate::state::partition::Assigned;

/// No log end.
const UNCHANGED: Offset = -1;

pub(super) struct AppendChange {
    transaction: AppendTransaction,
    durability: Durability,
    promise: Promise<Result<Committed, CommitError>>,
    committed: Vec<CommittedBatch>,
    /// The log end that this commit makes, of each partition; [`UNCHANGED`] where all that it has
    /// for one is stored already.
    log_ends: Vec<Offset>,
    producers: Option<ProducerPlan>,
    refusal: Option<Refusal>,
}

impl AppendChange {
    pub(super) fn new(
        transaction: AppendTransaction,
        durability: Durability,
        promise: Promise<Result<Committed, CommitError>>,
    ) -> Self {
        let committed = Vec::with_capacity(transaction.batches.len());
        Self {
            transaction,
            durability,
            promise,
            committed,
            log_ends: Vec::new(),
            producers: None,
            refusal: None,
        }
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
        let PendingBatch { partition, batch } = &self.transaction.batches[index];
        let cell = self.transaction.partitions[*partition].cell();
        let log_start = cell.planned().watermarks().log_start;
        let keeps_log_time = batch.timestamp_type() == TimestampType::LogAppendTime;
        if let Some(stored) = self.producers.as_ref().and_then(|plan| plan.stored(index)) {
            self.committed.push(CommittedBatch {
                base_offset: stored.base_offset(),
                last_offset: stored.last_offset,
                append_time: moment.append_time,
                log_append_time: keeps_log_time.then_some(stored.timestamp),
                max_timestamp: stored.timestamp,
                log_start,
                is_duplicate: true,
            });
            return;
        }
        let leader_epoch = self.transaction.shared.session.leader_epoch;
        let stored = batch.stored(moment.append_time);
        let attributes = batch.header().attributes().with_timestamp_type(batch.timestamp_type());
        let head = stored.head.map_or(Bytes::new(), |head| Bytes::copy_from_slice(&head));
        let max_timestamp = stored.max_timestamp;
        let placed = PlacedBatch {
            payload: Payload { head, body: stored.body, crc: stored.crc },
            attributes: attributes.bits(),
            record_count: batch.record_count(),
            max_timestamp,
        };
        let Assigned { base_offset, last_offset, .. } =
            plan_batch(cell, placed, leader_epoch, plan);
        self.log_ends[*partition] = last_offset + 1;
        self.committed.push(CommittedBatch {
            base_offset,
            last_offset,
            append_time: moment.append_time,
            log_append_time: keeps_log_time.then_some(moment.append_time),
            max_timestamp,
            log_start,
            is_duplicate: false,
        });
    }

    /// What the producers allow, before anything is planned.
    fn look_at_producers(&mut self, moment: &Moment) -> Result<(), Refusal> {
        self.producers = None;
        if self.transaction.has_producers() {
            let looked = ProducerPlan::look(&self.transaction, moment.append_time)?;
            self.producers = Some(looked);
        }
        Ok(())
    }

    /// The batches that are appended, not those that are stored already.
    fn appended(&self) -> impl Iterator<Item = &PendingBatch> {
        let committed = self.transaction.batches.iter().zip(&self.committed);
        committed.filter(|(_, committed)| !committed.is_duplicate).map(|(pending, _)| pending)
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
        let allowed = self.check().and_then(|()| self.look_at_producers(moment));
        if let Err(refusal) = allowed {
            self.refusal = Some(refusal);
            return Verdict::Refused;
        }
        self.committed.clear();
        self.log_ends = vec![UNCHANGED; self.transaction.partitions.len()];
        for index in 0..self.transaction.batches.len() {
            self.plan_batch(index, moment, plan);
        }
        if let Some(producers) = &mut self.producers {
            producers.install(&self.transaction, plan);
        }
        let mut row = Vec::new();
        for (partition, log_end) in self.transaction.partitions.iter().zip(&self.log_ends) {
            // Where all batches are stored already nothing changes.
            if *log_end != UNCHANGED {
                plan_row(partition.cell(), plan, &mut row);
            }
        }
        Verdict::Planned
    }

    fn undo(&mut self) {
        if let Some(producers) = &mut self.producers {
            producers.undo(&self.transaction);
        }
        for partition in &self.transaction.partitions {
            partition.cell().undo();
        }
    }

    fn publish(&mut self, sequence: CommitSequence) {
        let pipeline = &self.transaction.shared.pipeline;
        let synced = pipeline.log.synced();
        for (partition, log_end) in self.transaction.partitions.iter().zip(&self.log_ends) {
            if *log_end != UNCHANGED {
                partition.cell().publish(sequence, *log_end, synced);
                pipeline.touch(sequence, partition.cell());
            }
        }
        let (mut record_count, mut bytes, mut batch_count) = (0, 0, 0);
        for PendingBatch { batch, .. } in self.appended() {
            record_count += u64::from(batch.record_count());
            bytes += batch.size_bytes() as u64;
            batch_count += 1;
        }
        let duplicates = self.committed.len() as u64 - batch_count;
        pipeline.counters.appended_batches.add(batch_count);
        pipeline.counters.appended_records.add(record_count);
        pipeline.counters.appended_bytes.add(bytes);
        pipeline.counters.duplicate_batches.add(duplicates);
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        let Self { transaction, promise, committed, refusal, .. } = *self;
        let counters = &transaction.shared.pipeline.counters;
        let (result, done) = match outcome {
            Outcome::Committed { sequence } => {
                let committed = Committed { sequence: Some(sequence), batches: committed };
                (Ok(committed), Some(transaction))
            }
            Outcome::Unknown(error) => (Err(CommitError::OutcomeUnknown(error)), Some(transaction)),
            Outcome::NotWritten(error) => {
                counters.unwritten_commits.add(1);
                let reason = NotWritten::Storage(error);
                let transaction = Box::new(transaction);
                (Err(CommitError::NotWritten { reason, transaction }), None)
            }
            Outcome::Refused => {
                counters.refused_transactions.add(1);
                let reason = refusal.expect("a refused change keeps its reason");
                let transaction = Box::new(transaction);
                (Err(CommitError::Refused { reason, transaction }), None)
            }
        };
        promise.fulfil(result);
        // The buffers may be of the caller's own kind, with code that runs when they are freed.
        call(move || drop(done));
    }
}
