//! Scans: the records of a topic as they were at one instant over all partitions.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeBounds;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{Offset, PartitionId, ProducerId, TimestampMs};
use crate::core::{Located, PinnedIndex, Shared, aborted_transactions, damage, locate, read_batch};
use crate::index::keyspace::{
    PartitionRow, ProducerRow, decode_producer_key, partition_key, partition_range,
};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::record::{Attributes, Record, RecordBatch};
use crate::state::catalog::Topic;
use crate::state::producer::AbortedSet;

/// Index entries that a scan reads at a time.
const LOOK_AHEAD_BYTES: u64 = 1 << 20;

/// All partitions of all topics, at one instant: an append transaction and a producer transaction
/// are in it whole or not at all, whatever other transactions are open. It costs nothing to take,
/// and holds what it shows from being freed while it lives, for `max_snapshot_age_ms` at most.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
    index: PinnedIndex,
}

/// Takes a snapshot. It shows everything that any reader has seen before.
#[must_use]
pub fn snapshot(shared: &Arc<Shared>) -> Snapshot {
    Snapshot { index: shared.snapshot(), shared: Arc::clone(shared) }
}

/// A record that a scan found.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScannedRecord {
    /// Its partition.
    pub partition: i32,
    /// The record, with its offset and timestamp.
    pub record: Record,
    /// The engine's clock when its commit was formed.
    pub append_time: TimestampMs,
}

/// A scan failed; it gives nothing more of the partition.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ScanError {
    /// The topic has no partition of this number in the snapshot.
    UnknownPartition {
        /// The number.
        partition: i32,
    },
    /// The snapshot is older than `max_snapshot_age_ms`: what it shows may be gone.
    Expired,
    /// The storage failed, or what it holds is damaged.
    Storage(StorageError),
}

impl Snapshot {
    /// Iterates over a topic's records, partition by partition, each in the order of offsets.
    /// Narrow it down before the first record is taken.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-scan-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let orders = engine.create_topic("orders", TopicConfig::new(2))?;
    /// let mut append = engine.append_transaction();
    /// for partition in orders.partitions() {
    ///     append.records(&partition, [10, 20, 30].map(|ms| Record::keyless("v").timestamp(ms)))?;
    /// }
    /// append.commit(Durability::Buffered)?;
    ///
    /// let snapshot = engine.snapshot();
    /// let mut places = Vec::new();
    /// for scanned in snapshot.scan(&orders).partitions(&[1]).timestamps(15..) {
    ///     let scanned = scanned?;
    ///     places.push((scanned.partition, scanned.record.offset));
    /// }
    /// assert_eq!(places, [(1, 1), (1, 2)]);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, topic: &Topic) -> Scan {
        let partitions = topic.partitions();
        let ids = partitions.iter().map(|partition| (partition.index(), partition.cell().id()));
        Scan {
            snapshot: self.clone(),
            pending: ids.rev().collect(),
            choice: Choice::All { seen: false },
            offsets: Between::ALL,
            timestamps: Between::ALL,
            append_times: Between::ALL,
            current: None,
        }
    }
}

/// The records of a topic in a [`Snapshot`]: committed data only.
#[must_use]
pub struct Scan {
    snapshot: Snapshot,
    /// Partitions that are still to be read, the next one last.
    pending: Vec<(i32, PartitionId)>,
    choice: Choice,
    offsets: Between,
    timestamps: Between,
    append_times: Between,
    current: Option<Current>,
}

/// Which partitions are scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// Those that the caller named: one that is not in the snapshot is an error.
    Named,
    /// All that the topic had at that instant. Once one was seen in the snapshot, one that is not
    /// in it was added later.
    All { seen: bool },
}

struct Current {
    partition: i32,
    id: PartitionId,
    /// The log start: it may lie inside a batch.
    start: Offset,
    next_offset: Offset,
    bound: Offset,
    /// Batches that were located, the next one last.
    located: Vec<Located>,
    /// What of them was aborted.
    aborted: AbortedSet,
    /// Where the transaction of each producer that has one open begins.
    open: BTreeMap<ProducerId, Offset>,
    append_time: TimestampMs,
    /// Records that were decoded, the next one last.
    records: Vec<Record>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Between {
    least: i64,
    greatest: i64,
}

impl Between {
    const ALL: Self = Self { least: i64::MIN, greatest: i64::MAX };

    fn new(range: &impl RangeBounds<i64>) -> Self {
        let none = Self { least: i64::MAX, greatest: i64::MIN };
        let least = match range.start_bound() {
            Bound::Included(least) => Some(*least),
            Bound::Excluded(below) => below.checked_add(1),
            Bound::Unbounded => Some(i64::MIN),
        };
        let greatest = match range.end_bound() {
            Bound::Included(greatest) => Some(*greatest),
            Bound::Excluded(above) => above.checked_sub(1),
            Bound::Unbounded => Some(i64::MAX),
        };
        least.zip(greatest).map_or(none, |(least, greatest)| Self { least, greatest })
    }

    fn holds(self, value: i64) -> bool {
        self.least <= value && value <= self.greatest
    }
}

impl Scan {
    /// Only these partitions, in this order.
    pub fn partitions(mut self, chosen: &[i32]) -> Self {
        let by_index = |index: &i32| self.pending.iter().find(|(known, _)| known == index).copied();
        // A partition that there is not is found out when its turn comes.
        let unknown = |index: &i32| (*index, PartitionId(u32::MAX));
        let ids = chosen.iter().map(|index| by_index(index).unwrap_or_else(|| unknown(index)));
        self.pending = ids.rev().collect();
        self.choice = Choice::Named;
        self
    }

    /// Only records with these offsets.
    pub fn offsets(mut self, range: impl RangeBounds<Offset>) -> Self {
        self.offsets = Between::new(&range);
        self
    }

    /// Only records with these timestamps.
    pub fn timestamps(mut self, range: impl RangeBounds<TimestampMs>) -> Self {
        self.timestamps = Between::new(&range);
        self
    }

    /// Only records that were appended at these times, by the engine's clock.
    pub fn append_times(mut self, range: impl RangeBounds<TimestampMs>) -> Self {
        self.append_times = Between::new(&range);
        self
    }

    /// The partition at its beginning; `None` if it was added behind the snapshot.
    fn begin(&mut self, partition: i32, id: PartitionId) -> Result<Option<Current>, ScanError> {
        let key = partition_key(id);
        let row = self
            .snapshot
            .index
            .store()
            .get(Family::Partitions, &key)
            .map_err(ScanError::Storage)?;
        let Some(row) = row else {
            let added_later = self.choice == Choice::All { seen: true };
            let unknown = ScanError::UnknownPartition { partition };
            return if added_later { Ok(None) } else { Err(unknown) };
        };
        if let Choice::All { seen } = &mut self.choice {
            *seen = true;
        }
        let row = PartitionRow::decode(&key, &row).map_err(StorageError::from);
        let row = row.map_err(ScanError::Storage)?;
        let open = match row.first_unstable {
            Some(_) => open_transactions(self.snapshot.index.store(), id),
            None => Ok(BTreeMap::new()),
        };
        Ok(Some(Current {
            partition,
            id,
            start: row.log_start,
            next_offset: row.log_start.max(self.offsets.least),
            bound: row.log_end.min(self.offsets.greatest.saturating_add(1)),
            located: Vec::new(),
            aborted: AbortedSet::default(),
            open: open.map_err(ScanError::Storage)?,
            append_time: 0,
            records: Vec::new(),
        }))
    }

    /// Decodes the next batch of the current partition; `Break` when there is none.
    fn advance(&self, current: &mut Current) -> Result<ControlFlow<()>, StorageError> {
        if current.located.is_empty() {
            if current.next_offset >= current.bound {
                return Ok(ControlFlow::Break(()));
            }
            let store = self.snapshot.index.store();
            // The batch that holds the last wanted offset may end behind it.
            let end = Offset::MAX;
            let limit = (LOOK_AHEAD_BYTES, true);
            current.located = locate(store, current.id, current.next_offset, end, limit)?;
            let rises = |a: &Located, b: &Located| a.last_offset < b.last_offset;
            debug_assert!(current.located.is_sorted_by(rises), "batches in the order of offsets");
            current.aborted = aborted_among(store, current)?;
            current.located.reverse();
        }
        let Some(located) = current.located.pop() else { return Ok(ControlFlow::Break(())) };
        debug_assert!(located.last_offset >= current.next_offset, "a scan goes forward");
        debug_assert!(current.records.is_empty(), "the batch before was read to its end");
        current.next_offset = located.last_offset + 1;
        if located.entry.base_offset >= current.bound {
            return Ok(ControlFlow::Break(()));
        }
        let entry = &located.entry;
        if self.append_times.holds(entry.append_time)
            && entry.max_timestamp >= self.timestamps.least
        {
            current.append_time = entry.append_time;
            current.records = self.decode(current, &located)?;
            current.records.reverse();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn decode(&self, current: &Current, located: &Located) -> Result<Vec<Record>, StorageError> {
        let id = current.id;
        let bytes = read_batch(&self.snapshot.shared.pipeline, id, located)?;
        let what = "the record batch cannot be decoded";
        let corrupt = |_| damage(&self.snapshot.shared.pipeline, id, located, what);
        let batch = RecordBatch::parse(bytes).map_err(corrupt)?;
        batch.verify_crc().map_err(corrupt)?;
        let header = batch.header();
        let (producer_id, base_offset) = (header.producer_id(), located.entry.base_offset);
        let is_open = current.open.get(&producer_id).is_some_and(|first| *first <= base_offset);
        let is_left_out = header.is_transactional()
            && (is_open || current.aborted.holds(producer_id, base_offset));
        if header.is_control() || is_left_out {
            return Ok(Vec::new());
        }
        let records: Result<Vec<_>, _> = batch.stored_records().collect();
        records.map_err(corrupt)
    }

    fn wants(&self, current: &Current, record: &Record) -> bool {
        let offset = record.offset;
        self.offsets.holds(offset)
            && (current.start..current.bound).contains(&offset)
            && self.timestamps.holds(record.timestamp)
    }
}

/// Where the open transaction of each producer begins in a partition.
fn open_transactions(
    store: &dyn Read,
    partition: PartitionId,
) -> Result<BTreeMap<ProducerId, Offset>, StorageError> {
    let (begin, end) = partition_range(partition);
    let mut open = BTreeMap::new();
    let mut failed = None;
    store.scan(Family::Producers, &begin, &end, Direction::Forward, &mut |key, value| {
        let row =
            decode_producer_key(key).and_then(|(_, id)| Ok((id, ProducerRow::decode(key, value)?)));
        match row {
            Ok((id, row)) => open.extend(row.open_first_offset.map(|first| (id, first))),
            Err(corruption) => failed = Some(corruption),
        }
        if failed.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed.map_or(Ok(open), |corruption| Err(corruption.into()))
}

/// What was aborted of the batches that were located, of which the first comes first.
fn aborted_among(store: &dyn Read, current: &Current) -> Result<AbortedSet, StorageError> {
    let located = &current.located;
    let is_transactional =
        |located: &Located| Attributes::from_bits(located.entry.attributes).is_transactional();
    let Some(last) = located.last().filter(|_| located.iter().any(is_transactional)) else {
        return Ok(AbortedSet::default());
    };
    let end = last.last_offset + 1;
    debug_assert!(current.next_offset < end, "what was located is still to be read");
    let aborted = aborted_transactions(store, current.id, current.next_offset, end)?;
    Ok(aborted.iter().collect())
}

impl Iterator for Scan {
    type Item = Result<ScannedRecord, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut current = match self.current.take() {
                Some(current) => current,
                None => {
                    let (partition, id) = self.pending.pop()?;
                    match self.begin(partition, id) {
                        Ok(Some(current)) => current,
                        Ok(None) => continue,
                        Err(error) => return Some(Err(error)),
                    }
                }
            };
            while let Some(record) = current.records.pop() {
                if self.wants(&current, &record) {
                    let (partition, append_time) = (current.partition, current.append_time);
                    self.current = Some(current);
                    return Some(Ok(ScannedRecord { partition, record, append_time }));
                }
            }
            if self.snapshot.index.is_expired() {
                return Some(Err(ScanError::Expired));
            }
            match self.advance(&mut current) {
                // What an old snapshot names may be gone, or be written over, at any moment.
                _ if self.snapshot.index.is_expired() => return Some(Err(ScanError::Expired)),
                Ok(ControlFlow::Continue(())) => self.current = Some(current),
                Ok(ControlFlow::Break(())) => {}
                Err(error) => return Some(Err(ScanError::Storage(error))),
            }
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => {
                write!(f, "the topic has no such partition: partition={partition}")
            }
            Self::Expired => f.write_str("the snapshot is too old: take a new one"),
            Self::Storage(error) => write!(f, "a partition could not be scanned: {error}"),
        }
    }
}

impl std::error::Error for ScanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => error.source(),
            Self::UnknownPartition { .. } | Self::Expired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Between;

    #[test]
    fn a_range_holds_what_it_says_at_both_ends() {
        let holds = |range: Between| [-1, 0, 1, 2, 3].map(|value| range.holds(value));
        assert_eq!(holds(Between::new(&(0..2))), [false, true, true, false, false]);
        assert_eq!(holds(Between::new(&(0..=2))), [false, true, true, true, false]);
        assert_eq!(holds(Between::new(&(..0))), [true, false, false, false, false]);
        assert_eq!(holds(Between::new(&..)), [true; 5]);
        assert_eq!(holds(Between::new(&(i64::MIN..i64::MIN))), [false; 5]);
    }
}
