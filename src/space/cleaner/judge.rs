//! What a pass does with a batch that went through the rules: an item of a commit, or nothing.

use super::change::{Item, Replacement};
use super::error::CleanError;
use super::filter::{FilterError, Filtered};
use super::producers::LastBatches;
use super::reader::damaged;
use super::rules::CleaningRules;
use crate::base::types::{Offset, TimestampMs};
use crate::core::Located;
use crate::record::{BatchHeader, emptied};
use crate::state::catalog::Partition;

/// What decides about batches.
pub(super) struct Judge<'p> {
    pub partition: &'p Partition,
    pub rules: CleaningRules,
    pub last_stable: Offset,
    pub last_batches: &'p LastBatches,
    /// When the first tombstone or marker may go, of those that stay as they are.
    pub next_horizon: &'p mut TimestampMs,
}

impl Judge<'_> {
    /// How a batch changes by what was filtered; `None` if it does not.
    pub(super) fn item(
        &mut self,
        located: &Located,
        header: &BatchHeader,
        filtered: Result<Filtered, FilterError>,
    ) -> Result<Option<Item>, CleanError> {
        let filtered = filtered.map_err(|error| match error {
            FilterError::Records(_) => CleanError::Storage(damaged(self.partition, located)),
            FilterError::Build(source) => CleanError::Rebuild {
                partition: self.partition.clone(),
                offset: located.entry.base_offset,
                source,
            },
        })?;
        let (replacement, horizon) = match filtered {
            Filtered::Unchanged { horizon } => {
                let horizon = horizon.unwrap_or(TimestampMs::MAX);
                *self.next_horizon = (*self.next_horizon).min(horizon);
                return Ok(None);
            }
            Filtered::Emptied if !self.stays_empty(located, header) => (None, None),
            // It is empty already, and stays until data follows.
            Filtered::Emptied if located.entry.record_count == 0 => return Ok(None),
            Filtered::Emptied => (Some(emptied(header)), None),
            Filtered::Rebuilt { bytes, horizon } => (Some(bytes), horizon),
        };
        let replacement = replacement.map(Replacement::new);
        if let Some(Replacement { header, .. }) = &replacement {
            let (kept, before) = (header.record_count().unsigned_abs(), located.entry.record_count);
            assert!(kept <= before, "cleaning adds no record");
            assert_eq!(header.last_offset(), located.last_offset, "a batch keeps its offsets");
            assert_eq!(
                header.base_offset(),
                located.entry.base_offset,
                "a batch keeps its offsets"
            );
        }
        Ok(Some(Item { expected: *located, replacement, horizon }))
    }

    /// Whether a header stays of a batch that has lost all its records: of the last of the log,
    /// and of a producer's last.
    fn stays_empty(&self, located: &Located, header: &BatchHeader) -> bool {
        located.last_offset + 1 >= self.last_stable || self.last_batches.keeps(header)
    }
}
