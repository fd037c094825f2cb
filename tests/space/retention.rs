//! Retention removes what has expired by its topic's settings, exact to the batch, and nothing else.

use crate::common;

use common::{NOW_MS, TestEngine, append_at, assert_verified, offsets_of};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::testing::PowerLoss;
use tidelog::{
    Engine, Isolation, OffsetQuery, Partition, RetentionReport, TopicConfig, Visibility,
};

/// A partition of a topic with these settings, which takes any timestamp.
fn partition(engine: &Engine, name: &str, settings: &[(&str, &str)]) -> Partition {
    let config = TopicConfig::new(1).set("message.timestamp.after.max.ms", &i64::MAX.to_string());
    let config = settings.iter().fold(config.expect("it works"), |config, (name, value)| {
        config.set(name, value).expect("the setting is legal")
    });
    engine.create_topic(name, config).expect("it works").partition(0).expect("it works")
}

fn set(engine: &Engine, topic: &str, name: &str, value: &str) {
    let operation = ConfigOperation::Set(value.to_owned());
    engine
        .topics()
        .alter(topic, &[ConfigChange { name: name.to_owned(), operation }])
        .expect("it works");
}

fn retain(engine: &Engine) -> RetentionReport {
    let report = engine.maintenance().run_retention().expect("it works");
    assert_verified(engine);
    report
}

fn log_start(engine: &Engine, partition: &Partition) -> i64 {
    engine.watermarks(partition).expect("it works").log_start
}

#[test]
fn a_batch_exactly_as_old_as_the_limit_stays_and_goes_a_millisecond_later() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = partition(&engine, "t", &[("retention.ms", "1000")]);
    append_at(&engine, &partition, &[NOW_MS, NOW_MS - 1]);
    test.clock.advance_ms(1);
    append_at(&engine, &partition, &[NOW_MS + 1]);
    test.clock.advance_ms(999);
    assert_eq!(retain(&engine), RetentionReport::default());
    test.clock.advance_ms(1);
    let report = retain(&engine);
    assert_eq!((report.moved_partitions, report.expired_batches), (1, 1));
    assert_eq!(offsets_of(&engine, &partition), [2]);
    test.clock.advance_ms(1);
    retain(&engine);
    assert_eq!(log_start(&engine, &partition), 3);
    assert_eq!(engine.watermarks(&partition).unwrap().log_end, 3);
}

#[test]
fn a_timestamp_far_in_the_future_pins_nothing() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = partition(&engine, "t", &[("retention.ms", "1000")]);
    let ten_years = 10 * 365 * 24 * 3600 * 1000;
    for at in [NOW_MS, NOW_MS + ten_years, NOW_MS] {
        append_at(&engine, &partition, &[at]);
    }
    retain(&engine);
    assert_eq!(offsets_of(&engine, &partition), [0, 1, 2]);
    test.clock.advance_ms(3_600_000);
    retain(&engine);
    assert_eq!(log_start(&engine, &partition), 3);
}

#[test]
fn each_round_of_data_goes_without_a_restart() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = partition(&engine, "t", &[("retention.ms", "1000")]);
    for round in 1..=5 {
        append_at(&engine, &partition, &[test_now(round)]);
        test.clock.advance_ms(2000);
        retain(&engine);
        assert_eq!(log_start(&engine, &partition), round);
    }

    fn test_now(round: i64) -> i64 {
        NOW_MS + (round - 1) * 2000
    }
}

#[test]
fn a_clock_that_steps_back_lets_nothing_young_expire() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = partition(&engine, "t", &[("retention.ms", "600000")]);
    for (offset, at) in [NOW_MS, NOW_MS - 3_600_000, NOW_MS + 60_000].into_iter().enumerate() {
        test.clock.set_ms(at);
        assert_eq!(append_at(&engine, &partition, &[at]), offset as i64);
        retain(&engine);
    }
    assert_eq!(offsets_of(&engine, &partition), [0, 1, 2]);
}

#[test]
fn a_topic_with_the_logs_time_expires_and_is_looked_up_by_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [("message.timestamp.type", "LogAppendTime"), ("retention.ms", "1000")];
    let partition = partition(&engine, "t", &settings);
    append_at(&engine, &partition, &[1_000_000_000_000_000]);
    let query = OffsetQuery::Timestamp(NOW_MS - 1000);
    let found = engine.list_offset(&partition, query, Isolation::Committed, Visibility::Applied);
    let found = found.unwrap().unwrap();
    assert_eq!((found.offset, found.timestamp), (0, NOW_MS));
    test.clock.advance_ms(10_000);
    retain(&engine);
    assert_eq!(log_start(&engine, &partition), 1);
}

#[test]
fn by_size_the_start_never_passes_what_readers_may_see_and_0_empties_the_log() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [("retention.ms", "-1"), ("retention.bytes", "1")];
    let partition = partition(&engine, "t", &settings);
    for _ in 0..3 {
        append_at(&engine, &partition, &[NOW_MS]);
    }
    let report = retain(&engine);
    assert_eq!((report.expired_batches, report.oversize_batches), (0, 2));
    assert_eq!(offsets_of(&engine, &partition), [2]);
    set(&engine, "t", "retention.bytes", "0");
    retain(&engine);
    let marks = engine.watermarks(&partition).unwrap();
    assert_eq!((marks.log_start, marks.last_stable, marks.high_watermark), (3, 3, 3));
}

#[test]
fn a_batch_with_the_log_start_inside_counts_whole() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [("retention.ms", "-1")];
    let partition = partition(&engine, "t", &settings);
    append_at(&engine, &partition, &[NOW_MS; 2]);
    append_at(&engine, &partition, &[NOW_MS; 2]);
    let bytes = engine.metrics().live_bytes;
    engine.delete_records(&partition, 1).unwrap();
    set(&engine, "t", "retention.bytes", &(bytes / 2 + 1).to_string());
    retain(&engine);
    assert_eq!(log_start(&engine, &partition), 1);
    set(&engine, "t", "retention.bytes", &(bytes / 2).to_string());
    retain(&engine);
    assert_eq!(log_start(&engine, &partition), 2);
}

#[test]
fn a_policy_without_delete_keeps_everything_and_its_change_counts_at_once() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [("cleanup.policy", "compact"), ("retention.ms", "1000")];
    let compacted = partition(&engine, "compacted", &settings);
    let kept = partition(&engine, "kept", &[("cleanup.policy", ""), ("retention.ms", "1000")]);
    for partition in [&compacted, &kept] {
        append_at(&engine, partition, &[NOW_MS]);
        append_at(&engine, partition, &[NOW_MS]);
    }
    engine.delete_records(&compacted, 1).unwrap();
    test.clock.advance_ms(100_000);
    assert_eq!(retain(&engine), RetentionReport::default());
    set(&engine, "compacted", "cleanup.policy", "compact,delete");
    retain(&engine);
    assert_eq!((log_start(&engine, &compacted), log_start(&engine, &kept)), (2, 0));
}

#[test]
fn what_was_checked_before_expires_by_time_by_size_and_after_a_moved_start_all_the_same() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [("retention.ms", "10000"), ("retention.bytes", "300")];
    let partition = partition(&engine, "t", &settings);
    let append = |age_ms| append_at(&engine, &partition, &[common::NOW_MS - age_ms]);
    append(0);
    append(9000);
    for _ in 0..2 {
        assert_eq!(retain(&engine), RetentionReport::default());
    }
    engine.delete_records(&partition, 1).unwrap();
    assert_eq!(retain(&engine).moved_partitions, 0);
    test.clock.advance_ms(1001);
    assert_eq!(retain(&engine).expired_batches, 1);
    assert_eq!(log_start(&engine, &partition), 2);
    let size_bytes = |engine: &Engine| engine.metrics().live_bytes;
    append(0);
    while size_bytes(&engine) < 300 {
        assert_eq!(retain(&engine), RetentionReport::default());
        append(0);
    }
    append(0);
    assert!(retain(&engine).oversize_batches > 0);
    set(&engine, "t", "retention.bytes", "0");
    retain(&engine);
    assert_eq!(size_bytes(&engine), 0);
}

#[test]
fn many_partitions_and_many_batches_go_in_few_commits() {
    let test = TestEngine::new();
    let engine = test.open();
    let config = TopicConfig::new(600).set("retention.ms", "1000").unwrap();
    let topic = engine.create_topic("many", config).unwrap();
    for partition in topic.partitions() {
        append_at(&engine, &partition, &[NOW_MS]);
    }
    let deep = partition(&engine, "deep", &[("retention.ms", "1000")]);
    for _ in 0..500 {
        append_at(&engine, &deep, &[NOW_MS; 3]);
    }
    test.clock.advance_ms(2000);
    append_at(&engine, &deep, &[NOW_MS + 2000]);
    let commits = engine.metrics().commits;
    let report = retain(&engine);
    assert_eq!((report.moved_partitions, report.expired_batches), (601, 1100));
    assert_eq!(engine.metrics().commits - commits, 3);
    assert_eq!(offsets_of(&engine, &deep), [1500]);
    let bytes = engine.metrics().live_bytes;
    assert_eq!(report.removed_bytes, engine.metrics().appended_bytes - bytes);
}

#[test]
fn a_power_loss_may_take_retention_back_but_never_half_of_it() {
    for seed in 0..20 {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = partition(&engine, "t", &[("retention.ms", "1000")]);
        for _ in 0..100 {
            append_at(&engine, &partition, &[NOW_MS; 2]);
        }
        engine.sync().unwrap();
        test.clock.advance_ms(2000);
        retain(&engine);
        let keep = if seed % 2 == 0 { PowerLoss::Nothing } else { PowerLoss::Random(seed) };
        test.disk.power_loss(keep);
        test.store.crash(seed);
        drop(engine);
        let engine = test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        let marks = engine.watermarks(&partition).unwrap();
        assert!([0, 200].contains(&marks.log_start), "{marks:?}");
        assert_eq!(marks.log_end, 200);
        assert_verified(&engine);
    }
}

#[test]
fn a_damaged_partition_stops_no_other_ones_retention() {
    let test = TestEngine::new();
    let engine = test.open();
    let first = partition(&engine, "a", &[("retention.ms", "1000")]);
    let second = partition(&engine, "b", &[("retention.ms", "1000")]);
    append_at(&engine, &first, &[NOW_MS]);
    append_at(&engine, &second, &[NOW_MS]);
    // Damage of the bytes in the log: retention reads the index alone.
    engine.sync().unwrap();
    let path = std::path::Path::new("/engine/log/00000000000000000001.log");
    test.disk.tamper(path, |bytes| {
        let end = bytes.len();
        bytes[end - 200..].fill(0xff);
    });
    test.clock.advance_ms(2000);
    assert_eq!(engine.maintenance().run_retention().unwrap().moved_partitions, 2);
    assert_eq!((log_start(&engine, &first), log_start(&engine, &second)), (1, 1));
}
