//! Changes of topics in a queue with others, and how they say that they failed.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{TestEngine, append, one_partition};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::testing::{EIO, ENOSPC, Fault, FileCall};
use tidelog::{
    AddPartitionsError, AlterTopicError, CreateTopicError, DeleteTopicError, Engine, Partition,
    Record, StorageError, TopicConfig, TopicSettings, WaitFor,
};

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
        |engine| engine.topics().add_partitions("t", 100).is_ok(),
        |engine| engine.topics().alter("t", &[]).is_ok(),
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

/// What the storage had to do with a change that failed, and whether it can be tried again.
#[derive(Debug)]
enum Failure {
    NotWritten(StorageError, bool),
    Unknown(bool),
}

macro_rules! failure {
    ($error:ident, $change:expr) => {
        $change.map(drop).map_err(|error| {
            let is_retriable = error.is_retriable();
            match error {
                $error::Storage(error) => Failure::NotWritten(error, is_retriable),
                $error::OutcomeUnknown(_) => Failure::Unknown(is_retriable),
                error => panic!("{error}"),
            }
        })
    };
}

type Change = fn(&Engine) -> Result<(), Failure>;

const CHANGES: [Change; 5] = [
    |engine| failure!(CreateTopicError, engine.create_topic("new", TopicConfig::new(3))),
    |engine| failure!(DeleteTopicError, engine.delete_topic("t")),
    |engine| failure!(AddPartitionsError, engine.topics().add_partitions("t", 5)),
    |engine| {
        let operation = ConfigOperation::Set("7".to_owned());
        let change = ConfigChange { name: "retention.ms".to_owned(), operation };
        failure!(AlterTopicError, engine.topics().alter("t", &[change]))
    },
    |engine| {
        let settings = TopicSettings::from_values([("retention.ms", "7")]).unwrap();
        failure!(AlterTopicError, engine.topics().replace_settings("t", settings))
    },
];

#[test]
fn a_change_that_finds_the_disk_full_was_not_written_and_can_be_tried_again() {
    for change in CHANGES {
        let test = TestEngine::new();
        let engine = test.open();
        one_partition(&engine, "t", &[]);
        let before = format!("{:?}", engine.topics().list());
        test.disk.plan(Fault::next(FileCall::Write, ENOSPC));
        let failure = change(&engine).unwrap_err();
        let full = matches!(failure, Failure::NotWritten(StorageError::DiskFull { .. }, true));
        assert!(full, "{failure:?}");
        assert_eq!(format!("{:?}", engine.topics().list()), before);
        change(&engine).unwrap();
        engine.close().unwrap();
        // It is there, and once.
        let engine = test.open();
        assert!(engine.verify().unwrap().is_clean());
    }
}

#[test]
fn a_change_that_fails_half_way_is_unknown_and_one_after_the_halt_was_not_written() {
    for change in CHANGES {
        for place in ["write", "index", "sync"] {
            let test = TestEngine::new();
            let engine = test.open();
            one_partition(&engine, "t", &[]);
            match place {
                "write" => test.disk.plan(Fault::next(FileCall::Write, EIO).after_bytes(9)),
                "sync" => test.disk.plan(Fault::next(FileCall::Sync, EIO)),
                _ => test.store.fail_write_after(0),
            }
            let failure = change(&engine).unwrap_err();
            assert!(matches!(failure, Failure::Unknown(false)), "{place}: {failure:?}");
            let late = engine.create_topic("late", TopicConfig::new(1)).unwrap_err();
            let halted = matches!(late, CreateTopicError::Storage(StorageError::Halted { .. }));
            assert!(halted && !late.is_retriable(), "{place}: {late}");
            drop(engine);
            assert!(test.open().verify().unwrap().is_clean());
        }
    }
}

#[test]
fn a_change_of_a_closed_engine_was_not_written() {
    for change in CHANGES {
        let test = TestEngine::new();
        let engine = test.open();
        one_partition(&engine, "t", &[]);
        engine.clone().close().unwrap();
        let failure = change(&engine).unwrap_err();
        let closed = matches!(failure, Failure::NotWritten(StorageError::Closed, false));
        assert!(closed, "{failure:?}");
    }
}

#[test]
fn who_waits_for_data_of_a_topic_hears_of_a_deletion_whose_outcome_nobody_knows() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let wanted = [WaitFor::new(&partition, 0)];
    let (tell, told) = mpsc::channel();
    let partitions = [partition];
    let _listening = engine.listen(&partitions, move || tell.send(()).unwrap());
    test.disk.plan(Fault::next(FileCall::Sync, EIO));
    assert!(matches!(engine.delete_topic("t"), Err(DeleteTopicError::OutcomeUnknown(_))));
    told.try_recv().unwrap();
    assert!(engine.wait_for_data(&wanted, Duration::MAX));
}
