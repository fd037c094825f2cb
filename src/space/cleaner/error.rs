//! Why a partition could not be cleaned.

use std::fmt;

use crate::base::error::StorageError;
use crate::base::types::Offset;
use crate::record::BuildError;
use crate::state::catalog::Partition;

/// A partition could not be cleaned. What a pass has committed stays; the next round tries again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CleanError {
    /// The topic was deleted since the handle was made, or the handle is of another engine.
    UnknownPartition {
        /// The partition.
        partition: Partition,
    },
    /// The storage failed, or a batch is damaged: nothing is rewritten out of damaged bytes.
    Storage(StorageError),
    /// A batch could not be built again out of the records that stay.
    Rebuild {
        /// The partition.
        partition: Partition,
        /// The batch's base offset.
        offset: Offset,
        /// Why.
        source: BuildError,
    },
}

/// Why a pass ends before it is done.
#[derive(Debug)]
pub(super) enum Stop {
    /// It was asked to, or its topic is gone or not compacted any more.
    Asked,
    /// It cannot go on.
    Failed(CleanError),
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Self {
        Self::Failed(CleanError::Storage(error))
    }
}

impl From<CleanError> for Stop {
    fn from(error: CleanError) -> Self {
        Self::Failed(error)
    }
}

impl From<StorageError> for CleanError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl fmt::Display for CleanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => {
                write!(f, "the topic is gone: partition={partition}")
            }
            Self::Storage(error) => write!(f, "the partition could not be cleaned: {error}"),
            Self::Rebuild { partition, offset, source } => write!(
                f,
                "a batch could not be rebuilt: partition={partition} offset={offset}: {source}"
            ),
        }
    }
}

impl std::error::Error for CleanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::UnknownPartition { .. } => None,
            Self::Storage(error) => error.source(),
            Self::Rebuild { source, .. } => source.source(),
        }
    }
}
