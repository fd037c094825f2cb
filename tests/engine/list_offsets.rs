//! Lookups of offsets: the earliest, the latest, the first at a time, the first of the greatest time.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::failing::{Broken, FailingFiles};
use common::{NOW_MS, TestEngine, append_batch, batch_of, one_partition, records_of};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, prop, prop_assert_eq, prop_oneof, proptest,
};
use tidelog::types::NO_TIMESTAMP;
use tidelog::{
    Codec, Durability, Engine, FoundOffset, Isolation, ListOffsetError, OffsetQuery, Partition,
    Record, StorageError, Visibility,
};

fn look_up(engine: &Engine, partition: &Partition, query: OffsetQuery) -> Option<(i64, i64)> {
    let [committed, uncommitted] =
        [Isolation::Committed, Isolation::Uncommitted].map(|isolation| {
            engine.list_offset(partition, query, isolation, Visibility::Applied).unwrap()
        });
    // Without producer transactions all that is applied is committed.
    assert_eq!(committed, uncommitted);
    committed.map(|FoundOffset { offset, timestamp, .. }| (offset, timestamp))
}

fn first_at(engine: &Engine, partition: &Partition, timestamp: i64) -> Option<(i64, i64)> {
    look_up(engine, partition, OffsetQuery::Timestamp(timestamp))
}

fn of_greatest(engine: &Engine, partition: &Partition) -> Option<(i64, i64)> {
    look_up(engine, partition, OffsetQuery::MaxTimestamp)
}

fn at(timestamps: &[i64]) -> Bytes {
    let record = |t: &i64| Record::keyless("v").timestamp(*t);
    batch_of(&timestamps.iter().map(record).collect::<Vec<_>>())
}

/// What a search of all records finds.
fn linear(records: &[Record], fits: impl Fn(i64) -> bool) -> Option<(i64, i64)> {
    records.iter().find(|record| fits(record.timestamp)).map(|r| (r.offset, r.timestamp))
}

fn linear_greatest(records: &[Record]) -> Option<(i64, i64)> {
    let greatest = records.iter().map(|record| record.timestamp).max()?;
    linear(records, |timestamp| timestamp == greatest)
}

#[test]
fn an_empty_partition_has_bounds_and_no_record() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    assert_eq!(look_up(&engine, &partition, OffsetQuery::Earliest), Some((0, -1)));
    assert_eq!(look_up(&engine, &partition, OffsetQuery::Latest), Some((0, -1)));
    assert_eq!(first_at(&engine, &partition, 0), None);
    assert_eq!(of_greatest(&engine, &partition), None);
}

#[test]
fn the_first_record_at_or_after_a_time_is_found_in_one_batch_and_in_many() {
    let test = TestEngine::new();
    let engine = test.open();
    let one = one_partition(&engine, "one", &[]);
    append_batch(&engine, &one, at(&[2, 4, 6, 8]));
    let many = one_partition(&engine, "many", &[]);
    [2, 4, 6, 8].iter().for_each(|t| _ = append_batch(&engine, &many, at(&[*t])));
    for partition in [one, many] {
        let found = [1, 2, 3, 5, 8, 9].map(|t| first_at(&engine, &partition, t));
        let expected = [(0, 2), (0, 2), (1, 4), (2, 6), (3, 8)].map(Some);
        assert_eq!(found[..5], expected);
        assert_eq!(found[5], None);
        assert_eq!(look_up(&engine, &partition, OffsetQuery::Earliest), Some((0, -1)));
        assert_eq!(look_up(&engine, &partition, OffsetQuery::Latest), Some((4, -1)));
    }
}

#[test]
fn the_greatest_time_is_found_at_the_first_record_that_has_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batch(&engine, &partition, at(&[10, 99, 20]));
    assert_eq!(of_greatest(&engine, &partition), Some((1, 99)));
    append_batch(&engine, &partition, at(&[1, 99]));
    assert_eq!(of_greatest(&engine, &partition), Some((1, 99)));
    append_batch(&engine, &partition, at(&[1, 100]));
    assert_eq!(of_greatest(&engine, &partition), Some((6, 100)));
}

#[test]
fn records_older_than_the_first_of_their_batch_are_no_trouble() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batch(&engine, &partition, at(&[1000, 10, 20]));
    assert_eq!(of_greatest(&engine, &partition), Some((0, 1000)));
    assert_eq!(first_at(&engine, &partition, 500), Some((0, 1000)));
    assert_eq!(first_at(&engine, &partition, 5), Some((0, 1000)));
}

#[test]
fn times_out_of_order_are_searched_by_offset() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for timestamps in [&[50, 40][..], &[10, 90, 30], &[60], &[95, 5]] {
        append_batch(&engine, &partition, at(timestamps));
    }
    let found = [0, 41, 51, 60, 91, 96].map(|t| first_at(&engine, &partition, t));
    let expected = [(0, 50), (0, 50), (3, 90), (3, 90), (6, 95)].map(Some);
    assert_eq!(found[..5], expected);
    assert_eq!(found[5], None);
}

#[test]
fn the_ends_of_time_can_be_asked_for() {
    let test = TestEngine::new();
    let engine = test.open();
    let after = i64::MAX.to_string();
    let partition = one_partition(&engine, "t", &[("message.timestamp.after.max.ms", &after)]);
    append_batch(&engine, &partition, at(&[7]));
    assert_eq!(first_at(&engine, &partition, i64::MIN), Some((0, 7)));
    assert_eq!(first_at(&engine, &partition, i64::MAX), None);
    append_batch(&engine, &partition, at(&[i64::MAX]));
    assert_eq!(first_at(&engine, &partition, i64::MAX), Some((1, i64::MAX)));
    assert_eq!(of_greatest(&engine, &partition), Some((1, i64::MAX)));
}

#[test]
fn records_without_timestamps_are_found_only_as_the_greatest_of_none() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batch(&engine, &partition, at(&[NO_TIMESTAMP, NO_TIMESTAMP]));
    assert_eq!(of_greatest(&engine, &partition), Some((0, -1)));
    assert_eq!(first_at(&engine, &partition, 0), None);
    append_batch(&engine, &partition, at(&[NO_TIMESTAMP, 0]));
    assert_eq!(of_greatest(&engine, &partition), Some((3, 0)));
    assert_eq!(first_at(&engine, &partition, 0), Some((3, 0)));
}

#[test]
fn where_the_log_gives_the_time_it_is_the_one_that_is_searched() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("message.timestamp.type", "LogAppendTime")]);
    let far = 10_i64.pow(15);
    for _ in 0..3 {
        append_batch(&engine, &partition, at(&[far, 3, far]));
        test.clock.advance_ms(1000);
    }
    assert_eq!(first_at(&engine, &partition, NOW_MS), Some((0, NOW_MS)));
    assert_eq!(first_at(&engine, &partition, NOW_MS + 1), Some((3, NOW_MS + 1000)));
    assert_eq!(first_at(&engine, &partition, NOW_MS + 2000), Some((6, NOW_MS + 2000)));
    assert_eq!(first_at(&engine, &partition, NOW_MS + 2001), None);
    assert_eq!(of_greatest(&engine, &partition), Some((6, NOW_MS + 2000)));
}

#[test]
fn a_record_inside_a_compressed_batch_is_found() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut append = engine.append_transaction();
        append.set_codec(codec);
        let records = [10, 30, 20].map(|t| Record::keyless("v").timestamp(t));
        append.records(&partition, records).unwrap();
        append.commit(Durability::Buffered).unwrap();
    }
    assert_eq!(first_at(&engine, &partition, 15), Some((1, 30)));
    assert_eq!(of_greatest(&engine, &partition), Some((1, 30)));
}

#[test]
fn a_reader_of_synced_data_finds_no_record_that_is_not_synced() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batch(&engine, &partition, at(&[5]));
    engine.sync().unwrap();
    append_batch(&engine, &partition, at(&[9]));
    let found = |query, visibility| {
        let found = engine.list_offset(&partition, query, Isolation::Uncommitted, visibility);
        found.unwrap().map(|found| (found.offset, found.timestamp))
    };
    let (applied, synced) = (Visibility::Applied, Visibility::Synced);
    assert_eq!(found(OffsetQuery::Timestamp(6), applied), Some((1, 9)));
    assert_eq!(found(OffsetQuery::Timestamp(6), synced), None);
    assert_eq!(found(OffsetQuery::Timestamp(5), synced), Some((0, 5)));
    assert_eq!(found(OffsetQuery::MaxTimestamp, synced), Some((0, 5)));
    assert_eq!(found(OffsetQuery::Latest, synced), Some((1, -1)));
}

#[test]
fn thousands_of_batches_are_searched_as_if_one_by_one_also_after_a_reopen() {
    let test = TestEngine::new();
    let mut engine = test.open();
    let mut partition = one_partition(&engine, "t", &[]);
    let value = Bytes::from(vec![b'x'; 300]);
    // Rising in steps, with every seventh batch far behind and every hundredth far ahead.
    let time = |i: i64| match i {
        _ if i % 100 == 99 => 10 * i + 4000,
        _ if i % 7 == 6 => 5 * i,
        _ => 10 * i,
    };
    for hundred in 0..50 {
        let mut append = engine.append_transaction();
        for i in hundred * 100..(hundred + 1) * 100 {
            let record = Record::keyless(value.clone()).timestamp(time(i));
            append.batch(&partition, batch_of(&[record])).unwrap();
        }
        append.commit(Durability::Buffered).unwrap();
    }
    for _ in 0..2 {
        let records = records_of(&engine, &partition);
        assert_eq!(records.len(), 5000);
        for asked in (-100..56_000).step_by(487) {
            let expected = linear(&records, |timestamp| timestamp >= asked);
            assert_eq!(first_at(&engine, &partition, asked), expected, "timestamp={asked}");
        }
        assert_eq!(of_greatest(&engine, &partition), linear_greatest(&records));
        engine.close().unwrap();
        engine = test.open();
        partition = engine.topic("t").unwrap().partition(0).unwrap();
    }
}

#[test]
fn a_lookup_fails_cleanly_once_the_topic_is_gone_or_the_engine_closed() {
    let test = TestEngine::new();
    let engine = test.open();
    let gone = one_partition(&engine, "gone", &[]);
    let partition = one_partition(&engine, "t", &[]);
    engine.delete_topic("gone").unwrap();
    let visibility = Visibility::Applied;
    let look = |engine: &Engine, partition: &Partition| {
        engine.list_offset(partition, OffsetQuery::Latest, Isolation::Committed, visibility)
    };
    let error = look(&engine, &gone).unwrap_err();
    assert!(matches!(error, ListOffsetError::UnknownPartition { .. }), "{error:?}");
    let closed = engine.clone();
    engine.close().unwrap();
    let error = look(&closed, &partition).unwrap_err();
    assert!(matches!(error, ListOffsetError::Storage(StorageError::Closed)), "{error:?}");
}

/// Batches of one to three records with few different times, enough for several index entries.
fn batches() -> impl Strategy<Value = Vec<(Vec<i64>, usize)>> {
    let time = prop_oneof![4 => 0..40_i64, 1 => Just(NO_TIMESTAMP)];
    let value_bytes = prop_oneof![3 => 1_usize..100, 2 => 10_000_usize..70_000];
    prop::collection::vec((prop::collection::vec(time, 1..4), value_bytes), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_lookup_finds_what_a_search_of_all_records_finds(batches in batches()) {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        for (timestamps, value_bytes) in batches {
            let value = Bytes::from(vec![0; value_bytes]);
            let record = |t: &i64| Record::keyless(value.clone()).timestamp(*t);
            let records: Vec<_> = timestamps.iter().map(record).collect();
            append_batch(&engine, &partition, batch_of(&records));
        }
        let records = records_of(&engine, &partition);
        for asked in -1..41 {
            let expected = linear(&records, |timestamp| timestamp >= asked);
            prop_assert_eq!(first_at(&engine, &partition, asked), expected);
        }
        prop_assert_eq!(of_greatest(&engine, &partition), linear_greatest(&records));
    }
}

#[test]
fn among_committed_data_no_record_is_the_greatest_while_a_transaction_holds_it_back() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batch(&engine, &partition, at(&[5]));
    let mut producer = engine.producers().transactional("id", Duration::from_secs(60)).unwrap();
    let mut transaction = producer.begin();
    transaction.append([(&partition, vec![Record::keyless("v").timestamp(7)])]).unwrap();
    append_batch(&engine, &partition, at(&[9]));
    let greatest = |isolation| {
        let query = OffsetQuery::MaxTimestamp;
        let found = engine.list_offset(&partition, query, isolation, Visibility::Applied);
        found.unwrap().map(|found| (found.offset, found.timestamp))
    };
    assert_eq!(greatest(Isolation::Uncommitted), Some((2, 9)));
    assert_eq!(greatest(Isolation::Committed), None);
    assert_eq!(first_at(&engine, &partition, 5), Some((0, 5)));
    transaction.commit().unwrap();
    // The marker is behind it, with the time of its commit.
    assert_eq!(greatest(Isolation::Committed), greatest(Isolation::Uncommitted));
}

#[test]
fn a_record_that_fits_is_found_at_every_moment_of_a_trim_that_goes_by() {
    let greatest_or = |timestamp| [OffsetQuery::MaxTimestamp, OffsetQuery::Timestamp(timestamp)];
    for query in greatest_or(50) {
        let test = TestEngine::new();
        let broken = Arc::new(Broken::default());
        let files = FailingFiles { inner: test.disk.process(), broken: Arc::clone(&broken) };
        let engine = test.builder().files(Arc::new(files)).open().unwrap();
        let partition = one_partition(&engine, "t", &[]);
        append_batch(&engine, &partition, at(&[100, 1]));
        append_batch(&engine, &partition, at(&[100]));
        engine.delete_records(&partition, 1).unwrap();
        let (beside, place) = (engine.clone(), partition.clone());
        broken.before_read(0, move || {
            append_batch(&beside, &place, at(&[100]));
            beside.delete_records(&place, 3).unwrap();
        });
        let (isolation, visibility) = (Isolation::Uncommitted, Visibility::Applied);
        let found = engine.list_offset(&partition, query, isolation, visibility).unwrap();
        let found = found.map(|found| (found.offset, found.timestamp));
        assert_eq!(found, Some((3, 100)), "{query:?}");
    }
}
