//! Offsets of consumer groups: kept over a killed process, replaced by later ones, gone with their
//! topic, or when they are taken away.

use crate::common;

use common::TestEngine;
use common::transactions::INIT;
use tidelog::producer::transaction::EndProtocol;
use tidelog::record::MarkerKind;
use tidelog::{
    Clock, Engine, FetchError, FetchOptions, GroupError, GroupMembership, GroupOffset, Partition,
    TooLong, TopicConfig,
};

fn offset(offset: i64, metadata: &str) -> GroupOffset {
    GroupOffset { offset, leader_epoch: 3, metadata: metadata.to_owned() }
}

fn partitions(engine: &Engine, name: &str) -> Vec<Partition> {
    engine.create_topic(name, TopicConfig::new(2)).expect("it is made").partitions()
}

#[test]
fn what_was_committed_is_there_after_a_kill_and_a_later_commit_replaces_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = partitions(&engine, "t");
    engine.group("g").commit(vec![(topic[0].clone(), offset(9, "first"))]).unwrap();
    let later = vec![(topic[0].clone(), offset(4, "")), (topic[1].clone(), offset(i64::MAX, "m"))];
    engine.group("g").commit(later).unwrap();
    drop(engine);
    test.kill();
    let engine = test.open();
    let topic = engine.topic("t").unwrap().partitions();
    assert_eq!(engine.group("g").offset(&topic[0]).unwrap(), Some(offset(4, "")));
    assert_eq!(engine.group("g").offset(&topic[1]).unwrap(), Some(offset(i64::MAX, "m")));
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn of_one_partition_twice_in_a_commit_the_last_counts() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = partitions(&engine, "t");
    let twice = vec![(topic[0].clone(), offset(1, "a")), (topic[0].clone(), offset(2, "b"))];
    engine.group("g").commit(twice).unwrap();
    assert_eq!(engine.group("g").offset(&topic[0]).unwrap(), Some(offset(2, "b")));
    engine.group("g").commit(Vec::new()).unwrap();
}

#[test]
fn groups_with_names_that_begin_alike_do_not_see_each_other() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = partitions(&engine, "t");
    let longest = "g".repeat(32_767);
    let names = ["", "g", "gg", "g\u{ff}", "\u{10ffff}", &longest];
    for (at, group) in (0..).zip(names) {
        engine.group(group).commit(vec![(topic[1].clone(), offset(at, group))]).unwrap();
    }
    for (at, group) in (0..).zip(names) {
        let all = engine.group(group).offsets().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].0.index(), &all[0].1), (1, &offset(at, group)));
    }
    assert!(engine.group("none").offsets().unwrap().is_empty());
    assert_eq!(engine.group("none").offset(&topic[1]).unwrap(), None);
}

#[test]
fn a_name_or_metadata_one_byte_above_its_limit_is_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = partitions(&engine, "t");
    let too_long = "g".repeat(32_768);
    let refused = engine.group(&too_long).commit(vec![(topic[0].clone(), offset(1, ""))]);
    assert!(matches!(refused, Err(GroupError::TooLong(TooLong::Group { length_bytes: 32_768 }))));
    assert!(engine.group(&too_long).offsets().is_err());
    assert!(engine.group(&too_long).offset(&topic[0]).is_err());

    let note = "m".repeat(32_767);
    engine.group("g").commit(vec![(topic[0].clone(), offset(1, &note))]).unwrap();
    let too_long = vec![(topic[0].clone(), offset(2, &(note.clone() + "m")))];
    let refused = engine.group("g").commit(too_long);
    assert!(matches!(
        refused,
        Err(GroupError::TooLong(TooLong::Metadata { length_bytes: 32_768 }))
    ));
    assert_eq!(engine.group("g").offset(&topic[0]).unwrap(), Some(offset(1, &note)));
}

#[test]
fn offsets_go_with_their_topic_and_one_made_anew_has_none() {
    let test = TestEngine::new();
    let engine = test.open();
    let (old, other) = (partitions(&engine, "t"), partitions(&engine, "u"));
    let offsets = vec![(old[0].clone(), offset(5, "")), (other[0].clone(), offset(6, ""))];
    engine.group("g").commit(offsets).unwrap();
    engine.delete_topic("t").unwrap();
    let refused = engine.group("g").commit(vec![(old[0].clone(), offset(7, ""))]);
    assert!(matches!(refused, Err(GroupError::UnknownPartition { .. })));
    assert_eq!(engine.group("g").offset(&old[0]).unwrap(), None);
    let new = partitions(&engine, "t");
    assert_eq!(engine.group("g").offset(&new[0]).unwrap(), None);
    let left = engine.group("g").offsets().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].1, offset(6, ""));
}

#[test]
fn one_topic_that_is_gone_refuses_the_whole_commit() {
    let test = TestEngine::new();
    let engine = test.open();
    let (gone, there) = (partitions(&engine, "t"), partitions(&engine, "u"));
    engine.delete_topic("t").unwrap();
    let offsets = vec![(there[0].clone(), offset(5, "")), (gone[0].clone(), offset(6, ""))];
    assert!(engine.group("g").commit(offsets).is_err());
    assert!(engine.group("g").offsets().unwrap().is_empty());
}

#[test]
fn the_groups_with_offsets_are_listed_once_each() {
    let test = TestEngine::new();
    let engine = test.open();
    assert!(engine.groups().unwrap().is_empty());
    let topic = partitions(&engine, "t");
    let longest = "g".repeat(32_767);
    let mut names = vec!["", "g", "gg", "g\u{ff}", "\u{10ffff}", &longest];
    for group in &names {
        let both: Vec<_> =
            topic.iter().map(|partition| (partition.clone(), offset(1, ""))).collect();
        engine.group(group).commit(both).unwrap();
    }
    let mut listed = engine.groups().unwrap();
    listed.sort();
    names.sort_unstable();
    assert_eq!(listed, names);
    assert_eq!(engine.group("g").remove().unwrap(), 2);
    assert_eq!(engine.groups().unwrap().len(), names.len() - 1);
}

#[test]
fn what_is_taken_away_stays_away_after_a_kill_and_nothing_else_goes() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = partitions(&engine, "t");
    for group in ["f", "g", "gg"] {
        let both: Vec<_> =
            topic.iter().map(|partition| (partition.clone(), offset(1, ""))).collect();
        engine.group(group).commit(both).unwrap();
    }
    assert_eq!(engine.group("g").remove_offsets(vec![topic[0].clone()]).unwrap(), 1);
    assert_eq!(engine.group("g").remove_offsets(vec![topic[0].clone()]).unwrap(), 0);
    assert_eq!(engine.group("none").remove_offsets(vec![topic[0].clone()]).unwrap(), 0);
    assert_eq!(engine.group("f").remove().unwrap(), 2);
    assert_eq!(engine.group("f").remove().unwrap(), 0);
    assert!(engine.group(&"g".repeat(32_768)).remove().is_err());
    drop(engine);
    test.kill();
    let engine = test.open();
    let topic = engine.topic("t").unwrap().partitions();
    assert!(engine.group("f").offsets().unwrap().is_empty());
    assert_eq!(engine.group("g").offset(&topic[0]).unwrap(), None);
    assert_eq!(engine.group("g").offset(&topic[1]).unwrap(), Some(offset(1, "")));
    assert_eq!(engine.group("gg").offsets().unwrap().len(), 2);
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn offsets_expire_at_their_time_of_commit_but_for_those_of_the_topics_named() {
    let test = TestEngine::new();
    let engine = test.open();
    let (t, u) = (partitions(&engine, "t"), partitions(&engine, "u"));
    let first = test.clock.now_ms();
    let both = vec![(t[0].clone(), offset(1, "")), (u[0].clone(), offset(1, ""))];
    engine.group("g").commit(both).unwrap();
    test.clock.advance_ms(1);
    engine.group("g").commit(vec![(t[1].clone(), offset(1, ""))]).unwrap();
    assert_eq!(engine.group("g").expire_offsets(first - 1, Vec::new()).unwrap(), 0);
    assert_eq!(engine.group("g").expire_offsets(first, vec![u[0].topic().id()]).unwrap(), 1);
    assert_eq!(engine.group("g").offset(&t[0]).unwrap(), None);
    assert_eq!(engine.group("g").offsets().unwrap().len(), 2);
    assert_eq!(engine.group("g").expire_offsets(first + 1, Vec::new()).unwrap(), 2);
    assert!(engine.groups().unwrap().is_empty());
}

#[test]
fn a_negative_offset_is_refused_and_what_was_committed_before_stays() {
    let test = TestEngine::new();
    let engine = test.open();
    let [partition, _] = &partitions(&engine, "t")[..] else { panic!("two") };
    engine.group("g").commit(vec![(partition.clone(), offset(7, ""))]).unwrap();
    for negative in [-1, -5, i64::MIN] {
        let all =
            vec![(partition.clone(), offset(9, "")), (partition.clone(), offset(negative, ""))];
        let refused = engine.group("g").commit(all).unwrap_err();
        assert!(matches!(refused, GroupError::NegativeOffset(_)), "{refused}");
        let found = engine.group("g").offset(partition).unwrap().unwrap();
        assert_eq!(found.offset, 7);
    }
    // A broker keeps what its client sends, as Kafka does.
    engine.group("g").commit_as_sent(vec![(partition.clone(), offset(-5, ""))]).unwrap();
    assert_eq!(engine.group("g").offset(partition).unwrap().unwrap().offset, -5);
}

#[test]
fn an_offset_beyond_the_end_is_kept_and_a_fetch_there_is_out_of_range() {
    let test = TestEngine::new();
    let engine = test.open();
    let [partition, _] = &partitions(&engine, "t")[..] else { panic!("two") };
    engine.group("g").commit(vec![(partition.clone(), offset(50, ""))]).unwrap();
    assert_eq!(engine.group("g").offset(partition).unwrap().unwrap().offset, 50);
    let fetched = engine.fetch(partition, 50, FetchOptions::new()).unwrap_err();
    assert!(matches!(fetched, FetchError::OffsetOutOfRange { .. }), "{fetched}");
}

#[test]
fn a_partition_many_times_in_a_request_costs_what_it_costs_once() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = partitions(&engine, "t").remove(0);
    let producer = engine.producers().init("p", INIT).unwrap();
    let group = "g".repeat(32_767);
    let written = || engine.metrics().log_bytes;
    let many = || (0..1000).map(|at| (partition.clone(), offset(at, ""))).collect::<Vec<_>>();
    let limit = 4 * group.len() as u64;
    let before = written();
    engine.group(&group).commit(many()).unwrap();
    assert!(written() - before < limit, "commit");
    let before = written();
    engine
        .producers()
        .stage_offsets("p", producer, &group, many(), GroupMembership::Implied)
        .unwrap();
    assert!(written() - before < limit, "stage");
    engine.producers().end("p", producer, MarkerKind::Commit, EndProtocol::KeepsEpoch).unwrap();
    assert_eq!(engine.group(&group).offset(&partition).unwrap(), Some(offset(999, "")));
    let before = written();
    let repeated = vec![partition.clone(); 1000];
    assert_eq!(engine.group(&group).remove_offsets(repeated).unwrap(), 1);
    assert!(written() - before < limit, "remove");
    assert_eq!(engine.group(&group).offset(&partition).unwrap(), None);
}
