//! An append transaction in the committer's hands: offsets assigned, the frame planned, the answer given.

use bytes::Bytes;

use super::committed::{Committed, CommittedBatch};
use super::error::{CommitError, CommitRefusal, NotWritten};
use super::producers::ProducerPlan;
use super::transaction::{AppendTransaction, PendingBatch};
use crate::base::callback::call;
use crate::base::types::{CommitSequence, Durability, Offset};
use crate::commit::{Change, Failure, FramePlan};
use crate::core::{PlacedBatch, plan_batch, plan_row};
use crate::log::Payload;
use crate::record::TimestampType;
use crate::state::partition::Assigned;

/// No log end.
const UNCHANGED: Offset = -1;

/// What a transaction counts in the queue: its batches, and about what frame and entries cost
/// beside them.
pub(super) fn queued_bytes(transaction: &AppendTransaction) -> u64 {
    const PER_BATCH: u64 = 256;
    transaction.size_bytes() + PER_BATCH * transaction.batch_count() as u64
}

/// Called where the append is not committed.
pub(super) type OnFailure = Box<dyn FnOnce() + Send>;

pub(super) struct AppendChange {
    transaction: AppendTransaction,
    durability: Durability,
    on_failure: Option<OnFailure>,
}

/// What planning decided.
pub(super) struct PlannedAppend {
    committed: Vec<CommittedBatch>,
    /// The log end that this commit makes, of each partition; [`UNCHANGED`] where all that it has
    /// for one is stored already.
    log_ends: Vec<Offset>,
    producers: Option<ProducerPlan>,
}

impl AppendChange {
    pub(super) fn new(
        transaction: AppendTransaction,
        durability: Durability,
        on_failure: Option<OnFailure>,
    ) -> Self {
        Self { transaction, durability, on_failure }
    }

    /// The transaction of a change that the queue did not take.
    pub(super) fn into_transaction(self) -> AppendTransaction {
        self.transaction
    }

    fn check(&self) -> Result<(), CommitRefusal> {
        let records =
            self.transaction.batches.iter().map(|pending| u64::from(pending.batch.record_count()));
        let record_count = records.sum();
        for partition in &self.transaction.partitions {
            if partition.topic().is_deleted() {
                return Err(CommitRefusal::UnknownPartition { partition: partition.clone() });
            }
            let room = partition.cell().planned().check_room(record_count);
            room.map_err(|source| CommitRefusal::OffsetsExhausted {
                partition: partition.clone(),
                source,
            })?;
        }
        Ok(())
    }

    fn plan_batch(&self, index: usize, planned: &mut PlannedAppend, frame: &mut FramePlan) {
        let append_time = frame.moment().append_time;
        let PendingBatch { partition, batch } = &self.transaction.batches[index];
        let cell = self.transaction.partitions[*partition].cell();
        let log_start = cell.planned().watermarks().log_start;
        let keeps_log_time = batch.timestamp_type() == TimestampType::LogAppendTime;
        if let Some(stored) = planned.producers.as_ref().and_then(|plan| plan.stored(index)) {
            planned.committed.push(CommittedBatch {
                base_offset: stored.base_offset(),
                last_offset: stored.last_offset,
                append_time,
                log_append_time: keeps_log_time.then_some(stored.timestamp),
                max_timestamp: stored.timestamp,
                log_start,
                is_duplicate: true,
            });
            return;
        }
        let leader_epoch = self.transaction.shared.session.leader_epoch;
        let stored = batch.stored(append_time);
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
            plan_batch(cell, placed, leader_epoch, frame);
        let record_count = i64::from(batch.record_count());
        assert!(last_offset - base_offset + 1 == record_count, "a record has an offset of its own");
        assert!(base_offset >= planned.log_ends[*partition], "offsets rise within a commit");
        planned.log_ends[*partition] = last_offset + 1;
        planned.committed.push(CommittedBatch {
            base_offset,
            last_offset,
            append_time,
            log_append_time: keeps_log_time.then_some(append_time),
            max_timestamp,
            log_start,
            is_duplicate: false,
        });
    }

    /// The batches that are appended, not those that are stored already.
    fn appended<'a>(
        &'a self,
        committed: &'a [CommittedBatch],
    ) -> impl Iterator<Item = &'a PendingBatch> {
        let both = self.transaction.batches.iter().zip(committed);
        both.filter(|(_, committed)| !committed.is_duplicate).map(|(pending, _)| pending)
    }

    fn count(&self, committed: &[CommittedBatch]) {
        let (mut record_count, mut bytes, mut batch_count) = (0, 0, 0);
        for PendingBatch { batch, .. } in self.appended(committed) {
            record_count += u64::from(batch.record_count());
            bytes += batch.size_bytes() as u64;
            batch_count += 1;
        }
        assert!(batch_count <= committed.len() as u64, "what is appended is committed");
        let counters = &self.transaction.shared.pipeline.counters;
        counters.appended_batches.add(batch_count);
        counters.appended_records.add(record_count);
        counters.appended_bytes.add(bytes);
        counters.duplicate_batches.add(committed.len() as u64 - batch_count);
    }
}

impl Change for AppendChange {
    type Planned = PlannedAppend;
    type Refusal = CommitRefusal;
    type Answer = Result<Committed, CommitError>;

    fn queued_bytes(&self) -> u64 {
        queued_bytes(&self.transaction)
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<PlannedAppend, CommitRefusal> {
        self.check()?;
        let transaction = &self.transaction;
        let producers = if transaction.has_producers() {
            Some(ProducerPlan::look(transaction, frame.moment().append_time)?)
        } else {
            None
        };
        let mut planned = PlannedAppend {
            committed: Vec::with_capacity(transaction.batches.len()),
            log_ends: vec![UNCHANGED; transaction.partitions.len()],
            producers,
        };
        for index in 0..transaction.batches.len() {
            self.plan_batch(index, &mut planned, frame);
        }
        assert!(planned.committed.len() == transaction.batches.len(), "each batch has its offsets");
        if let Some(producers) = &planned.producers {
            producers.install(transaction, frame);
        }
        let mut row = Vec::new();
        for (partition, log_end) in transaction.partitions.iter().zip(&planned.log_ends) {
            // Where all batches are stored already nothing changes.
            if *log_end != UNCHANGED {
                let planned_end = partition.cell().planned().watermarks().log_end;
                debug_assert!(*log_end == planned_end, "the last batch ends the log");
                plan_row(partition.cell(), frame, &mut row);
            }
        }
        Ok(planned)
    }

    fn durability(&self, _planned: &PlannedAppend) -> Durability {
        self.durability
    }

    fn undo(&mut self, planned: PlannedAppend) {
        if let Some(producers) = &planned.producers {
            producers.undo(&self.transaction);
        }
        for partition in &self.transaction.partitions {
            partition.cell().undo();
        }
    }

    fn publish(&mut self, planned: PlannedAppend, sequence: CommitSequence) -> Self::Answer {
        let PlannedAppend { committed, log_ends, .. } = planned;
        debug_assert!(log_ends.len() == self.transaction.partitions.len(), "one end for each");
        let pipeline = &self.transaction.shared.pipeline;
        let synced = pipeline.log.synced();
        for (partition, log_end) in self.transaction.partitions.iter().zip(&log_ends) {
            if *log_end != UNCHANGED {
                partition.cell().publish(sequence, *log_end, synced);
                pipeline.touch(sequence, partition.cell());
            }
        }
        self.count(&committed);
        Ok(Committed { sequence: Some(sequence), batches: committed })
    }

    fn fail(self, failure: Failure<CommitRefusal>) -> Self::Answer {
        let Self { transaction, on_failure, .. } = self;
        if let Some(on_failure) = on_failure {
            on_failure();
        }
        let counters = &transaction.shared.pipeline.counters;
        Err(match failure {
            Failure::Refused(reason) => {
                counters.refused_transactions.add(1);
                CommitError::Refused { reason, transaction: Box::new(transaction) }
            }
            Failure::NotWritten(error) => {
                counters.unwritten_commits.add(1);
                let reason = NotWritten::Storage(error);
                CommitError::NotWritten { reason, transaction: Box::new(transaction) }
            }
            Failure::Unknown(error) => {
                // The buffers may be of the caller's own kind, with code that runs when they are
                // freed.
                call(move || drop(transaction));
                CommitError::OutcomeUnknown(error)
            }
        })
    }
}
