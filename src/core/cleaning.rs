//! What is known about cleaning while the engine is open: who runs, who has paused it, what cannot be cleaned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::base::error::StorageError;
use crate::base::types::{Offset, PartitionId, TimestampMs};
use crate::config::TopicSettings;
use crate::state::partition::RemovalMark;

/// The cleaner's state beside the index; nothing of it has to survive.
#[derive(Debug, Default)]
pub struct Cleaning {
    running: Mutex<()>,
    pauses: AtomicU32,
    failures: Mutex<BTreeMap<PartitionId, StorageError>>,
    lags: Mutex<BTreeMap<PartitionId, CleanerLag>>,
    dirty: Mutex<BTreeMap<PartitionId, DirtyPart>>,
}

/// What was counted of the dirty part of a partition, so that the next look goes on behind it. It
/// holds as long as nothing is removed, no setting changes and the clock does not step back.
#[derive(Debug, Clone)]
pub struct DirtyPart {
    /// What the partition showed before the look.
    pub mark: RemovalMark,
    /// Where its dirty part begins.
    pub first_dirty: Offset,
    /// The topic's settings.
    pub settings: Arc<TopicSettings>,
    /// The clock of the look.
    pub looked_at: TimestampMs,
    /// The offset behind all that is in the next two.
    pub seen_to: Offset,
    /// Bytes of the batches.
    pub dirty_bytes: u64,
    /// The least maximum timestamp above 0.
    pub oldest: Option<TimestampMs>,
    /// The offset behind all that can be cleaned, which is in the rest.
    pub cleanable_to: Offset,
    /// Bytes of these batches.
    pub cleanable_bytes: u64,
    /// Records in them, at most.
    pub cleanable_records: u64,
    /// Whether none of them is of a producer transaction or has a horizon.
    pub is_plain: bool,
    /// Parts of them, in the order of offsets: where each begins.
    pub part_starts: Vec<Offset>,
    /// Bytes of the last part.
    pub part_bytes: u64,
}

/// How far cleaning is behind in a partition, as it was last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CleanerLag {
    /// The part of what can be cleaned that is dirty, in percent.
    pub dirty_percent: u32,
    /// By how much cleaning is later than `max.compaction.lag.ms` allows.
    pub overdue_ms: u64,
}

impl Cleaning {
    /// Waits for the pass that runs, and keeps any other from running. One at a time, so that a
    /// pass knows that nobody else rewrites what it has read.
    pub fn run(&self) -> MutexGuard<'_, ()> {
        self.running.lock()
    }

    /// Keeps passes from running until [`Cleaning::resume`] was called as often, and waits until
    /// the one that runs has stopped, between two of its commits.
    pub fn pause(&self) {
        self.pauses.fetch_add(1, Ordering::SeqCst);
        drop(self.running.lock());
    }

    /// Takes back one [`Cleaning::pause`].
    pub fn resume(&self) {
        let before = self.pauses.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "each pause is taken back once");
    }

    /// Whether passes are kept from running.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.pauses.load(Ordering::SeqCst) > 0
    }

    /// Notes how the last pass over a partition ended.
    pub fn note(&self, partition: PartitionId, failure: Option<StorageError>) {
        let mut failures = self.failures.lock();
        match failure {
            Some(failure) => failures.insert(partition, failure),
            None => failures.remove(&partition),
        };
    }

    /// Why a partition could not be cleaned when that was last tried.
    #[must_use]
    pub fn failure(&self, partition: PartitionId) -> Option<StorageError> {
        self.failures.lock().get(&partition).cloned()
    }

    /// Takes what was counted of a partition's dirty part.
    #[must_use]
    pub fn take_dirty(&self, partition: PartitionId) -> Option<DirtyPart> {
        self.dirty.lock().remove(&partition)
    }

    /// Keeps what was counted of a partition's dirty part.
    pub fn put_dirty(&self, partition: PartitionId, dirty: DirtyPart) {
        self.dirty.lock().insert(partition, dirty);
    }

    /// Forgets what is known of partitions that are not to be cleaned any more.
    pub fn keep(&self, is_cleaned: impl Fn(PartitionId) -> bool) {
        self.failures.lock().retain(|partition, _| is_cleaned(*partition));
        self.lags.lock().retain(|partition, _| is_cleaned(*partition));
        self.dirty.lock().retain(|partition, _| is_cleaned(*partition));
    }

    /// Notes how far cleaning is behind in a partition; nothing is noted of one that is clean.
    pub fn note_lag(&self, partition: PartitionId, lag: CleanerLag) {
        let mut lags = self.lags.lock();
        match lag == CleanerLag::default() {
            true => lags.remove(&partition),
            false => lags.insert(partition, lag),
        };
    }

    /// How far cleaning was behind in a partition when it was last looked at.
    #[must_use]
    pub fn lag(&self, partition: PartitionId) -> CleanerLag {
        self.lags.lock().get(&partition).copied().unwrap_or_default()
    }

    /// The greatest part that is dirty, in percent, and the greatest delay, of all partitions.
    #[must_use]
    pub fn most(&self) -> (u32, u64) {
        let lags = self.lags.lock();
        let greatest = |most: (u32, u64), lag: &CleanerLag| {
            (most.0.max(lag.dirty_percent), most.1.max(lag.overdue_ms))
        };
        lags.values().fold((0, 0), greatest)
    }

    /// How many partitions could not be cleaned.
    #[must_use]
    pub fn failure_count(&self) -> u64 {
        self.failures.lock().len() as u64
    }
}
