//! The commit path alone: changes and effects that only note what is done to them.

mod races;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Change, CommitQueue, Effects, Failure, FramePlan, NoRoom, QueueLimits, Ticket};
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
            then: None,
        }
    }
}

impl Change for Step {
    type Planned = ();
    type Refusal = &'static str;
    type Answer = Settled;

    fn queued_bytes(&self) -> u64 {
        self.bytes
    }

    fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    fn may_use_reserve(&self) -> bool {
        self.may_use_reserve
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<(), &'static str> {
        self.come_to("plan");
        if self.is_refused {
            return Err("refused");
        }
        assert_eq!(frame.moment().append_time, 7);
        frame.write_batch.put(Family::Meta, b"k", self.name.as_bytes());
        note(&self.events, format!("plan {}", self.name));
        Ok(())
    }

    fn durability(&self, _planned: &()) -> Durability {
        self.durability
    }

    fn undo(&mut self, _planned: ()) {
        note(&self.events, format!("undo {}", self.name));
    }

    fn publish(&mut self, _planned: (), sequence: CommitSequence) -> Settled {
        self.come_to("publish");
        note(&self.events, format!("publish {} {sequence}", self.name));
        format!("committed {sequence}")
    }

    fn fail(self, failure: Failure<&'static str>) -> Settled {
        self.come_to("fail");
        match failure {
            Failure::Refused(reason) => reason.into(),
            Failure::NotWritten(_) => "not written".into(),
            Failure::Unknown(_) => "unknown".into(),
        }
    }
}

/// What a step is told; it is noted with the step's name when the ticket is answered.
type Settled = String;

/// Notes the answer of a ticket, and then does what the step wants.
fn note_answer(ticket: Ticket<Settled>, (name, events, then): Then) {
    ticket.on_done(move |settled| {
        note(&events, format!("{name} {settled}"));
        if let Some(then) = then {
            then();
        }
    });
}

type Then = (&'static str, Events, Option<Box<dyn FnOnce() + Send>>);

impl Step {
    fn then(&mut self) -> Then {
        (self.name, Arc::clone(&self.events), self.then.take())
    }
}

fn queue() -> (Arc<World>, CommitQueue<World>) {
    let world = Arc::new(World::default());
    let limits = QueueLimits { queue_bytes: 40, group_bytes: 30 };
    (Arc::clone(&world), CommitQueue::new(world, limits))
}

fn submit(queue: &CommitQueue<World>, mut step: Step) -> bool {
    let then = step.then();
    match queue.reserve(step.bytes) {
        Ok(permit) => {
            note_answer(permit.push(step), then);
            true
        }
        Err(NoRoom::Full { queued_bytes, limit_bytes }) => {
            assert!(queued_bytes > 0 && queued_bytes + step.bytes > limit_bytes);
            false
        }
        Err(NoRoom::Closed) => false,
    }
}

fn commit(queue: &CommitQueue<World>, step: Step) -> bool {
    let (name, events) = (step.name, Arc::clone(&step.events));
    match queue.commit(step) {
        Ok(settled) => {
            note(&events, format!("{name} {settled}"));
            true
        }
        Err(step) => {
            assert_eq!(step.name, name, "it comes back");
            false
        }
    }
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
    assert!(commit(&queue, Step::new(&world, "c")));
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
        assert!(commit(&queue, Step::new(&world, "a")));
        assert_eq!(taken(&world.events).last().map(String::as_str), Some("a unknown"));
        assert!(world.halted().is_some());
        assert!(commit(&queue, Step::new(&world, "b")));
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
    assert!(commit(&queue, Step { durability: Durability::Sync, ..Step::new(&world, "b") }));
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
        assert!(commit(&inner, last));
        inner.close();
    };
    let outer = Step { then: Some(Box::new(then)), ..Step::new(&world, "outer") };
    assert!(submit(&queue, outer));
    queue.run_pending();
    let events = taken(&world.events);
    assert_eq!(events[events.len() - 2..], ["sync 2", "inner committed 2"]);
    assert!(!commit(&queue, Step::new(&world, "late")));
}

#[test]
fn closing_commits_what_waits_with_the_given_change_as_the_last() {
    let (world, queue) = queue();
    assert!(submit(&queue, Step::new(&world, "a")));
    let last = queue.close_with(Step::new(&world, "last"));
    assert_eq!(last.wait(), "committed 2");
    let events = taken(&world.events);
    assert_eq!(events[events.len() - 2..], ["publish last 2", "a committed 1"]);
    assert!(!submit(&queue, Step::new(&world, "late")));
}

#[test]
fn who_waits_for_room_is_told_once_it_is_there_and_when_the_queue_is_closed() {
    let (world, queue) = queue();
    assert_eq!(queue.room(1000).try_wait().ok().map(|told| told.is_ok()), Some(true));
    for name in ["a", "b", "c", "d"] {
        assert!(submit(&queue, Step::new(&world, name)));
    }
    let (small, large) = (queue.room(10), queue.room(1000));
    let small = small.try_wait().expect_err("the queue is full");
    let large = large.try_wait().expect_err("the queue is full");
    queue.run_pending();
    assert!(small.wait().is_ok());
    assert!(large.wait().is_ok(), "an empty queue takes any change");
    assert!(submit(&queue, Step { bytes: 40, ..Step::new(&world, "full") }));
    let late = queue.room(10);
    queue.close();
    assert!(late.wait().is_ok(), "the last groups make room");
    assert!(matches!(queue.room(10).wait(), Err(StorageError::Closed)));
}

#[test]
fn a_permit_that_is_dropped_leaves_its_room_to_others() {
    let (world, queue) = queue();
    assert!(queue.reserve(40).is_ok());
    assert_eq!(queue.queued_bytes(), 0);
    assert!(submit(&queue, Step { bytes: 40, ..Step::new(&world, "a") }));
    let full = NoRoom::Full { queued_bytes: 40, limit_bytes: 40 };
    assert_eq!(queue.reserve(1).err(), Some(full));
    queue.close();
    assert_eq!(queue.reserve(1).err(), Some(NoRoom::Closed));
}
