//! An open engine: what its clones share, and how it ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::base::callback;
use crate::base::error::StorageError;
use crate::core::Shared;
use crate::open::recovery::{Recovered, end_session};
use crate::read::listen::notify_all;

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
    pub(super) inner: Arc<Inner>,
}

/// What all clones of an engine share.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) recovered: Recovered,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closing: AtomicBool,
}

impl Engine {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

impl Inner {
    /// An engine without its threads.
    pub(super) fn new(shared: Arc<Shared>, recovered: Recovered) -> Self {
        Self { shared, recovered, threads: Mutex::default(), closing: AtomicBool::new(false) }
    }

    /// Has the threads that `start` begins end with the engine.
    pub(super) fn start_threads(
        &self,
        start: impl FnOnce(&Arc<Shared>, &mut Vec<JoinHandle<()>>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        start(&self.shared, &mut self.threads.lock())
    }

    pub(super) fn close(&self) -> Result<(), StorageError> {
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
        notify_all(&self.shared.catalog);
        ended.and(released)
    }

    fn begin_last_checkpoint(&self) -> Result<(), StorageError> {
        let pipeline = &self.shared.pipeline;
        self.shared.queue.exclusively(|committer| pipeline.begin_checkpoint(committer)).map(drop)
    }

    fn stop(&self) {
        self.shared.queue.close();
        self.shared.pipeline.end_work();
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
