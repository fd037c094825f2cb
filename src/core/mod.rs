//! What every operation borrows: the commit queue over log and store, the catalog, clock, limits and counters.

mod aborted;
mod batches;
mod cleaning;
mod contents;
mod group_offsets;
mod ids;
mod oldest;
mod pins;
mod place;
mod prefix;
mod producers;
mod schedule;
mod space;
mod span;
mod transactions;

pub use aborted::aborted_transactions;
pub use batches::{Located, damage, locate, read_batch, read_batches, read_spans_into, visit};
pub use cleaning::{CleanerLag, Cleaning, DirtyPart};
pub use contents::{count_live, live_in, named_among};
pub use group_offsets::{
    GroupOffset, NegativeOffset, TooLong, check_lengths, check_offsets, group_offset_key,
    last_of_each, staged_place,
};
pub use ids::{PartitionIds, RandomBits};
pub use oldest::{Ahead, Oldest, OldestBatches};
pub use pins::{Pin, Pins};
pub use place::{PlacedBatch, plan_batch, plan_row};
pub use prefix::Prefix;
pub use producers::{ProducerIdError, ProducerRegistry, TooManyProducers};
pub use schedule::{Rate, Schedule};
pub use space::{Move, Space};
pub use span::Span;
pub use transactions::{HeldId, StagedPlace, Transactions};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::base::error::StorageError;
use crate::base::io::LockGuard;
use crate::base::metrics::Metrics;
use crate::base::random::Secrets;
use crate::base::rules::Rule;
use crate::base::types::{AppliedCommit, PartitionId, TopicId, Visibility, Watermarks};
use crate::commit::{Change, CommitQueue, Driver, Effects, Pipeline, QueueLimits, Ticket};
use crate::config::{EngineConfig, Maintenance};
use crate::index::keyspace::Session;
use crate::index::store::Read;
use crate::state::catalog::{Catalog, Partition};

/// An open engine, as its operations see it.
pub struct Shared {
    /// Log and store, and what a commit does to them.
    pub pipeline: Arc<Pipeline>,
    /// The way in for every change.
    pub queue: CommitQueue<Pipeline>,
    /// The topics and partitions that exist.
    pub catalog: Catalog,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Limits, each with its name.
    pub config: EngineConfig,
    /// This life of the engine.
    pub session: Session,
    /// The partition ids that are not given yet.
    pub partition_ids: PartitionIds,
    /// The producers of the whole engine.
    pub producers: ProducerRegistry,
    /// The transactional ids.
    pub transactions: Transactions,
    /// What is known about cleaning while the engine is open.
    pub cleaning: Cleaning,
    /// What is known of the space in the log.
    pub space: Space,
    /// Random bits for ids.
    pub random: RandomBits,
    /// Keys that nobody outside may learn.
    pub secrets: Secrets,
    /// Who reads.
    pub pins: Arc<Pins>,
    /// The oldest batches, as retention last saw them.
    pub oldest: OldestBatches,
    /// When the engine's own work is due.
    pub schedule: Schedule,
    /// The directories' locks, held until the engine is closed.
    locks: Mutex<Vec<Box<dyn LockGuard>>>,
}

/// The index at one instant, with a pin that holds what it names.
#[derive(Debug, Clone)]
pub struct PinnedIndex {
    store: Arc<dyn Read>,
    pin: Arc<Pin>,
}

impl PinnedIndex {
    /// The index.
    #[must_use]
    pub fn store(&self) -> &dyn Read {
        &*self.store
    }

    /// Whether it got too old: what it names may be gone.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.pin.is_expired()
    }
}

/// The index as a checkpoint made it durable.
#[derive(Debug)]
pub struct Checkpoint {
    /// The last commit in it.
    pub applied: AppliedCommit,
    /// What it holds.
    pub index: Arc<dyn Read>,
}

/// What [`Shared::new`] is made of.
pub struct Parts {
    /// Log and store.
    pub pipeline: Pipeline,
    /// The topics and partitions that exist.
    pub catalog: Catalog,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Limits.
    pub config: EngineConfig,
    /// This life of the engine.
    pub session: Session,
    /// The partition id that is given next.
    pub next_partition_id: PartitionId,
    /// The producers of the whole engine.
    pub producers: ProducerRegistry,
    /// The transactional ids.
    pub transactions: Transactions,
    /// The seed of random ids.
    pub seed: u64,
    /// Where keys come from that nobody outside may learn.
    pub secrets: Secrets,
    /// The directories' locks.
    pub locks: Vec<Box<dyn LockGuard>>,
}

impl Shared {
    /// An engine with an empty queue.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let pipeline = Arc::new(parts.pipeline);
        let burst = burst_of(parts.config.maintenance);
        let schedule = Schedule::new(
            Duration::from_millis(parts.config.maintenance_interval_ms),
            Rate::new(parts.config.relocation_bytes_per_second, burst),
            Rate::new(parts.config.cleaner_bytes_per_second, burst),
        );
        let retention = Duration::from_millis(parts.config.retention_check_interval_ms);
        let schedule = schedule.retention_interval(retention);
        let limits = QueueLimits {
            queue_bytes: parts.config.commit_queue_bytes,
            group_bytes: parts.config.commit_group_bytes,
        };
        Self {
            queue: CommitQueue::new(Arc::clone(&pipeline), limits),
            pipeline,
            catalog: parts.catalog,
            clock: parts.clock,
            config: parts.config,
            session: parts.session,
            partition_ids: PartitionIds::from(parts.next_partition_id),
            producers: parts.producers,
            transactions: parts.transactions,
            cleaning: Cleaning::default(),
            space: Space::default(),
            random: RandomBits::new(parts.seed),
            secrets: parts.secrets,
            pins: Arc::default(),
            oldest: OldestBatches::default(),
            schedule,
            locks: Mutex::new(parts.locks),
        }
    }

    /// The four offsets of a partition: see [`Pipeline::watermarks`].
    #[must_use]
    pub fn watermarks(&self, partition: &Partition, visibility: Visibility) -> Watermarks {
        self.pipeline.watermarks(partition.cell(), visibility)
    }

    /// The index as it was between two publications, so that it agrees with every watermark that
    /// was read before.
    #[must_use]
    pub fn snapshot(&self) -> PinnedIndex {
        // The pin is taken first, and so is not younger than what is shown (rule F3). Who holds it
        // may forget it, so it expires.
        let pin = self.pins.take(self.pipeline.applied().sequence, self.clock.monotonic());
        PinnedIndex { store: self.pipeline.snapshot(), pin: Arc::new(pin) }
    }

    /// Holds every segment that the index names from now on, until it is dropped: for an operation,
    /// which ends by itself. What it reads may be written over as soon as nothing holds it.
    #[must_use]
    pub fn pin(&self) -> Pin {
        self.pins.hold(self.pipeline.applied().sequence)
    }

    /// Waits until what the store holds now is published: see [`Pipeline::settle`].
    pub fn settle(&self) {
        self.pipeline.settle();
    }

    /// Runs what removes or renames files, which lasts as long as the directories are held: who
    /// closes the engine waits for it.
    ///
    /// # Errors
    /// What it says; [`StorageError::Closed`], and it does not run, once they were let go.
    pub fn while_held<T>(
        &self,
        work: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let locks = self.locks.lock();
        if locks.is_empty() {
            return Err(StorageError::Closed);
        }
        work()
    }

    /// Closes log and store, once the reads under way have ended, and lets go of the directories:
    /// what handles and snapshots are asked from now on fails with [`StorageError::Closed`]. The
    /// queue is closed before.
    ///
    /// # Errors
    /// What the store says; the directories are let go all the same.
    pub fn release(&self) -> Result<(), StorageError> {
        if self.pipeline.broken().breaks(Rule::S6CloseWithoutFlush) {
            let store = &self.pipeline.store;
            let _ = store.begin_flush().and_then(|()| store.is_flushed());
        }
        self.pipeline.log.close();
        let closed = self.pipeline.store.close();
        self.locks.lock().clear();
        closed
    }

    /// An id that no topic has. An engine that is opened with the same seed again meets old ones.
    #[must_use]
    pub fn new_topic_id(&self) -> TopicId {
        loop {
            let [first, second] = self.random.next_pair();
            let mut id = [0; 16];
            id[..8].copy_from_slice(&first.to_be_bytes());
            id[8..].copy_from_slice(&second.to_be_bytes());
            let id = TopicId::from_bytes(id);
            if self.catalog.topic_by_id(id).is_none() {
                return id;
            }
        }
    }

    /// Fails once the engine is closed.
    ///
    /// # Errors
    /// [`StorageError::Closed`].
    pub fn check_open(&self) -> Result<(), StorageError> {
        if self.queue.is_closed() { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Bytes of all record batches that can be read, as the partitions' own sums have it.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let topics = self.catalog.topics();
        let cells = topics.iter().flat_map(|topic| topic.cells().to_vec());
        cells.map(|cell| cell.read(|state| state.row().size_bytes)).sum()
    }

    /// What was counted, and what is held now.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let segments = self.pipeline.log.segments();
        let free = self.pipeline.log.free_segments();
        let (topic_count, partition_count) = self.catalog.counts();
        let topics = self.catalog.topics();
        let (mut live_bytes, mut dirty_offsets) = (0, 0);
        for topic in &topics {
            let is_compacted = topic.settings().effective().cleanup_policy.compact;
            for cell in topic.cells().iter() {
                cell.read(|state| {
                    let row = state.row();
                    live_bytes += row.size_bytes;
                    if is_compacted {
                        let first_dirty = row.first_dirty.max(row.log_start);
                        dirty_offsets += row.log_end.abs_diff(first_dirty);
                    }
                });
            }
        }
        let (max_dirty_percent, max_overdue_ms) = self.cleaning.most();
        let now_ms = self.clock.now_ms();
        let transactions = self.transactions.lock();
        let transactional_id_count = transactions.len() as u64;
        let (open_producer_transactions, oldest_since) = transactions.open_since(now_ms);
        drop(transactions);
        Metrics {
            cleaner_max_dirty_percent: max_dirty_percent,
            cleaner_max_overdue_ms: max_overdue_ms,
            unfreed_segments: self.space.doomed.len() as u64 + free.unremoved_count,
            unmoved_batches: self.space.moves.len() as u64,
            queued_bytes: self.queue.queued_bytes(),
            unsynced_bytes: self.pipeline.log.unsynced_bytes(),
            index_memory_bytes: self.pipeline.store.unflushed_bytes(),
            log_size_bytes: segments.iter().map(|segment| segment.length_bytes).sum(),
            segment_count: segments.len() as u64,
            free_segment_count: free.count,
            free_segment_bytes: free.bytes,
            reused_segments: free.reused_count,
            live_bytes,
            disk_free_bytes: self.pipeline.log.free_and_total_bytes().ok().map(|(free, _)| free),
            disk_reserve_bytes: self.config.effective_disk_reserve_bytes(),
            pin_count: self.pins.count(),
            uncleanable_partitions: self.cleaning.failure_count(),
            dirty_offsets,
            producer_count: self.producers.known(),
            transactional_id_count,
            open_producer_transactions,
            oldest_producer_transaction_ms: now_ms.abs_diff(oldest_since),
            topic_count,
            partition_count,
            leader_epoch: self.session.leader_epoch,
            halted: self.pipeline.halted().is_some(),
            ..self.pipeline.counters.read()
        }
    }

    /// Commits a change and waits for its answer.
    ///
    /// # Errors
    /// [`StorageError::Closed`] if the engine is closed.
    pub fn commit<C: Change>(&self, change: C) -> Result<C::Answer, StorageError> {
        self.queue.commit(change).map_err(|_| StorageError::Closed)
    }

    /// A ticket of the queue, as callers get it: where no thread of the engine commits, whoever
    /// waits for it does.
    pub fn ticket<T: Send + 'static>(self: &Arc<Self>, ticket: Ticket<T>) -> Ticket<T> {
        match self.config.maintenance {
            Maintenance::Background => ticket,
            Maintenance::Manual => ticket.driven_by(Arc::<Self>::clone(self)),
        }
    }
}

impl Driver for Shared {
    fn drive(&self) {
        self.queue.drive();
    }
}

/// What a rate gives at once. The engine's thread comes often, and so that appends hardly notice it
/// does little each time; who drives the steps may come a second later.
fn burst_of(maintenance: Maintenance) -> Duration {
    match maintenance {
        Maintenance::Background => Duration::from_millis(50),
        Maintenance::Manual => Duration::from_secs(2),
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("session", &self.session).finish_non_exhaustive()
    }
}
