//! One commit of a pass: batches that take the place of others, or go. What changed meanwhile is left alone.
//!
//! The committer compares, in queue order, each index entry with the one that the pass has read
//! (rule F2). An entry that is gone was taken by retention, `delete_records` or the deletion of
//! the topic, and stays gone. One that only lies elsewhere was relocated: what replaces it was made
//! of the same bytes. Anything else ends the pass, which then does not count as done.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, Offset, PayloadLocation, TimestampMs};
use crate::commit::{Change, Failure, FramePlan, Pipeline, unplaced};
use crate::core::Located;
use crate::index::keyspace::{BatchEntry, batch_key, partition_key};
use crate::index::store::Direction;
use crate::index::write_batch::Family;
use crate::log::Payload;
use crate::record::{Attributes, BatchHeader, BatchView, BuildError, rebuild};
use crate::state::catalog::Partition;
use crate::state::partition::BatchSize;

/// Batches that a scan passes over before another seek is cheaper.
const MAX_PASSED: u32 = 8;

/// A batch that is changed.
#[derive(Debug)]
pub(super) struct Item {
    /// What the pass has read.
    pub expected: Located,
    /// What takes its place; nothing, if it goes.
    pub replacement: Option<Replacement>,
    /// When tombstones may go that it holds from now on, or it itself as a marker.
    pub horizon: Option<TimestampMs>,
}

/// A batch that takes another one's place.
#[derive(Debug)]
pub(super) struct Replacement {
    pub header: BatchHeader,
    pub bytes: Bytes,
}

/// What the last commit of a pass says: it is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish {
    /// Everything below this offset is clean.
    pub first_dirty: Offset,
    /// When the first tombstone or marker there may go.
    pub next_horizon: TimestampMs,
}

/// What became of a commit of a pass.
#[derive(Debug)]
pub(super) enum Cleaned {
    /// What could be changed was changed.
    Done,
    /// The pass has to end: its topic is gone or not compacted any more, or another one has
    /// rewritten what it has read.
    Overtaken,
}

pub(super) struct CleanChange {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) partition: Partition,
    pub(super) items: Vec<Item>,
    pub(super) finish: Option<Finish>,
}

/// The log end when the commit was planned.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogEnd(Offset);

impl CleanChange {
    /// The items whose batches are as they were, each with where its batch lies now; `None` if the
    /// pass has to end.
    fn unchanged(&self) -> Result<Option<Vec<(&Item, PayloadLocation)>>, StorageError> {
        let topic = self.partition.topic();
        if topic.is_deleted() || !topic.settings().effective().cleanup_policy.compact {
            return Ok(None);
        }
        let mut unchanged = Vec::with_capacity(self.items.len());
        for (item, found) in self.items.iter().zip(self.found()?) {
            let Some(found) = found else { continue };
            let expected = BatchEntry { location: found.location, ..item.expected.entry };
            let length_bytes = item.expected.entry.location.length_bytes;
            if found != expected || found.location.length_bytes != length_bytes {
                return Ok(None);
            }
            unchanged.push((item, found.location));
        }
        Ok(Some(unchanged))
    }

    /// What the index says of each item's batch now. Items come in the order of offsets and mostly
    /// lie side by side, so that a scan finds many with one seek.
    fn found(&self) -> Result<Vec<Option<BatchEntry>>, StorageError> {
        let id = self.partition.cell().id();
        let key_of = |item: &Item| batch_key(id, item.expected.last_offset);
        let Some(last) = self.items.last() else { return Ok(Vec::new()) };
        let end = [&key_of(last)[..], &[0]].concat();
        let mut found: Vec<Option<BatchEntry>> = Vec::with_capacity(self.items.len());
        while let Some(next) = self.items.get(found.len()) {
            let (mut passed, mut damage) = (0, None);
            let begin = key_of(next);
            let store = &self.pipeline.store;
            store.scan(Family::Batches, &begin, &end, Direction::Forward, &mut |key, value| {
                // Items that the scan has passed are gone.
                while self.items.get(found.len()).is_some_and(|item| key_of(item)[..] < *key) {
                    found.push(None);
                }
                if self.items.get(found.len()).is_some_and(|item| key_of(item)[..] == *key) {
                    passed = 0;
                    match BatchEntry::decode(key, value) {
                        Ok(entry) => found.push(Some(entry)),
                        Err(error) => damage = Some(error),
                    }
                } else {
                    passed += 1;
                }
                let is_far = passed > MAX_PASSED || damage.is_some();
                if is_far { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if let Some(damage) = damage {
                return Err(damage.into());
            }
            if passed <= MAX_PASSED {
                // The scan came to its end: what is left is gone.
                found.resize(self.items.len(), None);
            }
        }
        assert_eq!(found.len(), self.items.len(), "each item was looked for");
        Ok(found)
    }

    fn put(&self, item: &Item, place: PayloadLocation, plan: &mut FramePlan) {
        let cell = self.partition.cell();
        let key = batch_key(cell.id(), item.expected.last_offset);
        let entry = &item.expected.entry;
        let old = BatchSize { length_bytes: place.length_bytes, record_count: entry.record_count };
        plan.note_dead(place.segment, u64::from(old.length_bytes), 1);
        let mut planned = cell.planned();
        match &item.replacement {
            None => {
                plan.write_batch.delete(Family::Batches, &key);
                planned.replace_batch(old, None);
            }
            Some(Replacement { header, bytes }) => {
                let length_bytes = u32::try_from(bytes.len()).expect("a batch is below 2 GiB");
                let record_count = header.record_count().unsigned_abs();
                let entry = BatchEntry {
                    record_count,
                    crc: header.crc(),
                    attributes: header.attributes().bits(),
                    max_timestamp: header.max_timestamp(),
                    location: unplaced(length_bytes),
                    ..*entry
                };
                let payload =
                    Payload { head: Bytes::new(), body: bytes.clone(), crc: header.crc() };
                plan.add_batch(&key, &entry, payload);
                planned.replace_batch(old, Some(BatchSize { length_bytes, record_count }));
            }
        }
        if let Some(horizon) = item.horizon {
            planned.note_horizon(horizon);
        }
        // An aborted transaction is listed as long as its marker ends it for who reads: without
        // the marker a reader would skip what its producer writes later.
        let ends_no_more = item.replacement.as_ref().is_none_or(Replacement::is_empty);
        if Attributes::from_bits(entry.attributes).is_control() && ends_no_more {
            plan.write_batch.delete(Family::Aborted, &key);
        }
    }
}

impl Item {
    /// Gives what takes the batch's place this horizon in place of its own.
    pub(super) fn stamp(&mut self, horizon: TimestampMs) -> Result<(), BuildError> {
        if let Some(new) = &mut self.replacement {
            *new = new.stamped(horizon)?;
            self.horizon = Some(horizon);
        }
        Ok(())
    }
}

impl Replacement {
    /// A batch that was just built.
    pub(super) fn new(bytes: Bytes) -> Self {
        let header = *BatchView::parse(&bytes).expect("it was just built").header();
        Self { header, bytes }
    }

    fn stamped(&self, horizon: TimestampMs) -> Result<Self, BuildError> {
        let view = BatchView::parse(&self.bytes).expect("it was just built");
        let batch = view.unpack().map_err(BuildError::Compression)?;
        let records: Result<Vec<_>, _> = batch.records().collect();
        let records = records.expect("it was just built");
        Ok(Self::new(rebuild(batch.header(), &records, Some(horizon))?))
    }

    fn is_empty(&self) -> bool {
        self.header.record_count() == 0
    }
}

impl Change for CleanChange {
    type Planned = LogEnd;
    type Refusal = Result<Cleaned, StorageError>;
    type Answer = Result<Cleaned, StorageError>;

    fn queued_bytes(&self) -> u64 {
        const PER_ITEM: u64 = 256;
        let replacements = self.items.iter().filter_map(|item| item.replacement.as_ref());
        let bytes: usize = replacements.map(|replacement| replacement.bytes.len()).sum();
        bytes as u64 + PER_ITEM * (1 + self.items.len() as u64)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        // What only takes away frees space; what is written again needs some first.
        self.items.iter().all(|item| item.replacement.is_none())
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<LogEnd, Self::Refusal> {
        let unchanged = self.unchanged().map_err(Err)?.ok_or(Ok(Cleaned::Overtaken))?;
        if unchanged.is_empty() && self.finish.is_none() {
            return Err(Ok(Cleaned::Done));
        }
        for (item, place) in unchanged {
            self.put(item, place, frame);
        }
        let cell = self.partition.cell();
        let mut planned = cell.planned();
        if let Some(finish) = self.finish {
            planned.set_cleaned(finish.first_dirty, finish.next_horizon);
        }
        let mut row = Vec::new();
        planned.row().encode(&mut row);
        frame.write_batch.put(Family::Partitions, &partition_key(cell.id()), &row);
        Ok(LogEnd(planned.row().log_end))
    }

    fn durability(&self, _planned: &LogEnd) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, _planned: LogEnd) {
        self.partition.cell().undo();
    }

    fn publish(&mut self, LogEnd(log_end): LogEnd, sequence: CommitSequence) -> Self::Answer {
        let synced = self.pipeline.log.synced();
        self.partition.cell().publish(sequence, log_end, synced);
        Ok(Cleaned::Done)
    }

    fn fail(self, failure: Failure<Self::Refusal>) -> Self::Answer {
        failure.into_refusal()?
    }
}
