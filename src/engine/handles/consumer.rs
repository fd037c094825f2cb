//! A consumer of one topic that goes on where its group has committed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::StorageError;
use crate::base::types::{Isolation, Offset, Visibility};
use crate::core::{GroupOffset, Shared};
use crate::read::fetch::{FetchError, FetchOptions, Fetched, FirstBatch, fetch};
use crate::read::listen::{WaitFor, wait_for_data};
use crate::record::{Record, RecordError};
use crate::state::catalog::{Partition, Topic, UnknownPartition};
use crate::write::groups::{GroupError, commit_group_offsets, group_offset};

/// Reads all partitions of a topic, record by record, and keeps how far it got as the offsets of a
/// consumer group: by [`Engine::consumer`](crate::Engine::consumer).
///
/// It is one reader: a group whose members share the partitions among them is what a broker adds.
/// Partitions that the topic gets later are read from their starts.
///
/// Offsets are committed in the order of all commits, so what a power loss takes of buffered
/// records it takes of the offsets after them too: a consumer never goes on beyond the end of the
/// log.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "rocksdb")] {
/// # let name = format!("tidelog-doc-consumer-{}", std::process::id());
/// # let directory = std::env::temp_dir().join(name);
/// use std::time::Duration;
/// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
///
/// # let engine = Engine::open(&directory, EngineConfig::default())?;
/// let orders = engine.open_or_create_topic("orders", TopicConfig::new(1))?;
/// let mut append = engine.append_transaction();
/// append.records(&orders.partition(0)?, ["a", "b"].map(Record::keyless))?;
/// append.commit(Durability::Sync)?;
///
/// let mut consumer = engine.consumer("billing", &orders)?;
/// for found in consumer.poll(Duration::from_secs(1))? {
///     println!("{} {}: {:?}", found.partition, found.record.offset, found.record.value);
/// }
/// consumer.commit()?;
///
/// // The next one goes on there.
/// let mut next = engine.consumer("billing", &orders)?;
/// assert!(next.poll(Duration::ZERO)?.is_empty());
/// # engine.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Consumer {
    shared: Arc<Shared>,
    group: String,
    topic: Topic,
    positions: Vec<Position>,
    /// The partition with which the next round of fetches begins, so that none is left out.
    first: usize,
    isolation: Isolation,
    visibility: Visibility,
    max_bytes: u64,
    reset: OffsetReset,
}

/// How far the consumer is in a partition.
struct Position {
    partition: Partition,
    /// What is read next; `None` where the group has committed nothing and nothing was read.
    next: Option<Offset>,
    committed: Option<Offset>,
}

/// A record that a consumer has read.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConsumerRecord {
    /// Its partition.
    pub partition: Partition,
    /// The record, with its offset and timestamp.
    pub record: Record,
}

/// Where a consumer goes on where its group has committed nothing, or where what it would read next
/// is not in the log any more (Kafka's `auto.offset.reset`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OffsetReset {
    /// At the first record that there is.
    #[default]
    Earliest,
    /// Where the partition ends: at what is appended from now on.
    Latest,
    /// At the first record where the group has committed nothing. Where retention has removed what
    /// it would read next, [`Consumer::poll`] fails: no record is left out silently.
    Fail,
}

/// A consumer could not go on. It is where it was.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConsumerError {
    /// A partition could not be read. Where it is [`FetchError::Damaged`], [`Consumer::seek`] to
    /// the offset after its `last_offset` goes past the damage.
    Fetch(FetchError),
    /// A record cannot be decoded. [`Consumer::seek`] goes past it.
    Record {
        /// The partition.
        partition: Partition,
        /// The offset from which on it could not be read.
        offset: Offset,
        /// What is wrong.
        source: RecordError,
    },
}

impl Consumer {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        group: &str,
        topic: &Topic,
    ) -> Result<Self, GroupError> {
        let positions = topic.partitions().into_iter().map(|partition| {
            let committed = group_offset(shared, group, &partition)?;
            let committed = committed.map(|found| found.offset);
            Ok(Position { partition, next: committed, committed })
        });
        Ok(Self {
            positions: positions.collect::<Result<_, GroupError>>()?,
            shared: Arc::clone(shared),
            group: group.to_owned(),
            topic: topic.clone(),
            first: 0,
            isolation: Isolation::Committed,
            visibility: Visibility::Applied,
            max_bytes: 1 << 20,
            reset: OffsetReset::Earliest,
        })
    }

    /// The same with another isolation: committed data only, at first.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// The same with another visibility: once it is applied, at first.
    #[must_use]
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// The same with another limit of the bytes of the batches that one [`Consumer::poll`] reads:
    /// 1 MiB at first. One batch may be larger.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The same with another place to go on where the group's offset is none that can be read.
    #[must_use]
    pub fn offset_reset(mut self, reset: OffsetReset) -> Self {
        self.reset = reset;
        self
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The next records, in the order of offsets within each partition. Waits for some where there
    /// are none, and returns none once the time is over.
    ///
    /// # Errors
    /// [`ConsumerError`]: the topic is gone, the engine is closed, the offset is not in the log any
    /// more under [`OffsetReset::Fail`], or damage. The consumer is where it was.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<ConsumerRecord>, ConsumerError> {
        let began = self.shared.clock.monotonic();
        loop {
            let (records, has_advanced) = self.read_all()?;
            if !records.is_empty() {
                return Ok(records);
            }
            let waited = self.shared.clock.monotonic().saturating_sub(began);
            let left = timeout.saturating_sub(waited);
            if has_advanced && !left.is_zero() {
                // It went past what is no record for it.
                continue;
            }
            if left.is_zero() || !self.wait(left) {
                // Whether the engine was closed meanwhile, the last look tells.
                return Ok(self.read_all()?.0);
            }
        }
    }

    /// The offset that is read next in a partition; `None` for a partition of another topic, and
    /// where the group has committed nothing and nothing was read yet.
    #[must_use]
    pub fn position(&self, partition: &Partition) -> Option<Offset> {
        self.positions.iter().find(|known| known.partition == *partition)?.next
    }

    /// Goes on at this offset in a partition.
    ///
    /// # Errors
    /// [`UnknownPartition`] if it is none of the topic's.
    pub fn seek(&mut self, partition: &Partition, offset: Offset) -> Result<(), UnknownPartition> {
        self.add_new_partitions();
        let partition_count = self.positions.len() as u32;
        match self.positions.iter_mut().find(|known| known.partition == *partition) {
            Some(position) => {
                position.next = Some(offset);
                Ok(())
            }
            None => Err(UnknownPartition {
                topic: self.topic.name().clone(),
                index: partition.index(),
                partition_count,
            }),
        }
    }

    /// How far the consumer is and has not committed yet: what a producer transaction takes in
    /// [`send_offsets`](crate::ProducerTransaction::send_offsets), so that what was read and what
    /// came of it are committed as one. Call [`Consumer::note_committed`] once that is done.
    #[must_use]
    pub fn uncommitted(&self) -> Vec<(Partition, GroupOffset)> {
        let changed = self.positions.iter().filter(|position| position.next != position.committed);
        let offset = |position: &Position| {
            Some((position.partition.clone(), GroupOffset::new(position.next?)))
        };
        changed.filter_map(offset).collect()
    }

    /// Notes that all of [`Consumer::uncommitted`] was committed by other means.
    pub fn note_committed(&mut self) {
        self.positions.iter_mut().for_each(|position| position.committed = position.next);
    }

    /// Commits how far the consumer is, buffered, as the offsets of its group. Costs nothing where
    /// nothing was read since.
    ///
    /// # Errors
    /// [`GroupError`]: the topic is gone, or the storage; then nothing is committed.
    pub fn commit(&mut self) -> Result<(), GroupError> {
        commit_group_offsets(&self.shared, &self.group, self.uncommitted())?;
        self.note_committed();
        Ok(())
    }

    /// One fetch of each partition, within the limit of bytes; also whether any position has moved.
    fn read_all(&mut self) -> Result<(Vec<ConsumerRecord>, bool), ConsumerError> {
        self.add_new_partitions();
        let count = self.positions.len();
        let mut records = Vec::new();
        let mut found: Vec<(usize, Offset)> = Vec::with_capacity(count);
        let mut left_bytes = self.max_bytes;
        let mut failed = None;
        for index in (0..count).map(|step| (self.first + step) % count) {
            if left_bytes == 0 && !found.is_empty() {
                break;
            }
            let is_first = left_bytes == self.max_bytes;
            let partition = self.positions[index].partition.clone();
            let (offset, fetched) = match self.fetch_from(index, left_bytes, is_first) {
                Ok(fetched) => fetched,
                // What others have is given first; the next poll begins with what has failed, and
                // the one after it goes on with the others.
                Err(_) if !records.is_empty() => {
                    failed = Some(index);
                    break;
                }
                Err(error) => {
                    self.first = (index + 1) % count;
                    return Err(error);
                }
            };
            left_bytes = left_bytes.saturating_sub(fetched.bytes.len() as u64);
            let mut next = offset;
            let mut damage = None;
            for record in fetched.records() {
                match record {
                    Ok(record) => {
                        next = record.offset + 1;
                        records.push(ConsumerRecord { partition: partition.clone(), record });
                    }
                    Err(source) => damage = Some(source),
                }
                if damage.is_some() {
                    break;
                }
            }
            match damage {
                None => found.push((index, fetched.next_offset)),
                // What is good is given first; the next poll begins with what is not.
                Some(_) if !records.is_empty() => {
                    found.push((index, next));
                    break;
                }
                Some(source) => {
                    self.first = (index + 1) % count;
                    return Err(ConsumerError::Record { partition, offset: next, source });
                }
            }
        }
        let mut has_advanced = false;
        for (index, next) in found {
            has_advanced |= self.positions[index].next.is_some_and(|known| known != next);
            self.positions[index].next = Some(next);
        }
        let next_first = if count == 0 { 0 } else { (self.first + 1) % count };
        self.first = failed.unwrap_or(next_first);
        Ok((records, has_advanced))
    }

    /// One fetch of one partition, and where it began.
    fn fetch_from(
        &self,
        index: usize,
        max_bytes: u64,
        is_first: bool,
    ) -> Result<(Offset, Fetched), ConsumerError> {
        let position = &self.positions[index];
        let offset = self.start_of(position)?;
        let options = FetchOptions::new()
            .max_bytes(max_bytes)
            .isolation(self.isolation)
            .visibility(self.visibility)
            .first_batch(if is_first { FirstBatch::Always } else { FirstBatch::IfItFits });
        Ok((offset, fetch(&self.shared, &position.partition, offset, options)?))
    }

    /// Where a partition is read next, by the log as it is now.
    fn start_of(&self, position: &Position) -> Result<Offset, ConsumerError> {
        let partition = &position.partition;
        self.shared.check_open().map_err(FetchError::Storage)?;
        let marks = self.shared.watermarks(partition, self.visibility);
        let end = marks.readable_end(self.isolation);
        match (position.next, self.reset) {
            (Some(next), _) if (marks.log_start..=marks.log_end).contains(&next) => Ok(next),
            // Fetched all the same: the error names the offsets.
            (Some(next), OffsetReset::Fail) => Ok(next),
            (_, OffsetReset::Latest) => Ok(end),
            (_, OffsetReset::Earliest) | (None, OffsetReset::Fail) => Ok(marks.log_start),
        }
    }

    fn wait(&self, timeout: Duration) -> bool {
        let wanted = self.positions.iter().map(|position| {
            let offset = position.next.unwrap_or_default();
            WaitFor::new(&position.partition, offset)
                .isolation(self.isolation)
                .visibility(self.visibility)
        });
        wait_for_data(&self.shared, &wanted.collect::<Vec<_>>(), timeout)
    }

    fn add_new_partitions(&mut self) {
        if self.topic.partition_count() as usize > self.positions.len() {
            let new = self.topic.partitions().into_iter().skip(self.positions.len());
            let unread = |partition| Position { partition, next: Some(0), committed: None };
            self.positions.extend(new.map(unread));
        }
    }
}

impl ConsumerError {
    /// Whether the topic was deleted.
    #[must_use]
    pub fn is_topic_gone(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::UnknownPartition { .. }))
    }

    /// Whether the engine was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::Storage(StorageError::Closed)))
    }
}

impl From<FetchError> for ConsumerError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

impl fmt::Display for ConsumerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetch(error) => error.fmt(f),
            Self::Record { partition, offset, source } => write!(
                f,
                "a record cannot be decoded: partition={partition} offset={offset}: {source}"
            ),
        }
    }
}

impl std::error::Error for ConsumerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Fetch(error) => error.source(),
            Self::Record { source, .. } => source.source(),
        }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("group", &self.group)
            .field("topic", self.topic.name())
            .finish_non_exhaustive()
    }
}
