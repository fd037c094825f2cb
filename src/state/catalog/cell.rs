//! A partition in memory: what the committer has planned, what readers see, and who listens.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::base::callback::call;
use crate::base::types::{CommitSequence, Offset, PartitionId, Visibility, Watermarks};
use crate::state::partition::{PartitionState, is_in_order};
use crate::state::producer::Producers;

/// Ends of commits that are kept while they are not synced. Beyond so many every second one is
/// dropped: then what is synced shows a little later, never too early.
const MAX_UNSYNCED_ENDS: usize = 1024;

/// A callback about a partition: new data can be read, or the topic is gone.
pub type Listener = dyn Fn() + Send + Sync;

/// A partition in memory.
pub struct PartitionCell {
    id: PartitionId,
    index: i32,
    planned: Mutex<PartitionState>,
    producers: Mutex<Producers>,
    published: Mutex<Published>,
    listeners: Mutex<Vec<Weak<Listener>>>,
    listener_count: AtomicUsize,
}

struct Published {
    state: PartitionState,
    /// What is known to be synced.
    synced: Ends,
    /// Commits after it, in order, each with the offsets that it made.
    unsynced: VecDeque<(CommitSequence, Ends)>,
}

/// The offsets up to which readers of a kind may read.
#[derive(Debug, Clone, Copy)]
struct Ends {
    log_end: Offset,
    last_stable: Offset,
}

impl PartitionCell {
    /// A partition in a state that is synced, and the producers that it knows.
    #[must_use]
    pub fn new(id: PartitionId, index: i32, state: PartitionState, producers: Producers) -> Self {
        assert!(index >= 0, "a topic numbers its partitions from 0");
        let Watermarks { log_end, last_stable, .. } = state.watermarks();
        let published = Published {
            synced: Ends { log_end, last_stable },
            unsynced: VecDeque::new(),
            state: state.clone(),
        };
        Self {
            id,
            index,
            planned: Mutex::new(state),
            producers: Mutex::new(producers),
            published: Mutex::new(published),
            listeners: Mutex::default(),
            listener_count: AtomicUsize::new(0),
        }
    }

    /// The engine's number of the partition.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// The topic's number of the partition.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.index
    }

    /// The state with all that is planned. REQUIRES: held by the committer only, and not while a
    /// reader's lock is held.
    pub fn planned(&self) -> MutexGuard<'_, PartitionState> {
        self.planned.lock()
    }

    /// The producers with all that is planned; whoever plans a change of them can take it back.
    /// Who only looks sees what may not be published yet. Locked after [`PartitionCell::planned`].
    pub fn producers(&self) -> MutexGuard<'_, Producers> {
        self.producers.lock()
    }

    /// Takes back what was planned since the last publication, but for the producers.
    pub fn undo(&self) {
        let published = self.published.lock();
        let mut planned = self.planned.lock();
        planned.copy_from(&published.state);
        debug_assert_eq!(*planned, published.state, "nothing that was planned is left");
    }

    /// Shows readers what was planned. `log_end` is the end that this commit made; `synced` the
    /// last commit that survives power loss.
    ///
    /// REQUIRES: the publication lock.
    pub fn publish(&self, sequence: CommitSequence, log_end: Offset, synced: CommitSequence) {
        let mut published = self.published.lock();
        let before = published.state.watermarks();
        published.state.copy_from(&self.planned.lock());
        let marks = published.state.watermarks();
        assert!(before.log_start <= marks.log_start, "the log start never goes back");
        assert!(before.log_end <= marks.log_end, "the log end never goes back");
        assert!(log_end <= marks.log_end, "a commit ends where its group does, or before");
        published.settle(synced);
        if let Some((last, ends)) = published.unsynced.back() {
            assert!(*last <= sequence, "commits are published in their order");
            assert!(ends.log_end <= log_end, "the ends of commits never fall");
        }
        if published.unsynced.len() >= MAX_UNSYNCED_ENDS {
            let mut keep = true;
            published.unsynced.retain(|_| {
                keep = !keep;
                keep
            });
        }
        assert!(published.unsynced.len() < MAX_UNSYNCED_ENDS, "what is kept is bounded");
        // As it is after the whole group, which is synced as a whole.
        let last_stable = marks.last_stable;
        published.unsynced.push_back((sequence, Ends { log_end, last_stable }));
    }

    /// The four offsets as a reader sees them who asks for this visibility.
    #[must_use]
    pub fn watermarks(&self, visibility: Visibility, synced: CommitSequence) -> Watermarks {
        let mut published = self.published.lock();
        let marks = published.state.watermarks();
        match visibility {
            Visibility::Applied => marks,
            Visibility::Synced => {
                published.settle(synced);
                let end = published.synced.log_end.max(marks.log_start);
                // The end of a transaction shows once it is synced, as its records do.
                let stable = published.synced.last_stable.max(marks.log_start);
                let seen = Watermarks {
                    last_stable: stable.min(end),
                    high_watermark: marks.high_watermark.min(end),
                    ..marks
                };
                assert!(is_in_order(&seen), "the four offsets are in order: {seen:?}");
                seen
            }
        }
    }

    /// Looks at what is published.
    pub fn read<T>(&self, look: impl FnOnce(&PartitionState) -> T) -> T {
        look(&self.published.lock().state)
    }

    /// Calls this listener from now on, as long as it lives.
    pub fn listen(&self, listener: Weak<Listener>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
        self.listener_count.store(listeners.len(), Ordering::SeqCst);
    }

    /// Whether anybody may listen. Cheap.
    #[must_use]
    pub fn has_listeners(&self) -> bool {
        self.listener_count.load(Ordering::SeqCst) > 0
    }

    /// Calls the listeners. REQUIRES: no lock is held.
    pub fn notify(&self) {
        if !self.has_listeners() {
            return;
        }
        let mut alive: Vec<Arc<Listener>> = Vec::new();
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.upgrade().map(|found| alive.push(found)).is_some());
        self.listener_count.store(listeners.len(), Ordering::SeqCst);
        drop(listeners);
        for listener in alive {
            // Moved in: the last handle may go here, with whatever it holds.
            call(move || listener());
        }
    }
}

impl Published {
    fn settle(&mut self, synced: CommitSequence) {
        while let Some(&(sequence, ends)) = self.unsynced.front() {
            if sequence > synced {
                return;
            }
            debug_assert!(self.synced.log_end <= ends.log_end, "what is synced never shrinks");
            self.synced = ends;
            self.unsynced.pop_front();
        }
    }
}

impl fmt::Debug for PartitionCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionCell")
            .field("id", &self.id)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::partition::BatchFacts;

    fn cell() -> PartitionCell {
        PartitionCell::new(PartitionId(1), 0, PartitionState::default(), Producers::default())
    }

    fn append(cell: &PartitionCell, sequence: u64, synced: u64) {
        let facts = BatchFacts { record_count: 1, length_bytes: 70, max_timestamp: 0 };
        let assigned = cell.planned().append(&facts, 0);
        let end = assigned.last_offset + 1;
        cell.publish(CommitSequence(sequence), end, CommitSequence(synced));
    }

    fn high(cell: &PartitionCell, visibility: Visibility, synced: u64) -> Offset {
        cell.watermarks(visibility, CommitSequence(synced)).high_watermark
    }

    #[test]
    fn a_reader_of_synced_data_sees_exactly_the_commits_that_are_synced() {
        let cell = cell();
        for sequence in 1..=3 {
            append(&cell, sequence, 0);
        }
        assert_eq!(high(&cell, Visibility::Applied, 0), 3);
        let seen: Vec<_> = (0..=4).map(|synced| high(&cell, Visibility::Synced, synced)).collect();
        assert_eq!(seen, [0, 1, 2, 3, 3]);
    }

    #[test]
    fn many_unsynced_commits_never_show_too_early_and_all_show_in_the_end() {
        let cell = cell();
        for sequence in 1..=10_000 {
            append(&cell, sequence, 0);
            assert!(cell.published.lock().unsynced.len() <= MAX_UNSYNCED_ENDS);
        }
        for synced in (0..=10_000).step_by(97) {
            assert!(high(&cell, Visibility::Synced, synced) <= synced as i64);
        }
        assert_eq!(high(&cell, Visibility::Synced, 10_000), 10_000);
    }

    #[test]
    fn what_was_planned_and_not_published_can_be_taken_back() {
        let cell = cell();
        append(&cell, 1, 0);
        let facts = BatchFacts { record_count: 5, length_bytes: 70, max_timestamp: 0 };
        cell.planned().append(&facts, 0);
        cell.undo();
        append(&cell, 2, 0);
        assert_eq!(high(&cell, Visibility::Applied, 0), 2);
    }

    #[test]
    fn a_listener_is_called_while_it_lives() {
        let cell = cell();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let listener: Arc<Listener> = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        assert!(!cell.has_listeners());
        cell.listen(Arc::downgrade(&listener));
        cell.notify();
        drop(listener);
        cell.notify();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert!(!cell.has_listeners());
    }
}
