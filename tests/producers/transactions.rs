//! Producer transactions: nothing of one is read before its end, and then all of it or nothing, in all partitions.

use crate::common;

use common::transactions::{
    INIT, aborted_of, committed, committed_from, marks, offset, producer, record, refusal, send,
};
use common::{NOW_MS, TestEngine, assert_verified, one_partition};
use tidelog::producer::transaction::{EndProtocol, ProducerTransactionError};
use tidelog::record::{BatchBuilder, MarkerKind};
use tidelog::types::ProducerIdentity;
use tidelog::{
    CommitError, Durability, FetchOptions, FirstSequence, Isolation, OffsetQuery, Record,
    TopicConfig, Visibility,
};

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
    assert_eq!(after.commit_groups - before.commit_groups, 1);
    assert!(partitions.iter().all(|partition| marks(&engine, partition) == (2, 2)));
}

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

#[test]
fn an_abort_without_data_in_a_partition_leaves_a_marker_and_nothing_to_skip() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let identity = engine.producers().init("p", INIT).unwrap();
    engine.producers().add_partitions("p", identity, std::slice::from_ref(&partition)).unwrap();
    assert_eq!(marks(&engine, &partition), (0, 0), "adding alone holds nothing back");
    let ended =
        engine.producers().end("p", identity, MarkerKind::Abort, EndProtocol::RaisesEpoch).unwrap();
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

#[test]
fn an_end_that_is_asked_for_again_is_a_success_and_the_other_end_is_not() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for (id, protocol) in [("keeps", EndProtocol::KeepsEpoch), ("raises", EndProtocol::RaisesEpoch)]
    {
        let producer = engine.producers().init(id, INIT).unwrap();
        let before = engine.watermarks(&partition).unwrap().log_end;
        send(&engine, id, producer, &partition, 0).unwrap();
        let first = engine.producers().end(id, producer, MarkerKind::Commit, protocol).unwrap();
        let again = engine.producers().end(id, producer, MarkerKind::Commit, protocol).unwrap();
        assert_eq!(first, again);
        let other = engine.producers().end(id, producer, MarkerKind::Abort, protocol);
        let refused = refusal(other.unwrap_err());
        assert!(matches!(refused, ProducerTransactionError::InvalidTxnState { .. }), "{refused}");
        assert_eq!(marks(&engine, &partition), (before + 2, before + 2));
    }
}

#[test]
fn a_batch_for_a_partition_that_is_not_in_the_transaction_is_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    let [inside, outside] = [0, 1].map(|index| topic.partition(index).unwrap());
    let ProducerIdentity { producer_id, producer_epoch } =
        engine.producers().init("p", INIT).unwrap();
    let identity = ProducerIdentity { producer_id, producer_epoch };
    engine.producers().add_partitions("p", identity, std::slice::from_ref(&inside)).unwrap();
    let batch = |sequence| {
        let builder = BatchBuilder::new().producer(producer_id, producer_epoch, sequence);
        let mut builder = builder.transactional();
        builder.push(&Record::keyless("v").timestamp(NOW_MS)).unwrap();
        builder.finish().unwrap()
    };
    let mut append = engine.append_transaction();
    append.transactional_id("p", FirstSequence::Any);
    append.batch(&inside, batch(0)).unwrap();
    append.batch(&outside, batch(0)).unwrap();
    let refused = append.commit(Durability::Buffered).unwrap_err();
    let CommitError::Refused { reason, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((reason.code(), reason.partition()), (48, Some(&outside)));
    assert_eq!(marks(&engine, &inside), (0, 0));
    let mut append = engine.append_transaction();
    append.transactional_id("nobody", FirstSequence::Any);
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
    assert_eq!(engine.group("g").offsets().unwrap(), [(kept, offset(2))]);
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

#[test]
fn fetches_and_lookups_of_committed_data_end_before_the_first_record_of_an_open_transaction() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let at = |ms: i64| vec![Record::keyless("v").timestamp(NOW_MS + ms)];
    for offset in 0..5 {
        common::append(&engine, &partition, at(offset));
    }
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    for offset in 5..8 {
        transaction.append([(&partition, at(offset))]).unwrap();
    }
    let look = |query, isolation| {
        let found = engine.list_offset(&partition, query, isolation, Visibility::Applied).unwrap();
        found.map(|found| found.offset)
    };
    let (latest, of_record_6) = (OffsetQuery::Latest, OffsetQuery::Timestamp(NOW_MS + 6));
    assert_eq!(look(latest, Isolation::Uncommitted), Some(8));
    assert_eq!(look(of_record_6, Isolation::Uncommitted), Some(6));
    assert_eq!(look(latest, Isolation::Committed), Some(5));
    assert_eq!(look(of_record_6, Isolation::Committed), None);
    let fetched = engine.fetch(&partition, 0, FetchOptions::new()).unwrap();
    assert_eq!((fetched.records().count(), fetched.next_offset), (5, 5));
    assert!(engine.fetch(&partition, 5, FetchOptions::new()).unwrap().bytes.is_empty());
    transaction.abort().unwrap();
}
