//! Producer transactions: nothing of one is read before its end, and then all of it or nothing, in all partitions.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{NOW_MS, TestEngine, assert_verified, one_partition, values};
use tidelog::io::simulated::PowerLoss;
use tidelog::producer::transaction::{EndProtocol, ProducerTransactionError};
use tidelog::record::{BatchBuilder, MarkerKind};
use tidelog::types::ProducerIdentity;
use tidelog::{
    CommitError, Durability, Engine, FetchOptions, GroupOffset, InitProducer, Isolation, Partition,
    ProduceError, ProducerError, Record, TopicConfig, TransactionalProducer,
};

const MINUTE: Duration = Duration::from_secs(60);
const DAY_MS: u64 = 86_400_000;

fn producer(engine: &Engine, id: &str) -> TransactionalProducer {
    engine.transactional_producer(id, MINUTE).unwrap()
}

fn record(value: &str) -> Vec<Record> {
    vec![Record::keyless(value)]
}

/// The values that a reader of committed data sees from an offset on, batch by batch.
fn committed_from(engine: &Engine, partition: &Partition, mut offset: i64) -> Vec<String> {
    let mut records = Vec::new();
    loop {
        let fetched = engine.fetch(partition, offset, FetchOptions::new().max_bytes(1)).unwrap();
        if fetched.bytes.is_empty() {
            return values(&records);
        }
        records.extend(fetched.records().map(|record| record.unwrap()));
        offset = fetched.next_offset;
    }
}

/// The same; all ways to read committed data agree.
fn committed(engine: &Engine, partition: &Partition) -> Vec<String> {
    let seen = committed_from(engine, partition, 0);
    let scanned: Vec<Record> = engine
        .snapshot()
        .scan(partition.topic())
        .partitions(&[partition.index()])
        .map(|scanned| scanned.unwrap().record)
        .collect();
    assert_eq!(values(&scanned), seen);
    let fetched = engine.fetch(partition, 0, FetchOptions::new()).unwrap();
    let at_once: Vec<Record> = fetched.records().map(|record| record.unwrap()).collect();
    assert_eq!(values(&at_once), seen);
    seen
}

fn marks(engine: &Engine, partition: &Partition) -> (i64, i64) {
    let marks = engine.watermarks(partition).unwrap();
    assert_eq!(marks.high_watermark, marks.log_end);
    (marks.last_stable, marks.log_end)
}

fn aborted_of(engine: &Engine, partition: &Partition, offset: i64) -> Vec<(i64, i64)> {
    let fetched = engine.fetch(partition, offset, FetchOptions::new()).unwrap();
    fetched.aborted.iter().map(|a| (a.producer_id, a.first_offset)).collect()
}

fn offset(offset: i64) -> GroupOffset {
    GroupOffset { offset, leader_epoch: -1, metadata: String::new() }
}

fn refusal(error: ProducerError) -> ProducerTransactionError {
    match error {
        ProducerError::Refused(refusal) => refusal,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[test]
fn nothing_of_a_transaction_is_read_before_its_end_and_then_all_of_it_in_all_partitions() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
    let partitions = topic.partitions();
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    for value in ["a", "b"] {
        let records = partitions.iter().map(|partition| (partition, record(value)));
        transaction.append(records).unwrap();
    }
    for partition in &partitions {
        assert_eq!(marks(&engine, partition), (0, 2));
        assert!(committed(&engine, partition).is_empty());
        let all = FetchOptions::new().isolation(Isolation::Uncommitted);
        let uncommitted = engine.fetch(partition, 0, all).unwrap();
        assert_eq!(uncommitted.records().count(), 2);
    }
    transaction.commit().unwrap();
    for partition in &partitions {
        assert_eq!(marks(&engine, partition), (3, 3));
        assert_eq!(committed(&engine, partition), ["a", "b"]);
        assert!(aborted_of(&engine, partition, 0).is_empty());
    }
    assert_eq!(engine.metrics().committed_producer_transactions, 1);
    assert_verified(&engine);
}

#[test]
fn the_end_of_a_transaction_over_a_hundred_partitions_is_one_commit() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(100)).unwrap();
    let partitions = topic.partitions();
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append(partitions.iter().map(|partition| (partition, record("v")))).unwrap();
    let before = engine.metrics();
    transaction.commit().unwrap();
    let after = engine.metrics();
    assert_eq!(after.commits - before.commits, 1);
    assert_eq!(after.groups - before.groups, 1);
    assert!(partitions.iter().all(|partition| marks(&engine, partition) == (2, 2)));
}

// TXN-18
#[test]
fn what_is_aborted_is_never_read_also_when_the_end_comes_late_or_the_handle_is_dropped() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("aborted"))]).unwrap();
    assert!(committed(&engine, &partition).is_empty());
    transaction.abort().unwrap();
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("dropped"))]).unwrap();
    drop(transaction);
    assert!(committed(&engine, &partition).is_empty());
    assert_eq!(marks(&engine, &partition), (4, 4));
    let id = producer.identity().producer_id;
    assert_eq!(aborted_of(&engine, &partition, 0), [(id, 0), (id, 2)]);
    assert_eq!(aborted_of(&engine, &partition, 2), [(id, 2)]);
    assert_eq!(engine.metrics().aborted_producer_transactions, 2);
    assert_verified(&engine);
}

// TXN-10
#[test]
fn the_list_of_what_is_aborted_covers_the_whole_range_that_is_returned() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    common::append(&engine, &partition, [Record::keyless("0"), Record::keyless("1")]);
    let mut first = producer(&engine, "first");
    let mut second = producer(&engine, "second");
    let mut one = first.begin();
    one.append([(&partition, record("2"))]).unwrap();
    common::append(&engine, &partition, [Record::keyless("3")]);
    let mut two = second.begin();
    two.append([(&partition, record("4"))]).unwrap();
    one.abort().unwrap();
    assert_eq!(marks(&engine, &partition), (4, 6), "the second one holds it back");
    two.abort().unwrap();
    assert_eq!(committed_from(&engine, &partition, 2), ["3"]);
    let ids = [first.identity().producer_id, second.identity().producer_id];
    assert_eq!(aborted_of(&engine, &partition, 2), [(ids[0], 2), (ids[1], 4)]);
    assert_eq!(committed(&engine, &partition), ["0", "1", "3"]);
}

// TXN-11
#[test]
fn an_abort_without_data_in_a_partition_leaves_a_marker_and_nothing_to_skip() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let init = InitProducer { timeout_ms: 60_000, expected: None };
    let identity = engine.init_producer("p", init).unwrap();
    engine.add_partitions_to_transaction("p", identity, &[partition.clone()]).unwrap();
    assert_eq!(marks(&engine, &partition), (0, 0), "adding alone holds nothing back");
    let ended =
        engine.end_transaction("p", identity, MarkerKind::Abort, EndProtocol::RaisesEpoch).unwrap();
    assert_eq!(ended.producer_epoch, identity.producer_epoch + 1);
    assert_eq!(marks(&engine, &partition), (1, 1));
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("aborted"))]).unwrap();
    transaction.abort().unwrap();
    common::append(&engine, &partition, [Record::keyless("committed")]);
    assert_eq!(aborted_of(&engine, &partition, 0), [(identity.producer_id, 1)]);
    assert_eq!(committed(&engine, &partition), ["committed"]);
}

// TXN-12
#[test]
fn of_three_transactions_of_one_producer_in_one_fetch_only_the_aborted_one_is_skipped() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    for (value, is_kept) in [("one", true), ("two", false), ("three", true)] {
        let mut transaction = producer.begin();
        transaction.append([(&partition, record(value))]).unwrap();
        if is_kept { transaction.commit() } else { transaction.abort() }.unwrap();
    }
    assert_eq!(committed(&engine, &partition), ["one", "three"]);
    assert_eq!(aborted_of(&engine, &partition, 0), [(producer.identity().producer_id, 2)]);
}

// TXN-14
#[test]
fn a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("late"))]).unwrap();
    test.clock.advance_ms(60_000);
    assert_eq!(engine.expire_producers().unwrap().aborted_transactions, 0);
    test.clock.advance_ms(1);
    assert_eq!(engine.expire_producers().unwrap().aborted_transactions, 1);
    assert_eq!(marks(&engine, &partition), (2, 2));
    let refused = transaction.append([(&partition, record("later"))]).unwrap_err();
    let ProduceError::Producer(refused) = refused else { panic!("{refused:?}") };
    assert!(matches!(refusal(refused), ProducerTransactionError::InvalidProducerEpoch { .. }));
    assert!(transaction.commit().is_err());
    assert_eq!(marks(&engine, &partition), (2, 2));
    assert!(committed(&engine, &partition).is_empty());
}

// TXN-16
#[test]
fn an_end_that_is_asked_for_again_is_a_success_and_the_other_end_is_not() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let init = InitProducer { timeout_ms: 60_000, expected: None };
    for (id, protocol) in [("keeps", EndProtocol::KeepsEpoch), ("raises", EndProtocol::RaisesEpoch)]
    {
        let producer = engine.init_producer(id, init).unwrap();
        let before = engine.watermarks(&partition).unwrap().log_end;
        send(&engine, id, producer, &partition, 0).unwrap();
        let first = engine.end_transaction(id, producer, MarkerKind::Commit, protocol).unwrap();
        let again = engine.end_transaction(id, producer, MarkerKind::Commit, protocol).unwrap();
        assert_eq!(first, again);
        let other = engine.end_transaction(id, producer, MarkerKind::Abort, protocol);
        let refused = refusal(other.unwrap_err());
        assert!(matches!(refused, ProducerTransactionError::InvalidTxnState { .. }), "{refused}");
        assert_eq!(marks(&engine, &partition), (before + 2, before + 2));
    }
}

/// Appends one record of a producer's transaction, adding the partition.
fn send(
    engine: &Engine,
    id: &str,
    producer: ProducerIdentity,
    partition: &Partition,
    sequence: i32,
) -> Result<i64, CommitError> {
    engine.add_partitions_of_append(id, producer, &[partition.clone()]).unwrap();
    let ProducerIdentity { producer_id, producer_epoch } = producer;
    let builder = BatchBuilder::new().producer(producer_id, producer_epoch, sequence);
    let mut builder = builder.transactional();
    builder.push(&Record::keyless("v").timestamp(NOW_MS)).unwrap();
    let mut append = engine.append_transaction();
    append.transactional_id(id, true);
    append.batch(partition, builder.finish().unwrap()).unwrap();
    append.commit(Durability::Buffered).map(|committed| committed.batches[0].base_offset)
}

#[test]
fn a_batch_for_a_partition_that_is_not_in_the_transaction_is_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    let [inside, outside] = [0, 1].map(|index| topic.partition(index).unwrap());
    let init = InitProducer { timeout_ms: 60_000, expected: None };
    let ProducerIdentity { producer_id, producer_epoch } = engine.init_producer("p", init).unwrap();
    let identity = ProducerIdentity { producer_id, producer_epoch };
    engine.add_partitions_to_transaction("p", identity, &[inside.clone()]).unwrap();
    let batch = |sequence| {
        let builder = BatchBuilder::new().producer(producer_id, producer_epoch, sequence);
        let mut builder = builder.transactional();
        builder.push(&Record::keyless("v").timestamp(NOW_MS)).unwrap();
        builder.finish().unwrap()
    };
    let mut append = engine.append_transaction();
    append.transactional_id("p", false);
    append.batch(&inside, batch(0)).unwrap();
    append.batch(&outside, batch(0)).unwrap();
    let refused = append.commit(Durability::Buffered).unwrap_err();
    let CommitError::Refused { reason, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((reason.code(), reason.partition()), (48, Some(&outside)));
    assert_eq!(marks(&engine, &inside), (0, 0));
    let mut append = engine.append_transaction();
    append.transactional_id("nobody", false);
    append.batch(&inside, batch(0)).unwrap();
    let refused = append.commit(Durability::Buffered).unwrap_err();
    let CommitError::Refused { reason, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(reason.code(), 49);
}

#[test]
fn whoever_takes_the_transactional_id_over_aborts_what_was_open_and_fences_the_other() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut old = producer(&engine, "p");
    let mut transaction = old.begin();
    transaction.append([(&partition, record("old"))]).unwrap();
    let mut new = producer(&engine, "p");
    assert_eq!(marks(&engine, &partition), (2, 2));
    assert!(transaction.append([(&partition, record("old"))]).is_err());
    let refused = refusal(transaction.commit().unwrap_err());
    assert!(matches!(refused, ProducerTransactionError::ProducerFenced { .. }), "{refused}");
    let mut transaction = new.begin();
    transaction.append([(&partition, record("new"))]).unwrap();
    transaction.commit().unwrap();
    assert_eq!(committed(&engine, &partition), ["new"]);
    assert_eq!(old.identity().producer_id, new.identity().producer_id);
    assert!(old.identity().producer_epoch < new.identity().producer_epoch);
}

#[test]
fn offsets_in_a_transaction_are_the_groups_once_it_is_committed_and_never_after_an_abort() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let read =
        |engine: &Engine| engine.group_offset("g", &partition).unwrap().map(|found| found.offset);
    for (end, expected) in [(MarkerKind::Abort, None), (MarkerKind::Commit, Some(9))] {
        let mut transaction = producer.begin();
        // OFF-06
        transaction.send_offsets("g", vec![(partition.clone(), offset(5))]).unwrap();
        transaction.send_offsets("g", vec![(partition.clone(), offset(9))]).unwrap();
        assert_eq!(read(&engine), None);
        assert!(engine.is_group_offset_staged("g", &partition));
        match end {
            MarkerKind::Abort => transaction.abort().unwrap(),
            MarkerKind::Commit => transaction.commit().unwrap(),
        }
        assert_eq!(read(&engine), expected);
        assert!(!engine.is_group_offset_staged("g", &partition));
    }
}

#[test]
fn an_offset_that_was_requested_later_stays_when_an_older_transaction_is_committed() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let (mut one, mut two) = (producer(&engine, "one"), producer(&engine, "two"));
    let (mut first, mut second) = (one.begin(), two.begin());
    first.send_offsets("g", vec![(partition.clone(), offset(10))]).unwrap();
    second.send_offsets("g", vec![(partition.clone(), offset(5))]).unwrap();
    second.commit().unwrap();
    first.commit().unwrap();
    let found = engine.group_offset("g", &partition).unwrap().map(|found| found.offset);
    assert_eq!(found, Some(5));
}

#[test]
fn open_transactions_and_staged_offsets_survive_a_kill_and_can_be_ended() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let init = InitProducer { timeout_ms: 60_000, expected: None };
    let producer = engine.init_producer("p", init).unwrap();
    send(&engine, "p", producer, &partition, 0).unwrap();
    engine.checkpoint().unwrap();
    send(&engine, "p", producer, &partition, 1).unwrap();
    engine
        .stage_group_offsets("p", producer, "g", vec![(partition.clone(), offset(3))], true)
        .unwrap();
    drop(engine);
    test.kill();
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(marks(&engine, &partition), (0, 2));
    assert!(engine.is_group_offset_staged("g", &partition));
    let open = engine.describe_transactional_id("p").unwrap();
    assert_eq!((open.producer, open.partitions), (producer, vec![partition.clone()]));
    send(&engine, "p", producer, &partition, 2).unwrap();
    engine.end_transaction("p", producer, MarkerKind::Commit, EndProtocol::RaisesEpoch).unwrap();
    drop(engine);
    test.lose_power(PowerLoss::Nothing);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(committed(&engine, &partition).len(), 3, "an end is synced");
    let found = engine.group_offset("g", &partition).unwrap().map(|found| found.offset);
    assert_eq!(found, Some(3));
    assert_verified(&engine);
}

// C17 of the commit log's faults: an id that was told is never told again.
#[test]
fn no_producer_id_is_given_twice_also_across_power_loss() {
    let test = TestEngine::new();
    let mut given = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let engine = test.open();
        for _ in 0..3 {
            assert!(given.insert(engine.new_producer_id().unwrap()));
        }
        drop(engine);
        test.lose_power(PowerLoss::Nothing);
    }
    let engine = test.open();
    for _ in 0..2500 {
        assert!(given.insert(engine.new_producer_id().unwrap()));
    }
}

// IDP-08, IDP-11, IDP-12
#[test]
fn a_producer_expires_by_the_engines_clock_and_then_may_go_on_with_any_sequence() {
    let test = TestEngine::with(|config| config.producer_id_expiration_ms(7 * DAY_MS));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = engine.idempotent_producer().unwrap();
    let old = vec![Record::keyless("old").timestamp(0)];
    producer.append([(&partition, old.clone())], Durability::Buffered).unwrap();
    assert_eq!(engine.expire_producers().unwrap().forgotten_producers, 0);
    let mut again = engine.resume_idempotent_producer(producer.identity());
    let repeated = again.append([(&partition, old)], Durability::Buffered).unwrap();
    assert!(repeated.batches[0].is_duplicate, "however old its records are");
    test.clock.advance_ms(7 * DAY_MS);
    assert_eq!(engine.expire_producers().unwrap().forgotten_producers, 1);
    assert!(engine.describe_producers(&partition).is_empty());
    producer.append([(&partition, record("new"))], Durability::Buffered).unwrap();
    assert_eq!(engine.describe_producers(&partition)[0].last_sequence, 1);

    let longest = 900_000;
    let init = InitProducer { timeout_ms: longest, expected: None };
    let transactional = engine.init_producer("p", init).unwrap();
    send(&engine, "p", transactional, &partition, 0).unwrap();
    test.clock.advance_ms(6 * DAY_MS);
    assert_eq!(engine.expire_producers().unwrap().aborted_transactions, 1);
    test.clock.advance_ms(2 * DAY_MS);
    engine.expire_producers().unwrap();
    let known = engine.describe_producers(&partition);
    let ids: Vec<i64> = known.iter().map(|producer| producer.producer_id).collect();
    assert_eq!(ids, [transactional.producer_id], "the marker counts");
}

// IDP-13
#[test]
fn behind_the_last_epoch_comes_a_new_producer_id_also_with_a_transaction_open() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let init = |expected| {
        let init = InitProducer { timeout_ms: 60_000, expected };
        loop {
            match engine.init_producer("p", init) {
                Err(error) if error.is_retriable() => {}
                settled => return settled.unwrap(),
            }
        }
    };
    let first = init(None);
    let mut last = first;
    while last.producer_epoch < 32_766 {
        let next = init(None);
        assert_eq!(next.producer_id, first.producer_id);
        assert_eq!(next.producer_epoch, last.producer_epoch + 1);
        last = next;
    }
    send(&engine, "p", last, &partition, 0).unwrap();
    let next = init(None);
    assert_ne!(next.producer_id, first.producer_id);
    assert!((0..=1).contains(&next.producer_epoch), "{next}");
    assert_eq!(marks(&engine, &partition), (2, 2), "nothing is stuck");
    assert!(engine.add_partitions_to_transaction("p", last, &[partition.clone()]).is_err());
    send(&engine, "p", next, &partition, 0).unwrap();
    engine.end_transaction("p", next, MarkerKind::Commit, EndProtocol::RaisesEpoch).unwrap();
    assert_eq!(committed(&engine, &partition), ["v"]);
}

#[test]
fn a_topic_that_is_deleted_inside_a_transaction_does_not_keep_it_from_ending() {
    let test = TestEngine::new();
    let engine = test.open();
    let gone = one_partition(&engine, "gone", &[]);
    let kept = one_partition(&engine, "kept", &[]);
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append([(&gone, record("v")), (&kept, record("v"))]).unwrap();
    transaction
        .send_offsets("g", vec![(gone.clone(), offset(1)), (kept.clone(), offset(2))])
        .unwrap();
    engine.delete_topic("gone").unwrap();
    let again = one_partition(&engine, "gone", &[]);
    transaction.commit().unwrap();
    assert_eq!(marks(&engine, &again), (0, 0));
    assert_eq!(committed(&engine, &kept), ["v"]);
    assert_eq!(engine.group_offsets("g").unwrap(), [(kept, offset(2))]);
    drop(producer);
    drop(engine);
    test.kill();
    assert_verified(&test.open());
}

#[test]
fn records_deleted_inside_an_open_transaction_leave_the_rest_of_it_unstable() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    for value in ["a", "b", "c"] {
        transaction.append([(&partition, record(value))]).unwrap();
    }
    engine.delete_records(&partition, 2).unwrap();
    let marks = engine.watermarks(&partition).unwrap();
    assert_eq!((marks.log_start, marks.last_stable, marks.log_end), (2, 2, 3));
    transaction.abort().unwrap();
    assert!(committed_from(&engine, &partition, 2).is_empty());
    engine.delete_records(&partition, 4).unwrap();
    assert_verified(&engine);
    drop(producer);
    drop(engine);
    test.kill();
    assert_verified(&test.open());
}
