//! A full disk: what does not fit is not written, and appends work again once there is space.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::path::Path;

use common::transactions::{INIT, committed, producer, record, send};
use common::{TestEngine, append, append_to_all, one_partition, values_of};
use tidelog::producer::transaction::EndProtocol;
use tidelog::record::MarkerKind;
use tidelog::{
    AppendTransaction, CommitError, CreateTopicError, Durability, Engine, FetchOptions, NotWritten,
    OpenError, Partition, ProducerError, Record, StorageError, TopicConfig,
};

/// Leaves so much room on the disk and no more.
fn leave(test: &TestEngine, bytes: u64) {
    let large = 1 << 40;
    test.disk.set_capacity(Some(large));
    let free = test.disk.process().free_bytes(Path::new("/engine")).unwrap();
    test.disk.set_capacity(Some(large - free + bytes));
}

fn transaction(engine: &Engine, partitions: &[Partition], value: &str) -> AppendTransaction {
    let mut append = engine.append_transaction();
    for partition in partitions {
        append.records(partition, [Record::keyless(value)]).unwrap();
    }
    append
}

/// The transaction that did not fit.
fn not_written(outcome: Result<(), CommitError>) -> AppendTransaction {
    let error = outcome.unwrap_err();
    assert!(error.is_retriable(), "{error:?}");
    let CommitError::NotWritten { reason, transaction } = error else { panic!("{error:?}") };
    let is_full = matches!(reason, NotWritten::Storage(StorageError::DiskFull { .. }));
    assert!(is_full, "{reason}");
    *transaction
}

#[test]
fn what_does_not_fit_is_not_written_and_the_same_transaction_fits_later() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    append_to_all(&engine, &topic.partitions(), "before");
    let value = "x".repeat(2000);
    for durability in [Durability::Buffered, Durability::Sync] {
        leave(&test, 1000);
        let large = transaction(&engine, &topic.partitions(), &value).commit(durability).map(drop);
        let again = not_written(large);
        for partition in topic.partitions() {
            let marks = engine.watermarks(&partition).unwrap();
            let read = values_of(&engine, &partition);
            assert_eq!(marks.log_end, read.len() as i64);
            assert!(engine.fetch(&partition, marks.log_end + 1, FetchOptions::new()).is_err());
        }
        assert!(!engine.metrics().halted);
        test.disk.set_capacity(None);
        again.commit(durability).unwrap();
    }
    let expected = ["before", &value, &value];
    for kills in [false, true] {
        if kills {
            test.kill();
        }
        let engine = if kills { test.open() } else { engine.clone() };
        for partition in engine.topic("t").unwrap().partitions() {
            assert_eq!(values_of(&engine, &partition), expected);
        }
        assert!(engine.verify().unwrap().is_clean());
    }
}

#[test]
fn wherever_in_a_frame_the_disk_ends_nothing_of_the_frame_is_left() {
    for room in (0..900).step_by(37) {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
        append_to_all(&engine, &topic.partitions(), "before");
        leave(&test, room);
        let value = "x".repeat(500);
        let again = not_written(
            transaction(&engine, &topic.partitions(), &value)
                .commit(Durability::Buffered)
                .map(drop),
        );
        drop(again);
        // Something small fits once there is a little more space, behind the cut.
        leave(&test, 10_000);
        append_to_all(&engine, &topic.partitions(), "behind");
        test.disk.set_capacity(None);
        test.kill();
        let engine = test.open();
        for partition in engine.topic("t").unwrap().partitions() {
            assert_eq!(values_of(&engine, &partition), ["before", "behind"], "room={room}");
        }
        assert_eq!(engine.recovered().torn_bytes, 0);
        assert!(engine.verify().unwrap().is_clean());
    }
}

#[test]
fn submitted_commits_that_do_not_fit_are_given_back_all_together() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let parts = std::slice::from_ref(&partition);
    leave(&test, 2500);
    let value = "x".repeat(1000);
    let tickets: Vec<_> = (0..4)
        .map(|_| transaction(&engine, parts, &value).submit(Durability::Sync).unwrap())
        .collect();
    engine.maintenance().run_pending();
    let again: Vec<_> =
        tickets.into_iter().map(|ticket| not_written(ticket.wait().map(drop))).collect();
    assert!(values_of(&engine, &partition).is_empty());
    test.disk.set_capacity(None);
    for (i, transaction) in again.into_iter().enumerate() {
        let committed = transaction.commit(Durability::Buffered).unwrap();
        assert_eq!(committed.batches[0].base_offset, i as i64);
    }
}

#[test]
fn a_new_segment_that_does_not_fit_is_tried_again_later() {
    let test = TestEngine::with(|config| config.segment_bytes(8 << 10));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let parts = std::slice::from_ref(&partition);
    let value = "x".repeat(1500);
    let mut expected = Vec::new();
    for _ in 0..20 {
        for room in [0, 1000, 4096, 5000] {
            leave(&test, room);
            let outcome = transaction(&engine, parts, &value).commit(Durability::Buffered);
            match outcome {
                Ok(_) => expected.push(value.clone()),
                Err(error) => drop(not_written(Err(error))),
            }
        }
        test.disk.set_capacity(None);
        append(&engine, &partition, [Record::keyless("between")]);
        expected.push("between".to_owned());
    }
    assert_eq!(values_of(&engine, &partition), expected);
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(values_of(&engine, &partition), expected);
    assert!(engine.verify().unwrap().is_clean());
}

// Commit log rule E5
#[test]
fn the_reserve_is_for_what_gives_space_back() {
    let reserve = 100_000;
    let test = TestEngine::with(|config| config.disk_reserve_bytes(reserve));
    let engine = test.open();
    let kept = one_partition(&engine, "kept", &[]);
    one_partition(&engine, "gone", &[]);
    append(&engine, &kept, [Record::keyless("before")]);
    drop(engine);
    leave(&test, reserve);
    let engine = test.open();
    let kept = engine.topic("kept").unwrap().partition(0).unwrap();
    leave(&test, reserve);
    let parts = std::slice::from_ref(&kept);
    let refused = transaction(&engine, parts, "v").commit(Durability::Buffered).unwrap_err();
    let CommitError::NotWritten { reason, .. } = refused else { panic!("{refused:?}") };
    match reason {
        NotWritten::Storage(StorageError::DiskFull { free_bytes, reserve_bytes }) => {
            assert_eq!((free_bytes, reserve_bytes), (reserve, reserve));
        }
        other => panic!("{other:?}"),
    }
    let created = engine.create_topic("new", TopicConfig::new(1));
    assert!(matches!(created, Err(CreateTopicError::Storage(StorageError::DiskFull { .. }))));
    assert_eq!(values_of(&engine, &kept), ["before"]);
    engine.delete_topic("gone").unwrap();
    engine.topics().alter("kept", &[]).unwrap();
    engine.maintenance().checkpoint().unwrap();
    engine.close().unwrap();

    let engine = test.open();
    assert!(engine.recovered().closed_cleanly);
    assert!(engine.topic("gone").is_none());
    let kept = engine.topic("kept").unwrap().partition(0).unwrap();
    let parts = std::slice::from_ref(&kept);
    not_written(transaction(&engine, parts, "v").commit(Durability::Buffered).map(drop));
    leave(&test, reserve + 10_000);
    append(&engine, &kept, [Record::keyless("behind")]);
    assert_eq!(values_of(&engine, &kept), ["before", "behind"]);
}

#[test]
fn an_engine_that_cannot_be_opened_for_lack_of_space_opens_unharmed_once_there_is_some() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("v")]);
    test.kill();
    drop(engine);
    // Nothing; part of a segment's header; the header, and part of the first commit behind it.
    for room in [0, 100, 4000, 4100] {
        leave(&test, room);
        match test.builder().open().unwrap_err() {
            OpenError::Storage(StorageError::DiskFull { .. } | StorageError::Io { .. }) => {}
            error => panic!("{error:?}"),
        }
    }
    test.disk.set_capacity(None);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(values_of(&engine, &partition), ["v"]);
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn an_open_producer_transaction_can_be_ended_out_of_the_reserve_and_no_other_begun() {
    let reserve = 100_000;
    let test = TestEngine::with(|config| config.disk_reserve_bytes(reserve));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let producer = engine.producers().init("p", INIT).unwrap();
    send(&engine, "p", producer, &partition, 0).unwrap();
    drop(engine);
    // How much is free is looked at when the engine is opened, and now and then.
    leave(&test, reserve);
    let engine = test.open();
    leave(&test, reserve);
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    let refused = send(&engine, "p", producer, &partition, 1).unwrap_err();
    assert!(matches!(refused, CommitError::NotWritten { .. }), "{refused:?}");
    let (commit, protocol) = (MarkerKind::Commit, EndProtocol::RaisesEpoch);
    let next = engine.producers().end("p", producer, commit, protocol).unwrap();
    assert_eq!(values_of(&engine, &partition), ["v"]);
    let partitions = std::slice::from_ref(&partition);
    let begun = engine.producers().add_partitions("p", next, partitions).unwrap_err();
    assert!(matches!(begun, ProducerError::NotWritten(_)), "{begun:?}");
    assert!(!engine.metrics().halted);
}

#[test]
fn a_transaction_that_could_not_be_ended_never_comes_into_the_next_one() {
    for way in ["commit", "abort", "drop", "forget"] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let mut producer = producer(&engine, "p");
        let mut transaction = producer.begin();
        transaction.append([(&partition, record("given up"))]).unwrap();
        leave(&test, 0);
        let ended = match way {
            "commit" => transaction.commit(),
            "abort" => transaction.abort(),
            "drop" => {
                drop(transaction);
                Ok(())
            }
            _ => {
                std::mem::forget(transaction);
                Ok(())
            }
        };
        assert_eq!(ended.is_err(), ["commit", "abort"].contains(&way), "{way}: {ended:?}");
        assert!(producer.begin().append([(&partition, record("too early"))]).is_err(), "{way}");
        test.disk.set_capacity(None);
        let mut transaction = producer.begin();
        transaction.append([(&partition, record("next"))]).unwrap();
        transaction.commit().unwrap();
        assert_eq!(committed(&engine, &partition), ["next"], "{way}");
    }
}
