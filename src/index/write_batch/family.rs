//! The column families of the index store, each with the number and the name that are on disk.

use super::error::WriteBatchError;

/// A column family of the index store. The number is on disk: it never changes, and a retired one
/// is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// Format version, engine id, epochs, the applied commit, counters of ids.
    Meta = 1,
    /// Topics by name.
    Topics = 2,
    /// Partitions by id.
    Partitions = 3,
    /// Record batches by partition and last offset.
    Batches = 4,
    /// Sparse sums over a partition, for lookups by time and size.
    Index = 5,
    /// Commit log segments.
    Segments = 6,
    /// Producers by partition and producer id.
    Producers = 7,
    /// Aborted producer transactions by partition and offset.
    Aborted = 8,
    /// Producer transactions by transactional id.
    ProducerTransactions = 9,
    /// Consumer group offsets.
    Groups = 10,
}

impl Family {
    /// All families, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Meta,
        Self::Topics,
        Self::Partitions,
        Self::Batches,
        Self::Index,
        Self::Segments,
        Self::Producers,
        Self::Aborted,
        Self::ProducerTransactions,
        Self::Groups,
    ];

    /// The family's name in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Topics => "topics",
            Self::Partitions => "partitions",
            Self::Batches => "batches",
            Self::Index => "index",
            Self::Segments => "segments",
            Self::Producers => "producers",
            Self::Aborted => "aborted",
            Self::ProducerTransactions => "producer_transactions",
            Self::Groups => "groups",
        }
    }
}

impl TryFrom<u8> for Family {
    type Error = WriteBatchError;

    fn try_from(byte: u8) -> Result<Self, WriteBatchError> {
        let known = Self::ALL.iter().find(|&&family| family as u8 == byte);
        known.copied().ok_or(WriteBatchError::UnknownFamily { byte })
    }
}
