//! What tests set at a builder and do to an engine that no caller can.

mod cleaner;
mod producers;

use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::io::Files;
use crate::base::random::Randomness;
use crate::base::rules::BrokenRules;
use crate::base::types::{Offset, ProducerIdentity};
use crate::engine::{Engine, EngineBuilder};
use crate::index::store::OpenStore;
use crate::record::MarkerKind;
use crate::state::catalog::Partition;

impl EngineBuilder {
    /// The file system; the real one unless it is set.
    pub fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// The index store; RocksDB unless it is set.
    pub fn store(mut self, store: Arc<dyn OpenStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// The seed of random ids, for tests that must run the same every time.
    pub fn seed(mut self, seed: u64) -> Self {
        self.randomness = Randomness::Seed(seed);
        self
    }

    /// Breaks rules on purpose, to show that they matter.
    #[doc(hidden)]
    pub fn broken(mut self, broken: BrokenRules) -> Self {
        self.broken = broken;
        self
    }
}

/// Counts all of a partition as dirty again.
///
/// # Errors
/// What the storage says.
pub fn forget_cleaned(engine: &Engine, partition: &Partition) -> Result<(), StorageError> {
    cleaner::forget_cleaned(engine.shared(), partition)
}

/// Moves the log end forward, as if records had been there.
///
/// # Errors
/// What the storage says.
pub fn skip_offsets(
    engine: &Engine,
    partition: &Partition,
    log_end: Offset,
) -> Result<(), StorageError> {
    cleaner::skip_offsets(engine.shared(), partition, log_end)
}

/// Until the engine is closed, a producer has a transaction open under this id that may write to
/// the partition, without any request for it.
pub fn pretend_open_transaction(
    engine: &Engine,
    transactional_id: &str,
    producer: ProducerIdentity,
    partition: &Partition,
) {
    producers::pretend_open(engine.shared(), transactional_id, producer, partition);
}

/// Writes the marker that ends a producer's transaction in one partition.
///
/// # Errors
/// What the storage says.
pub fn write_marker(
    engine: &Engine,
    producer: ProducerIdentity,
    partition: &Partition,
    kind: MarkerKind,
) -> Result<(), StorageError> {
    producers::write_marker(engine.shared(), producer, partition, kind)
}
