//! Maintenance: what is due is done at its time, by the engine's own thread too, and nothing of it holds up the rest.

use crate::common;

use common::{
    NOW_MS, TestEngine, append_batch, assert_verified, batch_of, offsets_of, one_partition,
};
use tidelog::{Engine, Partition, Record};

const COMPACTED: [(&str, &str); 2] =
    [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];

fn append(engine: &Engine, partition: &Partition, key: &str, bytes: usize) {
    let record = Record::new(key.to_owned(), vec![7; bytes]).timestamp(NOW_MS);
    append_batch(engine, partition, batch_of(&[record]));
}

/// Waits for another thread's work.
fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// An engine with threads that looks for work at every turn of its clock.
fn in_background() -> TestEngine {
    let test = TestEngine::in_background();
    let config = test.config.clone().segment_bytes(64 << 10).maintenance_interval_ms(1);
    TestEngine { config, ..test }
}

#[test]
fn a_round_is_made_at_once_and_then_at_its_interval() {
    let test = TestEngine::with(|config| config.maintenance_interval_ms(1000));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("retention.ms", "1500")]);
    append(&engine, &partition, "k", 10);
    let step = engine.maintenance().run().unwrap();
    assert_eq!((step.retention.unwrap().moved_partitions, step.next_in_ms), (0, 1000));
    for (advance_ms, moved) in [(999, None), (1, Some(0)), (1000, Some(1)), (999, None)] {
        test.clock.advance_ms(advance_ms);
        let step = engine.maintenance().run().unwrap();
        assert_eq!(step.retention.map(|report| report.moved_partitions), moved);
    }
    let metrics = engine.metrics();
    assert_eq!((metrics.maintenance_rounds, metrics.maintenance_time.count()), (3, 3));
}

#[test]
fn retention_waits_for_an_interval_of_its_own_and_at_first_for_half_a_minute() {
    let test = TestEngine::with(|config| {
        config.maintenance_interval_ms(1000).retention_check_interval_ms(60_000)
    });
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("retention.ms", "1500")]);
    append(&engine, &partition, "k", 10);
    let checks = [(0, None), (29_000, None), (1000, Some(1)), (59_000, None), (1000, Some(0))];
    for (advance_ms, moved) in checks {
        test.clock.advance_ms(advance_ms);
        let step = engine.maintenance().run().unwrap();
        assert_eq!(step.retention.map(|report| report.moved_partitions), moved, "{advance_ms}");
        assert!(step.producers.is_some(), "all else is done in every round");
    }
}

#[test]
fn the_engines_own_thread_removes_cleans_and_frees_unasked() {
    let test = in_background();
    let engine = test.open();
    let short = one_partition(&engine, "short", &[("retention.ms", "1000")]);
    let keyed = one_partition(&engine, "keyed", &COMPACTED);
    let pause = engine.cleaner().pause();
    for _ in 0..40 {
        append(&engine, &short, "k", 4000);
        append(&engine, &keyed, "k", 4000);
    }
    assert!(engine.metrics().log_size_bytes > 320_000);
    drop(pause);
    test.clock.advance_ms(1001);
    wait_until(|| {
        test.clock.advance_ms(1);
        let metrics = engine.metrics();
        metrics.live_bytes < 5000 && metrics.log_size_bytes < 150_000
    });
    assert_eq!(offsets_of(&engine, &short), Vec::<i64>::new());
    assert_eq!(offsets_of(&engine, &keyed), [39]);
    assert_eq!(engine.metrics().failed_maintenance, 0);
    assert_verified(&engine);
}

#[test]
fn a_pass_that_waits_for_its_rate_holds_up_nothing_else() {
    let test = in_background();
    // Nothing more is earned while the clock stands still.
    let config = test.config.clone().cleaner_bytes_per_second(2 << 20).checkpoint_log_bytes(4096);
    let test = TestEngine { config, ..test };
    let engine = test.open();
    let short = one_partition(&engine, "short", &[("retention.ms", "1000")]);
    let keyed = one_partition(&engine, "keyed", &COMPACTED);
    let pause = engine.cleaner().pause();
    for number in 0..1500 {
        append(&engine, &keyed, &(number % 700).to_string(), 4000);
        if number % 100 == 0 {
            append(&engine, &short, "k", 100_000);
        }
    }
    drop(pause);
    test.clock.advance_ms(1);
    // It has read something, and has the rest before it.
    wait_until(|| engine.metrics().unsynced_bytes == 0);
    let before = engine.metrics();
    assert_eq!(before.cleaner_passes, 0);
    append(&engine, &keyed, "one more", 5000);
    wait_until(|| engine.metrics().checkpoints > before.checkpoints);
    test.clock.advance_ms(1001);
    wait_until(|| {
        test.clock.advance_ms(1);
        engine.metrics().freed_segments > 0
    });
    assert_eq!(offsets_of(&engine, &short), Vec::<i64>::new());
    // What was done meanwhile counts as a round.
    wait_until(|| engine.metrics().maintenance_rounds > before.maintenance_rounds);
    wait_until(|| {
        test.clock.advance_ms(1000);
        engine.metrics().cleaner_passes > 0
    });
    assert_eq!(offsets_of(&engine, &keyed), (800..1501).collect::<Vec<_>>());
    assert_verified(&engine);
}

#[test]
fn closing_ends_a_pass_that_waits_for_its_rate() {
    let test = in_background();
    let config = test.config.clone().cleaner_bytes_per_second(1);
    let test = TestEngine { config, ..test };
    let engine = test.open();
    let keyed = one_partition(&engine, "keyed", &COMPACTED);
    let pause = engine.cleaner().pause();
    for _ in 0..100 {
        append(&engine, &keyed, "k", 4000);
    }
    drop(pause);
    test.clock.advance_ms(1);
    wait_until(|| engine.metrics().pin_count > 0);
    engine.close().unwrap();
    let engine = test.open();
    assert_eq!(
        offsets_of(&engine, &engine.topic("keyed").unwrap().partition(0).unwrap()).len(),
        100
    );
}

#[test]
fn how_far_cleaning_is_behind_shows_in_metrics_and_description() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("max.compaction.lag.ms", "60000"),
    ];
    let partition = one_partition(&engine, "t", &settings);
    let lag = || {
        test.clock.advance_ms(test.config.maintenance_interval_ms);
        let pause = engine.cleaner().pause();
        engine.maintenance().run().unwrap();
        drop(pause);
        let told = engine.topics().describe("t").unwrap().partitions[0].cleaner_lag;
        let metrics = engine.metrics();
        let most = (metrics.cleaner_max_dirty_percent, metrics.cleaner_max_overdue_ms);
        assert_eq!(most, (told.dirty_percent, told.overdue_ms));
        most
    };
    assert_eq!(lag(), (0, 0));
    for key in ["a", "b", "c"] {
        append(&engine, &partition, key, 1000);
    }
    assert_eq!(lag(), (100, 0));
    engine.cleaner().run().unwrap();
    assert_eq!(lag(), (0, 0));
    append(&engine, &partition, "a", 1000);
    assert_eq!(lag(), (25, 0));
    test.clock.advance_ms(60_000);
    let (dirty_percent, overdue_ms) = lag();
    assert!(dirty_percent == 25 && overdue_ms > 0, "{dirty_percent} {overdue_ms}");
    engine.cleaner().run().unwrap();
    assert_eq!(lag(), (0, 0));
}

#[test]
fn the_log_reports_what_it_takes_of_its_disk() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, "k", 1000);
    test.disk.set_capacity(Some(1 << 20));
    let space = engine.log_space().unwrap();
    assert_eq!(space.directory, std::path::Path::new("/engine/log"));
    let metrics = engine.metrics();
    assert_eq!((space.size_bytes, space.live_bytes), (metrics.log_size_bytes, metrics.live_bytes));
    assert_eq!(space.total_bytes, 1 << 20);
    assert!(space.free_bytes < space.total_bytes - space.size_bytes + 1);
    assert_eq!(metrics.disk_free_bytes, Some(space.free_bytes));
    assert_eq!(metrics.disk_reserve_bytes, 0);
    drop(engine);
    let test = TestEngine::with(|config| {
        config.segment_bytes(1 << 20).index_memory_limit_bytes(64 << 20).disk_reserve_bytes(None)
    });
    let engine = test.open();
    assert_eq!(engine.metrics().disk_reserve_bytes, 130 << 20, "as it is when it is not set");
    // Where the system does not tell, nothing is told.
    test.kill();
    assert_eq!(engine.metrics().disk_free_bytes, None);
}
