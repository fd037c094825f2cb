//! The public face: an engine in a directory. Everything here only delegates.

mod builder;
mod cleaning;
mod groups;
pub mod handles;
pub mod maintenance;
mod manual;
mod producers;
mod reading;
mod session;
mod topics;

pub use builder::EngineBuilder;
pub use cleaning::Cleaner;
pub use groups::ConsumerGroup;
pub use manual::ManualMaintenance;
pub use producers::ProducerManager;
pub use session::Engine;
pub use topics::Topics;

use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::metrics::Metrics;
use crate::base::types::Offset;
use crate::commit::{Effects, Ticket};
use crate::config::EngineConfig;
use crate::open::recovery::Recovered;
use crate::open::verify::{VerifyReport, verify};
use crate::read::describe::{LogSpace, log_space};
use crate::space::retention::{DeleteRecordsError, OffsetTarget, delete_records};
use crate::state::catalog::Partition;
use crate::write::append::AppendTransaction;

impl Engine {
    /// What opening found and did.
    #[must_use]
    pub fn recovered(&self) -> Recovered {
        self.inner.recovered
    }

    /// The engine's limits.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.shared().config
    }

    /// An empty append transaction.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-append-transaction-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let orders = engine.create_topic("orders", TopicConfig::new(2))?;
    /// let mut append = engine.append_transaction();
    /// append.records(&orders.partition(0)?, [Record::new("k", "v").header("source", "web")])?;
    /// append.records(&orders.partition(1)?, [Record::tombstone("k"), Record::keyless("v")])?;
    /// let committed = append.commit(Durability::Buffered)?;
    /// assert_eq!(committed.batches[1].last_offset, 1);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn append_transaction(&self) -> AppendTransaction {
        AppendTransaction::new(Arc::clone(self.shared()))
    }

    /// A ticket that is answered once the commit queue has room for this many bytes, or the engine
    /// is closed: how to wait without blocking after
    /// [`NotWritten::QueueFull`](crate::NotWritten::QueueFull). Others may take the room first.
    pub fn queue_room(&self, bytes: u64) -> Ticket<Result<(), StorageError>> {
        self.shared().ticket(self.shared().queue.room(bytes))
    }

    /// Deletes the records below an offset: the log start moves there, whether or not it is the
    /// border of a batch, and stays there through power loss. Returns the log start, which is the
    /// target, or higher if it was. The cleanup policy is not asked.
    ///
    /// # Errors
    /// [`DeleteRecordsError`]: the topic is gone, the offset is negative or above the high
    /// watermark, or the storage; after a failed sync the outcome is unknown.
    pub fn delete_records(
        &self,
        partition: &Partition,
        target: impl Into<OffsetTarget>,
    ) -> Result<Offset, DeleteRecordsError> {
        delete_records(self.shared(), partition, target.into())
    }

    /// Makes everything that was committed so far survive power loss.
    ///
    /// # Errors
    /// [`StorageError`]: the sync failed and the engine has halted, or it is closed.
    pub fn sync(&self) -> Result<(), StorageError> {
        self.shared().check_open()?;
        let pipeline = &self.shared().pipeline;
        pipeline.sync(pipeline.last_written())?;
        pipeline.after_progress();
        Ok(())
    }

    /// Reads everything and compares it with what must always hold, while commits go on.
    ///
    /// # Errors
    /// [`StorageError`] if the index cannot be read at all. Damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport, StorageError> {
        self.shared().check_open()?;
        verify(self.shared())
    }

    /// What the engine counted since it was opened, and what it holds now.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared().metrics()
    }

    /// What the commit log takes of its disk, and what of it can be read.
    ///
    /// # Errors
    /// [`StorageError`]: what the system says of the disk, or the engine is closed.
    pub fn log_space(&self) -> Result<LogSpace, StorageError> {
        self.shared().check_open()?;
        log_space(self.shared())
    }

    /// Closes the engine for all its clones: what waits is committed, a checkpoint is taken, and
    /// the leader epoch stays for the next open. Later calls fail with [`StorageError::Closed`].
    ///
    /// # Errors
    /// [`StorageError`]: the engine had halted, or halts now; it is closed all the same, and the
    /// next open recovers.
    pub fn close(self) -> Result<(), StorageError> {
        self.inner.close()
    }
}
