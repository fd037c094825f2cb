//! The commit that moves batches: each under its own key, if the index still says of it what it said (rule F2).

use std::sync::Arc;

use bytes::Bytes;

use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::base::types::{CommitSequence, Durability};
use crate::commit::{Change, Failure, FramePlan, unplaced};
use crate::core::{Move, Shared};
use crate::index::keyspace::{BatchEntry, batch_key};
use crate::index::write_batch::Family;
use crate::log::Payload;

/// A batch with its bytes.
pub(super) struct Moving {
    pub(super) of: Move,
    pub(super) body: Bytes,
}

struct RelocateChange {
    shared: Arc<Shared>,
    moving: Vec<Moving>,
}

/// What is moved.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    batch_count: u64,
    bytes: u64,
}

/// Moves batches in one commit; tells how many were still there to be moved.
pub(super) fn relocate_batches(
    shared: &Arc<Shared>,
    moving: Vec<Moving>,
) -> Result<u64, StorageError> {
    shared.commit(RelocateChange { shared: Arc::clone(shared), moving })?
}

/// Whether the index still says of a batch what it said when it was found.
pub(super) fn is_there(shared: &Shared, of: &Move) -> Result<bool, StorageError> {
    if shared.pipeline.broken().breaks(Rule::F2CompareEntry) {
        return Ok(true);
    }
    if of.partition.topic().is_deleted() {
        return Ok(false);
    }
    let key = batch_key(of.partition.cell().id(), of.last_offset);
    let value = shared.pipeline.store.get(Family::Batches, &key)?;
    Ok(value.as_deref() == Some(&of.entry.encode()[..]))
}

impl RelocateChange {
    fn try_plan(&self, frame: &mut FramePlan) -> Result<Moved, StorageError> {
        let mut moved = Moved::default();
        for moving in &self.moving {
            let entry = &moving.of.entry;
            let key = batch_key(moving.of.partition.cell().id(), moving.of.last_offset);
            // What was planned before is applied: the change is alone in its group.
            if is_there(&self.shared, &moving.of)? {
                let length_bytes = entry.location.length_bytes;
                let entry = BatchEntry { location: unplaced(length_bytes), ..*entry };
                let body = moving.body.clone();
                let payload = Payload { head: Bytes::new(), body, crc: entry.crc };
                frame.add_batch(&key, &entry, payload);
                let from = moving.of.entry.location.segment;
                frame.note_dead(from, u64::from(length_bytes), 1);
                moved.batch_count += 1;
                moved.bytes += u64::from(length_bytes);
            }
        }
        Ok(moved)
    }
}

impl Change for RelocateChange {
    type Planned = Moved;
    /// Nothing is there any more to be moved, or the index cannot be read.
    type Refusal = Result<(), StorageError>;
    type Answer = Result<u64, StorageError>;

    fn queued_bytes(&self) -> u64 {
        // What the frame and the entries cost beside the batches themselves, about.
        const PER_BATCH: u64 = 256;
        self.moving.iter().map(|moving| moving.body.len() as u64 + PER_BATCH).sum()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        // Half of it, which is looked at before. It gives back more than it takes.
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<Moved, Self::Refusal> {
        let moved = self.try_plan(frame).map_err(Err)?;
        if moved.batch_count > 0 { Ok(moved) } else { Err(Ok(())) }
    }

    fn durability(&self, _planned: &Moved) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, _planned: Moved) {}

    fn publish(&mut self, moved: Moved, _sequence: CommitSequence) -> Self::Answer {
        let counters = &self.shared.pipeline.counters;
        counters.relocated_batches.add(moved.batch_count);
        counters.relocated_bytes.add(moved.bytes);
        Ok(moved.batch_count)
    }

    fn fail(self, failure: Failure<Self::Refusal>) -> Self::Answer {
        failure.into_refusal()??;
        Ok(0)
    }
}
