//! The public face: an engine in a directory. Everything here only delegates.

mod builder;
mod cleaning;
mod groups;
pub mod handles;
pub mod maintenance;
mod producers;
mod reading;
mod topics;

pub use builder::EngineBuilder;
pub use cleaning::Cleaner;
pub use groups::ConsumerGroup;
pub use producers::ProducerManager;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use builder::shut;

use crate::base::callback;
use crate::base::error::StorageError;
use crate::base::metrics::Metrics;
use crate::base::types::Offset;
use crate::commit::{Effects, Ticket};
use crate::config::EngineConfig;
use crate::core::Shared;
use crate::engine::maintenance::{MaintenanceStep, run_step};
use crate::open::recovery::{OpenError, Recovered, end_session};
use crate::open::verify::{VerifyReport, verify};
use crate::read::listen::tell_all;
use crate::space::checkpoint;
use crate::space::retention::{
    DeleteRecordsError, OffsetTarget, RetentionReport, delete_records, run_retention,
};
use crate::state::catalog::Partition;
use crate::write::append::AppendTransaction;

/// An open engine. Cheap to clone; all clones are the same engine.
///
/// [`Engine::close`] ends it. Dropping the last clone instead is a crash that loses nothing that
/// was acknowledged to a running process.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "rocksdb")] {
/// # let name = format!("tidelog-doc-engine-{}", std::process::id());
/// # let directory = std::env::temp_dir().join(name);
/// use tidelog::{Durability, Engine, EngineConfig, FetchOptions, Record, TopicConfig};
///
/// let engine = Engine::open(&directory, EngineConfig::default())?;
/// let orders = engine.create_topic("orders", TopicConfig::new(3))?;
/// let audit = engine.create_topic("audit", TopicConfig::new(1))?;
///
/// // Both partitions get their records, or neither does.
/// let mut append = engine.append_transaction();
/// append.records(&orders.partition(2)?, [Record::new("customer-7", "ordered")])?;
/// append.records(&audit.partition(0)?, [Record::keyless("one order")])?;
/// append.commit(Durability::Sync)?;
///
/// let fetched = engine.fetch(&orders.partition(2)?, 0, FetchOptions::new())?;
/// let record = fetched.records().next().expect("it was appended")?;
/// assert_eq!(record.value.as_deref(), Some(&b"ordered"[..]));
/// assert!(engine.verify()?.is_clean());
/// engine.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    recovered: Recovered,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closing: AtomicBool,
}

impl Engine {
    /// Opens the engine in a directory, or makes it there. One process at a time can.
    ///
    /// # Errors
    /// [`OpenError`]; log and index are as they were. [`OpenError::NoStore`] in a build without
    /// the feature `rocksdb`.
    pub fn open(directory: impl AsRef<Path>, config: EngineConfig) -> Result<Self, OpenError> {
        Self::builder(directory).config(config).open()
    }

    /// Opens an engine with more than limits: a clock, another directory for the log.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-builder-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Engine, EngineConfig};
    ///
    /// let engine = Engine::builder(directory.join("index"))
    ///     .log_dir(directory.join("log"))
    ///     .config(EngineConfig::default().segment_bytes(64 << 20))
    ///     .open()?;
    /// assert!(engine.recovered().is_new);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(directory: impl AsRef<Path>) -> EngineBuilder {
        EngineBuilder::new(directory.as_ref())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

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

    /// Removes now, on this thread, what has expired by its topic's retention, whether or not
    /// maintenance would do it yet.
    ///
    /// # Errors
    /// [`StorageError`]: what the storage says, or the engine is closed.
    pub fn run_retention(&self) -> Result<RetentionReport, StorageError> {
        self.shared().check_open()?;
        run_retention(self.shared())
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

    /// Takes a checkpoint, so that the next open replays only what comes behind it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-checkpoint-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let mut append = engine.append_transaction();
    /// append.records(&partition, [Record::keyless("v")])?;
    /// append.commit(Durability::Buffered)?;
    /// engine.checkpoint()?;
    /// assert_eq!(engine.metrics().unsynced_bytes, 0);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StorageError`]: then the engine has halted, or it is closed.
    pub fn checkpoint(&self) -> Result<(), StorageError> {
        self.shared().check_open()?;
        checkpoint::checkpoint(self.shared()).map(|_| ())
    }

    /// Does what maintenance is due now, on this thread: for
    /// [`Maintenance::Manual`](crate::Maintenance::Manual).
    ///
    /// # Errors
    /// [`StorageError`]: then the engine has halted, or it is closed.
    pub fn run_maintenance(&self) -> Result<MaintenanceStep, StorageError> {
        self.shared().check_open()?;
        run_step(self.shared())
    }

    /// Commits what was submitted and syncs what waits for it, on this thread: for
    /// [`Maintenance::Manual`](crate::Maintenance::Manual), where no thread of the engine does.
    pub fn run_pending(&self) {
        self.shared().queue.run_pending();
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

impl Inner {
    fn close(&self) -> Result<(), StorageError> {
        if self.closing.swap(true, Ordering::SeqCst) {
            return Err(StorageError::Closed);
        }
        let ended = end_session(&self.shared)
            .and_then(|()| self.begin_last_checkpoint())
            .and_then(|()| self.shared.pipeline.finish_checkpoint());
        self.stop();
        if ended.is_ok() {
            self.shared.pipeline.log.trim();
        }
        let released = self.shared.release();
        tell_all(&self.shared);
        ended.and(released)
    }

    fn begin_last_checkpoint(&self) -> Result<(), StorageError> {
        let pipeline = &self.shared.pipeline;
        self.shared.queue.exclusively(|committer| pipeline.begin_checkpoint(committer)).map(drop)
    }

    fn stop(&self) {
        shut(&self.shared);
        if callback::is_running() {
            // The threads may wait for this one, or be this one. They end by themselves, and find
            // nothing left to write.
            return;
        }
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has halted the engine, which told every caller.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.closing.swap(true, Ordering::SeqCst) {
            self.stop();
            // The store is not flushed: the next open replays. Nobody is left to tell of an error.
            let _ = self.shared.release();
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (topics, partitions) = self.shared().catalog.counts();
        f.debug_struct("Engine")
            .field("topics", &topics)
            .field("partitions", &partitions)
            .finish_non_exhaustive()
    }
}
