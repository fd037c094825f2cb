//! The engine's cleaner: a view through which it is asked, run and paused. Delegates only.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::base::error::StorageError;
use crate::core::Shared;
use crate::space::cleaner::{
    CleanError, CleanerPass, CleanerPause, CleanerPlan, CleanerRound, When, clean_partition,
    clean_round, plan, wait_until_cleaned,
};
use crate::state::catalog::Partition;

/// The cleaner of an engine: by [`Engine::cleaner`]. It keeps the newest value of each key in the
/// partitions of compacted topics.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "rocksdb")] {
/// # let name = format!("tidelog-doc-cleaner-{}", std::process::id());
/// # let directory = std::env::temp_dir().join(name);
/// use tidelog::{Durability, Engine, EngineConfig, Maintenance, Record, TopicConfig};
///
/// # let config = EngineConfig::default().maintenance(Maintenance::Manual);
/// # let engine = Engine::open(&directory, config)?;
/// let compacted = TopicConfig::new(1).set("cleanup.policy", "compact")?;
/// let prices = engine.create_topic("prices", compacted)?.partition(0)?;
/// for price in ["1.20", "1.30", "1.25"] {
///     let mut append = engine.append_transaction();
///     append.records(&prices, [Record::new("apple", price)])?;
///     append.commit(Durability::Buffered)?;
/// }
/// let cleaner = engine.cleaner();
/// assert_eq!(cleaner.plan(&prices)?.cleanable_records, 3);
/// let pass = cleaner.clean_partition_now(&prices)?.expect("there is something to clean");
/// assert_eq!(pass.removed_records, 2);
/// # engine.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Cleaner<'a> {
    shared: &'a Arc<Shared>,
}

impl Engine {
    /// The cleaner of compacted topics.
    #[must_use]
    pub fn cleaner(&self) -> Cleaner<'_> {
        Cleaner { shared: self.shared() }
    }
}

impl Cleaner<'_> {
    /// What there is to clean in a partition of a compacted topic, and whether a pass is due.
    ///
    /// # Errors
    /// [`CleanError`]: the topic is gone, or the index cannot be read.
    pub fn plan(&self, partition: &Partition) -> Result<CleanerPlan, CleanError> {
        self.shared.check_open()?;
        plan(self.shared, partition)
    }

    /// Cleans a partition on this thread, if a pass is due; returns what it did.
    ///
    /// # Errors
    /// [`CleanError`]: the topic is gone, a batch is damaged, or the storage. What was committed
    /// before is kept, and the next pass does it all.
    pub fn clean_partition(
        &self,
        partition: &Partition,
    ) -> Result<Option<CleanerPass>, CleanError> {
        self.clean_partition_at(partition, |_| ControlFlow::Continue(()))
    }

    /// The same whether or not a pass is due: below the topic's `min.cleanable.dirty.ratio` too.
    /// Nothing is done where nothing can be cleaned, or the topic is not compacted, or the cleaner
    /// is paused.
    ///
    /// # Errors
    /// As [`Cleaner::clean_partition`].
    pub fn clean_partition_now(
        &self,
        partition: &Partition,
    ) -> Result<Option<CleanerPass>, CleanError> {
        self.shared.check_open()?;
        let mut pace = |_| ControlFlow::Continue(());
        clean_partition(self.shared, partition, When::Now, &mut pace)
    }

    /// Cleans a partition if a pass is due, at a pace: `pace` is called with the bytes that were
    /// read, or will be written, since it was called last, between any two commits of the pass. It
    /// may wait, or end the pass. It must not pause the cleaner.
    ///
    /// # Errors
    /// As [`Cleaner::clean_partition`].
    pub fn clean_partition_at(
        &self,
        partition: &Partition,
        mut pace: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<CleanerPass>, CleanError> {
        self.shared.check_open()?;
        clean_partition(self.shared, partition, When::Due, &mut pace)
    }

    /// Cleans all partitions for which a pass is due, the dirtiest first, on this thread.
    ///
    /// # Errors
    /// [`StorageError`]: the engine is closed, or has halted. What is wrong with one partition is
    /// in the answer, and stops no other.
    pub fn run(&self) -> Result<CleanerRound, StorageError> {
        self.shared.check_open()?;
        clean_round(self.shared, &mut |_| ControlFlow::Continue(()))
    }

    /// Blocks until no pass is due in a partition any more, or the time is over; returns whether it
    /// was the first. Background maintenance is asked to clean at once. Under
    /// [`Maintenance::Manual`](crate::Maintenance::Manual) this thread cleans, for no thread of the
    /// engine would.
    ///
    /// # Errors
    /// As [`Cleaner::clean_partition`]; also why the last pass over the partition has failed.
    pub fn wait_until_cleaned(
        &self,
        partition: &Partition,
        timeout: Duration,
    ) -> Result<bool, CleanError> {
        self.shared.check_open()?;
        wait_until_cleaned(self.shared, partition, timeout)
    }

    /// Why a partition could not be cleaned when that was last tried; `None` if it could.
    #[must_use]
    pub fn failure(&self, partition: &Partition) -> Option<StorageError> {
        self.shared.cleaning.failure(partition.cell().id())
    }

    /// Keeps the cleaner from running while what is returned lives. Waits until a pass that runs
    /// has stopped between two commits.
    pub fn pause(&self) -> CleanerPause {
        CleanerPause::new(self.shared)
    }

    /// Whether the cleaner is kept from running.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.cleaning.is_paused()
    }
}

impl fmt::Debug for Cleaner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cleaner")
    }
}
