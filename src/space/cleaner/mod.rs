//! The cleaner, which is compaction by key: keeps the newest record of each key, by Kafka's rules.
//!
//! A pass over a partition takes these steps:
//!
//! 1. **Plan** (`plan`): from the index alone, what is dirty, what of it can be cleaned yet, and
//!    whether a pass is due: by the dirty ratio, by the greatest lag, or because a tombstone or a
//!    marker has reached its horizon.
//! 2. **Newest first** (`newest_first`), where all dirty records fit the memory for keys and no
//!    producer transaction nor horizon is among them: each batch of the dirty part is read once,
//!    from the newest to the oldest, and judged by the keys that were seen before (`key_set`, by a
//!    hash of 128 bits, in memory of a fixed size). Tombstones stay as they are.
//!    **Gather** (`gather`) else, and after it where there are tombstones: read the dirty part
//!    once, check every batch, and note the newest offset of each key (`key_map`) and what is known
//!    of each batch (`dirty`), so that most need no second reading. Keys of aborted transactions
//!    are left out.
//! 3. **Rewrite** (`pass`): in the order of offsets, each batch that was not judged yet, from the
//!    log start on, goes through the rules (`filter`, `rules`, `producers`, `judge`). What loses
//!    nothing is not written again; what loses some is built again under the same key, offsets
//!    unchanged; what loses all goes, but for the last batch of the log and of each producer, whose
//!    header stays so that a reader gets to the end, and that the log alone tells the last
//!    sequences.
//! 4. Each step is an ordinary commit (`change`), which compares what it expects in queue order,
//!    and may be the last before a crash. The last one moves the first dirty offset, and says when
//!    the next tombstone or marker may go.
//!
//! Where Kafka's unit is a segment here it is the batch, and nothing is held back as active.
//! Damaged bytes are never rewritten: the partition is noted, and each round looks whether the
//! damaged batch is whole again.

mod change;
mod dirty;
mod error;
mod filter;
mod gather;
mod judge;
mod key_map;
mod key_set;
mod learned;
mod newest_first;
mod pass;
mod pause;
mod plan;
mod producers;
mod reader;
mod round;
mod rules;
mod wait;

pub use error::CleanError;
pub use pause::CleanerPause;
pub use plan::{CleanerPlan, plan};
pub use round::{CleanerRound, When, clean_partition, clean_round};
pub use wait::wait_until_cleaned;

use std::ops::ControlFlow;

use crate::base::types::Offset;
use change::Item;

/// What a pass asks before it goes on, with the bytes that it has read or will write since it last
/// asked: it may wait here to keep a rate, or end the pass between two commits.
pub type Pace<'p> = dyn FnMut(u64) -> ControlFlow<()> + 'p;

/// What a pass over a partition did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanerPass {
    /// The first dirty offset before it.
    pub from: Offset,
    /// The offset up to which it could go.
    pub uncleanable: Offset,
    /// The first dirty offset after it; below `uncleanable` where the memory for keys was full.
    pub cleaned_to: Offset,
    /// Whether it came to its end. What it did before is kept, and the next pass does it all.
    pub is_finished: bool,
    /// Keys in the dirty part.
    pub key_count: u64,
    /// Records that are gone.
    pub removed_records: u64,
    /// Bytes of batches that it read.
    pub read_bytes: u64,
    /// Bytes of batches that went or were replaced.
    pub replaced_bytes: u64,
    /// Bytes of batches that took their place.
    pub written_bytes: u64,
    /// Commits that it made.
    pub commits: u64,
}

impl CleanerPass {
    fn of(plan: &CleanerPlan) -> Self {
        Self {
            from: plan.first_dirty,
            uncleanable: plan.uncleanable,
            cleaned_to: plan.first_dirty,
            is_finished: false,
            key_count: 0,
            removed_records: 0,
            read_bytes: 0,
            replaced_bytes: 0,
            written_bytes: 0,
            commits: 0,
        }
    }

    fn add(&mut self, item: &Item) {
        let entry = &item.expected.entry;
        let (new_bytes, kept_records) = item.replacement.as_ref().map_or((0, 0), |new| {
            (new.bytes.len() as u64, u64::from(new.header.record_count().unsigned_abs()))
        });
        let before = u64::from(entry.record_count);
        assert!(kept_records <= before, "what is kept and what goes is what was there");
        self.removed_records += before - kept_records;
        self.replaced_bytes += u64::from(entry.location.length_bytes);
        self.written_bytes += new_bytes;
    }
}
