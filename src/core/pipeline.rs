//! Log and store together: what a commit does to them, and the cut that makes the index durable.
//!
//! INVARIANT (S4): the store never holds a commit that is not synced while a flush can run. The
//! cut is taken by whoever holds the committer: sync the log, then begin the flush; what is
//! written later is not in it.
//!
//! Locks, in this order: `apply` (store and published state change together), `publication`
//! (readers see a group whole), then a partition's own.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use super::space::{LiveChange, LiveChanges, Space, add_change};
use super::touched::Touched;
use crate::base::clock::Clock;
use crate::base::error::StorageError;
use crate::base::metrics::Counters;
use crate::base::rules::{BrokenRules, Rule};
use crate::base::types::{AppliedCommit, CommitSequence, SegmentId, TimestampMs};
use crate::commit::{Effects, FramePlan};
use crate::index::keyspace::{MetaKey, encode_applied};
use crate::index::store::Store;
use crate::index::write_batch::{Family, WriteBatch};
use crate::log::{AppendFailure, CommitLog, NewFrame};
use crate::state::catalog::PartitionCell;

/// How long a wait for the store's own flush sleeps between two looks at it.
pub const FLUSH_POLL: Duration = Duration::from_micros(500);

/// When the cut is due, and how much memory the part of the index may hold that is not in one.
#[derive(Debug, Clone, Copy)]
pub struct CutLimits {
    /// Bytes of unflushed index after which a cut is due.
    pub index_bytes: u64,
    /// Bytes of log after which a cut is due.
    pub log_bytes: u64,
    /// Range deletes after which a cut is due.
    pub range_deletes: u64,
    /// Bytes of unflushed index at which the committer waits for a cut.
    pub index_memory_bytes: u64,
    /// Bytes of unsynced log at which it is synced in the background.
    pub background_sync_bytes: u64,
}

/// Log and store.
pub struct Pipeline {
    /// The commit log.
    pub log: CommitLog,
    /// The index.
    pub store: Arc<dyn Store>,
    /// What is counted.
    pub counters: Counters,
    /// What is known of the space in the log.
    pub space: Space,
    /// Held while a group becomes visible; readers of watermarks share it.
    pub(super) publication: RwLock<()>,
    /// Held while the store changes and what it holds is published.
    pub(super) apply: Mutex<()>,
    clock: Arc<dyn Clock>,
    limits: CutLimits,
    broken: BrokenRules,
    halt: OnceLock<StorageError>,
    touched: Touched,
    applied: Mutex<AppliedCommit>,
    /// Whether a flush was begun and is not known to be complete. Held while the store is asked:
    /// else the end of one is taken for that of the next.
    flushing: Mutex<bool>,
    log_bytes: AtomicU64,
    log_bytes_at_cut: AtomicU64,
    range_deletes: AtomicU64,
    work: Mutex<Work>,
    work_changed: Condvar,
}

#[derive(Default)]
struct Work {
    is_due: bool,
    is_over: bool,
}

impl Pipeline {
    /// Log and store, which agree about the last commit.
    pub fn new(
        log: CommitLog,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        applied: AppliedCommit,
        limits: CutLimits,
        broken: BrokenRules,
    ) -> Self {
        Self {
            log,
            store,
            counters: Counters::default(),
            space: Space::default(),
            publication: RwLock::new(()),
            apply: Mutex::new(()),
            clock,
            limits,
            broken,
            halt: OnceLock::new(),
            touched: Touched::default(),
            applied: Mutex::new(applied),
            flushing: Mutex::new(false),
            log_bytes: AtomicU64::new(0),
            log_bytes_at_cut: AtomicU64::new(0),
            range_deletes: AtomicU64::new(0),
            work: Mutex::default(),
            work_changed: Condvar::new(),
        }
    }

    /// Counts log that was replayed at open and is in no cut yet.
    pub fn note_replayed(&self, bytes: u64) {
        self.log_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Blocks until a cut is due or the time is over; false once the engine is closed or has
    /// halted.
    pub fn wait_for_work(&self, timeout: Duration) -> bool {
        let mut work = self.work.lock();
        if !work.is_due && !work.is_over {
            // Whether it was too short a wait, the schedule tells.
            self.work_changed.wait_for(&mut work, timeout);
        }
        work.is_due = false;
        !work.is_over
    }

    /// Ends every [`Pipeline::wait_for_work`].
    pub fn end_work(&self) {
        self.work.lock().is_over = true;
        self.work_changed.notify_all();
    }

    /// Whether the engine is being closed, or has halted: long work is to be given up.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.work.lock().is_over
    }

    /// The last commit that the index holds.
    #[must_use]
    pub fn applied(&self) -> AppliedCommit {
        *self.applied.lock()
    }

    fn tell_work(&self) {
        if self.is_cut_due() {
            let mut work = self.work.lock();
            if !work.is_due {
                work.is_due = true;
                drop(work);
                self.work_changed.notify_all();
            }
        }
    }

    /// The rules that a test breaks.
    #[must_use]
    pub fn broken(&self) -> BrokenRules {
        self.broken
    }

    /// Notes that a commit to a partition was published. REQUIRES: the publication lock.
    pub fn touch(&self, sequence: CommitSequence, cell: &Arc<PartitionCell>) {
        self.touched.published(sequence, cell);
    }

    /// Notes that somebody listens who may care for the sync of what is written already.
    pub fn await_sync(&self, cell: &Arc<PartitionCell>) {
        let written = self.log.written();
        if written > self.log.synced() {
            self.touched.await_sync(written, cell);
        }
    }

    /// Whether a cut is due.
    #[must_use]
    pub fn is_cut_due(&self) -> bool {
        let log_bytes = self.log_bytes.load(Ordering::Relaxed);
        let since = log_bytes - self.log_bytes_at_cut.load(Ordering::Relaxed).min(log_bytes);
        self.store.unflushed_bytes() >= self.limits.index_bytes
            || since >= self.limits.log_bytes
            || self.range_deletes.load(Ordering::Relaxed) >= self.limits.range_deletes
    }

    /// Begins a cut: everything applied so far will be in it, and is synced.
    ///
    /// REQUIRES: the committer is held.
    ///
    /// # Errors
    /// What log or store say; then the engine has halted.
    pub fn begin_cut(&self) -> Result<AppliedCommit, StorageError> {
        // INVARIANT (I13): also where all is synced, and so nobody has told yet.
        self.halted().map_or(Ok(()), Err)?;
        self.finish_cut()?;
        let applied = *self.applied.lock();
        let is_broken =
            self.broken.breaks(Rule::S4SyncFirst) || self.broken.breaks(Rule::S4CutUnderLock);
        if !is_broken {
            self.sync(applied.sequence)?;
        }
        self.begin_flush()?;
        self.log_bytes_at_cut.store(self.log_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.range_deletes.store(0, Ordering::Relaxed);
        Ok(applied)
    }

    /// Begins the flush of a cut.
    fn begin_flush(&self) -> Result<(), StorageError> {
        let mut flushing = self.flushing.lock();
        *flushing = true;
        let begun = self.store.begin_flush();
        drop(flushing);
        begun.inspect_err(|error| self.halt_after_store_error(error))
    }

    /// Waits until the cut that was begun last is complete.
    ///
    /// # Errors
    /// What the store says; then the engine has halted, and either cut may be found at the next
    /// open.
    pub fn finish_cut(&self) -> Result<(), StorageError> {
        loop {
            let mut flushing = self.flushing.lock();
            if !*flushing {
                return Ok(());
            }
            if let Some(cause) = self.halted() {
                return Err(cause);
            }
            let flushed = self.store.is_flushed();
            *flushing = !matches!(flushed, Ok(true));
            drop(flushing);
            match flushed {
                Ok(true) => return Ok(()),
                Ok(false) => std::thread::park_timeout(FLUSH_POLL),
                Err(error) => {
                    self.halt_after_store_error(&error);
                    return Err(error);
                }
            }
        }
    }

    /// Rule S6: what is in the log must be durable before anybody hears of the halt.
    fn halt_after_store_error(&self, error: &StorageError) {
        if self.broken.breaks(Rule::S6HaltOnStoreError) {
            return;
        }
        // If this fails too the log has halted with its own cause, which is told.
        let _ = self.log.sync(self.log.written());
        self.halt(error);
    }

    /// Rule S5: memory of the index is bounded, and the flush is always ours.
    fn relieve_index(&self) -> Result<(), StorageError> {
        if self.store.unflushed_bytes() < self.limits.index_memory_bytes {
            return Ok(());
        }
        self.begin_cut()?;
        self.finish_cut()
    }

    fn account(&self, group: &[FramePlan], log_bytes: u64) {
        let range_deletes: usize =
            group.iter().map(|frame| frame.write_batch.range_delete_count()).sum();
        self.counters.groups.add(1);
        self.counters.commits.add(group.len() as u64);
        self.counters.log_bytes.add(log_bytes);
        self.log_bytes.fetch_add(log_bytes, Ordering::Relaxed);
        self.range_deletes.fetch_add(range_deletes as u64, Ordering::Relaxed);
    }
}

impl Effects for Pipeline {
    fn now_ms(&self) -> TimestampMs {
        self.clock.now_ms()
    }

    fn halted(&self) -> Option<StorageError> {
        if self.broken.breaks(Rule::E3HaltRefuses) {
            return None;
        }
        let cause = self.halt.get().cloned().or_else(|| self.log.check_running().err())?;
        Some(match cause {
            halted @ StorageError::Halted { .. } => halted,
            cause => StorageError::Halted { cause: Arc::new(cause) },
        })
    }

    fn halt(&self, cause: &StorageError) {
        if self.broken.breaks(Rule::E3HaltRefuses) {
            return;
        }
        let _ = self.halt.set(cause.clone());
        self.log.halt(cause.clone());
        self.end_work();
    }

    fn last_written(&self) -> CommitSequence {
        self.log.written()
    }

    fn write(
        &self,
        group: &mut [FramePlan],
        may_use_reserve: bool,
    ) -> Result<AppliedCommit, AppendFailure> {
        self.relieve_index().map_err(AppendFailure::NotWritten)?;
        let group_bytes = group.iter().map(|frame| frame.layout().frame_bytes).sum();
        let place = self.log.place_group(group_bytes, may_use_reserve)?;
        let mut position = place.position;
        for frame in group.iter_mut() {
            frame.place(place.segment, position);
            position += frame.layout().frame_bytes;
        }
        let frames: Vec<NewFrame<'_>> = group
            .iter()
            .map(|frame| NewFrame {
                sequence: frame.moment().sequence,
                append_time_ms: frame.moment().append_time,
                write_batch: frame.write_batch.encoded(),
                payloads: frame.payloads(),
            })
            .collect();
        let written = self.log.append_group(&frames)?;
        self.account(group, group_bytes);
        self.space.written(changes_of(group, place.segment));
        let last = written.last().expect("a group has a frame");
        Ok(AppliedCommit {
            sequence: frames[frames.len() - 1].sequence,
            segment: place.segment,
            position: last.position,
            frame_crc: last.frame_crc,
        })
    }

    fn apply(
        &self,
        batches: &[&WriteBatch],
        last: AppliedCommit,
        publish: &mut dyn FnMut(),
    ) -> Result<(), StorageError> {
        let mut applied = WriteBatch::new();
        applied.put(Family::Meta, &MetaKey::Applied.key(), &encode_applied(&last));
        let mut all = Vec::with_capacity(batches.len() + 1);
        all.extend_from_slice(batches);
        all.push(&applied);
        let _apply = self.apply.lock();
        if let Err(error) = self.store.write(&all) {
            self.halt_after_store_error(&error);
            if !self.broken.breaks(Rule::S6HaltOnStoreError) {
                return Err(error);
            }
        }
        *self.applied.lock() = last;
        self.space.applied();
        let _publication = self.publication.write();
        publish();
        Ok(())
    }

    fn sync(&self, through: CommitSequence) -> Result<(), StorageError> {
        if self.log.synced() >= through {
            return Ok(());
        }
        let began = self.clock.monotonic();
        self.log.sync(through)?;
        self.counters.syncs.add(1);
        self.counters.sync_time.record(self.clock.monotonic().saturating_sub(began));
        Ok(())
    }

    fn synced(&self) -> CommitSequence {
        self.log.synced()
    }

    fn wants_background_sync(&self) -> bool {
        self.log.unsynced_bytes() >= self.limits.background_sync_bytes
    }

    fn after_progress(&self) {
        self.touched.tell(self.log.synced());
        self.tell_work();
    }
}

/// What a group changes in the segments: its batches come to life in its own, others die.
fn changes_of(group: &[FramePlan], segment: SegmentId) -> LiveChanges {
    let signed = |count: u64| i64::try_from(count).expect("a segment is far smaller");
    let mut changes = LiveChanges::new();
    for frame in group {
        let payloads = frame.payloads();
        let bytes = payloads.iter().map(|payload| payload.length_bytes() as u64).sum();
        let batch_count = payloads.len() as i64;
        add_change(&mut changes, segment, LiveChange { bytes: signed(bytes), batch_count });
        for &(dead, bytes, batch_count) in frame.dead() {
            let change = LiveChange { bytes: -signed(bytes), batch_count: -signed(batch_count) };
            add_change(&mut changes, dead, change);
        }
    }
    changes
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("limits", &self.limits).finish_non_exhaustive()
    }
}
