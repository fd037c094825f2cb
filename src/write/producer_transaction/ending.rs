//! Planning the end of a producer transaction: a marker in each partition, and what becomes of its offsets.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Offset, ProducerId};
use crate::commit::FramePlan;
use crate::core::{HeldId, PlacedBatch, Shared, StagedPlace, plan_batch, plan_row};
use crate::index::keyspace::{AbortedRow, GroupRow, batch_key, group_key, producer_key};
use crate::index::store::Read;
use crate::index::write_batch::Family;
use crate::log::Payload;
use crate::record::{EndMarker, MarkerKind, RecordBatch};
use crate::state::catalog::{Catalog, Partition, PartitionCell};
use crate::state::producer::ProducerState;
use crate::state::producer::transaction::Ending;

/// The epoch of the coordinator in every marker: there is one coordinator, and none before it.
pub(super) const COORDINATOR_EPOCH: i32 = 0;

/// A partition in which a transaction ends.
struct Ended {
    partition: Partition,
    before: Option<ProducerState>,
    log_end: Offset,
}

/// The end of a transaction, planned.
pub(crate) struct PlannedEnding {
    kind: MarkerKind,
    producer_id: ProducerId,
    ended: Vec<Ended>,
}

impl PlannedEnding {
    /// Plans markers, producers and offsets. The partitions that were deleted are left out.
    ///
    /// # Errors
    /// [`StorageError`] if what groups have committed cannot be read; then nothing is planned.
    pub(crate) fn plan(
        shared: &Shared,
        ending: &Ending,
        held: &HeldId,
        plan: &mut FramePlan,
    ) -> Result<Self, StorageError> {
        debug_assert!(ending.partitions.is_sorted_by(|a, b| a < b), "one marker in each");
        // First what can fail.
        plan_offsets(&*shared.pipeline.store, &shared.catalog, (ending, held), plan)?;
        let mut planned =
            Self { kind: ending.kind, producer_id: ending.producer_id, ended: Vec::new() };
        let marker = EndMarker { kind: ending.kind, coordinator_epoch: COORDINATOR_EPOCH };
        let now_ms = plan.moment().append_time;
        let marker = marker.batch(ending.producer_id, ending.marker_epoch, now_ms);
        for partition in ending.partitions.iter().filter_map(|id| held.partitions.get(id)) {
            let has_room = partition.cell().planned().check_room(1).is_ok();
            if has_room && shared.catalog.holds(partition.topic()) {
                planned.plan_marker(shared, partition, ending, &marker, plan);
            }
        }
        Ok(planned)
    }

    fn plan_marker(
        &mut self,
        shared: &Shared,
        partition: &Partition,
        ending: &Ending,
        marker: &Bytes,
        plan: &mut FramePlan,
    ) {
        let cell = partition.cell();
        let batch = RecordBatch::parse(marker.clone()).expect("a marker is a record batch");
        let placed = PlacedBatch {
            payload: Payload {
                head: Bytes::new(),
                body: marker.clone(),
                crc: batch.header().crc(),
            },
            attributes: batch.header().attributes().bits(),
            record_count: 1,
            max_timestamp: batch.header().max_timestamp(),
        };
        let now_ms = plan.moment().append_time;
        let assigned = plan_batch(cell, placed, shared.session.leader_epoch, plan);
        assert!(assigned.base_offset == assigned.last_offset, "a marker has one offset");
        let mut partition_state = cell.planned();
        let mut producers = cell.producers();
        let known = producers.get(ending.producer_id).copied();
        let (state, first_offset) =
            ProducerState::ended(known.as_ref(), ending.marker_epoch, now_ms);
        let before = producers.set(ending.producer_id, Some(state));
        let first_unstable = producers.first_unstable();
        partition_state.set_first_unstable(first_unstable);
        drop((partition_state, producers));
        let mut row = Vec::new();
        state.row().encode(&mut row);
        let key = producer_key(cell.id(), ending.producer_id);
        plan.write_batch.put(Family::Producers, &key, &row);
        let log_end = assigned.last_offset + 1;
        assert!(first_unstable.is_none_or(|first| first < log_end), "what is open has begun");
        assert!(first_offset.is_none_or(|first| first < log_end), "it begins before its marker");
        debug_assert!(state.row().open_first_offset.is_none(), "nothing is open after its end");
        if let (MarkerKind::Abort, Some(first_offset)) = (ending.kind, first_offset) {
            let aborted = AbortedRow {
                producer_id: ending.producer_id,
                first_offset,
                last_stable: first_unstable.unwrap_or(log_end),
            };
            let key = batch_key(cell.id(), assigned.last_offset);
            plan.write_batch.put(Family::Aborted, &key, &aborted.encode());
        }
        plan_row(cell, plan, &mut row);
        shared.count_producers(u64::from(before.is_none()));
        self.ended.push(Ended { partition: partition.clone(), before, log_end });
    }

    /// Takes it back.
    pub(crate) fn undo(self, shared: &Shared) {
        for Ended { partition, before, .. } in self.ended.into_iter().rev() {
            shared.forget_producers(u64::from(before.is_none()));
            partition.cell().producers().set(self.producer_id, before);
            partition.cell().undo();
        }
    }

    /// Shows it to readers.
    pub(crate) fn publish(&self, shared: &Shared, sequence: CommitSequence) {
        let pipeline = &shared.pipeline;
        let synced = pipeline.log.synced();
        for Ended { partition, log_end, .. } in &self.ended {
            let cell: &Arc<PartitionCell> = partition.cell();
            cell.publish(sequence, *log_end, synced);
            pipeline.touch(sequence, cell);
        }
        match self.kind {
            MarkerKind::Commit => pipeline.counters.committed_producer_transactions.add(1),
            MarkerKind::Abort => pipeline.counters.aborted_producer_transactions.add(1),
        }
    }
}

/// What the transaction holds for groups becomes theirs, or is dropped.
fn plan_offsets(
    store: &dyn Read,
    catalog: &Catalog,
    (ending, held): (&Ending, &HeldId),
    plan: &mut FramePlan,
) -> Result<(), StorageError> {
    let mut won = Vec::new();
    for (place, staged) in &held.staged {
        debug_assert!(ending.groups.contains(&place.group), "its group is in the transaction");
        if ending.kind == MarkerKind::Commit && exists(catalog, place) {
            let key = group_key(&place.group, place.topic, place.partition);
            let committed = store.get(Family::Groups, &key)?;
            let committed = committed.map(|row| GroupRow::decode(&key, &row)).transpose()?;
            // What was requested later stays, whoever requested it.
            if committed.is_none_or(|row| row.requested_by < staged.requested_by) {
                won.push((key, staged.encode()));
            }
        }
    }
    for (key, row) in won {
        plan.write_batch.put(Family::Groups, &key, &row);
    }
    for place in held.staged.keys() {
        let key = place.key(ending.producer_id);
        plan.write_batch.delete(Family::ProducerTransactions, &key);
    }
    Ok(())
}

fn exists(catalog: &Catalog, place: &StagedPlace) -> bool {
    let topic = catalog.topic_by_id(place.topic);
    let index = i32::try_from(place.partition);
    topic.zip(index.ok()).is_some_and(|(topic, index)| topic.partition(index).is_ok())
}
