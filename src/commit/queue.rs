//! The queue and its committer: who drains it, what a group is, and how each change is answered.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::ThreadId;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::plan::{FramePlan, Moment};
use super::sync::{SyncStage, Unsynced};
use super::{Change, Effects, Outcome, Verdict};
use crate::base::callback::call;
use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability};
use crate::index::write_batch::WriteBatch;
use crate::log::AppendFailure;

/// The bounds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// What may wait. One change larger than it is taken when nothing else waits.
    pub queue_bytes: u64,
    /// What one group may hold. One change larger than it is a group by itself.
    pub group_bytes: u64,
}

/// The commit queue.
pub struct CommitQueue<E> {
    effects: E,
    limits: QueueLimits,
    state: Mutex<State>,
    /// A group has ended, or nobody drains any more: for callers that block.
    progressed: Condvar,
    /// Something was submitted, or was left behind: for the committer thread.
    submitted: Condvar,
    sync_stage: SyncStage,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Queued>,
    queued_bytes: u64,
    committer: Option<ThreadId>,
    closed: bool,
}

impl State {
    /// Whether another thread is the committer. A callback runs on the committer's own thread,
    /// between two groups as far as log and index are concerned, and may go on as the committer.
    fn is_taken(&self) -> bool {
        self.committer.is_some_and(|committer| committer != std::thread::current().id())
    }
}

/// A change on its way. Whatever becomes of it, it is answered.
pub(super) struct Queued {
    /// Taken when it is answered.
    change: Option<Box<dyn Change>>,
    progress: Arc<Progress>,
    has_blocked_caller: bool,
    /// What it counted when it was queued: a topic may grow while a change of it waits.
    bytes: u64,
}

impl Queued {
    fn look(&self) -> &dyn Change {
        &**self.change.as_ref().expect(UNANSWERED)
    }

    fn change(&mut self) -> &mut dyn Change {
        &mut **self.change.as_mut().expect(UNANSWERED)
    }

    pub(super) fn answer(mut self, outcome: Outcome) {
        if let Some(change) = self.change.take() {
            change.answer(outcome);
        }
        self.progress.answered();
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // A panic passes through whoever had it, who halts the engine before another commits.
        if let Some(change) = self.change.take() {
            let cause = StorageError::store("commit", PANICKED);
            call(move || change.answer(Outcome::Unknown(cause)));
        }
        self.progress.answered();
    }
}

const UNANSWERED: &str = "a change is there until it is answered, and its holder with it";
/// The cause of a halt by a panic.
pub(super) const PANICKED: &str = "a thread panicked while it was committing";

/// How far a commit is, for the caller that blocks on it.
#[derive(Default)]
pub(super) struct Progress(AtomicU8);

const QUEUED: u8 = 0;
const PUBLISHED: u8 = 1;
const ANSWERED: u8 = 2;

impl Progress {
    /// It may have been answered already, by somebody who synced it at once.
    fn published(&self) {
        self.0.fetch_max(PUBLISHED, Ordering::AcqRel);
    }

    fn answered(&self) {
        self.0.store(ANSWERED, Ordering::Release);
    }
}

impl<E: Effects> CommitQueue<E> {
    /// An empty queue.
    pub fn new(effects: E, limits: QueueLimits) -> Self {
        Self {
            effects,
            limits,
            state: Mutex::default(),
            progressed: Condvar::new(),
            submitted: Condvar::new(),
            sync_stage: SyncStage::default(),
        }
    }

    /// Puts a change behind all others and returns at once.
    ///
    /// # Errors
    /// The change, if the queue is full or closed; [`CommitQueue::is_closed`] tells which.
    pub fn submit(&self, change: Box<dyn Change>) -> Result<(), Box<dyn Change>> {
        let mut state = self.state.lock();
        if state.closed || !self.has_room(&state, change.queued_bytes()) {
            return Err(change);
        }
        self.push(&mut state, change, false);
        if state.committer.is_none() {
            self.submitted.notify_one();
        }
        Ok(())
    }

    /// Puts a change behind all others and returns once it is answered. Drains the queue itself
    /// where nobody does; leads a sync where one is needed.
    ///
    /// # Errors
    /// The change, if the queue is closed.
    pub fn commit(&self, change: Box<dyn Change>) -> Result<(), Box<dyn Change>> {
        let mut state = self.state.lock();
        let bytes = change.queued_bytes();
        while !state.closed && !self.has_room(&state, bytes) {
            state = self.drain_or_wait(state);
        }
        if state.closed {
            return Err(change);
        }
        let progress = self.push(&mut state, change, true);
        while progress.0.load(Ordering::Acquire) == QUEUED {
            state = self.drain_or_wait(state);
        }
        drop(state);
        while progress.0.load(Ordering::Acquire) != ANSWERED {
            self.sync_stage.drive(&self.effects);
        }
        Ok(())
    }

    /// Runs `work` while nothing is planned, written, applied or published, and nothing waits
    /// half done: between two groups.
    pub fn exclusively<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock();
        while state.is_taken() {
            self.progressed.wait(&mut state);
        }
        let _committer = self.become_committer(state);
        work()
    }

    /// Drains what was submitted, on this thread, until the queue is closed: the committer thread.
    pub fn run_committer(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            if state.is_taken() || state.waiting.is_empty() {
                self.submitted.wait(&mut state);
            } else {
                state = self.drain_or_wait(state);
            }
        }
    }

    /// Syncs what was submitted to be synced, and what is due in the background, on this thread,
    /// until the queue is closed: the sync thread.
    pub fn run_syncer(&self) {
        self.sync_stage.run(&self.effects);
    }

    /// Drains the queue and syncs what waits for it, on this thread: where there are no threads.
    pub fn run_pending(&self) {
        let mut state = self.state.lock();
        while !state.waiting.is_empty() {
            state = self.drain_or_wait(state);
        }
        drop(state);
        while self.sync_stage.is_waited_for() {
            self.sync_stage.drive(&self.effects);
        }
    }

    /// Takes nothing more, drains what waits, and stops the threads. A change can be given to be
    /// the last one.
    pub fn close(&self, last: Option<Box<dyn Change>>) {
        let mut state = self.state.lock();
        state.closed = true;
        if let Some(last) = last {
            self.push(&mut state, last, true);
        }
        while state.is_taken() || !state.waiting.is_empty() {
            state = self.drain_or_wait(state);
        }
        drop(state);
        self.run_pending();
        self.sync_stage.close();
        self.submitted.notify_all();
        self.progressed.notify_all();
    }

    /// Whether the queue was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Bytes that wait.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.state.lock().queued_bytes
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn has_room(&self, state: &State, bytes: u64) -> bool {
        state.waiting.is_empty()
            || state.queued_bytes.saturating_add(bytes) <= self.limits.queue_bytes
    }

    fn push(&self, state: &mut State, change: Box<dyn Change>, blocked: bool) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let bytes = change.queued_bytes();
        state.queued_bytes += bytes;
        state.waiting.push_back(Queued {
            change: Some(change),
            progress: Arc::clone(&progress),
            has_blocked_caller: blocked,
            bytes,
        });
        progress
    }

    /// Drains one group if nobody else drains, else waits for a group to end.
    fn drain_or_wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.is_taken() || state.waiting.is_empty() {
            self.progressed.wait(&mut state);
            return state;
        }
        let group = self.take_group(&mut state);
        let committer = self.become_committer(state);
        self.commit_group(group);
        drop(committer);
        self.state.lock()
    }

    /// REQUIRES: the committer is not taken by another thread.
    fn become_committer(&self, mut state: MutexGuard<'_, State>) -> Committer<'_, E> {
        let before = state.committer.replace(std::thread::current().id());
        Committer { queue: self, before }
    }

    fn take_group(&self, state: &mut State) -> Vec<Queued> {
        let mut group = Vec::new();
        let mut group_bytes = 0u64;
        let mut uses_reserve = None;
        while let Some(next) = state.waiting.front() {
            let bytes = next.bytes;
            let fits = group_bytes.saturating_add(bytes) <= self.limits.group_bytes;
            let exclusive = next.look().is_exclusive();
            // What gives space back must not fail with what the reserve is held back from (E5).
            let reserve = next.look().may_use_reserve();
            if uses_reserve.is_some_and(|other| !fits || exclusive || other != reserve) {
                break;
            }
            uses_reserve = Some(reserve);
            group_bytes += bytes;
            state.queued_bytes -= bytes;
            group.extend(state.waiting.pop_front());
            if exclusive {
                break;
            }
        }
        group
    }

    /// Plans, writes, applies and publishes one group, and answers it as far as it can be.
    fn commit_group(&self, group: Vec<Queued>) {
        if let Some(cause) = self.effects.halted() {
            return answer_all(group, &Outcome::NotWritten(cause));
        }
        let mut refused = Vec::new();
        let (planned, frames) = self.plan_group(group, &mut refused);
        if !planned.is_empty() {
            self.write_group(planned, frames);
        }
        // Only now: what an answer calls back may commit, on top of what is published.
        answer_all(refused, &Outcome::Refused);
    }

    fn write_group(&self, mut planned: Vec<Queued>, frames: Vec<FramePlan>) {
        let first = frames[0].moment().sequence;
        // The frames are gone behind this. Buffers of callers, whose freeing may call back, are
        // freed with their transactions.
        match self.put(&mut planned, frames) {
            Ok(()) => {
                self.answer_group(planned, first);
                self.effects.after_progress();
            }
            Err(failure) => self.fail_group(planned, failure),
        }
    }

    /// Writes and applies the frames of a group, and publishes its changes.
    fn put(&self, planned: &mut [Queued], mut frames: Vec<FramePlan>) -> Result<(), AppendFailure> {
        let may_use_reserve = planned.iter().all(|queued| queued.look().may_use_reserve());
        let last = self.effects.write(&mut frames, may_use_reserve)?;
        let batches: Vec<&WriteBatch> = frames.iter().map(|frame| &frame.write_batch).collect();
        let mut publish = || {
            for (frame, queued) in frames.iter().zip(planned.iter_mut()) {
                queued.change().publish(frame.moment().sequence);
            }
        };
        self.effects.apply(&batches, last, &mut publish).map_err(|error| {
            // The frames are in the log: their outcome is "unknown", never "failed" (rule S6).
            self.effects.halt(&error);
            AppendFailure::Unknown(error)
        })
    }

    fn plan_group(
        &self,
        group: Vec<Queued>,
        refused: &mut Vec<Queued>,
    ) -> (Vec<Queued>, Vec<FramePlan>) {
        let append_time = self.effects.now_ms();
        let mut sequence = self.effects.last_written().next();
        let mut planned = Vec::with_capacity(group.len());
        let mut frames = Vec::with_capacity(group.len());
        for mut queued in group {
            let moment = Moment { sequence, append_time };
            let mut frame = FramePlan::new(moment);
            match queued.change().plan(&moment, &mut frame) {
                Verdict::Planned => {
                    sequence = sequence.next();
                    frames.push(frame);
                    planned.push(queued);
                }
                Verdict::Refused => refused.push(queued),
            }
        }
        (planned, frames)
    }

    fn fail_group(&self, mut planned: Vec<Queued>, failure: AppendFailure) {
        for queued in planned.iter_mut().rev() {
            queued.change().undo();
        }
        let outcome = match failure {
            AppendFailure::NotWritten(error) => Outcome::NotWritten(error),
            AppendFailure::Unknown(error) => {
                self.effects.halt(&error);
                Outcome::Unknown(error)
            }
        };
        answer_all(planned, &outcome);
    }

    fn answer_group(&self, planned: Vec<Queued>, first: CommitSequence) {
        let mut leaders = 0;
        let mut unsynced = Vec::new();
        let mut buffered = Vec::new();
        for (index, queued) in planned.into_iter().enumerate() {
            let sequence = CommitSequence(first.0 + index as u64);
            if queued.look().durability() == Durability::Buffered {
                buffered.push((queued, sequence));
            } else {
                leaders += usize::from(queued.has_blocked_caller);
                unsynced.push(Unsynced { queued, sequence });
            }
        }
        let is_led = unsynced.is_empty() || leaders > 0;
        if !unsynced.is_empty() {
            let published: Vec<_> =
                unsynced.iter().map(|commit| Arc::clone(&commit.queued.progress)).collect();
            self.sync_stage.push(unsynced);
            published.iter().for_each(|progress| progress.published());
        }
        // Only now, since an answer may call back, and what is called may commit again.
        for (queued, sequence) in buffered {
            queued.answer(Outcome::Committed { sequence });
        }
        // A caller that blocks leads the sync that answers all; the thread does where none blocks.
        if !is_led || self.effects.wants_background_sync() {
            self.sync_stage.wake();
        }
    }
}

fn answer_all(group: Vec<Queued>, outcome: &Outcome) {
    for queued in group {
        queued.answer(outcome.clone());
    }
}

/// Being the committer; dropping it lets the next one in, also when a panic passes through.
struct Committer<'a, E: Effects> {
    queue: &'a CommitQueue<E>,
    /// Who was the committer before: nobody, or this thread, from within a callback.
    before: Option<ThreadId>,
}

impl<E: Effects> Drop for Committer<'_, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = StorageError::store("commit", PANICKED);
            self.queue.effects.halt(&cause);
        }
        let mut state = self.queue.state.lock();
        state.committer = self.before;
        let left = !state.waiting.is_empty();
        drop(state);
        self.queue.progressed.notify_all();
        if left {
            self.queue.submitted.notify_one();
        }
    }
}

impl<E> fmt::Debug for CommitQueue<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitQueue").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_and_answered_at_once_stays_answered_when_it_is_called_published() {
        let progress = Progress::default();
        progress.published();
        assert_eq!(progress.0.load(Ordering::Acquire), PUBLISHED);
        progress.answered();
        progress.published();
        assert_eq!(progress.0.load(Ordering::Acquire), ANSWERED);
    }
}
