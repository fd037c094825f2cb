//! Which commits are written, which are synced, and the one sync that runs at a time.
//!
//! INVARIANT (W5): `synced` is the last sequence that was written before a sync began which
//! covered every segment with an unsynced frame. Headers and names of segments are durable before
//! their first frame (W3), so syncing the files is enough.
//!
//! INVARIANT (W7): one fdatasync runs at a time, on the descriptor that wrote, and its result
//! belongs to all who wait. After one failure no sync succeeds any more: the log is halted.
//!
//! Who wants something synced leads if no sync runs, and else waits for the one that does. A
//! leader holds no lock while it syncs, so appends go on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::segment::Segment;
use crate::base::error::StorageError;
use crate::base::io::is_disk_full;
use crate::base::rules::{BrokenRules, Rule};
use crate::base::types::CommitSequence;

/// A place in the order of commits, and the bytes of frames up to it since the log was opened.
#[derive(Debug, Clone, Copy)]
struct Mark {
    sequence: CommitSequence,
    bytes: u64,
}

/// A segment that may hold unsynced frames.
#[derive(Debug, Clone)]
struct UnsyncedSegment {
    segment: Arc<Segment>,
    /// The last commit in it, once the writer has left it.
    left_after: Option<CommitSequence>,
}

#[derive(Debug)]
struct State {
    written: Mark,
    synced: Mark,
    /// Oldest first; the last one is being written.
    unsynced: VecDeque<UnsyncedSegment>,
    running: bool,
    waiting_count: usize,
    halted: Option<Arc<StorageError>>,
}

/// The state of writing and syncing, shared by the committer and all who wait for a sync.
#[derive(Debug)]
pub(super) struct SyncProgress {
    state: Mutex<State>,
    /// Notified when a sync ends, and at a halt.
    changed: Condvar,
    // Copies of `state`, for readers that must not wait. SeqCst: they are read once a group.
    written: AtomicU64,
    synced: AtomicU64,
    is_halted: AtomicBool,
    broken: BrokenRules,
}

impl SyncProgress {
    /// The state after opening, when all that was found is synced.
    pub(super) fn new(last: CommitSequence, current: Arc<Segment>, broken: BrokenRules) -> Self {
        let mark = Mark { sequence: last, bytes: 0 };
        let state = State {
            written: mark,
            synced: mark,
            unsynced: VecDeque::from([UnsyncedSegment { segment: current, left_after: None }]),
            running: false,
            waiting_count: 0,
            halted: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            written: AtomicU64::new(last.0),
            synced: AtomicU64::new(last.0),
            is_halted: AtomicBool::new(false),
            broken,
        }
    }

    pub(super) fn written(&self) -> CommitSequence {
        CommitSequence(self.written.load(Ordering::SeqCst))
    }

    pub(super) fn synced(&self) -> CommitSequence {
        CommitSequence(self.synced.load(Ordering::SeqCst))
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn written_bytes(&self) -> u64 {
        self.state.lock().written.bytes
    }

    pub(super) fn unsynced_bytes(&self) -> u64 {
        self.state.lock().unsynced_bytes()
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn waiting_count(&self) -> usize {
        self.state.lock().waiting_count
    }

    /// Fails once the log is halted.
    pub(super) fn check_running(&self) -> Result<(), StorageError> {
        if self.is_halted.load(Ordering::SeqCst) { self.state.lock().check() } else { Ok(()) }
    }

    /// Stops all writes; the first cause is kept.
    pub(super) fn halt(&self, cause: StorageError) {
        self.halt_in(&mut self.state.lock(), cause);
    }

    fn halt_in(&self, state: &mut State, cause: StorageError) {
        if self.broken.breaks(Rule::E3HaltRefuses) {
            return;
        }
        state.halted.get_or_insert_with(|| Arc::new(cause));
        self.is_halted.store(true, Ordering::SeqCst);
        debug_assert!(state.check().is_err(), "a halted log stays halted");
        self.changed.notify_all();
    }

    /// Tells that frames up to `last` are in the newest segment's file.
    pub(super) fn add_written(&self, last: CommitSequence, frame_bytes: u64) {
        let mut state = self.state.lock();
        assert!(last > state.written.sequence, "the committer writes in order");
        assert!(frame_bytes > 0, "a commit has a frame");
        state.written = Mark { sequence: last, bytes: state.written.bytes + frame_bytes };
        state.assert_sound();
        self.written.store(last.0, Ordering::SeqCst);
    }

    /// Tells that the writer has left its segment for a new one, whose header is durable. What is
    /// unsynced in the old one stays to be synced before anything later counts as synced (W6).
    pub(super) fn add_segment(&self, segment: Arc<Segment>) {
        let mut state = self.state.lock();
        let left_after = state.written.sequence;
        let left = state.unsynced.back_mut().expect("one segment is always being written");
        assert!(left.segment.id < segment.id, "ids of segments only rise (W1)");
        assert!(left.left_after.is_none(), "a segment is left once");
        left.left_after = Some(left_after);
        if left_after <= state.synced.sequence {
            state.unsynced.pop_back();
        }
        state.unsynced.push_back(UnsyncedSegment { segment, left_after: None });
        state.assert_sound();
    }

    /// Returns when `through` is synced.
    pub(super) fn sync(&self, through: CommitSequence) -> Result<(), StorageError> {
        self.sync_until(|state| {
            assert!(through <= state.written.sequence, "only written commits can be synced");
            state.synced.sequence >= through
        })
    }

    /// Returns when at most this many bytes are unsynced.
    pub(super) fn sync_down_to(&self, unsynced_bytes: u64) -> Result<(), StorageError> {
        self.sync_until(|state| state.unsynced_bytes() <= unsynced_bytes)
    }

    /// Returns when fewer segments than this have unsynced frames: each is an open file.
    pub(super) fn sync_segments_below(&self, segment_count: usize) -> Result<(), StorageError> {
        self.sync_until(|state| state.unsynced.len() < segment_count || state.unsynced_bytes() == 0)
    }

    fn sync_until(&self, is_done: impl Fn(&State) -> bool) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        loop {
            if is_done(&state) {
                return Ok(());
            }
            state.check()?;
            if state.running && !self.broken.breaks(Rule::W7OneSyncAtATime) {
                self.wait(&mut state);
            } else {
                self.lead(&mut state)?;
            }
        }
    }

    /// Syncs one segment alone, when no other sync runs. `synced` does not rise by it.
    pub(super) fn sync_alone(&self, segment: &Segment) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        while state.running {
            self.wait(&mut state);
        }
        state.check()?;
        assert!(!state.running, "one sync runs at a time (W7)");
        state.running = true;
        let result = MutexGuard::unlocked(&mut state, || segment.sync());
        self.end(&mut state, &result);
        result
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        state.waiting_count += 1;
        self.changed.wait(state);
        assert!(state.waiting_count > 0, "who waits is counted");
        state.waiting_count -= 1;
    }

    /// Runs one sync of all that is written.
    fn lead(&self, state: &mut MutexGuard<'_, State>) -> Result<(), StorageError> {
        let is_alone = !state.running || self.broken.breaks(Rule::W7OneSyncAtATime);
        assert!(is_alone, "one sync runs at a time (W7)");
        state.running = true;
        let mut mark = state.written;
        let skipped = match self.broken.breaks(Rule::W5SyncCoversAll) {
            true => state.unsynced.len() - 1,
            false => 0,
        };
        let targets: Vec<_> = state.unsynced.iter().skip(skipped).cloned().collect();
        let result = MutexGuard::unlocked(state, || {
            targets.iter().try_for_each(|target| target.segment.sync())
        });
        if self.broken.breaks(Rule::W5SyncedBeforeBegin) {
            mark = state.written;
        }
        assert!(mark.sequence <= state.written.sequence, "what is written stays written");
        if result.is_ok() && mark.sequence > state.synced.sequence {
            state.synced = mark;
            self.synced.store(mark.sequence.0, Ordering::SeqCst);
            // One that was left meanwhile may have got frames after the mark: it stays.
            state.unsynced.retain(|one| one.left_after.is_none_or(|last| last > mark.sequence));
            state.assert_sound();
        }
        self.end(state, &result);
        result
    }

    /// Ends a sync: any error of it halts (E2), and all who wait are notified.
    fn end(&self, state: &mut State, result: &Result<(), StorageError>) {
        state.running = false;
        match result {
            Err(cause) if !self.forgives(cause) => self.halt_in(state, cause.clone()),
            _ => {
                self.changed.notify_all();
            }
        }
    }

    /// Whether a broken rule lets the log go on after this failure of a sync.
    fn forgives(&self, cause: &StorageError) -> bool {
        let is_full =
            matches!(cause, StorageError::Io { source, .. } if is_disk_full(source.as_ref()));
        self.broken.breaks(Rule::W7FailureIsFinal)
            || is_full && self.broken.breaks(Rule::E2SyncErrorHalts)
    }
}

impl State {
    /// What every change of the state leaves true.
    fn assert_sound(&self) {
        assert!(self.synced.sequence <= self.written.sequence, "only what is written is synced");
        assert!(self.synced.bytes <= self.written.bytes, "only what is written is synced");
        let current = self.unsynced.back().expect("one segment is always being written");
        assert!(current.left_after.is_none(), "the newest segment is the one that is written");
        debug_assert!(
            self.unsynced.iter().rev().skip(1).all(|one| one.left_after.is_some()),
            "every other segment was left"
        );
        debug_assert!(
            self.unsynced.iter().is_sorted_by(|one, next| one.segment.id < next.segment.id),
            "segments stand in their order"
        );
    }

    fn unsynced_bytes(&self) -> u64 {
        self.written.bytes - self.synced.bytes
    }

    fn check(&self) -> Result<(), StorageError> {
        match &self.halted {
            Some(cause) => Err(StorageError::Halted { cause: cause.clone() }),
            None => Ok(()),
        }
    }
}
