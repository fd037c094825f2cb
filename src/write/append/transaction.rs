//! The transaction that a caller fills: batches validated one by one, then committed or submitted.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::change::{AppendChange, OnFailure, queued_bytes};
use super::committed::Committed;
use super::error::{AppendError, AppendErrorKind, CommitError, NotWritten};
use crate::base::error::StorageError;
use crate::base::types::{Durability, NO_TIMESTAMP, ProducerIdentity, Sequence};
use crate::commit::{NoRoom, Promise, Ticket};
use crate::core::Shared;
use crate::record::{
    AppendRules, BatchBuilder, BuildError, Codec, Record, TooLarge, ValidatedBatch, validate_append,
};
use crate::state::catalog::Partition;

/// Record batches for any number of partitions that will exist together or not at all.
///
/// Dropping it aborts: nothing was written. Two transactions never interleave in a partition, and
/// never appear in opposite orders in two of them.
pub struct AppendTransaction {
    pub(super) shared: Arc<Shared>,
    /// Each partition once, in the order of their first batches.
    pub(super) partitions: Vec<Partition>,
    pub(super) batches: Vec<PendingBatch>,
    positions: HashMap<Partition, usize>,
    bytes: u64,
    codec: Codec,
    has_producers: bool,
    transactional: Option<Transactional>,
}

/// With which sequence a producer may begin in a partition that knows nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSequence {
    /// With any: what the partition knew of it may have expired.
    Any,
    /// With 0 only, as in Kafka's second transaction protocol (KIP-890).
    Zero,
}

/// The producer transaction that an append belongs to.
#[derive(Debug, Clone)]
pub(super) struct Transactional {
    pub(super) id: String,
    first_sequence: FirstSequence,
}

pub(super) struct PendingBatch {
    pub(super) partition: usize,
    pub(super) batch: ValidatedBatch,
}

/// The producer of records that are packed into batches.
#[derive(Debug)]
pub struct Stamp {
    /// Who it is.
    pub identity: ProducerIdentity,
    /// The sequence of its next record.
    pub next_sequence: Sequence,
    /// Whether the batches belong to its open producer transaction.
    pub is_transactional: bool,
}

impl Stamp {
    fn put_on(&self, builder: BatchBuilder) -> BatchBuilder {
        let ProducerIdentity { producer_id, producer_epoch } = self.identity;
        let builder = builder.producer(producer_id, producer_epoch, self.next_sequence);
        if self.is_transactional { builder.transactional() } else { builder }
    }

    fn count(&mut self, record_count: u32) {
        let next = self.next_sequence.wrapping_add(record_count.cast_signed());
        self.next_sequence = next & Sequence::MAX;
    }
}

/// Above so many partitions the linear search for one becomes a lookup.
const LINEAR_SEARCH_MAX: usize = 8;

impl AppendTransaction {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            partitions: Vec::new(),
            batches: Vec::new(),
            positions: HashMap::new(),
            bytes: 0,
            codec: Codec::None,
            has_producers: false,
            transactional: None,
        }
    }

    /// The transactional id whose open producer transaction this append belongs to; every
    /// partition that gets a transactional batch must have been added to that transaction.
    ///
    /// `first_sequence`: how a producer may begin in a partition that knows nothing of it.
    pub fn transactional_id(&mut self, id: &str, first_sequence: FirstSequence) -> &mut Self {
        self.transactional = Some(Transactional { id: id.to_owned(), first_sequence });
        self
    }

    pub(super) fn transactional(&self) -> Option<&Transactional> {
        self.transactional.as_ref()
    }

    pub(super) fn begins_at_zero(&self) -> bool {
        let transactional = self.transactional.as_ref();
        transactional.is_some_and(|known| known.first_sequence == FirstSequence::Zero)
    }

    /// Whether any batch names a producer.
    pub(super) fn has_producers(&self) -> bool {
        self.has_producers
    }

    /// The codec of the batches that [`AppendTransaction::records`] makes from now on; none at
    /// first.
    pub fn set_codec(&mut self, codec: Codec) -> &mut Self {
        self.codec = codec;
        self
    }

    /// Adds records behind what the partition has in this transaction. They are packed into as few
    /// batches as the topic's `max.message.bytes` allows. A record without a timestamp gets the
    /// engine's clock.
    ///
    /// # Errors
    /// [`AppendError`], for the first record that cannot be taken; then none of these records is
    /// in the transaction.
    pub fn records(
        &mut self,
        partition: &Partition,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(), AppendError> {
        self.add_all(partition, records, None)
    }

    /// Adds records of a producer, as [`AppendTransaction::records`], and counts its sequences on.
    pub(crate) fn records_of(
        &mut self,
        partition: &Partition,
        records: impl IntoIterator<Item = Record>,
        stamp: &mut Stamp,
    ) -> Result<(), AppendError> {
        self.add_all(partition, records, Some(stamp))
    }

    fn add_all(
        &mut self,
        partition: &Partition,
        records: impl IntoIterator<Item = Record>,
        stamp: Option<&mut Stamp>,
    ) -> Result<(), AppendError> {
        let (batch_count, bytes) = (self.batches.len(), self.bytes);
        let added = self.add_records(partition, records, stamp);
        if added.is_err() {
            self.batches.truncate(batch_count);
            self.bytes = bytes;
            self.forget_unused_partitions();
        }
        added.map_err(|kind| AppendError { partition: partition.clone(), kind })
    }

    fn add_records(
        &mut self,
        partition: &Partition,
        records: impl IntoIterator<Item = Record>,
        mut stamp: Option<&mut Stamp>,
    ) -> Result<(), AppendErrorKind> {
        let now_ms = self.shared.clock.now_ms();
        let limit = partition.topic().settings().effective().max_message_bytes as usize;
        let codec = self.codec;
        let new_builder = |stamp: Option<&Stamp>| {
            let builder = BatchBuilder::new().codec(codec).max_bytes(limit);
            match stamp {
                Some(stamp) => stamp.put_on(builder),
                None => builder,
            }
        };
        // Each with the place of its first record among those that were given.
        let mut finished = Vec::new();
        let mut builder = new_builder(stamp.as_deref());
        let mut first = 0;
        for (index, mut record) in records.into_iter().enumerate() {
            if record.timestamp == NO_TIMESTAMP {
                record.timestamp = now_ms;
            }
            let is_full = builder.encoded_size_with(&record) > limit;
            if is_full && builder.record_count() > 0 {
                if let Some(stamp) = &mut stamp {
                    stamp.count(builder.record_count());
                }
                let next = new_builder(stamp.as_deref());
                let full = std::mem::replace(&mut builder, next);
                finished.push((first, full.finish()?));
                first = index;
            }
            builder.push(&record).map_err(|error| name_record(error, index))?;
        }
        if let Some(stamp) = &mut stamp {
            stamp.count(builder.record_count());
        }
        match builder.finish() {
            Ok(last) => finished.push((first, last)),
            Err(BuildError::Empty) => {}
            Err(error) => return Err(error.into()),
        }
        finished.into_iter().try_for_each(|(first, batch)| {
            self.add_batch(partition, batch).map_err(|error| match error {
                AppendErrorKind::Refused(refusal) => {
                    AppendErrorKind::Refused(refusal.shifted(first as u32))
                }
                other => other,
            })
        })
    }

    /// Adds a ready record batch (Kafka's v2 format) behind what the partition has in this
    /// transaction. The bytes are not copied; the engine keeps them until they are written.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-batch-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// use tidelog::record::BatchBuilder;
    ///
    /// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let mut builder = BatchBuilder::new();
    /// builder.push(&Record::new("k", "v").timestamp(1_700_000_000_000))?;
    /// let mut append = engine.append_transaction();
    /// append.batch(&partition, builder.finish()?)?;
    /// append.commit(Durability::Buffered)?;
    /// assert_eq!(engine.watermarks(&partition)?.log_end, 1);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AppendError`] with the rule that the batch breaks; the transaction is as it was.
    pub fn batch(&mut self, partition: &Partition, batch: Bytes) -> Result<(), AppendError> {
        self.add_batch(partition, batch)
            .map_err(|kind| AppendError { partition: partition.clone(), kind })
    }

    fn add_batch(&mut self, partition: &Partition, batch: Bytes) -> Result<(), AppendErrorKind> {
        if !self.shared.catalog.holds(partition.topic()) {
            return Err(AppendErrorKind::UnknownPartition);
        }
        let limits = &self.shared.config;
        let bytes = self.bytes + batch.len() as u64;
        if bytes > limits.max_transaction_bytes {
            let limit_bytes = limits.max_transaction_bytes;
            return Err(AppendErrorKind::TransactionTooLarge { bytes, limit_bytes });
        }
        let limit = limits.max_batches_per_transaction;
        if self.batches.len() >= limit as usize {
            return Err(AppendErrorKind::TooManyBatches { limit });
        }
        let batch = validate_append(batch, &self.rules(partition))?;
        if batch.is_transactional() && self.transactional.is_none() {
            let producer_id = batch.header().producer_id();
            return Err(AppendErrorKind::NoTransactionalId { producer_id });
        }
        self.has_producers |= batch.has_producer_id();
        let partition = self.position_of(partition);
        debug_assert!(partition < self.partitions.len(), "a batch is for a partition in it");
        self.bytes = bytes;
        self.batches.push(PendingBatch { partition, batch });
        Ok(())
    }

    fn rules(&self, partition: &Partition) -> AppendRules {
        let settings = partition.topic().settings();
        let settings = settings.effective();
        let max_decompressed_bytes = self.shared.config.max_decompressed_bytes;
        AppendRules {
            max_message_bytes: settings.max_message_bytes,
            compacted: settings.cleanup_policy.compact,
            timestamp_type: settings.timestamp_type,
            before_max_ms: settings.timestamp_before_max_ms,
            after_max_ms: settings.timestamp_after_max_ms,
            max_decompressed_bytes: usize::try_from(max_decompressed_bytes).unwrap_or(usize::MAX),
            max_decompressed_record_bytes: Some(settings.max_decompressed_message_bytes),
            now_ms: self.shared.clock.now_ms(),
        }
    }

    fn position_of(&mut self, partition: &Partition) -> usize {
        let known = if self.partitions.len() <= LINEAR_SEARCH_MAX {
            self.partitions.iter().position(|known| known == partition)
        } else {
            self.positions.get(partition).copied()
        };
        known.unwrap_or_else(|| {
            let position = self.partitions.len();
            self.partitions.push(partition.clone());
            if position == LINEAR_SEARCH_MAX {
                let all = self.partitions.iter().cloned().enumerate();
                self.positions = all.map(|(position, partition)| (partition, position)).collect();
            } else if position > LINEAR_SEARCH_MAX {
                self.positions.insert(partition.clone(), position);
            }
            position
        })
    }

    fn forget_unused_partitions(&mut self) {
        let used = self.batches.iter().map(|batch| batch.partition + 1).max().unwrap_or(0);
        self.partitions.truncate(used);
        self.positions.retain(|_, position| *position < used);
        let in_range = |batch: &PendingBatch| batch.partition < self.partitions.len();
        debug_assert!(self.batches.iter().all(in_range), "what is used stays");
    }

    /// How many batches it holds.
    #[must_use]
    pub fn batch_count(&self) -> usize {
        self.batches.len()
    }

    /// Bytes of all its batches.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it holds no batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Commits, and returns once all of it exists, as durable as asked. Waits while the commit
    /// queue is full. A transaction without batches writes nothing and has no place in the order of
    /// commits: its [`Committed::sequence`] is `None`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-commit-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{CommitError, Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let orders = engine.create_topic("orders", TopicConfig::new(1))?;
    /// let mut append = engine.append_transaction();
    /// append.records(&orders.partition(0)?, [Record::keyless("a"), Record::keyless("b")])?;
    /// let committed = append.commit(Durability::Sync)?;
    /// assert_eq!(committed.batches[0].base_offset, 0);
    ///
    /// // What was refused or not written comes back, to be tried again or looked at.
    /// let mut append = engine.append_transaction();
    /// append.records(&orders.partition(0)?, [Record::keyless("late")])?;
    /// engine.delete_topic("orders")?;
    /// let error = append.commit(Durability::Sync).unwrap_err();
    /// assert!(matches!(error, CommitError::Refused { .. }));
    /// let transaction = error.into_transaction().expect("it comes back");
    /// assert_eq!(transaction.batch_count(), 1);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`CommitError::Refused`]: a topic is gone, or a producer may not append a batch now;
    ///   nothing exists, and the transaction comes back.
    /// - [`CommitError::NotWritten`]: the disk is full, or the engine is halted or closed; nothing
    ///   exists, and the transaction comes back.
    /// - [`CommitError::OutcomeUnknown`]: a write or a sync failed half way. The engine has halted;
    ///   after a reopen all of the transaction is there or none of it.
    pub fn commit(self, durability: Durability) -> Result<Committed, CommitError> {
        if self.is_empty() {
            return Ok(Committed { sequence: None, batches: Vec::new() });
        }
        let shared = Arc::clone(&self.shared);
        let committed = shared.queue.commit(AppendChange::new(self, durability, None));
        committed.unwrap_or_else(|change| Err(change.into_transaction().not_taken(NoRoom::Closed)))
    }

    /// Puts the transaction into the commit queue and returns at once, never waiting for I/O. The
    /// ticket tells how it ended; dropping the ticket does not take the transaction back. One
    /// without batches is answered at once, with no [`Committed::sequence`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-submit-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let mut tickets = Vec::new();
    /// for value in ["a", "b", "c"] {
    ///     let mut append = engine.append_transaction();
    ///     append.records(&partition, [Record::keyless(value)])?;
    ///     tickets.push(append.submit(Durability::Buffered)?);
    /// }
    /// // A ticket can also be awaited as a future, or given a callback.
    /// for (offset, ticket) in (0..).zip(tickets) {
    ///     assert_eq!(ticket.wait()?.batches[0].base_offset, offset);
    /// }
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CommitError::NotWritten`] with [`NotWritten::QueueFull`] where the queue has no room, or
    /// where the engine is closed; the transaction comes back.
    pub fn submit(
        self,
        durability: Durability,
    ) -> Result<Ticket<Result<Committed, CommitError>>, CommitError> {
        self.submit_change(durability, None)
    }

    /// As [`AppendTransaction::submit`]; calls back, before the ticket is answered, if it fails.
    pub(crate) fn submit_with(
        self,
        durability: Durability,
        on_failure: impl FnOnce() + Send + 'static,
    ) -> Result<Ticket<Result<Committed, CommitError>>, CommitError> {
        self.submit_change(durability, Some(Box::new(on_failure)))
    }

    fn submit_change(
        self,
        durability: Durability,
        on_failure: Option<OnFailure>,
    ) -> Result<Ticket<Result<Committed, CommitError>>, CommitError> {
        if self.is_empty() {
            let (promise, ticket) = Promise::new();
            promise.fulfil(Ok(Committed { sequence: None, batches: Vec::new() }));
            return Ok(ticket);
        }
        let shared = Arc::clone(&self.shared);
        match shared.queue.reserve(queued_bytes(&self)) {
            Ok(permit) => {
                let ticket = permit.push(AppendChange::new(self, durability, on_failure));
                Ok(shared.ticket(ticket))
            }
            Err(no_room) => Err(self.not_taken(no_room)),
        }
    }

    /// As [`Engine::queue_room`](crate::Engine::queue_room), for as much as this transaction needs.
    pub fn queue_room(&self) -> Ticket<Result<(), StorageError>> {
        self.shared.ticket(self.shared.queue.room(queued_bytes(self)))
    }

    /// The queue did not take it: it comes back.
    fn not_taken(self, no_room: NoRoom) -> CommitError {
        self.shared.pipeline.counters.unwritten_commits.add(1);
        let reason = match no_room {
            NoRoom::Closed => NotWritten::Storage(StorageError::Closed),
            NoRoom::Full { queued_bytes, limit_bytes } => {
                NotWritten::QueueFull { queued_bytes, limit_bytes }
            }
        };
        CommitError::NotWritten { reason, transaction: Box::new(self) }
    }
}

/// A batch that is too large for one more record although it has no other names that record.
fn name_record(error: BuildError, index: usize) -> AppendErrorKind {
    match error {
        BuildError::TooLarge(error) => {
            AppendErrorKind::TooLarge(TooLarge { record_index: Some(index), ..error })
        }
        other => AppendErrorKind::Build(other),
    }
}

impl fmt::Debug for AppendTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppendTransaction")
            .field("partitions", &self.partitions)
            .field("batch_count", &self.batches.len())
            .field("size_bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
