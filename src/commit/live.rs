//! How much of each segment is alive: a hint in memory, counted once over the index and kept by what commits change.
//!
//! Nothing is decided by it alone (rule F1): it tells where to look. Whatever it misses, such as
//! the batches of a deleted topic, is found by counting anew.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::base::types::SegmentId;

/// What is alive in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// Bytes of record batches that the index names.
    pub bytes: u64,
    /// How many they are.
    pub batch_count: u64,
}

/// What changes in a segment: batches that come to life in it, or die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LiveChange {
    /// Bytes; negative for those that die.
    pub bytes: i64,
    /// Batches.
    pub batch_count: i64,
}

/// What is alive, by segment.
pub type LiveSegments = BTreeMap<SegmentId, Live>;

/// Changes, by segment.
pub(super) type LiveChanges = BTreeMap<SegmentId, LiveChange>;

/// How much of each segment is alive.
#[derive(Debug, Default)]
pub struct LiveCounts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: LiveSegments,
    is_counted: bool,
    /// What was written and is not applied yet.
    written: LiveChanges,
    /// What was applied since the count that is under way began.
    since: Option<LiveChanges>,
}

impl LiveCounts {
    /// Notes what a group that was written changes. It counts once it is applied.
    pub(super) fn written(&self, changes: LiveChanges) {
        self.state.lock().written = changes;
    }

    /// The group that was written last is applied. REQUIRES: the lock under which the store
    /// changes is held.
    pub(super) fn applied(&self) {
        let state = &mut *self.state.lock();
        let written = std::mem::take(&mut state.written);
        if let Some(since) = &mut state.since {
            for (id, change) in &written {
                add_change(since, *id, *change);
            }
        }
        apply(&mut state.live, &written);
    }

    /// A count begins on the index as it is now. REQUIRES: as [`LiveCounts::applied`].
    pub(super) fn begin_count(&self) {
        self.state.lock().since = Some(LiveChanges::new());
    }

    /// What the count found. With what was applied since it began it is what is alive now.
    pub fn end_count(&self, counted: LiveSegments) {
        let state = &mut *self.state.lock();
        // Where the count was given up meanwhile, the next one tells.
        if let Some(since) = state.since.take() {
            state.live = counted;
            apply(&mut state.live, &since);
            state.is_counted = true;
        }
    }

    /// What is alive is not known any more: it is to be counted anew.
    pub fn forget(&self) {
        let state = &mut *self.state.lock();
        state.is_counted = false;
        state.since = None;
    }

    /// What is alive, by segment; `None` if it has to be counted first.
    #[must_use]
    pub fn get(&self) -> Option<LiveSegments> {
        let state = self.state.lock();
        state.is_counted.then(|| state.live.clone())
    }

    /// A segment is gone.
    pub fn remove(&self, id: SegmentId) {
        self.state.lock().live.remove(&id);
    }
}

/// Adds a change to others.
pub(super) fn add_change(changes: &mut LiveChanges, id: SegmentId, change: LiveChange) {
    let sum = changes.entry(id).or_default();
    sum.bytes += change.bytes;
    sum.batch_count += change.batch_count;
}

fn apply(live: &mut LiveSegments, changes: &LiveChanges) {
    for (id, change) in changes {
        let segment = live.entry(*id).or_default();
        // A hint that was wrong stays a hint: it does not get below nothing.
        segment.bytes = segment.bytes.saturating_add_signed(change.bytes);
        segment.batch_count = segment.batch_count.saturating_add_signed(change.batch_count);
    }
    live.retain(|_, segment| *segment != Live::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(id: u64, bytes: i64) -> LiveChanges {
        let batch_count = bytes.signum();
        BTreeMap::from([(SegmentId(id), LiveChange { bytes, batch_count })])
    }

    fn live(counts: &LiveCounts) -> Option<Vec<(u64, u64)>> {
        let live = counts.get()?;
        Some(live.into_iter().map(|(id, live)| (id.0, live.bytes)).collect())
    }

    #[test]
    fn what_is_applied_while_a_count_runs_is_added_to_it_and_what_was_applied_before_is_not() {
        let counts = LiveCounts::default();
        counts.written(change(1, 100));
        counts.applied();
        assert_eq!(live(&counts), None);
        counts.written(change(2, 7));
        counts.begin_count();
        counts.applied();
        counts.written(change(1, -30));
        counts.applied();
        let counted = BTreeMap::from([(SegmentId(1), Live { bytes: 100, batch_count: 2 })]);
        counts.end_count(counted);
        assert_eq!(live(&counts), Some(vec![(1, 70), (2, 7)]));
    }

    #[test]
    fn a_segment_without_anything_alive_is_not_listed_and_a_forgotten_count_is_not_told() {
        let counts = LiveCounts::default();
        counts.begin_count();
        counts.end_count(LiveSegments::new());
        counts.written(change(1, 100));
        counts.applied();
        counts.written(change(1, -100));
        counts.applied();
        assert_eq!(live(&counts), Some(vec![]));
        counts.begin_count();
        counts.forget();
        counts.end_count(LiveSegments::new());
        assert_eq!(live(&counts), None);
    }

    #[test]
    fn a_group_that_was_not_applied_changes_nothing() {
        let counts = LiveCounts::default();
        counts.begin_count();
        counts.end_count(LiveSegments::new());
        counts.written(change(1, 100));
        counts.written(change(2, 10));
        counts.applied();
        assert_eq!(live(&counts), Some(vec![(2, 10)]));
    }
}
