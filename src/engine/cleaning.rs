//! The engine's face of the cleaner: look, clean, pause.

use std::ops::ControlFlow;

use super::Engine;
use crate::base::error::StorageError;
#[cfg(any(test, feature = "test-util"))]
use crate::base::types::Offset;
use crate::space::cleaner::{
    CleanError, CleanerPass, CleanerPause, CleanerPlan, CleanerRound, clean_partition, clean_round,
    plan,
};
use crate::state::catalog::Partition;

impl Engine {
    /// What there is to clean in a partition of a compacted topic, and whether a pass is due.
    ///
    /// # Errors
    /// [`CleanError`]: the topic is gone, or the index cannot be read.
    pub fn cleaner_plan(&self, partition: &Partition) -> Result<CleanerPlan, CleanError> {
        self.shared().check_open()?;
        plan(self.shared(), partition)
    }

    /// Cleans a partition on this thread, if a pass is due; tells what it did.
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

    /// The same at a pace: `pace` is called with the bytes that were read, or will be written,
    /// since it was called last, between any two commits of the pass. It may wait, or end the pass.
    /// It must not pause the cleaner.
    ///
    /// # Errors
    /// As [`Engine::clean_partition`].
    pub fn clean_partition_at(
        &self,
        partition: &Partition,
        mut pace: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<CleanerPass>, CleanError> {
        self.shared().check_open()?;
        clean_partition(self.shared(), partition, &mut pace)
    }

    /// Cleans all partitions for which a pass is due, the dirtiest first, on this thread.
    ///
    /// # Errors
    /// [`StorageError`]: the engine is closed, or has halted. What is wrong with one partition is
    /// in the answer, and stops no other.
    pub fn clean(&self) -> Result<CleanerRound, StorageError> {
        self.shared().check_open()?;
        clean_round(self.shared(), &mut |_| ControlFlow::Continue(()))
    }

    /// Why a partition could not be cleaned when that was last tried; `None` if it could.
    #[must_use]
    pub fn cleaner_failure(&self, partition: &Partition) -> Option<StorageError> {
        self.shared().cleaning.failure(partition.cell().id())
    }

    /// Keeps the cleaner from running while what is returned lives. Waits until a pass that runs
    /// has stopped between two commits.
    pub fn pause_cleaner(&self) -> CleanerPause {
        CleanerPause::new(self.shared())
    }

    /// Whether the cleaner is kept from running.
    #[must_use]
    pub fn is_cleaner_paused(&self) -> bool {
        self.shared().cleaning.is_paused()
    }

    /// For tests: counts all of a partition as dirty again.
    ///
    /// # Errors
    /// What the storage says.
    #[cfg(any(test, feature = "test-util"))]
    pub fn forget_cleaned(&self, partition: &Partition) -> Result<(), StorageError> {
        crate::space::cleaner::forget_cleaned(self.shared(), partition)
    }

    /// For tests: moves the log end forward, as if records had been there.
    ///
    /// # Errors
    /// What the storage says.
    #[cfg(any(test, feature = "test-util"))]
    pub fn skip_offsets(&self, partition: &Partition, log_end: Offset) -> Result<(), StorageError> {
        crate::space::cleaner::skip_offsets(self.shared(), partition, log_end)
    }
}
