//! The queue: who may enter it, who drains it, who is let in between two groups, and its end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::ThreadId;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::change::{AnyChange, Carried, Change, Outcome};
use super::effects::Effects;
use super::room::{GrantedRoom, RoomWaiters};
use super::sync::SyncStage;
use super::ticket::{Promise, Ticket};
use crate::base::callback::call;
use crate::base::error::StorageError;

/// The bounds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// What may wait. One change larger than it is taken when nothing else waits.
    pub queue_bytes: u64,
    /// What one group may hold. One change larger than it is a group by itself.
    pub group_bytes: u64,
}

/// Why the queue takes nothing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// It is full.
    Full {
        /// Bytes that wait in it.
        queued_bytes: u64,
        /// Its bound.
        limit_bytes: u64,
    },
    /// It was closed.
    Closed,
}

/// The commit queue.
pub struct CommitQueue<E> {
    pub(super) effects: Arc<E>,
    limits: QueueLimits,
    pub(super) state: Mutex<State>,
    /// A group has ended, or nobody drains any more: for callers that block.
    pub(super) progressed: Condvar,
    /// Something was submitted, or was left over: for the committer thread.
    pub(super) submitted: Condvar,
    pub(super) sync_stage: SyncStage,
}

/// What the queue's lock protects.
///
/// INVARIANT: `queued_bytes` is the sum of what waits. INVARIANT: groups and exclusive work take
/// turns where both wait, so that neither starves the other.
#[derive(Default)]
pub(super) struct State {
    pub(super) waiting: VecDeque<Queued>,
    queued_bytes: u64,
    pub(super) committer: Option<ThreadId>,
    closed: bool,
    room_waiters: RoomWaiters,
    /// How many wait to work between two groups.
    exclusive_count: u32,
    /// How many would drain a group, and let who works between two groups go first.
    held_back_count: u32,
    /// Whether a group has the next turn, where both kinds wait.
    is_turn_of_group: bool,
}

/// A group that is to be committed.
pub(super) struct Group {
    pub(super) changes: Vec<Queued>,
    /// Told once the group is committed, as far as it is.
    pub(super) granted: GrantedRoom,
}

impl State {
    /// Whether another thread is the committer. A callback runs on the committer's own thread,
    /// between two groups as far as log and index are concerned, and may go on as the committer.
    fn is_taken(&self) -> bool {
        self.committer.is_some_and(|committer| committer != std::thread::current().id())
    }

    /// Whether this thread may drain a group now. REQUIRES: the committer is not taken.
    fn may_drain(&self) -> bool {
        let is_callback = self.committer.is_some();
        is_callback || self.exclusive_count == 0 || self.is_turn_of_group
    }

    /// Whether this thread may work between two groups now. REQUIRES: the committer is not taken.
    fn may_be_exclusive(&self) -> bool {
        let is_callback = self.committer.is_some();
        is_callback || !self.is_turn_of_group || self.held_back_count == 0
    }

    fn push(&mut self, change: Box<dyn AnyChange>, bytes: u64, progress: Option<Arc<Progress>>) {
        self.queued_bytes += bytes;
        self.waiting.push_back(Queued { change: Some(change), progress, bytes });
    }

    fn pop(&mut self) -> Option<Queued> {
        let next = self.waiting.pop_front()?;
        assert!(next.bytes <= self.queued_bytes, "the sum of what waits is not below a part of it");
        self.queued_bytes -= next.bytes;
        let is_empty = self.waiting.is_empty();
        assert!(!is_empty || self.queued_bytes == 0, "where nothing waits the sum is zero");
        Some(next)
    }
}

/// Room in the queue, for a change that is pushed at once: it holds the queue's lock.
pub struct Permit<'a, E> {
    queue: &'a CommitQueue<E>,
    state: MutexGuard<'a, State>,
    bytes: u64,
}

impl<E: Effects> Permit<'_, E> {
    /// Puts a change after all others and returns at once.
    pub fn push<C: Change>(mut self, change: C) -> Ticket<C::Answer> {
        let (carried, ticket) = Carried::new(change);
        self.state.push(carried, self.bytes, None);
        if self.state.committer.is_none() {
            self.queue.submitted.notify_one();
        }
        ticket
    }
}

/// Proof that its holder is the committer: nothing is planned, written, applied or published, and
/// nothing is half done, as long as it lasts.
#[derive(Debug)]
pub struct BetweenGroups {
    _private: (),
}

/// A change in the queue or in a group. Whatever becomes of it, it is answered.
pub(super) struct Queued {
    /// Taken when it is answered.
    change: Option<Box<dyn AnyChange>>,
    /// For the caller that blocks, if one does.
    progress: Option<Arc<Progress>>,
    /// What it counted when it was queued: a topic may grow while a change of it waits.
    bytes: u64,
}

impl Queued {
    pub(super) fn look(&self) -> &dyn AnyChange {
        &**self.change.as_ref().expect(UNANSWERED)
    }

    pub(super) fn change(&mut self) -> &mut dyn AnyChange {
        &mut **self.change.as_mut().expect(UNANSWERED)
    }

    pub(super) fn progress(&self) -> Option<&Arc<Progress>> {
        self.progress.as_ref()
    }

    pub(super) fn answer(mut self, outcome: Outcome) {
        if let Some(change) = self.change.take() {
            change.answer(outcome);
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // A panic passes through whoever had it, who halts the engine before another commits.
        if let Some(change) = self.change.take() {
            let cause = StorageError::store("commit", PANICKED);
            call(move || change.answer(Outcome::Unknown(cause)));
        }
        if let Some(progress) = &self.progress {
            progress.answered();
        }
    }
}

const UNANSWERED: &str = "a change is there until it is answered, and its holder with it";
/// The cause of a halt by a panic.
pub(super) const PANICKED: &str = "a thread panicked while it was committing";

/// How far a commit is, for the caller that blocks on it. INVARIANT: it never goes back.
#[derive(Default)]
pub(super) struct Progress(AtomicU8);

const QUEUED: u8 = 0;
const PUBLISHED: u8 = 1;
const ANSWERED: u8 = 2;

impl Progress {
    /// It may have been answered already, by somebody who synced it at once.
    pub(super) fn published(&self) {
        self.0.fetch_max(PUBLISHED, Ordering::AcqRel);
    }

    fn answered(&self) {
        let before = self.0.swap(ANSWERED, Ordering::AcqRel);
        assert!(before < ANSWERED, "a commit is answered once");
    }

    fn has_left_the_queue(&self) -> bool {
        self.0.load(Ordering::Acquire) != QUEUED
    }

    fn is_answered(&self) -> bool {
        self.0.load(Ordering::Acquire) == ANSWERED
    }
}

impl<E: Effects> CommitQueue<E> {
    /// An empty queue.
    pub fn new(effects: Arc<E>, limits: QueueLimits) -> Self {
        Self {
            effects,
            limits,
            state: Mutex::default(),
            progressed: Condvar::new(),
            submitted: Condvar::new(),
            sync_stage: SyncStage::default(),
        }
    }

    /// Room for a change of this many bytes, without waiting for it.
    ///
    /// # Errors
    /// [`NoRoom`]: the queue is full, or closed.
    pub fn reserve(&self, bytes: u64) -> Result<Permit<'_, E>, NoRoom> {
        let state = self.state.lock();
        if state.closed {
            return Err(NoRoom::Closed);
        }
        if !self.has_room(&state, bytes) {
            let (queued_bytes, limit_bytes) = (state.queued_bytes, self.limits.queue_bytes);
            return Err(NoRoom::Full { queued_bytes, limit_bytes });
        }
        Ok(Permit { queue: self, state, bytes })
    }

    /// A ticket that is answered once there is room for this many bytes. Others may take the room
    /// before its holder comes back.
    pub fn room(&self, bytes: u64) -> Ticket<Result<(), StorageError>> {
        let (told, ticket) = Promise::new();
        let mut state = self.state.lock();
        if !state.closed && !self.has_room(&state, bytes) {
            state.room_waiters.push(bytes, told);
            return ticket;
        }
        let answer = if state.closed { Err(StorageError::Closed) } else { Ok(()) };
        drop(state);
        told.fulfil(answer);
        ticket
    }

    /// Puts a change after all others and returns once it is answered. Drains the queue itself
    /// where nobody does; leads a sync where one is needed.
    ///
    /// # Errors
    /// The change, if the queue is closed.
    pub fn commit<C: Change>(&self, change: C) -> Result<C::Answer, C> {
        let bytes = change.queued_bytes();
        let (carried, ticket) = Carried::new(change);
        let progress = Arc::new(Progress::default());
        let mut state = self.state.lock();
        while !state.closed && !self.has_room(&state, bytes) {
            state = self.drain_or_wait(state);
        }
        if state.closed {
            return Err(carried.into_change());
        }
        state.push(carried, bytes, Some(Arc::clone(&progress)));
        while !progress.has_left_the_queue() {
            state = self.drain_or_wait(state);
        }
        drop(state);
        while !progress.is_answered() {
            self.sync_stage.drive(&*self.effects);
        }
        Ok(ticket.wait())
    }

    /// Runs `work` while nothing is planned, written, applied or published, and nothing waits
    /// half done: between two groups. It goes before the next group.
    pub fn exclusively<T>(&self, work: impl FnOnce(&BetweenGroups) -> T) -> T {
        let mut state = self.state.lock();
        state.exclusive_count += 1;
        while state.is_taken() || !state.may_be_exclusive() {
            self.progressed.wait(&mut state);
        }
        state.exclusive_count -= 1;
        state.is_turn_of_group = true;
        let _committer = self.become_committer(state);
        work(&BetweenGroups { _private: () })
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
        self.sync_stage.run(&*self.effects);
    }

    /// Drains the queue and syncs what waits for it, on this thread: where there are no threads.
    pub fn run_pending(&self) {
        let mut state = self.state.lock();
        while !state.waiting.is_empty() {
            state = self.drain_or_wait(state);
        }
        drop(state);
        self.sync_pending();
    }

    /// As [`CommitQueue::run_pending`], and waits for whoever drains or syncs meanwhile: all that
    /// was submitted before is answered then, or is being answered by another thread.
    pub fn drive(&self) {
        let mut state = self.state.lock();
        while state.is_taken() || !state.waiting.is_empty() {
            state = self.drain_or_wait(state);
        }
        drop(state);
        self.sync_pending();
    }

    fn sync_pending(&self) {
        while self.sync_stage.is_waited_for() {
            self.sync_stage.drive(&*self.effects);
        }
    }

    /// Takes nothing more, drains what waits, and stops the threads.
    pub fn close(&self) {
        self.end(None);
    }

    /// As [`CommitQueue::close`], with a change that is the last one.
    pub fn close_with<C: Change>(&self, last: C) -> Ticket<C::Answer> {
        let bytes = last.queued_bytes();
        let (carried, ticket) = Carried::new(last);
        self.end(Some((carried, bytes)));
        ticket
    }

    fn end(&self, last: Option<(Box<dyn AnyChange>, u64)>) {
        let mut state = self.state.lock();
        state.closed = true;
        if let Some((last, bytes)) = last {
            state.push(last, bytes, Some(Arc::default()));
        }
        while state.is_taken() || !state.waiting.is_empty() {
            state = self.drain_or_wait(state);
        }
        let room_waiters = state.room_waiters.take_all();
        drop(state);
        room_waiters.into_iter().for_each(|told| told.fulfil(Err(StorageError::Closed)));
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

    fn has_room(&self, state: &State, bytes: u64) -> bool {
        state.waiting.is_empty()
            || state.queued_bytes.saturating_add(bytes) <= self.limits.queue_bytes
    }

    /// Drains one group if nobody else drains or goes before it, else waits for a group to end.
    fn drain_or_wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.is_taken() || state.waiting.is_empty() {
            self.progressed.wait(&mut state);
            return state;
        }
        if !state.may_drain() {
            state.held_back_count += 1;
            self.progressed.wait(&mut state);
            state.held_back_count -= 1;
            return state;
        }
        let Group { changes, granted } = self.take_group(&mut state);
        let committer = self.become_committer(state);
        self.commit_group(changes);
        drop(granted);
        drop(committer);
        self.state.lock()
    }

    fn take_group(&self, state: &mut State) -> Group {
        let mut changes: Vec<Queued> = Vec::new();
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
            changes.extend(state.pop());
            if exclusive {
                break;
            }
        }
        state.is_turn_of_group = false;
        let room_bytes = self.limits.queue_bytes.saturating_sub(state.queued_bytes);
        let is_empty = state.waiting.is_empty();
        let granted = state.room_waiters.grant(room_bytes, is_empty);
        Group { changes, granted }
    }
}

impl<E> fmt::Debug for CommitQueue<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitQueue").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl<E> CommitQueue<E> {
    /// Puts any change after all others.
    pub(super) fn push_any(&self, change: Box<dyn AnyChange>, bytes: u64) {
        self.state.lock().push(change, bytes, None);
    }

    /// How many wait to work between two groups.
    pub(super) fn exclusive_count(&self) -> u32 {
        self.state.lock().exclusive_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_and_answered_at_once_stays_answered_when_it_is_called_published() {
        let progress = Progress::default();
        progress.published();
        assert!(progress.has_left_the_queue() && !progress.is_answered());
        progress.answered();
        progress.published();
        assert!(progress.is_answered());
    }
}
