//! The engine's own work on the caller's thread: a view through which it is driven. Delegates only.

use std::fmt;
use std::sync::Arc;

use super::Engine;
use crate::base::error::StorageError;
use crate::core::Shared;
use crate::engine::maintenance::{MaintenanceStep, run_step};
use crate::space::checkpoint::checkpoint;
use crate::space::retention::{RetentionReport, run_retention};

/// The engine's own work, done on the calling thread: by [`Engine::maintenance`].
///
/// Under [`Maintenance::Background`](crate::Maintenance::Background) threads of the engine do it
/// all, and nobody has to ask. Under [`Maintenance::Manual`](crate::Maintenance::Manual) there are
/// no such threads.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "rocksdb")] {
/// # let name = format!("tidelog-doc-manual-{}", std::process::id());
/// # let directory = std::env::temp_dir().join(name);
/// use tidelog::{Durability, Engine, EngineConfig, Maintenance, Record, TopicConfig};
///
/// let config = EngineConfig::default().maintenance(Maintenance::Manual);
/// let engine = Engine::open(&directory, config)?;
/// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
/// let mut append = engine.append_transaction();
/// append.records(&partition, [Record::keyless("v")])?;
/// let ticket = append.submit(Durability::Sync)?;
/// assert_eq!(engine.watermarks(&partition)?.log_end, 0);
///
/// engine.maintenance().run_pending();
/// assert_eq!(ticket.wait()?.batches[0].last_offset, 0);
/// engine.maintenance().run()?;
/// # engine.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct ManualMaintenance<'a> {
    shared: &'a Arc<Shared>,
}

impl Engine {
    /// The engine's own work, to be done on the calling thread.
    #[must_use]
    pub fn maintenance(&self) -> ManualMaintenance<'_> {
        ManualMaintenance { shared: self.shared() }
    }
}

impl ManualMaintenance<'_> {
    /// Does what maintenance is due now, on this thread: all of it for
    /// [`Maintenance::Manual`](crate::Maintenance::Manual).
    ///
    /// # Errors
    /// [`StorageError`]: then the engine has halted, or it is closed.
    pub fn run(&self) -> Result<MaintenanceStep, StorageError> {
        self.shared.check_open()?;
        run_step(self.shared)
    }

    /// Commits what was submitted and syncs what waits for it, on this thread: for
    /// [`Maintenance::Manual`](crate::Maintenance::Manual), where no thread of the engine does.
    pub fn run_pending(&self) {
        self.shared.queue.run_pending();
    }

    /// Takes a checkpoint, so that the next open replays only what comes after it.
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
    /// engine.maintenance().checkpoint()?;
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
        self.shared.check_open()?;
        checkpoint(self.shared).map(|_| ())
    }

    /// Removes now, on this thread, what has expired by its topic's retention, whether or not
    /// maintenance would do it yet.
    ///
    /// # Errors
    /// [`StorageError`]: what the storage says, or the engine is closed.
    pub fn run_retention(&self) -> Result<RetentionReport, StorageError> {
        self.shared.check_open()?;
        run_retention(self.shared)
    }
}

impl fmt::Debug for ManualMaintenance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ManualMaintenance")
    }
}
