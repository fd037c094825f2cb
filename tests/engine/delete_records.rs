//! delete_records moves the log start where it is told, for every reader, and keeps it there.

use crate::common;

use std::sync::Arc;

use common::{TestEngine, append_at, append_with, assert_verified, offsets_of};
use tidelog::testing::PowerLoss;
use tidelog::{
    Codec, DeleteRecordsError, Engine, FetchError, FetchOptions, Isolation, OffsetQuery,
    OffsetTarget, Partition, TopicConfig, Visibility,
};

fn one_partition(engine: &Engine) -> Partition {
    let topic = engine.create_topic("t", TopicConfig::new(1)).expect("it works");
    topic.partition(0).expect("it works")
}

fn reopened(engine: Engine, test: &TestEngine) -> (Engine, Partition) {
    engine.close().expect("it works");
    let engine = test.open();
    let partition = engine.topic("t").expect("it works").partition(0).expect("it works");
    (engine, partition)
}

fn lookup(engine: &Engine, partition: &Partition, query: OffsetQuery) -> Option<(i64, i64)> {
    let found = engine
        .list_offset(partition, query, Isolation::Committed, Visibility::Applied)
        .expect("it works");
    found.map(|found| (found.offset, found.timestamp))
}

fn start_and_end(engine: &Engine, partition: &Partition) -> (i64, i64) {
    let marks = engine.watermarks(partition).expect("it works");
    assert!(marks.log_start <= marks.last_stable && marks.last_stable <= marks.high_watermark);
    assert_eq!(marks.high_watermark, marks.log_end);
    (marks.log_start, marks.log_end)
}

#[test]
fn a_start_inside_a_batch_gives_the_record_at_it_first_also_compressed_and_after_a_reopen() {
    for codec in [Codec::None, Codec::Gzip] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine);
        append_with(&engine, &partition, &[common::NOW_MS; 10], codec);
        assert_eq!(engine.delete_records(&partition, 4).unwrap(), 4);
        assert_eq!(offsets_of(&engine, &partition), (4..10).collect::<Vec<_>>());
        let below = engine.fetch(&partition, 3, FetchOptions::new()).unwrap_err();
        assert!(matches!(below, FetchError::OffsetOutOfRange { offset: 3, .. }), "{below}");
        let scanned = engine.snapshot().scan(partition.topic());
        let offsets: Vec<_> = scanned.map(|record| record.unwrap().record.offset).collect();
        assert_eq!(offsets, (4..10).collect::<Vec<_>>());
        assert_verified(&engine);
        let (engine, partition) = reopened(engine, &test);
        assert_eq!(offsets_of(&engine, &partition), (4..10).collect::<Vec<_>>());
        assert_eq!(start_and_end(&engine, &partition), (4, 10));
        assert_verified(&engine);
    }
}

#[test]
fn a_partition_emptied_by_delete_records_keeps_its_offsets_through_a_reopen() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    append_at(&engine, &partition, &[common::NOW_MS; 10]);
    assert_eq!(engine.delete_records(&partition, OffsetTarget::HighWatermark).unwrap(), 10);
    assert_eq!(start_and_end(&engine, &partition), (10, 10));
    assert_eq!(engine.metrics().live_bytes, 0);
    assert_eq!(lookup(&engine, &partition, OffsetQuery::Earliest), Some((10, -1)));
    assert_eq!(lookup(&engine, &partition, OffsetQuery::MaxTimestamp), None);
    let (engine, partition) = reopened(engine, &test);
    assert_eq!(start_and_end(&engine, &partition), (10, 10));
    assert_eq!(append_at(&engine, &partition, &[common::NOW_MS]), 10);
    assert_eq!(offsets_of(&engine, &partition), [10]);
    assert_verified(&engine);
}

#[test]
fn after_all_was_removed_and_power_was_lost_offsets_go_on() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    append_at(&engine, &partition, &[common::NOW_MS; 10]);
    engine.delete_records(&partition, 10).unwrap();
    test.disk.power_loss(PowerLoss::Nothing);
    test.store.crash(3);
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(start_and_end(&engine, &partition), (10, 10));
    assert_eq!(append_at(&engine, &partition, &[common::NOW_MS]), 10);
    assert_verified(&engine);
}

#[test]
fn the_first_call_after_an_open_does_what_it_says() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    for _ in 0..100 {
        append_at(&engine, &partition, &[common::NOW_MS]);
    }
    let (engine, partition) = reopened(engine, &test);
    assert_eq!(engine.delete_records(&partition, 50).unwrap(), 50);
    assert_eq!(lookup(&engine, &partition, OffsetQuery::Earliest), Some((50, -1)));
    assert!(engine.fetch(&partition, 49, FetchOptions::new()).is_err());
    assert_eq!(offsets_of(&engine, &partition), (50..100).collect::<Vec<_>>());
    assert_verified(&engine);
}

#[test]
fn a_target_at_the_watermark_is_taken_and_one_beyond_it_or_negative_is_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    append_at(&engine, &partition, &[common::NOW_MS; 3]);
    for offset in [-2, -1, 4, i64::MAX, i64::MIN] {
        let refused = engine.delete_records(&partition, offset).unwrap_err();
        let DeleteRecordsError::OffsetOutOfRange { offset: named, watermarks, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!((named, watermarks.high_watermark), (offset, 3));
    }
    assert_eq!(start_and_end(&engine, &partition), (0, 3));
    assert_eq!(engine.delete_records(&partition, 0).unwrap(), 0);
    assert_eq!(engine.delete_records(&partition, 3).unwrap(), 3);
}

#[test]
fn a_target_at_or_below_the_start_changes_nothing_and_a_later_one_works() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    for _ in 0..200 {
        append_at(&engine, &partition, &[common::NOW_MS]);
    }
    engine.delete_records(&partition, 100).unwrap();
    let commits = engine.metrics().commits;
    assert_eq!(engine.delete_records(&partition, 100).unwrap(), 100);
    assert_eq!(engine.delete_records(&partition, 7).unwrap(), 100);
    assert_eq!(engine.metrics().commits, commits);
    assert_eq!(engine.delete_records(&partition, 150).unwrap(), 150);
    assert_eq!(start_and_end(&engine, &partition), (150, 200));
    assert_verified(&engine);
}

#[test]
fn few_batches_and_many_go_alike_and_the_sums_are_right() {
    for count in [1, 62, 63, 64, 65, 300] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine);
        for _ in 0..count + 1 {
            append_at(&engine, &partition, &[common::NOW_MS; 2]);
        }
        // One record of the batch behind them goes too, and that batch stays whole.
        engine.delete_records(&partition, 2 * count + 1).unwrap();
        let metrics = engine.metrics();
        assert_eq!(metrics.removed_batches, count as u64);
        let batch = engine.fetch(&partition, 2 * count + 1, FetchOptions::new()).unwrap();
        assert_eq!(metrics.live_bytes, batch.bytes.len() as u64);
        assert_eq!(offsets_of(&engine, &partition), [2 * count + 1]);
        assert_verified(&engine);
    }
}

#[test]
fn it_survives_power_loss_with_everything_before_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    append_at(&engine, &partition, &[common::NOW_MS; 5]);
    engine.delete_records(&partition, 2).unwrap();
    test.disk.power_loss(PowerLoss::Nothing);
    test.store.crash(1);
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(start_and_end(&engine, &partition), (2, 5));
    assert_eq!(offsets_of(&engine, &partition), [2, 3, 4]);
    assert_verified(&engine);
}

#[test]
fn a_target_that_retention_had_passed_survives_power_loss_too() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = common::one_partition(&engine, "t", &[("retention.ms", "1000")]);
    for _ in 0..10 {
        append_at(&engine, &partition, &[common::NOW_MS]);
    }
    engine.sync().unwrap();
    test.clock.advance_ms(1001);
    // A buffered commit: by itself it may be lost.
    assert_eq!(engine.maintenance().run_retention().unwrap().moved_partitions, 1);
    assert_eq!(engine.delete_records(&partition, 7).unwrap(), 10);
    test.lose_power(PowerLoss::Nothing);
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(start_and_end(&engine, &partition), (10, 10));
}

#[test]
fn the_greatest_timestamp_is_that_of_a_record_that_can_be_read() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    let at = common::NOW_MS;
    assert_eq!(lookup(&engine, &partition, OffsetQuery::MaxTimestamp), None);
    append_at(&engine, &partition, &[at + 99, at + 1, at + 2, at + 2]);
    engine.delete_records(&partition, 1).unwrap();
    assert_eq!(lookup(&engine, &partition, OffsetQuery::MaxTimestamp), Some((2, at + 2)));
    append_at(&engine, &partition, &[at + 2]);
    assert_eq!(lookup(&engine, &partition, OffsetQuery::MaxTimestamp), Some((2, at + 2)));
    append_at(&engine, &partition, &[at + 3]);
    assert_eq!(lookup(&engine, &partition, OffsetQuery::MaxTimestamp), Some((5, at + 3)));
}

#[test]
fn a_lookup_by_time_never_answers_below_the_start() {
    for codec in [Codec::None, Codec::Gzip] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine);
        let at = common::NOW_MS;
        append_with(&engine, &partition, &[at + 1, at + 2, at + 3, at + 4], codec);
        engine.delete_records(&partition, 2).unwrap();
        let found = lookup(&engine, &partition, OffsetQuery::Timestamp(at + 1));
        assert_eq!(found, Some((2, at + 3)));
        assert_eq!(engine.fetch(&partition, 2, FetchOptions::new()).unwrap().next_offset, 4);
    }
}

#[test]
fn a_deleted_topic_is_unknown_and_a_topic_of_the_same_name_is_untouched() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    append_at(&engine, &partition, &[common::NOW_MS; 5]);
    engine.delete_topic("t").unwrap();
    let again = one_partition(&engine);
    append_at(&engine, &again, &[common::NOW_MS; 5]);
    let gone = engine.delete_records(&partition, 3).unwrap_err();
    assert!(matches!(gone, DeleteRecordsError::UnknownPartition { .. }), "{gone}");
    assert_eq!(start_and_end(&engine, &again), (0, 5));
    assert_verified(&engine);
}

#[test]
fn a_listener_hears_of_a_moved_start() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    append_at(&engine, &partition, &[common::NOW_MS; 5]);
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let listening = engine.listen(std::slice::from_ref(&partition), move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    engine.delete_records(&partition, 3).unwrap();
    assert!(calls.load(std::sync::atomic::Ordering::SeqCst) > 0);
    drop(listening);
}

#[test]
fn a_reader_gets_data_or_an_offset_that_is_below_the_start_it_sees_afterwards() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine);
    const COUNT: i64 = 600;
    for _ in 0..COUNT {
        append_at(&engine, &partition, &[common::NOW_MS]);
    }
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (engine, partition) = (&engine, &partition);
            scope.spawn(move || {
                let mut offset = reader * 7;
                while offset < COUNT {
                    match engine.fetch(partition, offset, FetchOptions::new().max_bytes(1)) {
                        Ok(fetched) => {
                            let first = fetched.records().next().unwrap().unwrap();
                            assert_eq!(first.offset, offset, "a record was passed over in silence");
                            offset += 1;
                        }
                        Err(FetchError::OffsetOutOfRange { .. }) => {
                            let start = engine.watermarks(partition).unwrap().log_start;
                            assert!(offset < start, "offset {offset} start {start}");
                            offset = start;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for start in (3..=COUNT).step_by(3) {
            assert_eq!(engine.delete_records(&partition, start).unwrap(), start);
        }
    });
    assert_verified(&engine);
}
