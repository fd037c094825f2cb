//! Changes of topics in a queue with others: what waits while a topic grows.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::mpsc;
use std::thread;

use common::{TestEngine, append, one_partition};
use tidelog::{DeleteTopicError, Engine, Partition, Record};

fn spin_until(is_there: impl Fn() -> bool) {
    while !is_there() {
        thread::yield_now();
    }
}

/// Has another thread be the committer until what is returned is dropped. REQUIRES: the engine has
/// no threads of its own.
fn hold_committer<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    engine: &'scope Engine,
    partition: &'scope Partition,
) -> mpsc::Sender<()> {
    let (gate, held) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    scope.spawn(move || {
        let held = parking_lot::Mutex::new(Some(held));
        // Listeners are called by the committer, before another gets its turn.
        let _listening = engine.listen(std::slice::from_ref(partition), move || {
            if let Some(held) = held.lock().take() {
                tell.send(()).unwrap();
                // It fails once the gate is dropped.
                let _ = held.recv();
            }
        });
        append(engine, partition, [Record::keyless("v")]);
    });
    told.recv().unwrap();
    gate
}

#[test]
fn what_waits_while_its_topic_grows_leaves_the_queue_as_empty_as_it_was() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let other = one_partition(&engine, "other", &[]);
    let changes: [fn(&Engine) -> bool; 4] = [
        |engine| engine.add_partitions("t", 100).is_ok(),
        |engine| engine.alter_topic("t", &[]).is_ok(),
        |engine| engine.delete_topic("t").is_ok(),
        |engine| matches!(engine.delete_topic("t"), Err(DeleteTopicError::UnknownTopic { .. })),
    ];
    thread::scope(|scope| {
        let gate = hold_committer(scope, &engine, &other);
        let waiting = changes.map(|change| {
            let queued_bytes = engine.metrics().queued_bytes;
            let waiting = scope.spawn({
                let engine = &engine;
                move || change(engine)
            });
            spin_until(|| engine.metrics().queued_bytes > queued_bytes);
            waiting
        });
        drop(gate);
        assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap()));
    });
    assert!(partition.topic().is_deleted());
    assert_eq!(engine.metrics().queued_bytes, 0);
    append(&engine, &other, [Record::keyless("v")]);
    engine.close().unwrap();
}
