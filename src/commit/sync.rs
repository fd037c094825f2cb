//! The second stage: commits that are published and wait to be synced.
//!
//! Whoever leads a sync answers every commit that it covers. Several may lead at once: the log
//! lets one sync run at a time, and the others get its result where it covers them.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::change::Outcome;
use super::effects::Effects;
use super::queue::{PANICKED, Queued};
use crate::base::error::StorageError;
use crate::base::types::CommitSequence;

#[derive(Default)]
pub(super) struct SyncStage {
    waiting: Mutex<Waiting>,
    wanted: Condvar,
}

#[derive(Default)]
struct Waiting {
    commits: VecDeque<Unsynced>,
    wanted: bool,
    closed: bool,
}

pub(super) struct Unsynced {
    pub(super) queued: Queued,
    pub(super) sequence: CommitSequence,
}

impl SyncStage {
    /// Takes the commits of a group, all at once: a sync that covers one covers all, and whoever
    /// leads it answers all. REQUIRES: pushed in the order of sequences, by the committer.
    pub(super) fn push(&self, group: Vec<Unsynced>) {
        let mut waiting = self.waiting.lock();
        let all = waiting.commits.back().into_iter().chain(&group).map(|commit| commit.sequence);
        debug_assert!(all.is_sorted_by(|a, b| a < b), "they come in the order of sequences");
        waiting.commits.extend(group);
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.lock().commits.is_empty()
    }

    pub(super) fn wake(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.wanted {
            waiting.wanted = true;
            drop(waiting);
            self.wanted.notify_one();
        }
    }

    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.wanted.notify_one();
    }

    /// Syncs up to the newest commit that waits, and answers all that are covered.
    pub(super) fn drive(&self, effects: &impl Effects) {
        let newest = self.waiting.lock().commits.back().map(|commit| commit.sequence);
        match newest {
            Some(newest) => self.sync_and_answer(effects, newest),
            // Another leader took the commits and is about to answer them.
            None => std::thread::yield_now(),
        }
    }

    pub(super) fn run(&self, effects: &impl Effects) {
        let mut waiting = self.waiting.lock();
        while !waiting.closed {
            if !waiting.wanted {
                self.wanted.wait(&mut waiting);
                continue;
            }
            waiting.wanted = false;
            drop(waiting);
            if effects.halted().is_none() || self.is_waited_for() {
                self.sync_and_answer(effects, effects.last_written());
            }
            waiting = self.waiting.lock();
        }
    }

    fn sync_and_answer(&self, effects: &impl Effects, through: CommitSequence) {
        let _leader = Leader { stage: self, effects };
        match effects.sync(through) {
            Ok(()) => {
                let synced = effects.synced();
                assert!(synced >= through, "a sync that succeeds covers what it was asked for");
                self.answer_while(|commit| commit.sequence <= synced, &Outcome::Settled);
                effects.after_progress();
            }
            Err(error) => {
                effects.halt(&error);
                self.answer_while(|_| true, &Outcome::Unknown(error));
            }
        }
    }

    fn answer_while(&self, covered: impl Fn(&Unsynced) -> bool, outcome: &Outcome) {
        loop {
            let mut waiting = self.waiting.lock();
            if !waiting.commits.front().is_some_and(&covered) {
                return;
            }
            let Some(commit) = waiting.commits.pop_front() else { return };
            let next = waiting.commits.front().map(|next| next.sequence);
            assert!(next.is_none_or(|next| next > commit.sequence), "answered in their order");
            drop(waiting);
            commit.queued.answer(outcome.clone());
        }
    }
}

/// Leading a sync; where a panic passes through, nobody is left waiting for it.
struct Leader<'a, E: Effects> {
    stage: &'a SyncStage,
    effects: &'a E,
}

impl<E: Effects> Drop for Leader<'_, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = StorageError::store("commit", PANICKED);
            self.effects.halt(&cause);
            self.stage.answer_while(|_| true, &Outcome::Unknown(cause));
        }
    }
}
