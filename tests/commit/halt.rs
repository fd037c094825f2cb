//! Storage failures: what cannot be known halts the engine, reads go on, and reopening decides.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::thread;

use common::{TestEngine, append, append_to_all, one_partition, values_of};
use tidelog::testing::{EIO, ENOSPC, FailedFlush, Fault, FileCall, PowerLoss};
use tidelog::{
    CommitError, CreateTopicError, Durability, Engine, FetchOptions, Isolation, NotWritten,
    OffsetQuery, Partition, Record, StorageError, Topic, TopicConfig, Visibility,
};

fn two_partitions(engine: &Engine) -> Topic {
    engine.create_topic("t", TopicConfig::new(2)).unwrap()
}

fn commit(
    engine: &Engine,
    partitions: &[Partition],
    value: &str,
    durability: Durability,
) -> Result<(), CommitError> {
    let mut append = engine.append_transaction();
    for partition in partitions {
        append.records(partition, [Record::keyless(value)]).unwrap();
    }
    append.commit(durability).map(drop)
}

fn assert_unknown(outcome: Result<(), CommitError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, CommitError::OutcomeUnknown(_)), "{error:?}");
    assert!(!error.is_retriable());
    assert!(error.into_transaction().is_none());
}

/// The cause that a halted engine tells to who wants to write.
fn halt_cause(engine: &Engine, partition: &Partition, durability: Durability) -> StorageError {
    let error = commit(engine, std::slice::from_ref(partition), "late", durability).unwrap_err();
    assert!(!error.is_retriable());
    let CommitError::NotWritten { reason, transaction } = error else { panic!("{error:?}") };
    assert_eq!(transaction.batch_count(), 1);
    match reason {
        NotWritten::Storage(StorageError::Halted { cause }) => (*cause).clone(),
        other => panic!("{other:?}"),
    }
}

/// Every way to write fails, and every way to read goes on.
fn assert_halted(engine: &Engine, topic: &Topic, readable: &[&str]) {
    assert!(engine.metrics().halted);
    for partition in topic.partitions() {
        halt_cause(engine, &partition, Durability::Buffered);
        halt_cause(engine, &partition, Durability::Sync);
        assert_eq!(values_of(engine, &partition), readable);
        let latest = OffsetQuery::Latest;
        let (isolation, visibility) = (Isolation::Committed, Visibility::Applied);
        let found = engine.list_offset(&partition, latest, isolation, visibility).unwrap();
        assert_eq!(found.unwrap().offset, readable.len() as i64);
    }
    let scanned = engine.snapshot().scan(topic).map(Result::unwrap).count();
    assert_eq!(scanned, 2 * readable.len());
    let mut submitted = engine.append_transaction();
    submitted.records(&topic.partition(0).unwrap(), [Record::keyless("late")]).unwrap();
    let ticket = submitted.submit(Durability::Buffered).unwrap();
    engine.maintenance().run_pending();
    assert!(matches!(ticket.wait(), Err(CommitError::NotWritten { .. })));
    let created = engine.create_topic("late", TopicConfig::new(1));
    assert!(matches!(created, Err(CreateTopicError::Storage(StorageError::Halted { .. }))));
    assert!(engine.delete_topic("t").is_err());
    assert!(engine.topics().alter("t", &[]).is_err());
    assert!(engine.topics().add_partitions("t", 9).is_err());
    assert!(engine.maintenance().checkpoint().is_err());
}

/// What each partition of the topic holds after a reopen, which has to be the same.
fn reopened(test: &TestEngine) -> Vec<String> {
    let engine = test.open();
    let topic = engine.topic("t").unwrap();
    let read: Vec<_> = topic.partitions().iter().map(|p| values_of(&engine, p)).collect();
    assert_eq!(read[0], read[1]);
    append_to_all(&engine, &topic.partitions(), "again");
    assert!(engine.verify().unwrap().is_clean());
    engine.close().unwrap();
    read[0].clone()
}

// Commit log rule E2.
#[test]
fn a_sync_that_fails_halts_the_whole_engine_and_a_reopen_decides() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = two_partitions(&engine);
    append_to_all(&engine, &topic.partitions(), "before");
    engine.sync().unwrap();
    test.disk.plan(Fault::next(FileCall::Sync, EIO));
    assert_unknown(commit(&engine, &topic.partitions(), "unknown", Durability::Sync));
    let cause = halt_cause(&engine, &topic.partition(1).unwrap(), Durability::Buffered);
    assert!(matches!(cause, StorageError::Io { operation: "sync", .. }), "{cause:?}");
    assert_halted(&engine, &topic, &["before", "unknown"]);
    // Nobody who asks for synced data is shown what may vanish.
    let synced = FetchOptions::new().visibility(Visibility::Synced);
    let fetched = engine.fetch(&topic.partition(0).unwrap(), 0, synced).unwrap();
    assert_eq!(fetched.next_offset, 1);
    assert!(matches!(engine.sync(), Err(StorageError::Halted { .. })));
    assert!(matches!(engine.close(), Err(StorageError::Halted { .. })));
    let read = reopened(&test);
    assert!(read == ["before"] || read == ["before", "unknown"], "{read:?}");
}

#[test]
fn whatever_a_power_loss_leaves_of_a_failed_sync_the_transaction_is_whole_or_absent() {
    let mut seen = [0, 0];
    for seed in 0..60 {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = two_partitions(&engine);
        append_to_all(&engine, &topic.partitions(), "before");
        engine.sync().unwrap();
        test.disk.plan(Fault::next(FileCall::Sync, EIO));
        assert_unknown(commit(&engine, &topic.partitions(), "unknown", Durability::Sync));
        test.lose_power(PowerLoss::Random(seed));
        let read = reopened(&test);
        assert_eq!(read[0], "before");
        seen[read.len() - 1] += 1;
    }
    assert!(seen[0] > 0, "{seen:?}");
}

#[test]
fn all_who_wait_for_a_sync_that_fails_are_told_that_nobody_knows() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = two_partitions(&engine);
    test.disk.hold_syncs();
    test.disk.plan(Fault::next(FileCall::Sync, EIO));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let (engine, partitions) = (&engine, topic.partitions());
                scope.spawn(move || commit(engine, &partitions, "v", Durability::Sync))
            })
            .collect();
        let first = topic.partition(0).unwrap();
        while engine.watermarks(&first).unwrap().log_end < 5 {
            thread::yield_now();
        }
        test.disk.release_syncs();
        waiting.into_iter().for_each(|waiting| assert_unknown(waiting.join().unwrap()));
    });
    drop(engine);
    assert!(reopened(&test).len() <= 5);
}

// Commit log rule E3.
#[test]
fn a_write_that_fails_half_way_halts_the_whole_engine() {
    for after_bytes in [0, 1, 100, 200, 511, 512, 600] {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = two_partitions(&engine);
        append_to_all(&engine, &topic.partitions(), "before");
        test.disk.plan(Fault::next(FileCall::Write, EIO).after_bytes(after_bytes));
        let long = "x".repeat(1000);
        assert_unknown(commit(&engine, &topic.partitions(), &long, Durability::Buffered));
        assert_halted(&engine, &topic, &["before"]);
        drop(engine);
        let read = reopened(&test);
        assert_eq!(read[0], "before");
        assert!(read.len() <= 2);
    }
}

#[test]
fn a_full_disk_whose_file_cannot_be_truncated_halts_the_engine() {
    for operation in [FileCall::SetLength, FileCall::Sync] {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = two_partitions(&engine);
        append_to_all(&engine, &topic.partitions(), "before");
        engine.sync().unwrap();
        test.disk.plan(Fault::next(FileCall::Write, ENOSPC).after_bytes(100));
        test.disk.plan(Fault::next(operation, EIO));
        assert_unknown(commit(&engine, &topic.partitions(), "unknown", Durability::Buffered));
        assert_halted(&engine, &topic, &["before"]);
        drop(engine);
        assert_eq!(reopened(&test)[0], "before");
    }
}

// Commit log rule S6.
#[test]
fn an_index_that_cannot_be_written_halts_the_engine_and_shows_no_part_of_the_transaction() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = two_partitions(&engine);
    append_to_all(&engine, &topic.partitions(), "before");
    test.store.fail_write_after(0);
    assert_unknown(commit(&engine, &topic.partitions(), "unknown", Durability::Buffered));
    for partition in topic.partitions() {
        assert_eq!(engine.watermarks(&partition).unwrap().log_end, 1);
    }
    assert_halted(&engine, &topic, &["before"]);
    drop(engine);
    // The frame was made durable before anybody heard of the halt.
    test.lose_power(PowerLoss::Nothing);
    assert_eq!(reopened(&test), ["before", "unknown"]);
}

#[test]
fn a_checkpoint_that_fails_halts_the_engine_and_loses_nothing_whichever_one_is_found() {
    for cut in [FailedFlush::KeepsOld, FailedFlush::KeepsNew] {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = two_partitions(&engine);
        append_to_all(&engine, &topic.partitions(), "a");
        engine.maintenance().checkpoint().unwrap();
        append_to_all(&engine, &topic.partitions(), "b");
        test.store.fail_next_flush(cut);
        assert!(matches!(engine.maintenance().checkpoint(), Err(StorageError::Store { .. })));
        assert_halted(&engine, &topic, &["a", "b"]);
        drop(engine);
        test.lose_power(PowerLoss::Nothing);
        assert_eq!(reopened(&test), ["a", "b"]);
    }
}

#[test]
fn a_new_segment_whose_name_cannot_be_made_durable_takes_no_commit() {
    let test = TestEngine::with(|config| config.segment_bytes(8 << 10));
    let engine = test.open();
    let topic = two_partitions(&engine);
    let value = "x".repeat(1500);
    append_to_all(&engine, &topic.partitions(), &value);
    test.disk.plan(Fault::next(FileCall::SyncDirectory, EIO));
    let error = commit(&engine, &topic.partitions(), &value, Durability::Sync).unwrap_err();
    assert!(matches!(error, CommitError::NotWritten { .. }), "{error:?}");
    assert_halted(&engine, &topic, &[&value]);
    drop(engine);
    test.lose_power(PowerLoss::Everything);
    assert_eq!(reopened(&test), [value]);
}

#[test]
fn the_first_cause_is_the_one_that_is_reported() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = two_partitions(&engine);
    let partition = topic.partition(0).unwrap();
    test.disk.plan(Fault::next(FileCall::Sync, EIO));
    assert_unknown(commit(&engine, &topic.partitions(), "v", Durability::Sync));
    test.store.fail_next_flush(FailedFlush::KeepsOld);
    engine.maintenance().checkpoint().unwrap_err();
    for _ in 0..3 {
        let cause = halt_cause(&engine, &partition, Durability::Sync);
        assert!(matches!(cause, StorageError::Io { operation: "sync", .. }), "{cause:?}");
    }
}

#[test]
fn a_sync_in_the_background_that_fails_halts_the_engine_too() {
    let test = TestEngine::with(|config| {
        config
            .maintenance(tidelog::Maintenance::Background)
            .background_sync_bytes(10_000)
            .max_unsynced_bytes(1 << 20)
    });
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    test.disk.plan(Fault::next(FileCall::Sync, EIO));
    let value = "x".repeat(3000);
    let commit = || commit(&engine, std::slice::from_ref(&partition), &value, Durability::Buffered);
    // Each is acknowledged until the sync that nobody waits for has failed.
    let mut count = 0;
    while commit().is_ok() {
        count += 1;
    }
    assert!(count >= 3, "{count}");
    assert!(engine.metrics().halted);
    halt_cause(&engine, &partition, Durability::Buffered);
    assert_eq!(values_of(&engine, &partition).len(), count);
}

#[test]
fn a_read_that_fails_is_an_error_and_halts_nothing() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("v")]);
    test.disk.plan(Fault::next(FileCall::Read, EIO));
    assert!(engine.fetch(&partition, 0, FetchOptions::new()).is_err());
    assert_eq!(engine.metrics().corruptions, 0, "a call that fails is no damage");
    assert_eq!(values_of(&engine, &partition), ["v"]);
    append(&engine, &partition, [Record::keyless("w")]);
    test.disk.plan(Fault::next(FileCall::Read, EIO));
    let scanned: Vec<_> = engine.snapshot().scan(partition.topic()).collect();
    assert!(scanned[0].is_err());
    assert_eq!(values_of(&engine, &partition), ["v", "w"]);
}
