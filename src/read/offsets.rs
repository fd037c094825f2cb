//! Lookups of offsets: earliest, latest, by timestamp, of the greatest timestamp (Kafka's ListOffsets).
//!
//! A lookup by time finds, by bisection over the sparse index, the stretch of log in which the
//! running maximum first reaches the timestamp, then the first batch in it whose own maximum does,
//! then the first record. The records decide, as in Kafka.

use std::fmt;
use std::ops::ControlFlow;

use crate::base::error::StorageError;
use crate::base::types::{
    Isolation, LeaderEpoch, NO_TIMESTAMP, Offset, PartitionId, TimestampMs, Visibility,
};
use crate::commit::Pipeline;
use crate::core::{Located, Shared, damage, read_batch, visit};
use crate::index::keyspace::{BatchEntry, IndexEntry, batch_key, batch_key_offset};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::record::{RecordBatch, TimestampType};
use crate::state::catalog::Partition;
use crate::state::partition::PartitionState;

/// What a lookup asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetQuery {
    /// The log start offset.
    Earliest,
    /// The offset below which the caller can read.
    Latest,
    /// The first record, by offset, whose timestamp is at least this one.
    Timestamp(TimestampMs),
    /// The first record that has the greatest timestamp. Where only committed data is asked for,
    /// there is none while it is not committed.
    MaxTimestamp,
}

/// A record, or a place between records, that a lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset.
    pub offset: Offset,
    /// The record's timestamp; -1 where the offset is no record's.
    pub timestamp: TimestampMs,
    /// The leader epoch of the offset.
    pub leader_epoch: LeaderEpoch,
}

/// A lookup found nothing out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ListOffsetError {
    /// The topic was deleted since the handle was made, or the handle is of another engine.
    UnknownPartition {
        /// The partition.
        partition: Partition,
    },
    /// The storage failed, or what it holds is damaged.
    Storage(StorageError),
}

/// Looks an offset up; `None` if no record fits.
///
/// # Errors
/// [`ListOffsetError`]: the topic is gone, or damage.
pub fn list_offset(
    shared: &Shared,
    partition: &Partition,
    query: OffsetQuery,
    isolation: Isolation,
    visibility: Visibility,
) -> Result<Option<FoundOffset>, ListOffsetError> {
    loop {
        shared.check_open()?;
        if !shared.catalog.holds(partition.topic()) {
            return Err(ListOffsetError::UnknownPartition { partition: partition.clone() });
        }
        let mark = || partition.cell().read(PartitionState::removal_mark);
        let before = mark();
        let found = look_up(shared, partition, query, isolation, visibility)?;
        if found.is_some() {
            return Ok(found);
        }
        // What was removed meanwhile may have been all that fitted below the bound of this look:
        // what fits beyond it was there before the removal.
        shared.settle();
        if mark() == before {
            return Ok(None);
        }
    }
}

/// One look for an offset, in a partition from which nothing is removed meanwhile.
fn look_up(
    shared: &Shared,
    partition: &Partition,
    query: OffsetQuery,
    isolation: Isolation,
    visibility: Visibility,
) -> Result<Option<FoundOffset>, StorageError> {
    let _pin = shared.pin();
    let marks = shared.watermarks(partition, visibility);
    let bound = marks.readable_end(isolation);
    assert!(bound <= marks.high_watermark, "nobody reads at the high watermark or after it");
    assert!(marks.high_watermark <= marks.log_end, "the log ends at the high watermark or later");
    let place = |offset| {
        let leader_epoch = partition.cell().read(|state| state.epoch_at(offset));
        let leader_epoch = leader_epoch.unwrap_or(shared.session.leader_epoch);
        Some(FoundOffset { offset, timestamp: NO_TIMESTAMP, leader_epoch })
    };
    let lookup = Lookup {
        pipeline: &shared.pipeline,
        store: &*shared.pipeline.store,
        partition: partition.cell().id(),
        start: marks.log_start,
        bound,
    };
    match query {
        OffsetQuery::Earliest => Ok(place(marks.log_start)),
        OffsetQuery::Latest => Ok(place(bound)),
        OffsetQuery::Timestamp(timestamp) => lookup.first_at_least(timestamp),
        // As in Kafka: nothing where the greatest is not committed yet, rather than the greatest of
        // what is.
        OffsetQuery::MaxTimestamp => Lookup { bound: marks.high_watermark, ..lookup }
            .first_of_greatest()
            .map(|found| found.filter(|found| found.offset < bound)),
    }
}

struct Lookup<'a> {
    pipeline: &'a Pipeline,
    store: &'a dyn Read,
    partition: PartitionId,
    start: Offset,
    bound: Offset,
}

impl Lookup<'_> {
    fn first_at_least(&self, wanted: TimestampMs) -> Result<Option<FoundOffset>, StorageError> {
        let mut from = self.stretch_reaching(wanted)?;
        while let Some(batch) = self.first_batch(from, |entry| entry.max_timestamp >= wanted)? {
            let found = self.first_record(&batch, |timestamp| timestamp >= wanted)?;
            if found.is_some() {
                return Ok(found);
            }
            debug_assert!(batch.last_offset >= from, "each batch is looked into once");
            from = batch.last_offset + 1;
        }
        Ok(None)
    }

    /// Only records count: a batch that was emptied has none, whatever its header says, and of one
    /// that the log start cuts only what is visible does.
    fn first_of_greatest(&self) -> Result<Option<FoundOffset>, StorageError> {
        let mut greatest: Option<TimestampMs> = None;
        let mut cut: Option<Located> = None;
        self.visit(self.start, &mut |located| {
            if located.entry.base_offset < self.start {
                cut = Some(located);
            } else if located.entry.record_count > 0 {
                greatest = greatest.max(Some(located.entry.max_timestamp));
            }
            ControlFlow::Continue(())
        })?;
        // The greatest of a batch that the log start cuts may belong to a record below it.
        let in_cut = match cut {
            Some(batch) => self.greatest_record(&batch)?,
            None => None,
        };
        if let Some(found) = in_cut.filter(|found| greatest.is_none_or(|ts| ts <= found.timestamp))
        {
            return Ok(Some(found));
        }
        let Some(greatest) = greatest else { return Ok(None) };
        let fits = |entry: &BatchEntry| {
            entry.base_offset >= self.start
                && entry.record_count > 0
                && entry.max_timestamp == greatest
        };
        let mut from = self.start;
        while let Some(batch) = self.first_batch(from, fits)? {
            let found = self.first_record(&batch, |timestamp| timestamp == greatest)?;
            if found.is_some() {
                return Ok(found);
            }
            debug_assert!(batch.last_offset >= from, "each batch is looked into once");
            from = batch.last_offset + 1;
        }
        Ok(None)
    }

    /// The first record of a batch, at or behind the log start, that has the greatest timestamp.
    fn greatest_record(&self, located: &Located) -> Result<Option<FoundOffset>, StorageError> {
        let mut greatest: Option<FoundOffset> = None;
        self.each_record(located, |found| {
            if greatest.is_none_or(|best| best.timestamp < found.timestamp) {
                greatest = Some(found);
            }
            ControlFlow::Continue(())
        })?;
        Ok(greatest)
    }

    /// An offset at or below the first batch whose maximum reaches the timestamp: behind the last
    /// index entry whose running maximum does not.
    fn stretch_reaching(&self, wanted: TimestampMs) -> Result<Offset, StorageError> {
        // INVARIANT: all below `low` is too early; `high` is the bound, or at or below an index
        // entry whose running maximum reaches it.
        let (mut low, mut high) = (self.start, self.bound);
        while low < high {
            let middle = low + (high - low) / 2;
            debug_assert!((low..high).contains(&middle), "each step leaves less to look through");
            match self.index_entry_from(middle, high)? {
                Some((last_offset, entry)) if entry.running_max_timestamp < wanted => {
                    low = last_offset + 1;
                }
                _ => high = middle,
            }
        }
        debug_assert!(low >= self.start, "nothing below the log start is looked for");
        Ok(low)
    }

    fn index_entry_from(
        &self,
        from: Offset,
        until: Offset,
    ) -> Result<Option<(Offset, IndexEntry)>, StorageError> {
        let (begin, end) = (batch_key(self.partition, from), batch_key(self.partition, until));
        let mut found = None;
        self.store.scan(Family::Index, &begin, &end, Direction::Forward, &mut |key, value| {
            let entry = IndexEntry::decode(key, value);
            found = Some(entry.and_then(|entry| Ok((batch_key_offset(key)?, entry))));
            ControlFlow::Break(())
        })?;
        Ok(found.transpose()?)
    }

    fn first_batch(
        &self,
        from: Offset,
        fits: impl Fn(&BatchEntry) -> bool,
    ) -> Result<Option<Located>, StorageError> {
        let mut found = None;
        self.visit(from, &mut |located| {
            if fits(&located.entry) {
                found = Some(located);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn visit(
        &self,
        from: Offset,
        look: &mut dyn FnMut(Located) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        visit(self.store, self.partition, from, self.bound, look)
    }

    fn first_record(
        &self,
        located: &Located,
        fits: impl Fn(TimestampMs) -> bool,
    ) -> Result<Option<FoundOffset>, StorageError> {
        let mut first = None;
        self.each_record(located, |found| {
            debug_assert!((self.start..self.bound).contains(&found.offset), "it can be read");
            if fits(found.timestamp) {
                first = Some(found);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(first)
    }

    /// Visits the records of a batch that can be read.
    fn each_record(
        &self,
        located: &Located,
        mut visit: impl FnMut(FoundOffset) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let bytes = read_batch(self.pipeline, self.partition, located)?;
        let what = "the record batch cannot be decoded";
        let corrupt = |_| damage(self.pipeline, self.partition, located, what);
        let batch = RecordBatch::parse(bytes).map_err(corrupt)?;
        batch.verify_crc().map_err(corrupt)?;
        let is_log_time =
            batch.header().attributes().timestamp_type() == TimestampType::LogAppendTime;
        for record in batch.stored_records() {
            let record = record.map_err(corrupt)?;
            let timestamp =
                if is_log_time { located.entry.max_timestamp } else { record.timestamp };
            if record.offset >= self.start && record.offset < self.bound {
                let (offset, leader_epoch) = (record.offset, located.entry.leader_epoch);
                if visit(FoundOffset { offset, timestamp, leader_epoch }).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl From<StorageError> for ListOffsetError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl fmt::Display for ListOffsetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => {
                write!(f, "the topic is gone: partition={partition}")
            }
            Self::Storage(error) => write!(f, "the partition could not be read: {error}"),
        }
    }
}

impl std::error::Error for ListOffsetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => error.source(),
            Self::UnknownPartition { .. } => None,
        }
    }
}
