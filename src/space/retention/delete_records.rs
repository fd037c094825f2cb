//! `delete_records`: the log start moves to an offset that a caller names, and survives power loss there.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::change::{Trim, Trimmed, trim};
use crate::base::error::StorageError;
use crate::base::types::{Durability, Offset, Visibility, Watermarks};
use crate::commit::Effects;
use crate::core::{Prefix, Shared, visit};
use crate::index::store::Read;
use crate::state::catalog::Partition;

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

/// How often all that is to go is looked up at once. What the cleaner changes meanwhile makes the
/// look worth nothing, and the more there is to look at the longer it takes.
const MAX_WHOLE_LOOKS: u32 = 3;

/// Batches of a step, in which it goes on after that.
const STEP_BATCHES: u32 = 1024;

/// Moves the log start up to the target, which need not be the border of a batch. Returns the log
/// start: the target, or a higher one that it had already. Beside a busy cleaner it may move in
/// several steps.
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
    let mut looks = 0;
    loop {
        if !shared.catalog.holds(partition.topic()) {
            return Err(unknown());
        }
        let watermarks = shared.watermarks(partition, Visibility::Applied);
        if offset <= watermarks.log_start {
            // Retention moves it in buffered commits; what is answered here survives power loss.
            shared.pipeline.sync(shared.pipeline.last_written())?;
            shared.pipeline.after_progress();
            return Ok(watermarks.log_start);
        }
        let store = &*shared.pipeline.store;
        looks += 1;
        let step = match looks > MAX_WHOLE_LOOKS {
            true => step_end(store, partition, watermarks.log_start, offset)?,
            false => offset,
        };
        assert!(watermarks.log_start < step && step <= offset, "each step takes it on");
        let prefix = Prefix::look_up(store, partition.cell(), step, step, |_| true)?;
        let log_start = prefix.new_start();
        let one = Trim { partition: partition.clone(), prefix, settings: None };
        match trim(shared, vec![one], Durability::Sync)?.first() {
            Some(Trimmed::Done) if step == offset => return Ok(log_start),
            Some(Trimmed::Gone) | None => return Err(unknown()),
            // A step was made, or something else was removed meanwhile.
            Some(Trimmed::Done | Trimmed::Changed) => {}
        }
    }
}

/// Where a step from this log start on ends, which is to get to an offset.
fn step_end(
    store: &dyn Read,
    partition: &Partition,
    log_start: Offset,
    offset: Offset,
) -> Result<Offset, StorageError> {
    let (mut count, mut end) = (0, offset);
    visit(store, partition.cell().id(), log_start, offset, &mut |located| {
        count += 1;
        if count < STEP_BATCHES {
            return ControlFlow::Continue(());
        }
        end = located.last_offset + 1;
        ControlFlow::Break(())
    })?;
    Ok(end)
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
            Self::Storage(error) => write!(f, "the records could not be deleted: {error}"),
        }
    }
}

impl std::error::Error for DeleteRecordsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => error.source(),
            _ => None,
        }
    }
}
