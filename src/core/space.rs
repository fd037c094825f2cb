//! What is known of the space in the log while the engine is open: what is to be moved, freed, or left alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parking_lot::Mutex;

use crate::base::types::{CommitSequence, Offset, SegmentId, TimestampMs};
use crate::index::keyspace::BatchEntry;
use crate::state::catalog::Partition;

/// A batch that relocation is to move.
#[derive(Debug, Clone)]
pub struct Move {
    /// Its partition.
    pub partition: Partition,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// What the index said of it; it must still say so.
    pub entry: BatchEntry,
    /// When it will expire, as far as that is known; `i64::MAX` for never.
    pub expires_at: TimestampMs,
}

impl Move {
    /// Its bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        u64::from(self.entry.location.length_bytes)
    }
}

/// What is known of the space in the log. How much of each segment is alive is counted where groups
/// are applied, by the pipeline.
#[derive(Debug, Default)]
pub struct Space {
    /// Batches that relocation has still to move.
    pub moves: PendingMoves,
    /// Segments that nothing names any more.
    pub doomed: DoomedSegments,
    /// Segments that are left alone until the next open.
    pub damaged: DamagedSegments,
    /// Whether anything is appended.
    pub idleness: Idleness,
}

/// Batches that relocation has still to move, the next one first.
#[derive(Debug, Default)]
pub struct PendingMoves(Mutex<VecDeque<Move>>);

impl PendingMoves {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes these, once nothing is left of those before.
    pub fn replace(&self, moves: VecDeque<Move>) {
        let before = std::mem::replace(&mut *self.0.lock(), moves);
        assert!(before.is_empty(), "one burst is under way at a time");
    }

    /// Forgets what is left.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Takes the next ones: one at least where there is one, no more than so many, and no more
    /// bytes than these.
    #[must_use]
    pub fn take(&self, max_count: usize, max_bytes: u64) -> Vec<Move> {
        let mut moves = self.0.lock();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(next) = moves.front() {
            bytes += next.length_bytes();
            let is_full = bytes > max_bytes || taken.len() == max_count;
            if is_full && !taken.is_empty() {
                break;
            }
            taken.extend(moves.pop_front());
        }
        assert!(taken.len() <= max_count.max(1), "no more are taken than were asked for");
        taken
    }
}

/// Segments of which nothing was alive at a checkpoint, each with the checkpoint's commit: it goes
/// once no pin is older (rule F3).
#[derive(Debug, Default)]
pub struct DoomedSegments(Mutex<BTreeMap<SegmentId, CommitSequence>>);

impl DoomedSegments {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<SegmentId> {
        self.0.lock().keys().copied().collect()
    }

    /// Adds segments of which nothing was alive at the checkpoint with this last commit.
    pub fn extend(&self, ids: impl IntoIterator<Item = SegmentId>, checkpoint: CommitSequence) {
        self.0.lock().extend(ids.into_iter().map(|id| (id, checkpoint)));
    }

    /// Takes one whose checkpoint no pin is older than, with the last commit of that checkpoint.
    #[must_use]
    pub fn take_unpinned(
        &self,
        oldest_pin: Option<CommitSequence>,
    ) -> Option<(SegmentId, CommitSequence)> {
        let mut doomed = self.0.lock();
        let is_free = |checkpoint| oldest_pin.is_none_or(|pin| pin >= checkpoint);
        let id = doomed.iter().find(|(_, checkpoint)| is_free(**checkpoint)).map(|(id, _)| *id)?;
        let checkpoint = doomed.remove(&id)?;
        assert!(is_free(checkpoint), "no pin is older than what is freed (F3)");
        Some((id, checkpoint))
    }
}

/// Segments with a batch that is damaged or cannot be read: nothing is moved out of them again
/// until the next open.
#[derive(Debug, Default)]
pub struct DamagedSegments(Mutex<BTreeSet<SegmentId>>);

impl DamagedSegments {
    /// Adds one.
    pub fn insert(&self, id: SegmentId) {
        self.0.lock().insert(id);
    }

    /// All of them.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<SegmentId> {
        self.0.lock().clone()
    }
}

/// Whether anything is appended between two looks.
#[derive(Debug, Default)]
pub struct Idleness(Mutex<Option<u64>>);

impl Idleness {
    /// Whether the count of what was appended is what it was the last time.
    pub fn has_lasted(&self, appended_count: u64) -> bool {
        self.0.lock().replace(appended_count) == Some(appended_count)
    }
}
