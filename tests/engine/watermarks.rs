//! The four offsets of a partition, leader epochs, and what a reader of synced data sees.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use common::{TestEngine, append, batches_of, one_partition, values_of};
use tidelog::{
    Durability, Engine, EpochEnd, FetchError, FetchOptions, Isolation, OffsetQuery, Partition,
    Record, TopicConfig, Visibility, Watermarks,
};

fn marks(engine: &Engine, partition: &Partition) -> Watermarks {
    let marks = engine.watermarks(partition).unwrap();
    assert!(marks.log_start <= marks.last_stable, "{marks:?}");
    assert!(marks.last_stable <= marks.high_watermark, "{marks:?}");
    assert!(marks.high_watermark <= marks.log_end, "{marks:?}");
    marks
}

/// The four offsets of a partition whose records all can be read.
fn all_readable(log_end: i64) -> Watermarks {
    Watermarks { log_start: 0, last_stable: log_end, high_watermark: log_end, log_end }
}

fn high(engine: &Engine, partition: &Partition, visibility: Visibility) -> i64 {
    engine.watermarks_of(partition, visibility).unwrap().high_watermark
}

fn commit(engine: &Engine, partition: &Partition, durability: Durability) {
    let mut append = engine.append_transaction();
    append.records(partition, [Record::keyless("v")]).unwrap();
    append.commit(durability).unwrap();
}

fn the_partition(engine: &Engine) -> Partition {
    engine.topic("t").unwrap().partition(0).unwrap()
}

fn end(engine: &Engine, partition: &Partition, epoch: i32) -> Option<(i32, i64)> {
    let end = engine.epoch_end(partition, epoch);
    end.map(|EpochEnd { leader_epoch, end_offset, .. }| (leader_epoch, end_offset))
}

#[test]
fn the_high_watermark_is_the_offset_after_the_last_record() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    assert_eq!(marks(&engine, &partition), all_readable(0));
    append(&engine, &partition, [Record::keyless("a")]);
    assert_eq!(marks(&engine, &partition), all_readable(1));
    append(&engine, &partition, [Record::keyless("b"), Record::keyless("c")]);
    assert_eq!(marks(&engine, &partition), all_readable(3));
}

#[test]
fn watermarks_stay_where_they_were_when_the_engine_is_closed_or_killed() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, (0..10).map(|i| Record::keyless(format!("{i}"))));
    engine.close().unwrap();
    let engine = test.open();
    assert_eq!(marks(&engine, &the_partition(&engine)), all_readable(10));
    append(&engine, &the_partition(&engine), [Record::keyless("10")]);
    drop(engine);
    let engine = test.open();
    assert_eq!(marks(&engine, &the_partition(&engine)), all_readable(11));
    append(&engine, &the_partition(&engine), [Record::keyless("11")]);
    let expected: Vec<_> = (0..12).map(|i| i.to_string()).collect();
    assert_eq!(values_of(&engine, &the_partition(&engine)), expected);
}

#[test]
fn a_failed_request_burns_no_offset() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("cleanup.policy", "compact")]);
    let gone = one_partition(&engine, "gone", &[]);
    let mut refused = engine.append_transaction();
    refused.records(&partition, [Record::new("k", "v")]).unwrap();
    refused.records(&gone, [Record::keyless("v")]).unwrap();
    assert!(refused.records(&partition, [Record::keyless("v")]).is_err());
    engine.delete_topic("gone").unwrap();
    let refused = refused.commit(Durability::Sync).unwrap_err();
    assert_eq!(marks(&engine, &partition), all_readable(0));
    append(&engine, &partition, [Record::new("k", "w")]);
    assert_eq!(values_of(&engine, &partition), ["w"]);
    drop(refused);
    assert_eq!(marks(&engine, &partition), all_readable(1));
}

#[test]
fn a_fetch_at_the_end_is_empty_and_one_beyond_it_or_below_the_start_is_out_of_range() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for log_end in 0..3 {
        for isolation in [Isolation::Committed, Isolation::Uncommitted] {
            let options = FetchOptions::new().isolation(isolation);
            let fetched = engine.fetch(&partition, log_end, options).unwrap();
            assert!(fetched.bytes.is_empty());
            assert_eq!((fetched.next_offset, fetched.watermarks), (log_end, all_readable(log_end)));
            for offset in [-1, log_end + 1] {
                let error = engine.fetch(&partition, offset, options).unwrap_err();
                assert!(matches!(error, FetchError::OffsetOutOfRange { .. }), "{error:?}");
            }
        }
        append(&engine, &partition, [Record::keyless("v")]);
    }
}

#[test]
fn a_commit_says_where_its_batches_went_and_where_the_log_starts() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    let (first, second) = (topic.partition(0).unwrap(), topic.partition(1).unwrap());
    append(&engine, &second, [Record::keyless("x")]);
    let mut append = engine.append_transaction();
    append.records(&second, [Record::keyless("a"), Record::keyless("b")]).unwrap();
    append.records(&first, [Record::keyless("c")]).unwrap();
    append.records(&second, [Record::keyless("d")]).unwrap();
    let committed = append.commit(Durability::Buffered).unwrap();
    let places: Vec<_> =
        committed.batches.iter().map(|b| (b.base_offset, b.last_offset, b.log_start)).collect();
    assert_eq!(places, [(1, 2, 0), (0, 0, 0), (3, 3, 0)]);
    assert_eq!(values_of(&engine, &second), ["x", "a", "b", "d"]);
}

#[test]
fn a_reader_of_synced_data_is_given_nothing_that_a_power_loss_can_take() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    commit(&engine, &partition, Durability::Sync);
    commit(&engine, &partition, Durability::Buffered);
    commit(&engine, &partition, Durability::Buffered);
    let synced = FetchOptions::new().visibility(Visibility::Synced);
    let fetched = engine.fetch(&partition, 0, synced).unwrap();
    assert_eq!((fetched.next_offset, fetched.watermarks.high_watermark), (1, 1));
    assert_eq!(fetched.watermarks.log_end, 3);
    // Between what can be read and the end of the log a fetch is empty; behind it, out of range.
    for offset in 1..=3 {
        assert!(engine.fetch(&partition, offset, synced).unwrap().bytes.is_empty());
    }
    assert!(engine.fetch(&partition, 4, synced).is_err());
    engine.sync().unwrap();
    assert_eq!(engine.fetch(&partition, 0, synced).unwrap().next_offset, 3);
}

#[test]
fn a_sync_commit_makes_all_before_it_readable_for_readers_of_synced_data() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let other = one_partition(&engine, "other", &[]);
    let found = |partition, query, visibility| {
        let found = engine.list_offset(partition, query, Isolation::Committed, visibility);
        found.unwrap().map(|found| found.offset)
    };
    commit(&engine, &partition, Durability::Buffered);
    assert_eq!(found(&partition, OffsetQuery::Latest, Visibility::Synced), Some(0));
    assert_eq!(found(&partition, OffsetQuery::Latest, Visibility::Applied), Some(1));
    assert_eq!(found(&partition, OffsetQuery::MaxTimestamp, Visibility::Synced), None);
    commit(&engine, &other, Durability::Sync);
    assert_eq!(found(&partition, OffsetQuery::Latest, Visibility::Synced), Some(1));
    assert_eq!(found(&partition, OffsetQuery::MaxTimestamp, Visibility::Synced), Some(0));
    commit(&engine, &partition, Durability::Buffered);
    engine.maintenance().checkpoint().unwrap();
    assert_eq!(high(&engine, &partition, Visibility::Synced), 2);
}

#[test]
fn what_was_found_at_an_open_counts_as_synced() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    commit(&engine, &partition, Durability::Buffered);
    assert_eq!(high(&engine, &partition, Visibility::Synced), 0);
    drop(engine);
    let engine = test.open();
    assert_eq!(high(&engine, &the_partition(&engine), Visibility::Synced), 1);
}

#[test]
fn a_clean_close_keeps_the_leader_epoch_and_anything_else_raises_it() {
    let test = TestEngine::new();
    let engine = test.open();
    assert_eq!(engine.leader_epoch(), 0);
    assert!(engine.recovered().is_new);
    engine.close().unwrap();
    let engine = test.open();
    assert!(engine.recovered().closed_cleanly);
    assert_eq!(engine.leader_epoch(), 0);
    drop(engine);
    for epoch in 1..4 {
        let engine = test.open();
        assert!(!engine.recovered().closed_cleanly);
        assert_eq!(engine.leader_epoch(), epoch);
    }
    let engine = test.open();
    assert_eq!(engine.metrics().leader_epoch, 4);
    engine.close().unwrap();
    assert_eq!(test.open().leader_epoch(), 4);
}

#[test]
fn each_batch_is_served_with_the_leader_epoch_in_which_it_was_appended() {
    let test = TestEngine::new();
    for epoch in 0..3 {
        let engine = test.open();
        let partition = match epoch {
            0 => one_partition(&engine, "t", &[]),
            _ => the_partition(&engine),
        };
        commit(&engine, &partition, Durability::Buffered);
        let stamped: Vec<_> = batches_of(&engine, &partition)
            .iter()
            .map(|batch| (batch.header().base_offset(), batch.header().leader_epoch()))
            .collect();
        let expected: Vec<_> = (0..=epoch).map(|e| (i64::from(e), e)).collect();
        assert_eq!(stamped, expected);
    }
}

#[test]
fn an_epoch_ends_where_the_next_one_with_records_begins() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let untouched = one_partition(&engine, "untouched", &[]);
    assert_eq!(end(&engine, &untouched, 0), Some((0, 0)));
    append(&engine, &partition, [Record::keyless("a"), Record::keyless("b")]);
    assert_eq!(end(&engine, &partition, 0), Some((0, 2)));
    drop(engine);
    // Epoch 1 appends nothing.
    drop(test.open());
    let engine = test.open();
    let partition = the_partition(&engine);
    assert_eq!(end(&engine, &partition, 2), Some((2, 2)));
    append(&engine, &partition, [Record::keyless("c")]);
    let ends: Vec<_> = (-1..4).map(|epoch| end(&engine, &partition, epoch)).collect();
    assert_eq!(ends, [None, Some((0, 2)), Some((0, 2)), Some((2, 3)), None]);
    engine.close().unwrap();
    let engine = test.open();
    let partition = the_partition(&engine);
    append(&engine, &partition, [Record::keyless("d")]);
    assert_eq!(end(&engine, &partition, 0), Some((0, 2)));
    assert_eq!(end(&engine, &partition, 2), Some((2, 4)));
}

#[test]
fn a_lookup_gives_the_leader_epoch_of_what_it_found() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("a").timestamp(5)]);
    drop(engine);
    let engine = test.open();
    let partition = the_partition(&engine);
    let epoch = |query| {
        let visibility = Visibility::Applied;
        let found = engine.list_offset(&partition, query, Isolation::Committed, visibility);
        found.unwrap().map(|found| (found.offset, found.leader_epoch))
    };
    assert_eq!(epoch(OffsetQuery::Earliest), Some((0, 0)));
    append(&engine, &partition, [Record::keyless("b").timestamp(9)]);
    assert_eq!(epoch(OffsetQuery::Timestamp(5)), Some((0, 0)));
    assert_eq!(epoch(OffsetQuery::Timestamp(6)), Some((1, 1)));
    assert_eq!(epoch(OffsetQuery::Latest), Some((2, 1)));
}
