//! The first reading: checks every batch of the dirty part and notes the newest offset of each key.

use std::ops::ControlFlow;

use super::dirty::{BYTES_PER_BATCH, DirtyBatches};
use super::error::Stop;
use super::key_map::{BYTES_PER_KEY, KeyMap, Put};
use super::plan::CleanerPlan;
use super::producers::is_aborted;
use super::reader::{LOCATE_BYTES, Reader, damaged};
use crate::base::hash::{Hash, HashKey};
use crate::base::types::Offset;
use crate::core::{Located, Shared};
use crate::record::{RecordError, UnpackedBatch};
use crate::state::producer::AbortedSet;

/// What the dirty part holds, up to where the map was full.
#[derive(Debug)]
pub(super) struct Gathered {
    pub keys: KeyMap,
    pub dirty: DirtyBatches,
    /// The offset after the last record that counts.
    pub end: Offset,
}

/// How many keys fit a pass, and how many batches, in this much memory: four fifths go to keys.
fn capacities(memory_bytes: u64) -> (u64, u64) {
    let keys = (memory_bytes / 5 * 4 / BYTES_PER_KEY).max(1);
    (keys, memory_bytes / 5 / BYTES_PER_BATCH)
}

/// Whether all keys fit in any case.
pub(super) fn keys_fit(shared: &Shared, plan: &CleanerPlan) -> bool {
    plan.cleanable_records <= capacities(shared.config.cleaner_memory_bytes).0
}

/// Reads the dirty part. It ends before the first record whose key the map has no room for, even
/// inside a batch; the next pass begins there.
pub(super) fn gather(reader: &mut Reader<'_>, plan: &CleanerPlan) -> Result<Gathered, Stop> {
    let (shared, partition) = (reader.shared, reader.partition);
    let (key_limit, batch_limit) = capacities(shared.config.cleaner_memory_bytes);
    let capacity = key_limit.min(plan.cleanable_records.max(1));
    let mut gathered = Gathered {
        keys: KeyMap::new(capacity, HashKey(shared.secrets.key())),
        dirty: DirtyBatches::new(batch_limit),
        end: plan.first_dirty,
    };
    let mut group = Group::default();
    let mut next = plan.first_dirty;
    while next < plan.uncleanable {
        let (_pin, chunk) = reader.locate(next, plan.uncleanable, LOCATE_BYTES)?;
        let Some(last) = chunk.last() else { break };
        assert!(last.last_offset >= next, "each piece takes the reading on");
        next = last.last_offset + 1;
        let aborted = reader.aborted_in(&chunk)?;
        let is_full = reader.read(&chunk, &mut |located, batch| {
            Ok(
                match take(&mut gathered, &mut group, plan.first_dirty, located, batch, &aborted)
                    .map_err(|_| damaged(partition, located))?
                {
                    Room::Left => ControlFlow::Continue(()),
                    Room::None => ControlFlow::Break(()),
                },
            )
        })?;
        if is_full.is_break() {
            return Ok(gathered);
        }
    }
    group.put(&mut gathered);
    assert!(gathered.end >= plan.first_dirty, "the dirty part ends after its begin");
    assert!(gathered.end <= plan.uncleanable, "what is open stays");
    Ok(gathered)
}

enum Room {
    Left,
    None,
}

fn take(
    gathered: &mut Gathered,
    group: &mut Group,
    first_dirty: Offset,
    located: &Located,
    batch: &UnpackedBatch<'_>,
    aborted: &AbortedSet,
) -> Result<Room, RecordError> {
    let last_offset = located.last_offset;
    gathered.dirty.begin(located.entry.base_offset, last_offset);
    // The keys of what was aborted count for nothing.
    if batch.header().is_control() || is_aborted(batch.header(), aborted) {
        gathered.dirty.open(last_offset);
        group.end = last_offset + 1;
        return Ok(Room::Left);
    }
    for record in batch.keys() {
        let record = record?;
        if record.offset < first_dirty {
            gathered.dirty.look_again_from(last_offset);
            continue;
        }
        if !record.has_value {
            gathered.dirty.open(last_offset);
        }
        match record.key {
            None => gathered.dirty.supersede(record.offset),
            Some(key) => {
                group.offsets[group.count] = record.offset;
                group.hashes[group.count] = gathered.keys.hash(key);
                group.count += 1;
                debug_assert!(group.end <= record.offset, "records come in their order");
                group.end = record.offset + 1;
                if group.count == GROUP && !group.put(gathered) {
                    return Ok(Room::None);
                }
            }
        }
    }
    group.end = last_offset + 1;
    Ok(Room::Left)
}

/// Keys that are put together.
const GROUP: usize = 64;

/// Keys that were read, whose slots are brought near before the first is put.
struct Group {
    hashes: [Hash; GROUP],
    offsets: [Offset; GROUP],
    count: usize,
    /// The offset after all that was read.
    end: Offset,
}

impl Default for Group {
    fn default() -> Self {
        Self { hashes: [[0; 2]; GROUP], offsets: [0; GROUP], count: 0, end: 0 }
    }
}

impl Group {
    /// Puts them all and is empty again. False once the map is full: then what was gathered ends
    /// before the record for whose key it has no room, and nothing is known of that batch and of
    /// those after it.
    fn put(&mut self, gathered: &mut Gathered) -> bool {
        let hashes = &self.hashes[..std::mem::take(&mut self.count)];
        debug_assert!(hashes.len() <= GROUP, "a group has its size");
        gathered.keys.bring_near(hashes);
        for (hash, offset) in hashes.iter().zip(self.offsets) {
            match gathered.keys.put(*hash, offset) {
                Put::New => {}
                Put::Replaced(before) => gathered.dirty.supersede(before),
                Put::Full => {
                    gathered.dirty.look_again_from(offset);
                    return false;
                }
            }
            debug_assert!(gathered.end <= offset, "records come in their order");
            gathered.end = offset + 1;
        }
        gathered.end = gathered.end.max(self.end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_batches_stay_within_the_memory_that_is_given() {
        for memory_bytes in [0, 39, 40, 120, 4096, 128 << 20] {
            let (keys, batches) = capacities(memory_bytes);
            assert!(keys >= 1);
            let used = keys * BYTES_PER_KEY + batches * BYTES_PER_BATCH;
            assert!(used <= memory_bytes.max(BYTES_PER_KEY), "{memory_bytes}");
        }
        assert_eq!([120, 159, 160].map(|bytes| capacities(bytes).0), [3, 3, 4]);
    }
}
