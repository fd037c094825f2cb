//! The commit that moves batches: each under its own key, if the index still says of it what it said (rule F2).

use std::sync::Arc;

use bytes::Bytes;

use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::base::types::{CommitSequence, Durability};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict, unplaced};
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
    told: Promise<Result<u64, StorageError>>,
    moved_count: u64,
    moved_bytes: u64,
    failure: Option<StorageError>,
}

/// Moves batches in one commit; tells how many were still there to be moved.
pub(super) fn relocate_batches(
    shared: &Arc<Shared>,
    moving: Vec<Moving>,
) -> Result<u64, StorageError> {
    let make = |told| -> Box<dyn Change> {
        let shared = Arc::clone(shared);
        let (moved_count, moved_bytes, failure) = (0, 0, None);
        Box::new(RelocateChange { shared, moving, told, moved_count, moved_bytes, failure })
    };
    shared.commit(make)?
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
    fn try_plan(&mut self, plan: &mut FramePlan) -> Result<(), StorageError> {
        (self.moved_count, self.moved_bytes) = (0, 0);
        for moving in &self.moving {
            let entry = &moving.of.entry;
            let key = batch_key(moving.of.partition.cell().id(), moving.of.last_offset);
            // What was planned before is applied: the change is alone in its group.
            if is_there(&self.shared, &moving.of)? {
                let length_bytes = entry.location.length_bytes;
                let moved = BatchEntry { location: unplaced(length_bytes), ..*entry };
                let body = moving.body.clone();
                plan.add_batch(&key, &moved, Payload { head: Bytes::new(), body, crc: entry.crc });
                plan.note_dead(entry.location.segment, u64::from(length_bytes), 1);
                self.moved_count += 1;
                self.moved_bytes += u64::from(length_bytes);
            }
        }
        Ok(())
    }
}

impl Change for RelocateChange {
    fn queued_bytes(&self) -> u64 {
        // What the frame and the entries cost beside the batches themselves, about.
        const PER_BATCH: u64 = 256;
        self.moving.iter().map(|moving| moving.body.len() as u64 + PER_BATCH).sum()
    }

    fn durability(&self) -> Durability {
        Durability::Buffered
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        // Half of it, which is looked at before. It gives back more than it takes.
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        match self.try_plan(plan) {
            Ok(()) if self.moved_count > 0 => Verdict::Planned,
            Ok(()) => Verdict::Refused,
            Err(error) => {
                self.failure = Some(error);
                Verdict::Refused
            }
        }
    }

    fn undo(&mut self) {}

    fn publish(&mut self, _sequence: CommitSequence) {
        let counters = &self.shared.pipeline.counters;
        counters.relocated_batches.add(self.moved_count);
        counters.relocated_bytes.add(self.moved_bytes);
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        let result = match self.failure {
            Some(error) => Err(error),
            None => Shared::expect_committed(outcome).map(|()| self.moved_count),
        };
        self.told.fulfil(result);
    }
}
