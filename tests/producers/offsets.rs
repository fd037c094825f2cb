//! Offsets of groups inside producer transactions: theirs once it is committed, never after an abort.

use crate::common;

use common::transactions::{offset, producer};
use common::{TestEngine, one_partition};
use tidelog::record::MarkerKind;
use tidelog::{Engine, TopicConfig};

#[test]
fn offsets_in_a_transaction_are_the_groups_once_it_is_committed_and_never_after_an_abort() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let read =
        |engine: &Engine| engine.group("g").offset(&partition).unwrap().map(|found| found.offset);
    for (end, expected) in [(MarkerKind::Abort, None), (MarkerKind::Commit, Some(9))] {
        let mut transaction = producer.begin();
        transaction.send_offsets("g", vec![(partition.clone(), offset(5))]).unwrap();
        transaction.send_offsets("g", vec![(partition.clone(), offset(9))]).unwrap();
        assert_eq!(read(&engine), None);
        assert!(engine.group("g").is_offset_staged(&partition));
        match end {
            MarkerKind::Abort => transaction.abort().unwrap(),
            MarkerKind::Commit => transaction.commit().unwrap(),
        }
        assert_eq!(read(&engine), expected);
        assert!(!engine.group("g").is_offset_staged(&partition));
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
    let found = engine.group("g").offset(&partition).unwrap().map(|found| found.offset);
    assert_eq!(found, Some(5));
}

#[test]
fn offsets_that_are_taken_away_from_a_group_are_taken_out_of_open_transactions_too() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    let [a, b] = [0, 1].map(|index| topic.partition(index).unwrap());
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    let all = vec![(a.clone(), offset(1)), (b.clone(), offset(2))];
    transaction.send_offsets("g", all.clone()).unwrap();
    transaction.send_offsets("other", all).unwrap();
    engine.group("g").remove_offsets(vec![a.clone()]).unwrap();
    let staged = [&a, &b].map(|partition| engine.group("g").is_offset_staged(partition));
    assert_eq!(staged, [false, true]);
    engine.group("other").remove().unwrap();
    transaction.commit().unwrap();
    assert_eq!(engine.group("g").offsets().unwrap(), [(b, offset(2))]);
    assert!(engine.group("other").offsets().unwrap().is_empty());
    drop(producer);
    drop(engine);
    test.kill();
    assert!(!test.open().group("g").is_offset_staged(&a), "nothing is left of it on disk");
}
