//! `delete_records`: the log start moves to an offset that a caller names, and survives power loss there.

use std::fmt;
use std::sync::Arc;

use super::change::{Trim, Trimmed, trim};
use crate::catalog::Partition;
use crate::commit::Effects;
use crate::error::StorageError;
use crate::shared::{Prefix, Shared};
use crate::types::{Durability, Offset, Visibility, Watermarks};

/// Up to where records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetTarget {
    /// Those below this offset.
    Offset(Offset),
    /// All that can be read: those below the high watermark.
    HighWatermark,
}

impl From<Offset> for OffsetTarget {
    fn from(offset: Offset) -> Self {
        Self::Offset(offset)
    }
}

/// No record was deleted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DeleteRecordsError {
    /// The topic was deleted since the handle was made, or the handle is of another engine.
    UnknownPartition {
        /// The partition.
        partition: Partition,
    },
    /// The offset is negative or above the high watermark.
    OffsetOutOfRange {
        /// The partition.
        partition: Partition,
        /// The offset that was named.
        offset: Offset,
        /// The partition's offsets.
        watermarks: Watermarks,
    },
    /// The storage failed, or what it holds is damaged.
    Storage(StorageError),
}

/// Moves the log start up to the target, which need not be the border of a batch. Returns the log
/// start: the target, or a higher one that it had already.
///
/// # Errors
/// [`DeleteRecordsError`]: the topic is gone, the offset is out of range, or the storage; after a
/// failed sync the outcome is unknown.
pub fn delete_records(
    shared: &Arc<Shared>,
    partition: &Partition,
    target: OffsetTarget,
) -> Result<Offset, DeleteRecordsError> {
    shared.check_open()?;
    let unknown = || DeleteRecordsError::UnknownPartition { partition: partition.clone() };
    loop {
        if !shared.catalog.holds(partition.topic()) {
            return Err(unknown());
        }
        let watermarks = shared.watermarks(partition, Visibility::Applied);
        let offset = match target {
            OffsetTarget::HighWatermark => watermarks.high_watermark,
            OffsetTarget::Offset(offset) => offset,
        };
        if offset < 0 || offset > watermarks.high_watermark {
            let partition = partition.clone();
            return Err(DeleteRecordsError::OffsetOutOfRange { partition, offset, watermarks });
        }
        if offset <= watermarks.log_start {
            // Retention moves it in buffered commits; what is answered here survives power loss.
            shared.pipeline.sync(shared.pipeline.last_written())?;
            shared.pipeline.after_progress();
            return Ok(watermarks.log_start);
        }
        let store = &*shared.pipeline.store;
        let prefix = Prefix::look_up(store, partition.cell(), offset, offset, |_| true)?;
        let log_start = prefix.new_start();
        let one = Trim { partition: partition.clone(), prefix, settings: None };
        match trim(shared, vec![one], Durability::Sync)?.first() {
            Some(Trimmed::Done) => return Ok(log_start),
            Some(Trimmed::Gone) | None => return Err(unknown()),
            // Something else was removed meanwhile, so this ends.
            Some(Trimmed::Changed) => {}
        }
    }
}

impl From<StorageError> for DeleteRecordsError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl fmt::Display for DeleteRecordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => {
                write!(f, "the topic is gone: partition={partition}")
            }
            Self::OffsetOutOfRange { partition, offset, watermarks } => write!(
                f,
                "the offset is out of range: partition={partition} offset={offset} \
                 high_watermark={}",
                watermarks.high_watermark
            ),
            Self::Storage(_) => f.write_str("the records could not be deleted"),
        }
    }
}

impl std::error::Error for DeleteRecordsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => Some(error),
            _ => None,
        }
    }
}
