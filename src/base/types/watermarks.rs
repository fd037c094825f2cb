//! The four offsets that describe a partition, and what a caller asks of a commit or a read.

use super::Offset;

/// The offsets that describe a partition at one instant.
///
/// INVARIANT: `log_start <= last_stable <= high_watermark <= log_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Watermarks {
    /// The first offset that can be read.
    pub log_start: Offset,
    /// The offset below which every producer transaction has ended.
    pub last_stable: Offset,
    /// The offset below which records can be read.
    pub high_watermark: Offset,
    /// The offset that the next record gets.
    pub log_end: Offset,
}

impl Watermarks {
    /// The offset below which a reader of this isolation may read.
    #[must_use]
    pub fn readable_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::Committed => self.last_stable,
            Isolation::Uncommitted => self.high_watermark,
        }
    }
}

/// What a commit survives once it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// A killed process, not a power loss. At most `max_unsynced_bytes` of such commits are at
    /// stake.
    Buffered,
    /// Power loss.
    Sync,
}

/// Which records a read may give, as Kafka's `isolation.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// All below the high watermark, those of open and aborted producer transactions too.
    Uncommitted,
    /// Only below the last stable offset.
    #[default]
    Committed,
}

/// From when on a commit may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Visibility {
    /// Once it is applied, as in Kafka: a power loss may take back what was read.
    #[default]
    Applied,
    /// Once it is synced: what was read stays.
    Synced,
}
