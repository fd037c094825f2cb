//! The commit path where several meet: who leads, who waits, who is kept apart, who panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::{Step, World, queue, submit, taken};
use crate::base::types::Durability;
use crate::commit::Effects;

fn synced(world: &World, name: &'static str) -> Step {
    Step { durability: Durability::Sync, ..Step::new(world, name) }
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
    let when_asked: Box<dyn Fn() + Send> = Box::new(move || other.run_pending());
    let submitted = Step { when_asked: Some(when_asked), ..synced(&world, "submitted") };
    thread::scope(|scope| {
        let (leader, blocked) = (synced(&world, "leader"), &queue);
        let leading = queue.exclusively(|| {
            let leading = scope.spawn(move || blocked.commit(Box::new(leader)).is_ok());
            spin_until(|| queue.queued_bytes() > 0);
            assert!(submit(&queue, submitted));
            leading
        });
        assert!(leading.join().expect("it does not panic"));
    });
    let events = taken(&world.events);
    for answer in ["leader committed 1", "submitted committed 2"] {
        assert!(events.iter().any(|event| event == answer), "{events:?}");
    }
}

#[test]
fn a_panic_of_the_committer_halts_and_leaves_nobody_waiting() {
    for step in ["plan", "publish", "answer"] {
        let (world, queue) = queue();
        let panics = Step { panics_at: Some(step), ..Step::new(&world, "panics") };
        assert!(submit(&queue, Step::new(&world, "before")));
        assert!(submit(&queue, panics));
        thread::scope(|scope| {
            let (behind, queue) = (Step::new(&world, "behind"), &queue);
            let waiting = queue.exclusively(|| {
                let waiting = scope.spawn(move || {
                    catch_unwind(AssertUnwindSafe(|| queue.commit(Box::new(behind)).is_ok()))
                });
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
        let before = if step == "answer" { "before committed 1" } else { "before unknown" };
        for answer in [before, "behind unknown", "late not written"] {
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
                let leader = Box::new(synced(&world, "leader"));
                assert!(catch_unwind(AssertUnwindSafe(|| queue.commit(leader).is_ok())).is_err());
            }
            spin_until(|| world.events.lock().iter().any(|event| event == "first unknown"));
            queue.close(None);
            assert_eq!(syncing.join().expect("it catches the panic").is_err(), by_thread);
        });
        assert!(world.halted().is_some());
        let events = taken(&world.events);
        assert!(events.iter().any(|event| event == "buffered committed 2"), "{events:?}");
        assert!(by_thread || events.iter().any(|event| event == "leader unknown"), "{events:?}");
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
