//! Putting a record batch after the last one of a partition: offsets, the frame's payload, the index entries.

use crate::base::types::{LeaderEpoch, TimestampMs};
use crate::commit::{FramePlan, unplaced};
use crate::index::keyspace::{BatchEntry, batch_key, partition_key};
use crate::index::write_batch::Family;
use crate::log::Payload;
use crate::state::catalog::PartitionCell;
use crate::state::partition::{Assigned, BatchFacts};

/// A batch that is to be appended.
#[derive(Debug)]
pub struct PlacedBatch {
    /// Its bytes.
    pub payload: Payload,
    /// Its attributes, as in its header.
    pub attributes: u16,
    /// The records in it, at least one.
    pub record_count: u32,
    /// Its greatest timestamp, as it is stored.
    pub max_timestamp: TimestampMs,
}

/// Plans a batch after the last one. The row of the partition is planned by [`plan_row`], once for
/// all batches of a change. REQUIRES: called by the committer, and the partition has room.
pub fn plan_batch(
    cell: &PartitionCell,
    batch: PlacedBatch,
    leader_epoch: LeaderEpoch,
    plan: &mut FramePlan,
) -> Assigned {
    let PlacedBatch { payload, attributes, record_count, max_timestamp } = batch;
    let length_bytes = payload.head.len() + payload.body.len();
    let length_bytes = u32::try_from(length_bytes).expect("a batch is below 2 GiB");
    assert!(record_count > 0, "what is appended has records");
    let facts = BatchFacts { record_count, length_bytes, max_timestamp };
    let assigned = cell.planned().append(&facts, leader_epoch);
    assert!(
        assigned.last_offset - assigned.base_offset == i64::from(record_count) - 1,
        "a batch that is appended has an offset for each record"
    );
    let entry = BatchEntry {
        base_offset: assigned.base_offset,
        record_count,
        crc: payload.crc,
        attributes,
        max_timestamp,
        append_time: plan.moment().append_time,
        leader_epoch,
        location: unplaced(length_bytes),
    };
    let key = batch_key(cell.id(), assigned.last_offset);
    plan.add_batch(&key, &entry, payload);
    if let Some(index_entry) = &assigned.index_entry {
        plan.write_batch.put(Family::Index, &key, &index_entry.encode());
    }
    assigned
}

/// Plans the row of a partition as it is planned now; the buffer is reused for many.
pub fn plan_row(cell: &PartitionCell, plan: &mut FramePlan, row: &mut Vec<u8>) {
    cell.planned().row().encode(row);
    plan.write_batch.put(Family::Partitions, &partition_key(cell.id()), row);
}
