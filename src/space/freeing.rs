//! Freeing: lets segments go that no index names any more (rules F1, F3, F4, F5).
//!
//! A segment goes in two steps. It is *doomed* once a complete checkpoint covers it and the index
//! at that checkpoint names none of its batches, which were looked up one by one. It is freed once
//! no reader's pin is older than that checkpoint: its file is removed, or kept for a while to be
//! written over.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::base::types::SegmentId;
use crate::commit::Effects;
use crate::commit::Pipeline;
use crate::core::{Checkpoint, Shared, live_in, named_among};

/// What was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freed {
    /// Segments.
    pub segment_count: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Of how many the file could not be removed; each later [`release_free`] tries it again.
    pub failed_removals: u64,
}

/// Segments of which nothing seems to be alive, and which are not doomed yet: a checkpoint may
/// let them go.
#[must_use]
pub fn seemingly_dead(shared: &Shared) -> Vec<SegmentId> {
    let pipeline = &shared.pipeline;
    let live = match pipeline.live.get() {
        None if pipeline.broken().breaks(Rule::F1LookUp) => Default::default(),
        None => return Vec::new(),
        Some(live) => live,
    };
    let doomed = shared.space.doomed.ids();
    let newest = pipeline.applied().segment;
    let segments = pipeline.log.segments().into_iter().map(|segment| segment.id);
    segments.filter(|id| *id < newest && !live.contains_key(id) && !doomed.contains(id)).collect()
}

/// Dooms those of the segments that the checkpoint covers and whose batches its index does not
/// name.
///
/// # Errors
/// What the storage says.
pub fn doom(
    shared: &Shared,
    checkpoint: &Checkpoint,
    candidates: &[SegmentId],
) -> Result<(), StorageError> {
    let pipeline = &shared.pipeline;
    let mut dead = BTreeSet::new();
    let mut unreadable = BTreeSet::new();
    for &id in candidates.iter().filter(|id| **id < checkpoint.applied.segment) {
        if pipeline.broken().breaks(Rule::F1LookUp) {
            dead.insert(id);
            continue;
        }
        match live_in(pipeline, &*checkpoint.index, id)? {
            Some(held) if held.is_empty() => drop(dead.insert(id)),
            // The hint was wrong: count anew.
            Some(_) => pipeline.live.forget(),
            None => drop(unreadable.insert(id)),
        }
    }
    if !unreadable.is_empty() {
        let named = named_among(&*checkpoint.index, &unreadable)?;
        dead.extend(unreadable.difference(&named));
        if !named.is_empty() {
            pipeline.live.forget();
        }
    }
    let first_needed = checkpoint.applied.segment;
    assert!(dead.iter().all(|id| *id < first_needed), "the log may begin there (F1)");
    shared.space.doomed.extend(dead, checkpoint.applied.sequence);
    Ok(())
}

/// Frees the doomed segments that no pin holds, one by one, each durably. One whose file cannot be
/// removed is freed as far as the log goes, and keeps no other.
///
/// # Errors
/// That the engine has halted, or was closed.
pub fn free_doomed(shared: &Shared) -> Result<Freed, StorageError> {
    let pipeline = &shared.pipeline;
    let mut freed = Freed::default();
    if shared.space.doomed.is_empty() {
        return Ok(freed);
    }
    let segments = pipeline.log.segments().into_iter();
    let lengths: BTreeMap<_, _> = segments.map(|found| (found.id, found.length_bytes)).collect();
    loop {
        // E3: a halted engine frees nothing.
        if let Some(cause) = pipeline.halted() {
            return Err(cause);
        }
        let ignores_pins = pipeline.broken().breaks(Rule::F3PinsHold);
        let oldest = shared.pins.oldest().filter(|_| !ignores_pins);
        let Some((id, covered)) = shared.space.doomed.take_unpinned(oldest) else {
            return Ok(freed);
        };
        assert!(id < pipeline.applied().segment, "the log goes on after what is freed (F1)");
        let is_synced = covered <= pipeline.log.synced();
        let takes_any = pipeline.broken().breaks(Rule::F1IndexAtCheckpoint)
            || pipeline.broken().breaks(Rule::S4SyncFirst);
        assert!(is_synced || takes_any, "what a checkpoint covers is synced (S4)");
        debug_assert!(is_unnamed(pipeline, id), "the index names nothing in what is freed (F1)");
        let result = shared.while_held(|| pipeline.log.free_segment(id));
        if let Some(cause) = pipeline.halted() {
            return Err(cause);
        }
        if let Err(StorageError::Closed) = result {
            return Err(StorageError::Closed);
        }
        pipeline.live.remove(id);
        freed.failed_removals += u64::from(result.is_err());
        // None of one that another round has freed.
        let Some(&bytes) = lengths.get(&id).filter(|_| !matches!(result, Ok(0))) else { continue };
        pipeline.counters.freed_segments.add(1);
        pipeline.counters.freed_bytes.add(bytes);
        freed.segment_count += 1;
        freed.bytes += bytes;
    }
}

/// Whether the index, as far as it can be read, names no batch of a segment.
fn is_unnamed(pipeline: &Pipeline, id: SegmentId) -> bool {
    let named = named_among(&*pipeline.store, &BTreeSet::from([id]));
    let is_named = named.is_ok_and(|named| !named.is_empty());
    !is_named || pipeline.broken().breaks(Rule::F1LookUp)
}

/// Gives back those of the files that are kept to be written over which the log will not need until
/// the next call; all of them, where nothing was appended since the last one, or the disk has less
/// free space than its reserve. What could not be removed before is tried again. Tells whether
/// anything has failed, which the next call tries again.
///
/// # Errors
/// That the engine has halted, or was closed.
pub fn release_free(shared: &Shared) -> Result<bool, StorageError> {
    let pipeline = &shared.pipeline;
    let appended = pipeline.counters.appended_batches.get();
    let is_idle = shared.space.idleness.has_lasted(appended);
    let released = shared.while_held(|| pipeline.log.release_free(!is_idle));
    match (pipeline.halted(), released) {
        (Some(cause), _) => Err(cause),
        (None, Err(StorageError::Closed)) => Err(StorageError::Closed),
        (None, released) => Ok(released.is_err()),
    }
}
