//! What a transaction got that was committed: its place among all commits, and offsets for each batch.

use crate::base::types::{CommitSequence, Offset, TimestampMs};

/// A transaction that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// Its place in the order of all commits; `None` for a transaction without batches, which
    /// writes nothing.
    pub sequence: Option<CommitSequence>,
    /// What each batch got, in the order in which they were added.
    pub batches: Vec<CommittedBatch>,
}

/// What a committed batch got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommittedBatch {
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// The engine's clock when the commit was formed.
    pub append_time: TimestampMs,
    /// The time that all its records have, on a topic that keeps the log's time.
    pub log_append_time: Option<TimestampMs>,
    /// Its greatest timestamp, as it was stored.
    pub max_timestamp: TimestampMs,
    /// The first offset of the partition that can be read.
    pub log_start: Offset,
    /// Whether it was stored before, and its producer has sent it again: these are the offsets
    /// that it got then.
    pub is_duplicate: bool,
}
