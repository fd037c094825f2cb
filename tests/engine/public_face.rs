//! What a user meets first: waits, a consumer, errors that say their cause, opening a topic twice.

use std::error::Error;
use std::time::Duration;

use crate::common::transactions::{producer, record};
use crate::common::{TestEngine, append, batch_of, one_partition};
use tidelog::testing::{Fault, FileCall};

use tidelog::record::BatchBuilder;
use tidelog::{
    AppendErrorKind, Codec, ConsumerError, CreateTopicError, Durability, Engine, FetchError,
    FetchOptions, GroupOffset, Isolation, OffsetReset, Partition, Record, StorageError, TooLarge,
    Topic, TopicConfig, WaitFor,
};

/// Longer than any test waits for what will come.
const LONG: Duration = Duration::from_secs(600);

fn topic_of(engine: &Engine, partition_count: u32) -> Topic {
    engine.open_or_create_topic("t", TopicConfig::new(partition_count)).expect("it fits")
}

fn polled(consumer: &mut tidelog::Consumer) -> Vec<(i32, i64)> {
    let found = consumer.poll(Duration::ZERO).expect("it is readable");
    found.iter().map(|found| (found.partition.index(), found.record.offset)).collect()
}

/// The text of an error, and of all that comes after it.
fn chain(error: &dyn Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts
}

#[test]
fn a_wait_for_committed_data_ends_no_sooner_than_a_fetch_of_it_finds_something() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("v"))]).unwrap();
    let is_there = |isolation, offset| {
        let wanted = [WaitFor::new(&partition, offset).isolation(isolation)];
        let is_there = engine.wait_for_data(&wanted, Duration::ZERO);
        let options = FetchOptions::new().isolation(isolation);
        let fetched = engine.fetch(&partition, offset, options).unwrap();
        assert_eq!(is_there, !fetched.bytes.is_empty(), "{isolation:?} {offset}");
        is_there
    };
    assert!(!is_there(Isolation::Committed, 0));
    assert!(is_there(Isolation::Uncommitted, 0));
    assert!(!is_there(Isolation::Uncommitted, 1));
    transaction.commit().unwrap();
    assert!(is_there(Isolation::Committed, 0));
    assert!(is_there(Isolation::Committed, 1), "the marker is read too");
    assert!(!is_there(Isolation::Committed, 2));
}

#[test]
fn a_wait_for_committed_data_ends_with_the_transaction_that_held_it_back() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("v"))]).unwrap();
    std::thread::scope(|scope| {
        let waiter = engine.clone();
        let wanted = [WaitFor::new(&partition, 0)];
        let waiting = scope.spawn(move || waiter.wait_for_data(&wanted, LONG));
        transaction.commit().unwrap();
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn a_wait_below_the_log_start_ends_at_once_for_a_fetch_there_says_what_is_wrong() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("a"), Record::keyless("b")]);
    engine.delete_records(&partition, 2).unwrap();
    assert!(engine.wait_for_data(&[WaitFor::new(&partition, 1)], Duration::ZERO));
    assert!(!engine.wait_for_data(&[WaitFor::new(&partition, 2)], Duration::ZERO));
}

#[test]
fn a_topic_is_made_once_and_opened_as_it_is_from_then_on() {
    let test = TestEngine::new();
    for _ in 0..3 {
        let engine = test.open();
        assert_eq!(topic_of(&engine, 2).partition_count(), 2);
        assert_eq!(
            engine.open_or_create_topic("t", TopicConfig::new(9)).unwrap().partition_count(),
            2
        );
        engine.close().unwrap();
    }
    let refused = test.open().open_or_create_topic("no name", TopicConfig::new(1));
    assert!(matches!(refused, Err(CreateTopicError::Name(_))));
}

#[test]
fn one_topic_comes_of_many_who_open_or_make_it_at_once() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let ids: Vec<_> = std::thread::scope(|scope| {
        let open = || scope.spawn(|| topic_of(&engine, 1).id());
        let threads: Vec<_> = (0..8).map(|_| open()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(engine.topics().list().len(), 1);
}

#[test]
fn whatever_is_too_large_is_named_by_one_type_with_its_place() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "1000")]);
    let large = || Record::keyless(vec![0; 2000]);
    let size_bytes = BatchBuilder::new().encoded_size_with(&large().timestamp(0)) as u64;
    let mut append = engine.append_transaction();

    let five = [Record::keyless("a"), Record::keyless("b"), large(), large(), Record::keyless("c")];
    let error = append.records(&partition, five).unwrap_err();
    let expected = TooLarge { record_index: Some(2), size_bytes, limit_bytes: 1000 };
    assert_eq!(error.too_large(), Some(expected));
    assert!(matches!(error.kind, AppendErrorKind::TooLarge(found) if found == expected));
    assert_eq!(
        error.to_string(),
        format!(
            "a batch for t-0 was not taken: a record is larger than its limit: record_index=2 \
             size_bytes={size_bytes} limit=1000, which is the topic's max.message.bytes"
        )
    );

    let batch = batch_of(&[large()]);
    let size_bytes = batch.len() as u64;
    let error = append.batch(&partition, batch).unwrap_err();
    let expected = TooLarge { record_index: None, size_bytes, limit_bytes: 1000 };
    assert_eq!(error.too_large(), Some(expected));
    assert!(append.is_empty());
}

#[test]
fn a_record_that_is_too_large_once_unpacked_is_named_by_the_same_type() {
    let test = TestEngine::new();
    let engine = test.open();
    let limit = ("max.decompressed.message.bytes", "1000");
    let partition = one_partition(&engine, "t", &[limit]);
    let mut builder = BatchBuilder::new().codec(Codec::Lz4);
    builder.push(&Record::keyless("small").timestamp(crate::common::NOW_MS)).unwrap();
    builder.push(&Record::keyless(vec![0; 2000]).timestamp(crate::common::NOW_MS)).unwrap();
    let mut append = engine.append_transaction();
    let error = append.batch(&partition, builder.finish().unwrap()).unwrap_err();
    let found = error.too_large().unwrap();
    assert_eq!((found.record_index, found.limit_bytes), (Some(1), 1000), "{error}");
}

#[test]
fn a_refused_record_is_named_by_its_place_among_all_that_were_given() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [("max.message.bytes", "1000"), ("cleanup.policy", "compact")];
    let partition = one_partition(&engine, "t", &settings);
    let mut records: Vec<_> = (0..9).map(|_| Record::new("k", vec![0; 400])).collect();
    records[7] = Record::keyless("v");
    let error = engine.append_transaction().records(&partition, records).unwrap_err();
    let places: Vec<_> = error.record_errors().iter().map(|record| record.index).collect();
    assert_eq!(places, [7]);
}

#[test]
fn an_error_says_its_direct_cause_and_its_chain_says_nothing_twice() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "1000")]);
    let group = engine.group("g");
    let negative = group.commit([(partition.clone(), GroupOffset::new(-1))]).unwrap_err();
    let refused = engine.producers().transactional("", LONG).unwrap_err();
    let large = Record::keyless(vec![0; 2000]);
    let too_large = engine.append_transaction().records(&partition, [large]).unwrap_err();
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::keyless("v")]).unwrap();
    test.disk.plan(Fault::next(FileCall::Sync, 5));
    let unknown = append.commit(Durability::Sync).unwrap_err();
    let halted = engine.sync().unwrap_err();
    let errors: [(&dyn Error, &str); 5] = [
        (&negative, "an offset is never negative"),
        (&refused, "a transactional id must not be empty"),
        (&too_large, "a record is larger than its limit"),
        (&unknown, "Input/output error"),
        (&halted, "Input/output error"),
    ];
    for (error, cause) in errors {
        assert!(error.to_string().contains(cause), "{error}");
        let texts = chain(error);
        for (index, text) in texts.iter().enumerate() {
            assert!(texts[..index].iter().all(|earlier| !earlier.contains(text)), "{texts:?}");
        }
    }
    assert!(unknown.is_outcome_unknown() && !unknown.is_retriable());
    assert!(halted.is_halted() && !halted.is_closed());
    engine.close().unwrap_err();
}

#[test]
fn a_full_queue_and_a_fenced_producer_are_asked_for_by_name() {
    let test =
        TestEngine::with(|config| config.commit_queue_bytes(4096).max_transaction_bytes(4096));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let submit = || {
        let mut append = engine.append_transaction();
        append.records(&partition, [Record::keyless(vec![0; 3000])]).unwrap();
        append.submit(Durability::Buffered)
    };
    let (first, second) = (submit(), submit());
    assert!(second.unwrap_err().is_queue_full());
    engine.maintenance().run_pending();
    first.unwrap().wait().unwrap();

    let mut old = producer(&engine, "p");
    let mut transaction = old.begin();
    transaction.append([(&partition, record("a"))]).unwrap();
    let _new = producer(&engine, "p");
    let appended = transaction.append([(&partition, record("b"))]).unwrap_err();
    assert!(appended.is_fenced() && !appended.is_queue_full(), "{appended}");
    let ended = transaction.commit().unwrap_err();
    assert!(ended.is_fenced() && !ended.is_timed_out(), "{ended}");
    let one_text = "another instance of the producer holds the transactional id: epoch=0 current=";
    assert!(appended.to_string().contains(one_text), "{appended}");
    assert!(ended.to_string().starts_with(one_text), "{ended}");
}

#[test]
fn a_closed_engine_says_that_it_is_closed_and_a_locked_one_by_whom() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::keyless("v")]).unwrap();
    let locked = test.builder().open().unwrap_err().to_string();
    assert!(locked.starts_with("the engine is open elsewhere: pid="), "{locked}");
    engine.clone().close().unwrap();
    let committed = append.commit(Durability::Buffered).unwrap_err();
    assert_eq!(committed.to_string(), "the transaction was not written: the engine is closed");
    assert_eq!(engine.sync().unwrap_err().to_string(), "the engine is closed");
}

#[test]
fn a_consumer_goes_on_where_its_group_has_committed_and_not_where_it_has_only_read() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = topic_of(&engine, 2);
    for partition in topic.partitions() {
        append(&engine, &partition, ["a", "b"].map(Record::keyless));
    }
    let mut consumer = engine.consumer("g", &topic).unwrap();
    assert_eq!(polled(&mut consumer), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert!(polled(&mut consumer).is_empty());
    assert_eq!(polled(&mut engine.consumer("g", &topic).unwrap()).len(), 4);
    consumer.commit().unwrap();
    append(&engine, &topic.partition(1).unwrap(), [Record::keyless("c")]);
    engine.close().unwrap();

    let engine = test.open();
    let topic = topic_of(&engine, 2);
    let mut next = engine.consumer("g", &topic).unwrap();
    assert_eq!(polled(&mut next), [(1, 2)]);
    assert_eq!(next.uncommitted(), [(topic.partition(1).unwrap(), GroupOffset::new(3))]);
    assert_eq!(polled(&mut engine.consumer("other", &topic).unwrap()).len(), 5);
}

#[test]
fn a_consumer_reads_partitions_that_its_topic_gets_later_and_leaves_none_out() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = topic_of(&engine, 1);
    let mut consumer = engine.consumer("g", &topic).unwrap().max_bytes(1);
    assert!(polled(&mut consumer).is_empty());
    let topic = engine.topics().add_partitions("t", 3).unwrap();
    for _ in 0..3 {
        topic.partitions().iter().for_each(|to| append(&engine, to, [Record::keyless("v")]));
    }
    // One batch a time, for all are larger than the limit, and each partition in its turn.
    let mut seen: Vec<_> = (0..9).flat_map(|_| polled(&mut consumer)).collect();
    let first: std::collections::BTreeSet<_> = seen[..3].iter().map(|(index, _)| *index).collect();
    assert_eq!(first.len(), 3, "{seen:?}");
    seen.sort_unstable();
    let all: Vec<_> = (0..3).flat_map(|index| (0..3).map(move |offset| (index, offset))).collect();
    assert_eq!(seen, all);
}

#[test]
fn a_consumer_waits_for_what_is_committed_and_goes_past_what_was_aborted() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = topic_of(&engine, 1);
    let partition = topic.partition(0).unwrap();
    let mut producer = producer(&engine, "p");
    let mut aborted = producer.begin();
    aborted.append([(&partition, record("aborted"))]).unwrap();
    aborted.abort().unwrap();
    let mut consumer = engine.consumer("g", &topic).unwrap();
    assert!(polled(&mut consumer).is_empty());
    assert_eq!(consumer.position(&partition), Some(2), "it does not read them again");
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("v"))]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| consumer.poll(LONG).unwrap());
        transaction.commit().unwrap();
        assert_eq!(waiting.join().unwrap()[0].record.offset, 2);
    });
    let closing = engine.clone();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| consumer.poll(LONG));
        closing.close().unwrap();
        assert!(waiting.join().unwrap().unwrap_err().is_closed());
    });
}

#[test]
fn a_partition_that_cannot_be_read_keeps_no_other_one_from_a_consumer() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = topic_of(&engine, 2);
    let partitions = topic.partitions();
    partitions.iter().for_each(|to| append(&engine, to, ["a", "b"].map(Record::keyless)));
    let offsets = partitions.iter().map(|of| (of.clone(), GroupOffset::new(0)));
    engine.group("g").commit(offsets).unwrap();
    engine.delete_records(&partitions[1], 1).unwrap();
    let mut consumer = engine.consumer("g", &topic).unwrap().offset_reset(OffsetReset::Fail);
    let (mut read, mut failed) = (Vec::new(), 0);
    for round in ["c", "d", "e", "f"] {
        append(&engine, &partitions[0], [Record::keyless(round)]);
        match consumer.poll(Duration::ZERO) {
            Ok(found) => read.extend(found.iter().map(|found| found.record.offset)),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0, "the partition that fails is told of");
    assert_eq!(read[..4], [0, 1, 2, 3], "and the other one goes on");
}

#[test]
fn a_consumer_that_would_leave_records_out_does_what_it_was_told_to() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = topic_of(&engine, 1);
    let partition = topic.partition(0).unwrap();
    append(&engine, &partition, ["a", "b", "c"].map(Record::keyless));
    engine.group("g").commit([(partition.clone(), GroupOffset::new(1))]).unwrap();
    engine.delete_records(&partition, 2).unwrap();
    let open = |reset| engine.consumer("g", &topic).unwrap().offset_reset(reset);
    assert_eq!(polled(&mut open(OffsetReset::Earliest)), [(0, 2)]);
    assert!(polled(&mut open(OffsetReset::Latest)).is_empty());
    let mut failing = open(OffsetReset::Fail);
    let failed = failing.poll(Duration::ZERO).unwrap_err();
    let ConsumerError::Fetch(FetchError::OffsetOutOfRange { offset, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(offset, 1);
    failing.seek(&partition, 2).unwrap();
    assert_eq!(polled(&mut failing), [(0, 2)]);
    engine.delete_topic("t").unwrap();
    assert!(failing.poll(LONG).unwrap_err().is_topic_gone());
}

#[test]
fn a_copy_commits_what_it_read_and_what_came_of_it_as_one() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = topic_of(&engine, 1);
    let copy = one_partition(&engine, "copy", &[]);
    append(&engine, &topic.partition(0).unwrap(), ["a", "b"].map(Record::keyless));
    let mut producer = producer(&engine, "p");
    for _ in 0..2 {
        let mut consumer = engine.consumer("g", &topic).unwrap();
        let found = consumer.poll(Duration::ZERO).unwrap();
        let mut transaction = producer.begin();
        transaction
            .append([(&copy, found.into_iter().map(|found| found.record).collect())])
            .unwrap();
        transaction.send_offsets("g", consumer.uncommitted()).unwrap();
        transaction.commit().unwrap();
        consumer.note_committed();
        consumer.commit().unwrap();
    }
    assert_eq!(crate::common::values_of(&engine, &copy), ["a", "b"]);
}

fn compacted(engine: &Engine) -> Partition {
    let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "1")];
    one_partition(engine, "compacted", &settings)
}

#[test]
fn a_partition_is_cleaned_below_its_ratio_when_that_is_asked_for_and_never_when_paused() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine);
    for value in ["a", "b", "c"] {
        append(&engine, &partition, [Record::new("k", value)]);
    }
    let cleaner = engine.cleaner();
    assert!(!cleaner.plan(&partition).unwrap().is_due);
    assert!(cleaner.clean_partition(&partition).unwrap().is_none());
    let pause = cleaner.pause();
    assert!(cleaner.clean_partition_now(&partition).unwrap().is_none());
    drop(pause);
    assert_eq!(cleaner.clean_partition_now(&partition).unwrap().unwrap().removed_records, 2);
    assert!(cleaner.clean_partition_now(&partition).unwrap().is_none(), "nothing is left to clean");
    let other = one_partition(&engine, "other", &[]);
    append(&engine, &other, [Record::new("k", "a"), Record::new("k", "b")]);
    assert!(cleaner.clean_partition_now(&other).unwrap().is_none(), "it is not compacted");
}

#[test]
fn a_wait_for_the_cleaner_ends_when_no_pass_is_due_whoever_makes_it() {
    for test in [TestEngine::new(), TestEngine::in_background()] {
        let engine = test.open();
        let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
        let partition = one_partition(&engine, "compacted", &settings);
        let pause = engine.cleaner().pause();
        for value in ["a", "b", "c"] {
            append(&engine, &partition, [Record::new("k", value)]);
        }
        let paused = engine.cleaner().wait_until_cleaned(&partition, Duration::from_millis(1));
        assert!(!paused.unwrap());
        drop(pause);
        assert!(engine.cleaner().wait_until_cleaned(&partition, LONG).unwrap());
        assert_eq!(crate::common::values_of(&engine, &partition), ["c"]);
    }
}

#[test]
fn who_waits_for_cleaning_hears_that_the_engine_has_halted() {
    for test in [TestEngine::in_background(), TestEngine::new()] {
        let engine = test.open();
        let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
        let partition = one_partition(&engine, "k", &settings);
        let pause = engine.cleaner().pause();
        append(&engine, &partition, [Record::new("k", "a"), Record::new("k", "b")]);
        test.disk.plan(Fault::next(FileCall::Sync, 5));
        engine.sync().unwrap_err();
        drop(pause);
        engine.cleaner().wait_until_cleaned(&partition, LONG).unwrap_err();
    }
}

#[cfg(not(feature = "rocksdb"))]
#[test]
fn a_build_without_a_store_says_what_is_missing() {
    let error = Engine::builder("a-directory").open().expect_err("there is no store");
    assert!(error.to_string().contains("enable the feature `rocksdb`"), "{error}");
    assert!(!std::path::Path::new("a-directory").exists(), "and nothing was made");
}

#[test]
fn a_storage_error_is_asked_for_its_kind() {
    let full = StorageError::DiskFull { free_bytes: 0, reserve_bytes: 1 };
    assert!(full.is_disk_full() && full.is_retriable() && !full.is_halted());
    assert!(StorageError::Closed.is_closed());
}
