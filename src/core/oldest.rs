//! The oldest batch of each partition as retention last saw it: what cannot expire costs no read.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::types::{Offset, PartitionId, TimestampMs};
use crate::state::partition::RemovalMark;

/// The oldest batch of a partition. It is the oldest for as long as the mark is the partition's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oldest {
    /// What the partition showed before the batch was looked up.
    pub mark: RemovalMark,
    /// When it was written, as retention counts.
    pub written_at: TimestampMs,
    /// Its bytes.
    pub length_bytes: u64,
    /// Batches that are there, and were written at a time that has not come yet.
    pub ahead: Option<Ahead>,
}

/// Batches of a partition that were written beyond now: the clock was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// When retention saw that first: they count as written then.
    pub since: TimestampMs,
    /// All of them lie below this offset.
    pub below: Offset,
}

/// The oldest batches, by partition: what one run of retention leaves to the next.
#[derive(Debug, Default)]
pub struct OldestBatches(Mutex<HashMap<PartitionId, Oldest>>);

impl OldestBatches {
    /// The oldest batch of a partition as it was last seen.
    #[must_use]
    pub fn get(&self, partition: PartitionId) -> Option<Oldest> {
        self.0.lock().get(&partition).copied()
    }

    /// Takes all of them, so that a run leaves only what it saw.
    #[must_use]
    pub fn take(&self) -> HashMap<PartitionId, Oldest> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Keeps what a run has seen.
    pub fn put(&self, seen: HashMap<PartitionId, Oldest>) {
        *self.0.lock() = seen;
    }
}
