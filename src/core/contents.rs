//! What a segment holds: every batch that its frames put there, and those that an index still names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::batches::Located;
use crate::base::error::{Corruption, StorageError};
use crate::base::types::{PartitionId, SegmentId};
use crate::commit::{Live, LiveSegments, Pipeline};
use crate::index::keyspace::{BatchEntry, decode_batch_key};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::{Family, Operation, WriteBatch};

/// What stands before every key of batches, and behind all of them.
const ALL_BATCHES: (&[u8], &[u8]) = (&[], &[0xff; 13]);

/// A batch of a partition.
pub type Held = (PartitionId, Located);

/// The batches in a segment that an index names, looked up one by one (rule F1); `None` where the
/// segment cannot be followed to its end, for whatever reason: it must not hold up all others.
///
/// # Errors
/// What the index says.
pub fn live_in(
    pipeline: &Pipeline,
    index: &dyn Read,
    id: SegmentId,
) -> Result<Option<Vec<Held>>, StorageError> {
    let mut keys = BTreeSet::new();
    let mut is_readable = true;
    let walked = pipeline.log.walk(id, &mut |write_batch| {
        is_readable &= note_keys(write_batch, &mut keys).is_some();
    });
    if !matches!(walked, Ok(true)) || !is_readable {
        return Ok(None);
    }
    let mut held = Vec::new();
    for key in keys {
        let Some(value) = index.get(Family::Batches, &key)? else { continue };
        let batch = decode(&key, &value)?;
        if batch.1.entry.location.segment == id {
            held.push(batch);
        }
    }
    Ok(Some(held))
}

fn note_keys(write_batch: &[u8], keys: &mut BTreeSet<Vec<u8>>) -> Option<()> {
    let write_batch = WriteBatch::decode(write_batch).ok()?;
    for operation in write_batch.operations() {
        if let Operation::Put { family: Family::Batches, key, .. } = operation {
            keys.insert(key.to_vec());
        }
    }
    Some(())
}

fn decode(key: &[u8], value: &[u8]) -> Result<Held, Corruption> {
    let (partition, last_offset) = decode_batch_key(key)?;
    Ok((partition, Located { last_offset, entry: BatchEntry::decode(key, value)? }))
}

/// The segments among these that the index names, found by reading all of it: for those that
/// cannot be followed.
///
/// # Errors
/// What the index says.
pub fn named_among(
    index: &dyn Read,
    among: &BTreeSet<SegmentId>,
) -> Result<BTreeSet<SegmentId>, StorageError> {
    let mut named = BTreeSet::new();
    each_batch(index, &mut |(_, located)| {
        let id = located.entry.location.segment;
        if among.contains(&id) {
            named.insert(id);
        }
        ControlFlow::Continue(())
    })?;
    Ok(named)
}

/// Counts what is alive in every segment, unless the engine ends meanwhile.
///
/// # Errors
/// What the index says.
pub fn count_live(pipeline: &Pipeline) -> Result<(), StorageError> {
    let index = pipeline.begin_count();
    let mut live: LiveSegments = BTreeMap::new();
    let mut is_given_up = false;
    each_batch(&*index, &mut |(_, located)| {
        let Live { bytes, batch_count } = live.entry(located.entry.location.segment).or_default();
        *bytes += u64::from(located.entry.location.length_bytes);
        *batch_count += 1;
        is_given_up = pipeline.is_ending();
        if is_given_up { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if !is_given_up {
        pipeline.live.end_count(live);
    }
    Ok(())
}

fn each_batch(
    index: &dyn Read,
    visit: &mut dyn FnMut(Held) -> ControlFlow<()>,
) -> Result<(), StorageError> {
    let mut damage = None;
    let (begin, end) = ALL_BATCHES;
    index.scan(Family::Batches, begin, end, Direction::Forward, &mut |key, value| match decode(
        key, value,
    ) {
        Ok(held) => visit(held),
        Err(corruption) => {
            damage = Some(corruption);
            ControlFlow::Break(())
        }
    })?;
    damage.map_or(Ok(()), |damage| Err(damage.into()))
}
