//! The committer: takes a group through plan, write, apply and publish, and answers it as far as it can be.

use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::MutexGuard;

use super::change::Outcome;
use super::effects::Effects;
use super::plan::{FramePlan, Moment};
use super::queue::{CommitQueue, PANICKED, Queued, State};
use super::sync::Unsynced;
use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability};
use crate::index::write_batch::WriteBatch;
use crate::log::AppendFailure;

impl<E: Effects> CommitQueue<E> {
    /// REQUIRES: the committer is not taken by another thread.
    pub(super) fn become_committer(&self, mut state: MutexGuard<'_, State>) -> Committer<'_, E> {
        let this = std::thread::current().id();
        let before = state.committer.replace(this);
        assert!(before.is_none_or(|before| before == this), "one thread at a time commits");
        Committer { queue: self, before }
    }

    /// Plans, writes, applies and publishes one group, and answers it as far as it can be.
    /// REQUIRES: the committer is held, and no lock is.
    pub(super) fn commit_group(&self, group: Vec<Queued>) {
        assert!(!group.is_empty(), "a group has a change");
        if let Some(cause) = self.effects.halted() {
            return answer_all(group, &Outcome::NotWritten(cause));
        }
        let mut refused = Vec::new();
        let (planned, frames) = self.plan_group(group, &mut refused);
        if !planned.is_empty() {
            self.write_group(planned, frames);
        }
        // Only now: what an answer calls back may commit, on top of what is published.
        answer_all(refused, &Outcome::Settled);
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
            let mut frame = FramePlan::new(Moment { sequence, append_time });
            if queued.look().may_use_reserve() {
                frame.allow_reserve();
            }
            if queued.change().plan(&mut frame) {
                sequence = sequence.next();
                frames.push(frame);
                planned.push(queued);
            } else {
                refused.push(queued);
            }
        }
        (planned, frames)
    }

    fn write_group(&self, mut planned: Vec<Queued>, frames: Vec<FramePlan>) {
        assert!(planned.len() == frames.len(), "each planned change has its frame");
        let first = frames[0].moment().sequence;
        // The frames are gone after this. Buffers of callers, whose freeing may call back, are
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
        let may_use_reserve = frames.iter().all(FramePlan::may_use_reserve);
        let last = self.effects.write(&mut frames, may_use_reserve)?;
        assert!(
            last.sequence == frames[frames.len() - 1].moment().sequence,
            "what was written last is the last of the group"
        );
        let batches: Vec<&WriteBatch> = frames.iter().map(|frame| &frame.write_batch).collect();
        let mut published = 0;
        let mut publish = || {
            for (frame, queued) in frames.iter().zip(planned.iter_mut()) {
                queued.change().publish(frame.moment().sequence);
                published += 1;
            }
        };
        self.effects.apply(&batches, last, &mut publish).map_err(|error| {
            // The frames are in the log: their outcome is "unknown", never "failed" (rule S6).
            self.effects.halt(&error);
            AppendFailure::Unknown(error)
        })?;
        assert!(published == planned.len(), "an applied group is published whole");
        Ok(())
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
        let mut is_led = false;
        let mut unsynced = Vec::new();
        let mut buffered = Vec::new();
        for (index, queued) in planned.into_iter().enumerate() {
            if queued.look().durability() == Durability::Buffered {
                buffered.push(queued);
            } else {
                is_led |= queued.progress().is_some();
                let sequence = CommitSequence(first.0 + index as u64);
                unsynced.push(Unsynced { queued, sequence });
            }
        }
        is_led |= unsynced.is_empty();
        if !unsynced.is_empty() {
            let blocked = unsynced.iter().filter_map(|commit| commit.queued.progress());
            let blocked: Vec<_> = blocked.map(Arc::clone).collect();
            self.sync_stage.push(unsynced);
            blocked.iter().for_each(|progress| progress.published());
        }
        // Only now, since an answer may call back, and what is called may commit again.
        for queued in buffered {
            queued.answer(Outcome::Settled);
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
pub(super) struct Committer<'a, E: Effects> {
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
