//! The commit path alone: changes and effects that only note what is done to them.

mod races;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Change, CommitQueue, Effects, FramePlan, Moment, Outcome, QueueLimits, Verdict};
use crate::base::error::StorageError;
use crate::base::types::{AppliedCommit, CommitSequence, Durability, SegmentId, TimestampMs};
use crate::index::write_batch::{Family, WriteBatch};
use crate::log::AppendFailure;

type Events = Arc<Mutex<Vec<String>>>;

fn note(events: &Events, event: impl Into<String>) {
    events.lock().push(event.into());
}

fn taken(events: &Events) -> Vec<String> {
    std::mem::take(&mut *events.lock())
}

#[derive(Default)]
struct World {
    events: Events,
    written: AtomicU64,
    synced: AtomicU64,
    halted: Mutex<Option<StorageError>>,
    fails_to_write: Mutex<Option<AppendFailure>>,
    fails_to_apply: AtomicBool,
    fails_to_sync: AtomicBool,
    panics_in_sync: AtomicBool,
}

impl Effects for World {
    fn now_ms(&self) -> TimestampMs {
        7
    }

    fn halted(&self) -> Option<StorageError> {
        self.halted.lock().clone()
    }

    fn halt(&self, cause: &StorageError) {
        self.halted.lock().get_or_insert_with(|| cause.clone());
    }

    fn last_written(&self) -> CommitSequence {
        CommitSequence(self.written.load(Ordering::SeqCst))
    }

    fn write(
        &self,
        group: &mut [FramePlan],
        may_use_reserve: bool,
    ) -> Result<AppliedCommit, AppendFailure> {
        if let Some(failure) = self.fails_to_write.lock().take() {
            return Err(failure);
        }
        let sequences: Vec<_> = group.iter().map(|frame| frame.moment().sequence.0).collect();
        let reserve = if may_use_reserve { " with the reserve" } else { "" };
        note(&self.events, format!("write {sequences:?}{reserve}"));
        let sequence = group[group.len() - 1].moment().sequence;
        self.written.store(sequence.0, Ordering::SeqCst);
        Ok(AppliedCommit { sequence, segment: SegmentId(1), position: 0, frame_crc: 0 })
    }

    fn apply(
        &self,
        batches: &[&WriteBatch],
        _last: AppliedCommit,
        publish: &mut dyn FnMut(),
    ) -> Result<(), StorageError> {
        if self.fails_to_apply.load(Ordering::SeqCst) {
            return Err(StorageError::store("write", "it is told to fail"));
        }
        note(&self.events, format!("apply {}", batches.len()));
        publish();
        Ok(())
    }

    fn sync(&self, through: CommitSequence) -> Result<(), StorageError> {
        assert!(!self.panics_in_sync.load(Ordering::SeqCst), "it panics, as this test wants");
        if self.fails_to_sync.load(Ordering::SeqCst) {
            return Err(StorageError::store("sync", "it is told to fail"));
        }
        note(&self.events, format!("sync {through}"));
        self.synced.store(self.written.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    fn synced(&self) -> CommitSequence {
        CommitSequence(self.synced.load(Ordering::SeqCst))
    }

    fn wants_background_sync(&self) -> bool {
        false
    }

    fn after_progress(&self) {}
}

struct Step {
    name: &'static str,
    events: Events,
    durability: Durability,
    bytes: u64,
    is_exclusive: bool,
    is_refused: bool,
    may_use_reserve: bool,
    /// The step of its way at which it panics.
    panics_at: Option<&'static str>,
    /// Called when it is asked how durable it is to be.
    when_asked: Option<Box<dyn Fn() + Send>>,
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl Step {
    fn come_to(&self, step: &str) {
        assert!(self.panics_at != Some(step), "it panics, as this test wants");
    }

    fn new(world: &World, name: &'static str) -> Self {
        Self {
            name,
            events: Arc::clone(&world.events),
            durability: Durability::Buffered,
            bytes: 10,
            is_exclusive: false,
            is_refused: false,
            may_use_reserve: false,
            panics_at: None,
            when_asked: None,
            then: None,
        }
    }
}

impl Change for Step {
    fn queued_bytes(&self) -> u64 {
        self.bytes
    }

    fn durability(&self) -> Durability {
        if let Some(when_asked) = &self.when_asked {
            when_asked();
        }
        self.durability
    }

    fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    fn may_use_reserve(&self) -> bool {
        self.may_use_reserve
    }

    fn plan(&mut self, moment: &Moment, plan: &mut FramePlan) -> Verdict {
        self.come_to("plan");
        if self.is_refused {
            return Verdict::Refused;
        }
        assert_eq!(moment.append_time, 7);
        plan.write_batch.put(Family::Meta, b"k", self.name.as_bytes());
        note(&self.events, format!("plan {}", self.name));
        Verdict::Planned
    }

    fn undo(&mut self) {
        note(&self.events, format!("undo {}", self.name));
    }

    fn publish(&mut self, sequence: CommitSequence) {
        self.come_to("publish");
        note(&self.events, format!("publish {} {sequence}", self.name));
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        self.come_to("answer");
        let told = match outcome {
            Outcome::Committed { sequence } => format!("committed {sequence}"),
            Outcome::Refused => "refused".into(),
            Outcome::NotWritten(_) => "not written".into(),
            Outcome::Unknown(_) => "unknown".into(),
        };
        note(&self.events, format!("{} {told}", self.name));
        if let Some(then) = self.then {
            then();
        }
    }
}

fn queue() -> (Arc<World>, CommitQueue<Arc<World>>) {
    let world = Arc::new(World::default());
    let limits = QueueLimits { queue_bytes: 40, group_bytes: 30 };
    (Arc::clone(&world), CommitQueue::new(world, limits))
}

fn submit(queue: &CommitQueue<Arc<World>>, step: Step) -> bool {
    queue.submit(Box::new(step)).is_ok()
}

#[test]
fn a_group_is_planned_written_applied_published_and_answered_in_order() {
    let (world, queue) = queue();
    for name in ["a", "b"] {
        assert!(submit(&queue, Step::new(&world, name)));
    }
    queue.run_pending();
    let expected = [
        "plan a",
        "plan b",
        "write [1, 2]",
        "apply 2",
        "publish a 1",
        "publish b 2",
        "a committed 1",
        "b committed 2",
    ];
    assert_eq!(taken(&world.events), expected);
}

#[test]
fn a_refused_change_takes_no_sequence_and_does_not_hold_up_the_others() {
    let (world, queue) = queue();
    assert!(submit(&queue, Step { is_refused: true, ..Step::new(&world, "bad") }));
    assert!(submit(&queue, Step::new(&world, "good")));
    queue.run_pending();
    let expected =
        ["plan good", "write [1]", "apply 1", "publish good 1", "good committed 1", "bad refused"];
    assert_eq!(taken(&world.events), expected);
}

#[test]
fn a_group_that_is_not_written_is_undone_from_its_end_and_the_next_one_goes_on() {
    let (world, queue) = queue();
    let failure = AppendFailure::NotWritten(StorageError::Closed);
    *world.fails_to_write.lock() = Some(failure);
    assert!(submit(&queue, Step::new(&world, "a")));
    assert!(submit(&queue, Step::new(&world, "b")));
    queue.run_pending();
    let expected = ["plan a", "plan b", "undo b", "undo a", "a not written", "b not written"];
    assert_eq!(taken(&world.events), expected);
    assert!(world.halted().is_none());
    assert!(queue.commit(Box::new(Step::new(&world, "c"))).is_ok());
    assert_eq!(taken(&world.events).last().map(String::as_str), Some("c committed 1"));
}

#[test]
fn what_may_be_written_is_unknown_and_halts_and_later_commits_are_not_written() {
    for fails_to_apply in [false, true] {
        let (world, queue) = queue();
        world.fails_to_apply.store(fails_to_apply, Ordering::SeqCst);
        if !fails_to_apply {
            *world.fails_to_write.lock() = Some(AppendFailure::Unknown(StorageError::Closed));
        }
        assert!(queue.commit(Box::new(Step::new(&world, "a"))).is_ok());
        assert_eq!(taken(&world.events).last().map(String::as_str), Some("a unknown"));
        assert!(world.halted().is_some());
        assert!(queue.commit(Box::new(Step::new(&world, "b"))).is_ok());
        assert_eq!(taken(&world.events), ["b not written"]);
    }
}

#[test]
fn one_sync_answers_all_that_it_covers_and_buffered_commits_do_not_wait_for_it() {
    let (world, queue) = queue();
    let synced = |name| Step { durability: Durability::Sync, ..Step::new(&world, name) };
    assert!(submit(&queue, synced("a")));
    assert!(submit(&queue, synced("b")));
    assert!(submit(&queue, Step::new(&world, "c")));
    queue.run_pending();
    let events = taken(&world.events);
    let tail = ["c committed 3", "sync 2", "a committed 1", "b committed 2"];
    assert_eq!(events[events.len() - 4..], tail);
}

#[test]
fn a_failed_sync_is_told_to_all_who_wait_for_it() {
    let (world, queue) = queue();
    world.fails_to_sync.store(true, Ordering::SeqCst);
    assert!(submit(&queue, Step { durability: Durability::Sync, ..Step::new(&world, "a") }));
    assert!(
        queue
            .commit(Box::new(Step { durability: Durability::Sync, ..Step::new(&world, "b") }))
            .is_ok()
    );
    let events = taken(&world.events);
    assert_eq!(events[events.len() - 2..], ["a unknown", "b unknown"]);
    assert!(world.halted().is_some());
}

#[test]
fn an_exclusive_change_is_alone_in_its_group_and_groups_are_bounded_in_bytes() {
    let (world, queue) = queue();
    for name in ["a", "b", "c", "d"] {
        assert!(submit(&queue, Step { is_exclusive: name == "b", ..Step::new(&world, name) }));
    }
    queue.run_pending();
    let writes = taken(&world.events).into_iter().filter(|event| event.starts_with("write"));
    assert_eq!(writes.collect::<Vec<_>>(), ["write [1]", "write [2]", "write [3, 4]"]);
    for name in ["e", "f", "g", "h"] {
        assert!(submit(&queue, Step::new(&world, name)));
    }
    queue.run_pending();
    let writes = taken(&world.events).into_iter().filter(|event| event.starts_with("write"));
    assert_eq!(writes.collect::<Vec<_>>(), ["write [5, 6, 7]", "write [8]"]);
}

#[test]
fn a_full_queue_gives_the_change_back_and_takes_a_large_one_when_it_is_empty() {
    let (world, queue) = queue();
    assert!(submit(&queue, Step { bytes: 41, ..Step::new(&world, "large") }));
    assert!(!submit(&queue, Step::new(&world, "late")));
    queue.run_pending();
    for name in ["a", "b", "c", "d"] {
        assert!(submit(&queue, Step::new(&world, name)));
    }
    assert!(!submit(&queue, Step::new(&world, "e")));
    assert_eq!(queue.queued_bytes(), 40);
    queue.run_pending();
    assert!(submit(&queue, Step::new(&world, "e")));
}

#[test]
fn what_an_answer_calls_may_commit_and_close_on_the_committers_own_thread() {
    let (world, queue) = queue();
    let queue = Arc::new(queue);
    let (inner, events) = (Arc::clone(&queue), Arc::clone(&world));
    let then = move || {
        let last = Step { durability: Durability::Sync, ..Step::new(&events, "inner") };
        assert!(inner.commit(Box::new(last)).is_ok());
        inner.close(None);
    };
    let outer = Step { then: Some(Box::new(then)), ..Step::new(&world, "outer") };
    assert!(queue.commit(Box::new(outer)).is_ok());
    let events = taken(&world.events);
    assert_eq!(events[events.len() - 2..], ["sync 2", "inner committed 2"]);
    assert!(queue.commit(Box::new(Step::new(&world, "late"))).is_err());
}

#[test]
fn closing_commits_what_waits_with_the_given_change_as_the_last() {
    let (world, queue) = queue();
    assert!(submit(&queue, Step::new(&world, "a")));
    queue.close(Some(Box::new(Step::new(&world, "last"))));
    let events = taken(&world.events);
    assert_eq!(events.last().map(String::as_str), Some("last committed 2"));
    assert!(!submit(&queue, Step::new(&world, "late")));
}
