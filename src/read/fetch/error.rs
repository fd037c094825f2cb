//! How a fetch fails; the engine is as it was.

use std::fmt;

use crate::base::error::StorageError;
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
    /// The storage failed, or what it holds is damaged.
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
