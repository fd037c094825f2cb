//! The batches at the start of a partition that are to go: looked up beforehand, compared by the committer (rule F2).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::batches::Located;
use super::span::Span;
use crate::base::error::StorageError;
use crate::base::types::{Offset, PartitionId, SegmentId};
use crate::commit::FramePlan;
use crate::index::keyspace::{BatchEntry, batch_key, batch_key_offset, partition_key};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::state::catalog::PartitionCell;
use crate::state::partition::{RemovalMark, Removed};

/// What lies below a new log start, as it was when it was looked up.
#[derive(Debug, Clone)]
pub struct Prefix {
    /// What the partition must still show, for the rest to be true.
    expected: RemovalMark,
    new_start: Offset,
    removed: Removed,
    /// Bytes and batches that die, by the segment that holds them.
    dead: BTreeMap<SegmentId, (u64, u64)>,
    /// The entries of batches and of sums.
    spans: Vec<Span>,
}

impl Prefix {
    /// Looks up the batches from the log start on that lie below `until` as a whole, as long as
    /// `goes` says of each, oldest first, that it goes. The new log start is one past the last one,
    /// or `least_start` where that is higher: then no batch may lie between them.
    ///
    /// # Errors
    /// [`StorageError`] if the index cannot be read or is damaged.
    pub fn look_up(
        store: &dyn Read,
        cell: &PartitionCell,
        until: Offset,
        least_start: Offset,
        mut goes: impl FnMut(&Located) -> bool,
    ) -> Result<Self, StorageError> {
        // Before the entries: what is removed meanwhile makes the comparison fail.
        let expected = cell.read(|state| state.removal_mark());
        let start = expected.log_start;
        let mut prefix = Self {
            expected,
            new_start: start,
            removed: Removed::default(),
            dead: BTreeMap::new(),
            spans: Vec::new(),
        };
        if until <= start {
            return Ok(prefix);
        }
        let (begin, end) = (batch_key(cell.id(), start), batch_key(cell.id(), until));
        let mut damage = None;
        store.scan(Family::Batches, &begin, &end, Direction::Forward, &mut |key, value| {
            let located = BatchEntry::decode(key, value)
                .and_then(|entry| Ok(Located { last_offset: batch_key_offset(key)?, entry }));
            match located {
                Ok(located) if goes(&located) => {
                    prefix.add(&located);
                    ControlFlow::Continue(())
                }
                Ok(_) => ControlFlow::Break(()),
                Err(corruption) => {
                    damage = Some(corruption);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(damage) = damage {
            return Err(damage.into());
        }
        prefix.new_start = prefix.new_start.max(least_start);
        prefix.look_up_spans(store, cell.id())?;
        Ok(prefix)
    }

    fn add(&mut self, located: &Located) {
        let location = located.entry.location;
        self.removed.batch_count += 1;
        self.removed.record_count += u64::from(located.entry.record_count);
        self.removed.size_bytes += u64::from(location.length_bytes);
        let (bytes, batch_count) = self.dead.entry(location.segment).or_default();
        *bytes += u64::from(location.length_bytes);
        *batch_count += 1;
        self.new_start = located.last_offset + 1;
    }

    fn look_up_spans(
        &mut self,
        store: &dyn Read,
        partition: PartitionId,
    ) -> Result<(), StorageError> {
        if self.moves() {
            let begin = batch_key(partition, self.expected.log_start);
            let end = batch_key(partition, self.new_start);
            // A reader is told what is aborted where it comes to the marker: none below the start.
            for family in [Family::Batches, Family::Index, Family::Aborted] {
                self.spans.push(Span::look_up(store, family, &begin, &end)?);
            }
        }
        Ok(())
    }

    /// The log start that removing it makes.
    #[must_use]
    pub fn new_start(&self) -> Offset {
        self.new_start
    }

    /// What goes.
    #[must_use]
    pub fn removed(&self) -> Removed {
        self.removed
    }

    /// Whether the log start moves.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.new_start > self.expected.log_start
    }

    /// Plans the removal; `false`, and nothing is planned, if anything was removed from the
    /// partition since the look. REQUIRES: called by the committer, and the partition exists.
    #[must_use]
    pub fn plan(&self, cell: &PartitionCell, plan: &mut FramePlan) -> bool {
        let mut planned = cell.planned();
        if planned.removal_mark() != self.expected {
            return false;
        }
        planned.advance_start(self.new_start, &self.removed);
        for span in &self.spans {
            span.delete(&mut plan.write_batch);
        }
        for (id, (bytes, batch_count)) in &self.dead {
            plan.note_dead(*id, *bytes, *batch_count);
        }
        let mut row = Vec::new();
        planned.row().encode(&mut row);
        plan.write_batch.put(Family::Partitions, &partition_key(cell.id()), &row);
        true
    }
}
