//! The producers of the whole engine: how many partitions remember, and the ids that were given out.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Shared;
use crate::base::error::StorageError;
use crate::base::rules::Rule;
use crate::base::types::{CommitSequence, Durability, ProducerId};
use crate::commit::{Change, Failure, FramePlan};
use crate::index::keyspace::{MetaKey, encode_counter};
use crate::index::write_batch::Family;

/// How many ids one sync commit reserves: as Kafka's `ProducerIdsBlock`. A crash loses the rest of
/// a block, and no id is ever given twice.
const ID_BLOCK: u64 = 1000;

/// Producers, over all partitions.
#[derive(Debug, Default)]
pub struct ProducerRegistry {
    /// Producers that partitions remember, each partition's counted.
    known: AtomicU64,
    ids: Mutex<Ids>,
    /// The greatest end of a block that a commit has planned.
    planned_end: AtomicU64,
}

#[derive(Debug, Default)]
struct Ids {
    next: u64,
    /// Below this one they are reserved.
    reserved_end: u64,
    /// Drawn, and not used.
    unused: Vec<ProducerId>,
}

/// Partitions remember as many producers as they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyProducers {
    /// How many there would be.
    pub producer_count: u64,
    /// The limit, `max_producers`.
    pub limit: u64,
}

/// No producer id could be given.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ProducerIdError {
    /// All were given out: there are 2^63.
    Exhausted,
    /// The storage failed.
    Storage(StorageError),
}

impl Ids {
    /// The next id, or where the next block begins if none is left of the last one.
    fn draw(&mut self) -> Result<ProducerId, u64> {
        if let Some(id) = self.unused.pop() {
            return Ok(id);
        }
        if self.next == self.reserved_end {
            return Err(self.reserved_end);
        }
        assert!(self.next < self.reserved_end, "an id is given only once it is reserved");
        let id = self.next;
        self.next += 1;
        Ok(id.cast_signed())
    }
}

impl ProducerRegistry {
    /// What an engine begins with that remembers this many, and has reserved the ids below
    /// `next_id`.
    #[must_use]
    pub fn new(known: u64, next_id: u64) -> Self {
        let ids = Ids { next: next_id, reserved_end: next_id, unused: Vec::new() };
        Self {
            known: AtomicU64::new(known),
            ids: Mutex::new(ids),
            planned_end: AtomicU64::new(next_id),
        }
    }

    /// How many producers partitions remember.
    #[must_use]
    pub fn known(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Whether partitions may remember this many more producers.
    ///
    /// # Errors
    /// [`TooManyProducers`] if they may not.
    pub fn check_producers(&self, new_count: u64) -> Result<(), TooManyProducers> {
        let producer_count = self.producers.known() + new_count;
        let limit = self.config.max_producers;
        if new_count > 0 && producer_count > limit {
            return Err(TooManyProducers { producer_count, limit });
        }
        Ok(())
    }

    /// Counts producers that partitions remember from now on.
    pub fn count_producers(&self, new_count: u64) {
        self.producers.known.fetch_add(new_count, Ordering::Relaxed);
    }

    /// Counts producers that partitions remember no longer.
    pub fn forget_producers(&self, count: u64) {
        let before = self.producers.known.fetch_sub(count, Ordering::Relaxed);
        assert!(before >= count, "no more producers are forgotten than are known");
    }

    /// A producer id that was never given before, also across power loss.
    ///
    /// # Errors
    /// [`ProducerIdError`]: the storage, where a new block of ids has to be reserved.
    pub fn draw_producer_id(self: &Arc<Self>) -> Result<ProducerId, ProducerIdError> {
        loop {
            let end = match self.producers.ids.lock().draw() {
                Ok(id) => return Ok(id),
                Err(reserved_end) => reserved_end + ID_BLOCK,
            };
            if ProducerId::try_from(end).is_err() {
                return Err(ProducerIdError::Exhausted);
            }
            let is_buffered = self.pipeline.broken().breaks(Rule::D1ProducerIdsSynced);
            let durability = if is_buffered { Durability::Buffered } else { Durability::Sync };
            // No lock is held: whoever answers a commit may have an id to give back.
            let reserved = self.commit(ReserveIds { shared: Arc::clone(self), end, durability });
            reserved.and_then(|reserved| reserved).map_err(ProducerIdError::Storage)?;
            // Several may have reserved the same block.
            let mut ids = self.producers.ids.lock();
            ids.reserved_end = ids.reserved_end.max(end);
        }
    }

    /// Takes an id back that nobody was told of.
    pub fn return_producer_id(&self, id: ProducerId) {
        self.producers.ids.lock().unused.push(id);
    }
}

struct ReserveIds {
    shared: Arc<Shared>,
    end: u64,
    durability: Durability,
}

impl Change for ReserveIds {
    type Planned = ();
    type Refusal = Infallible;
    type Answer = Result<(), StorageError>;

    fn queued_bytes(&self) -> u64 {
        64
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<(), Infallible> {
        // One that comes late must not take back what a later block has reserved.
        let before = self.shared.producers.planned_end.fetch_max(self.end, Ordering::Relaxed);
        let value = encode_counter(self.end.max(before));
        frame.write_batch.put(Family::Meta, &MetaKey::NextProducerId.key(), &value);
        Ok(())
    }

    fn durability(&self, _planned: &()) -> Durability {
        self.durability
    }

    fn undo(&mut self, _planned: ()) {}

    fn publish(&mut self, _planned: (), _sequence: CommitSequence) -> Self::Answer {
        Ok(())
    }

    fn fail(self, failure: Failure<Infallible>) -> Self::Answer {
        failure.into_refusal().map(|never| match never {})
    }
}

impl fmt::Display for TooManyProducers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { producer_count, limit } = self;
        write!(
            f,
            "the partitions remember as many producers as they may: \
             producer_count={producer_count} limit={limit}"
        )
    }
}

impl std::error::Error for TooManyProducers {}

impl fmt::Display for ProducerIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted => write!(f, "all producer ids were given out: limit={}", i64::MAX),
            Self::Storage(error) => {
                write!(f, "no block of producer ids could be reserved: {error}")
            }
        }
    }
}

impl std::error::Error for ProducerIdError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Exhausted => None,
            Self::Storage(error) => error.source(),
        }
    }
}
