//! Log and index store together: what a group of commits does to them, and what readers see of it.
//!
//! Locks, in this order: `apply` (store and published state change together), `publication`
//! (readers see a group whole), then a partition's own.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use super::checkpoint::{CheckpointLimits, Checkpoints};
use super::effects::Effects;
use super::live::{LiveChange, LiveChanges, LiveCounts, add_change};
use super::notify::Touched;
use super::plan::FramePlan;
use crate::base::clock::Clock;
use crate::base::error::StorageError;
use crate::base::metrics::Counters;
use crate::base::rules::{BrokenRules, Rule};
use crate::base::types::{
    AppliedCommit, CommitSequence, SegmentId, TimestampMs, Visibility, Watermarks,
};
use crate::index::keyspace::{MetaKey, encode_applied};
use crate::index::store::{Read, Store};
use crate::index::write_batch::{Family, WriteBatch};
use crate::log::{AppendFailure, CommitLog, NewFrame};
use crate::state::catalog::PartitionCell;

/// Log and store.
pub struct Pipeline {
    /// The commit log.
    pub log: CommitLog,
    /// The index.
    pub store: Arc<dyn Store>,
    /// What is counted.
    pub counters: Counters,
    /// How much of each segment is alive.
    pub live: LiveCounts,
    /// Held while a group becomes visible; readers of watermarks share it.
    publication: RwLock<()>,
    /// Held while the store changes and what it holds is published.
    apply: Mutex<()>,
    clock: Arc<dyn Clock>,
    pub(super) limits: CheckpointLimits,
    pub(super) broken: BrokenRules,
    halt: OnceLock<StorageError>,
    touched: Touched,
    /// When the writing of the group began that is in the committer's hands.
    group_began: Mutex<Duration>,
    applied: Mutex<AppliedCommit>,
    pub(super) checkpoints: Checkpoints,
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
        limits: CheckpointLimits,
        broken: BrokenRules,
    ) -> Self {
        Self {
            log,
            store,
            counters: Counters::default(),
            live: LiveCounts::default(),
            publication: RwLock::new(()),
            apply: Mutex::new(()),
            clock,
            limits,
            broken,
            halt: OnceLock::new(),
            touched: Touched::default(),
            applied: Mutex::new(applied),
            group_began: Mutex::default(),
            checkpoints: Checkpoints::default(),
            work: Mutex::default(),
            work_changed: Condvar::new(),
        }
    }

    /// Counts log that was replayed at open and is in no checkpoint yet.
    pub fn note_replayed(&self, bytes: u64) {
        self.checkpoints.note_written(bytes, 0);
    }

    /// The four offsets of a partition. Two calls, for two partitions, agree about every commit
    /// that the first one saw.
    #[must_use]
    pub fn watermarks(&self, cell: &PartitionCell, visibility: Visibility) -> Watermarks {
        let _publication = self.publication.read();
        cell.watermarks(visibility, self.log.synced())
    }

    /// The index as it is between two publications, so that it agrees with every watermark that
    /// was read before.
    #[must_use]
    pub fn snapshot(&self) -> Arc<dyn Read> {
        let _apply = self.apply.lock();
        self.store.snapshot()
    }

    /// Begins to count what is alive, on this snapshot of the index.
    #[must_use]
    pub fn begin_count(&self) -> Arc<dyn Read> {
        let _apply = self.apply.lock();
        self.live.begin_count();
        self.store.snapshot()
    }

    /// Waits until what the store holds now is published: an entry that is gone from the index is
    /// then gone from the watermarks too.
    pub fn settle(&self) {
        drop(self.apply.lock());
    }

    /// Blocks until a checkpoint is due or the time is over; false once the engine is closed or has
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

    /// Ends the wait of the maintenance thread in [`Pipeline::wait_for_work`].
    pub fn request_work(&self) {
        self.work.lock().is_due = true;
        self.work_changed.notify_all();
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

    fn notify_work(&self) {
        if self.is_checkpoint_due() {
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
        debug_assert!(self.publication.is_locked_exclusive(), "the publication lock is held");
        debug_assert!(
            are_in_order(&cell.watermarks(Visibility::Applied, self.log.synced())),
            "what is published has its watermarks in order: {cell:?}"
        );
        self.touched.published(sequence, cell);
    }

    /// Notes that somebody listens who may care for the sync of what is written already.
    pub fn await_sync(&self, cell: &Arc<PartitionCell>) {
        let written = self.log.written();
        if written > self.log.synced() {
            self.touched.await_sync(written, cell);
        }
    }

    /// Rule S6: what is in the log must be durable before anybody hears of the halt.
    pub(super) fn halt_after_store_error(&self, error: &StorageError) {
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
        self.begin_checkpoint_in_group()?;
        self.finish_checkpoint()
    }

    fn account(&self, group: &[FramePlan], log_bytes: u64) {
        let range_deletes: usize =
            group.iter().map(|frame| frame.write_batch.range_delete_count()).sum();
        self.counters.commit_groups.add(1);
        self.counters.commits.add(group.len() as u64);
        self.counters.log_bytes.add(log_bytes);
        self.checkpoints.note_written(log_bytes, range_deletes as u64);
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
        assert!(!group.is_empty(), "a group has a frame");
        let last_written = self.log.written().0;
        debug_assert!(
            (last_written + 1..)
                .zip(&*group)
                .all(|(sequence, frame)| frame.moment().sequence.0 == sequence),
            "sequences follow the last one that was written without a gap"
        );
        *self.group_began.lock() = self.clock.monotonic();
        self.relieve_index().map_err(AppendFailure::NotWritten)?;
        let group_bytes = group.iter().map(|frame| frame.layout().frame_bytes).sum();
        let place = self.log.place_group(group_bytes, may_use_reserve)?;
        let mut position = place.position;
        for frame in group.iter_mut() {
            frame.place(place.segment, position);
            position += frame.layout().frame_bytes;
        }
        assert!(position == place.position + group_bytes, "the frames fill the group's place");
        let group_len = group.len();
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
        assert!(written.len() == group_len, "each frame of the group has its place");
        self.account(group, group_bytes);
        self.live.written(changes_of(group, place.segment));
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
        let before = std::mem::replace(&mut *self.applied.lock(), last);
        assert!(before.sequence < last.sequence, "what is applied never goes back");
        assert!(before.segment <= last.segment, "the log grows at its end");
        self.live.applied();
        let publication = self.publication.write();
        publish();
        drop(publication);
        let began = *self.group_began.lock();
        self.counters.commit_group_time.record(self.clock.monotonic().saturating_sub(began));
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
        self.touched.notify(self.log.synced());
        self.notify_work();
    }
}

fn are_in_order(marks: &Watermarks) -> bool {
    let Watermarks { log_start, last_stable, high_watermark, log_end } = *marks;
    log_start <= last_stable && last_stable <= high_watermark && high_watermark <= log_end
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
