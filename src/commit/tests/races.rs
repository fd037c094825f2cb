//! The commit path where several meet: who leads, who waits, who is kept apart, who panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::{Step, World, commit, note, queue, submit, taken};
use crate::base::types::{CommitSequence, Durability};
use crate::commit::change::{AnyChange, Carried, Outcome};
use crate::commit::{Effects, FramePlan};

fn synced(world: &World, name: &'static str) -> Step {
    Step { durability: Durability::Sync, ..Step::new(world, name) }
}

/// A change that calls back when it is asked how durable it is to be.
struct Hooked {
    inner: Box<dyn AnyChange>,
    when_asked: Box<dyn Fn() + Send + Sync>,
}

impl AnyChange for Hooked {
    fn is_exclusive(&self) -> bool {
        self.inner.is_exclusive()
    }

    fn may_use_reserve(&self) -> bool {
        self.inner.may_use_reserve()
    }

    fn plan(&mut self, frame: &mut FramePlan) -> bool {
        self.inner.plan(frame)
    }

    fn durability(&self) -> Durability {
        (self.when_asked)();
        self.inner.durability()
    }

    fn undo(&mut self) {
        self.inner.undo();
    }

    fn publish(&mut self, sequence: CommitSequence) {
        self.inner.publish(sequence);
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        self.inner.answer(outcome);
    }
}

fn spin_until(is_there: impl Fn() -> bool) {
    while !is_there() {
        thread::yield_now();
    }
}

#[test]
fn a_group_is_answered_as_a_whole_whoever_syncs_meanwhile() {
    let (world, queue) = queue();
    let queue = Arc::new(queue);
    // Another syncs whatever waits for it, at any moment while the group is handed on.
    let other = Arc::clone(&queue);
    let (inner, ticket) = Carried::new(synced(&world, "submitted"));
    let submitted = Hooked { inner, when_asked: Box::new(move || other.run_pending()) };
    thread::scope(|scope| {
        let (leader, blocked) = (synced(&world, "leader"), &queue);
        let leading = queue.exclusively(|_| {
            let leading = scope.spawn(move || commit(blocked, leader));
            spin_until(|| queue.queued_bytes() > 0);
            queue.push_any(Box::new(submitted), 10);
            leading
        });
        assert!(leading.join().expect("it does not panic"));
    });
    assert_eq!(ticket.wait(), "committed 2");
    let events = taken(&world.events);
    assert!(events.iter().any(|event| event == "leader committed 1"), "{events:?}");
}

#[test]
fn a_panic_of_the_committer_halts_and_leaves_nobody_waiting() {
    for step in ["plan", "publish", "fail"] {
        let (world, queue) = queue();
        let is_refused = step == "fail";
        let panics = Step { panics_at: Some(step), is_refused, ..Step::new(&world, "panics") };
        assert!(submit(&queue, Step::new(&world, "before")));
        assert!(submit(&queue, panics));
        thread::scope(|scope| {
            let (after, queue) = (Step::new(&world, "after"), &queue);
            let waiting = queue.exclusively(|_| {
                let waiting =
                    scope.spawn(move || catch_unwind(AssertUnwindSafe(|| commit(queue, after))));
                spin_until(|| queue.queued_bytes() == 30);
                assert!(submit(queue, Step::new(&world, "late")));
                waiting
            });
            let drained = catch_unwind(AssertUnwindSafe(|| queue.run_pending()));
            let waited = waiting.join().expect("it catches the panic");
            // Whoever was the committer panics; the other goes on.
            assert!(drained.is_err() != waited.is_err());
        });
        queue.run_pending();
        assert!(world.halted().is_some());
        let events = taken(&world.events);
        let expected = if is_refused {
            ["before committed 1", "publish after 2", "late not written"]
        } else {
            ["before unknown", "late not written", "late not written"]
        };
        for answer in expected {
            assert!(events.iter().any(|event| event == answer), "{step}: {events:?}");
        }
    }
}

#[test]
fn a_panic_of_whoever_syncs_halts_and_leaves_nobody_waiting() {
    for by_thread in [true, false] {
        let (world, queue) = queue();
        world.panics_in_sync.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            let syncing = scope.spawn(|| catch_unwind(AssertUnwindSafe(|| queue.run_syncer())));
            assert!(submit(&queue, synced(&world, "first")));
            assert!(submit(&queue, Step::new(&world, "buffered")));
            if by_thread {
                scope.spawn(|| catch_unwind(AssertUnwindSafe(|| queue.run_committer())));
            } else {
                let leader = synced(&world, "leader");
                assert!(catch_unwind(AssertUnwindSafe(|| commit(&queue, leader))).is_err());
            }
            spin_until(|| world.events.lock().iter().any(|event| event == "first unknown"));
            queue.close();
            assert_eq!(syncing.join().expect("it catches the panic").is_err(), by_thread);
        });
        assert!(world.halted().is_some());
        let events = taken(&world.events);
        assert!(events.iter().any(|event| event == "buffered committed 2"), "{events:?}");
    }
}

#[test]
fn what_may_use_the_reserve_is_not_written_with_what_may_not() {
    let (world, queue) = queue();
    for may_use_reserve in [false, true, true, false] {
        assert!(submit(&queue, Step { may_use_reserve, ..Step::new(&world, "step") }));
    }
    queue.run_pending();
    let writes = taken(&world.events).into_iter().filter(|event| event.starts_with("write"));
    let expected = ["write [1]", "write [2, 3] with the reserve", "write [4]"];
    assert_eq!(writes.collect::<Vec<_>>(), expected);
}

#[test]
fn who_works_between_two_groups_goes_before_the_next_group_and_leaves_the_one_after_to_it() {
    for round in 0..50 {
        let (world, queue) = queue();
        let queue = Arc::new(queue);
        thread::scope(|scope| {
            let (next, events) = (Arc::clone(&queue), Arc::clone(&world.events));
            let other = Arc::clone(&world);
            // While the first group is answered, one waits to work between two groups, and the
            // next group is there too.
            let working = Arc::clone(&queue);
            let (go, come) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                if come.recv().is_ok() {
                    working.exclusively(|_| note(&events, "work"));
                }
            });
            let then: Box<dyn FnOnce() + Send> = Box::new(move || {
                assert!(go.send(()).is_ok());
                spin_until(|| next.exclusive_count() == 1);
                assert!(submit(&next, Step::new(&other, "next")));
            });
            assert!(submit(&queue, Step { then: Some(then), ..Step::new(&world, "first") }));
            queue.run_pending();
        });
        let events = taken(&world.events);
        let place = |wanted: &str| events.iter().position(|event| event == wanted);
        assert!(place("first committed 1") < place("work"), "round {round}: {events:?}");
        assert!(place("work") < place("plan next"), "round {round}: {events:?}");
    }
}
