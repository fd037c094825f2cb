//! How a fetch fails; the engine is as it was.

use std::fmt;

use crate::base::error::{Corruption, StorageError};
use crate::base::types::{Offset, Watermarks};
use crate::state::catalog::Partition;

/// Nothing was fetched.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FetchError {
    /// The topic was deleted since the handle was made, or the handle is of another engine.
    UnknownPartition {
        /// The partition.
        partition: Partition,
    },
    /// The offset is below the log start or above the log end.
    OffsetOutOfRange {
        /// The partition.
        partition: Partition,
        /// The offset that was asked for.
        offset: Offset,
        /// The partition's offsets.
        watermarks: Watermarks,
    },
    /// The record batch at the offset is damaged: its checksum does not match, or the log holds
    /// something else at its place. A fetch from `last_offset + 1` goes on after it.
    Damaged {
        /// The partition.
        partition: Partition,
        /// The offset of the batch's first record.
        base_offset: Offset,
        /// The offset of its last record.
        last_offset: Offset,
        /// What is wrong with it.
        corruption: Corruption,
    },
    /// The storage failed, or the index is damaged.
    Storage(StorageError),
}

impl From<StorageError> for FetchError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => {
                write!(f, "the topic is gone: partition={partition}")
            }
            Self::OffsetOutOfRange { partition, offset, watermarks } => write!(
                f,
                "the offset is out of range: partition={partition} offset={offset} log_start={} \
                 log_end={}",
                watermarks.log_start, watermarks.log_end
            ),
            Self::Damaged { partition, base_offset, last_offset, corruption } => write!(
                f,
                "a record batch is damaged: partition={partition} base_offset={base_offset} \
                 last_offset={last_offset}: {corruption}"
            ),
            Self::Storage(error) => write!(f, "the partition could not be read: {error}"),
        }
    }
}

impl std::error::Error for FetchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => error.source(),
            _ => None,
        }
    }
}
