//! Relocation: moves what is alive out of segments that are mostly dead, so that they can be freed.
//!
//! It works in bursts. A burst chooses segments, looks up what is alive in them, and sorts it by
//! the life that it has left, so that what dies together lies together. Then it moves the batches
//! in that order, in small commits at a bounded rate, over as many steps as it takes, into
//! segments that it begins and ends by itself.

mod change;
mod choose;
mod gather;

use std::sync::Arc;

use bytes::Bytes;

use crate::base::error::{Corruption, Place, StorageError};
use crate::core::{Located, Move, Shared, read_batch};
use crate::record::RecordBatch;
use change::{Moving, is_there, relocate_batches};

/// Bytes that are moved in one commit: what an append waits for at most.
const COMMIT_BYTES: u64 = 1 << 20;

/// Batches that are moved in one commit: each is looked up while the others wait.
const COMMIT_BATCHES: usize = 256;

/// What was relocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Relocated {
    /// Batches that were moved.
    pub batch_count: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Whether a burst has ended, so that segments may be dead now.
    pub has_ended: bool,
}

/// Whether a burst is under way.
#[must_use]
pub fn is_under_way(shared: &Shared) -> bool {
    !shared.space.moves.is_empty()
}

/// Begins a burst if too much of the log is dead and none is under way; tells whether one is.
///
/// # Errors
/// What the storage says.
pub fn begin(shared: &Shared) -> Result<bool, StorageError> {
    if is_under_way(shared) {
        return Ok(true);
    }
    let victims = choose::victims(shared)?;
    let moves = gather::survivors(shared, &victims)?;
    if moves.is_empty() {
        return Ok(false);
    }
    shared.pipeline.log.leave_segment();
    shared.space.moves.replace(moves);
    Ok(true)
}

/// Goes on with the burst that is under way, for as many bytes as are allowed.
///
/// # Errors
/// What the storage says. What was moved stays moved; the burst ends, and the next one is chosen by
/// what is there then.
pub fn go_on(shared: &Arc<Shared>, allowance_bytes: u64) -> Result<Relocated, StorageError> {
    let mut relocated = Relocated::default();
    let result = move_on(shared, allowance_bytes, &mut relocated);
    if result.is_err() {
        shared.space.moves.clear();
        shared.pipeline.log.leave_segment();
    }
    result.map(|()| relocated)
}

fn move_on(
    shared: &Arc<Shared>,
    allowance_bytes: u64,
    relocated: &mut Relocated,
) -> Result<(), StorageError> {
    while relocated.bytes < allowance_bytes {
        let max_bytes = COMMIT_BYTES.min(allowance_bytes - relocated.bytes);
        let next = shared.space.moves.take(COMMIT_BATCHES, max_bytes);
        if next.is_empty() {
            break;
        }
        let bytes: u64 = next.iter().map(Move::length_bytes).sum();
        relocated.batch_count += move_batches(shared, &next)?;
        relocated.bytes += bytes;
        if !is_under_way(shared) {
            shared.pipeline.log.leave_segment();
            relocated.has_ended = true;
        }
    }
    Ok(())
}

/// Moves batches in one commit; tells how many were still there to be moved.
fn move_batches(shared: &Arc<Shared>, batches: &[Move]) -> Result<u64, StorageError> {
    let pin = shared.pin();
    let mut moving = Vec::with_capacity(batches.len());
    for one in batches {
        // Under the pin: what is there now is there until it is read.
        if !is_there(shared, one)? {
            continue;
        }
        match read_whole(shared, one) {
            Ok(body) => moving.push(Moving { of: one.clone(), body }),
            // A damaged batch stays where it is, and its segment with it.
            Err(StorageError::Corruption(_)) => {
                shared.pipeline.counters.corruptions.add(1);
                shared.space.damaged.insert(one.entry.location.segment);
                shared.pipeline.log.distrust(one.entry.location.segment);
            }
            Err(error) => {
                // So does one that cannot be read: the next burst is of others.
                shared.space.damaged.insert(one.entry.location.segment);
                return Err(error);
            }
        }
    }
    drop(pin);
    assert!(moving.len() <= batches.len(), "nothing moves that was not chosen");
    if moving.is_empty() {
        return Ok(0);
    }
    choose::check_room(shared, batches.iter().map(Move::length_bytes).sum())?;
    relocate_batches(shared, moving)
}

/// The bytes of a batch, with the whole of its checksum compared.
fn read_whole(shared: &Shared, one: &Move) -> Result<Bytes, StorageError> {
    let located = Located { last_offset: one.last_offset, entry: one.entry };
    let partition = one.partition.cell().id();
    let bytes = read_batch(&shared.pipeline, partition, &located)?;
    let corrupt = |_| Corruption {
        place: Place::Batch { partition, offset: one.entry.base_offset },
        what: "the checksum of the record batch does not match",
    };
    RecordBatch::parse(bytes.clone()).map_err(corrupt)?.verify_crc().map_err(corrupt)?;
    assert_eq!(bytes.len() as u64, one.length_bytes(), "a batch moves as a whole");
    Ok(bytes)
}
