//! Retention, cleaning, freeing and relocation, stopped at any call, lose and bring back nothing.
//!
//! Nor do they where calls fail; `TIDELOG_SEEDS` runs so many cases of that in place of 120.

use crate::common;

use common::{TestEngine, append_batch, batch_of};
use tidelog::testing::{EIO, ENOSPC, Fault, FileCall, PowerLoss};
use tidelog::{CommitError, Durability, Engine, FetchOptions, Partition, Record, TopicConfig};

/// What was acknowledged, and what was asked for.
#[derive(Default)]
struct Told {
    /// The end of each partition that was synced, and the end that was buffered.
    synced: [i64; 3],
    appended: [i64; 3],
    /// Log starts that were acknowledged, and those that may be.
    started: [i64; 3],
    asked: [i64; 3],
}

/// Keys of the compacted topic; the record at an offset has that one's remainder.
const KEYS: i64 = 5;

const NAMES: [&str; 3] = ["short", "long", "trimmed"];

fn value(partition: usize, offset: i64) -> Vec<u8> {
    let mut value = vec![partition as u8; 3000];
    value.extend_from_slice(&offset.to_be_bytes());
    value
}

fn partitions(engine: &Engine) -> Option<Vec<Partition>> {
    NAMES.iter().map(|name| engine.topic(name)?.partition(0).ok()).collect()
}

/// Appends to all, trims, retains, frees and relocates, until the disk or the engine stops it; a
/// call that fails alone does not.
fn work(test: &TestEngine, engine: &Engine, told: &mut Told) {
    for (name, ms) in NAMES.iter().zip(["20000", "-1", "-1"]) {
        let config = TopicConfig::new(1).set("retention.ms", ms).expect("it is legal");
        if engine.create_topic(name, config).is_err() {
            return;
        }
    }
    let config = TopicConfig::new(1).set("cleanup.policy", "compact").expect("it is legal");
    let config = config.set("min.cleanable.dirty.ratio", "0.3").expect("it is legal");
    let Ok(keyed) = engine.create_topic("keyed", config) else { return };
    let keyed = keyed.partition(0).expect("it has one");
    let partitions = partitions(engine).expect("they were made");
    let mut keyed_end = 0;
    for round in 0..12 {
        for _ in 0..6 {
            let mut append = engine.append_transaction();
            for (index, partition) in partitions.iter().enumerate() {
                let record = Record::keyless(value(index, told.appended[index]));
                append.records(partition, [record]).expect("it is legal");
            }
            let records = (0..3).map(|at| {
                let offset = keyed_end + at;
                Record::new(format!("{}", offset % KEYS), value(3, offset))
            });
            append.records(&keyed, records).expect("it is legal");
            match append.commit(Durability::Buffered) {
                Ok(_) => {}
                Err(CommitError::NotWritten { .. }) if !engine.metrics().halted => continue,
                Err(_) => return,
            }
            keyed_end += 3;
            told.appended.iter_mut().for_each(|end| *end += 1);
        }
        if round % 3 == 2 {
            let synced = told.appended;
            if engine.sync().is_err() {
                return;
            }
            told.synced = synced;
        }
        if round % 2 == 1 {
            told.asked[2] = told.asked[2].max(told.appended[2] - 3);
            if engine.delete_records(&partitions[2], told.asked[2].min(told.appended[2])).is_ok() {
                told.started[2] = told.asked[2];
                // All before it is synced with it.
                told.synced = told.appended;
            }
        }
        test.clock.advance_ms(10_000);
        told.asked[0] = told.appended[0];
        let kept_on = engine.maintenance().run().is_ok() || !engine.metrics().halted;
        if !kept_on || test.disk.has_crashed() {
            return;
        }
    }
}

fn check(test: &TestEngine, told: &Told, name: &str) {
    let engine = test.builder().open().unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let report = engine.verify().expect("the index can be read");
    assert!(report.is_clean(), "{name}: {report}");
    let Some(partitions) = partitions(&engine) else {
        assert_eq!(told.synced, [0; 3], "{name}: topics are gone");
        return;
    };
    for (index, partition) in partitions.iter().enumerate() {
        let marks = engine.watermarks(partition).expect("it exists");
        let (start, end) = (marks.log_start, marks.log_end);
        assert!(end >= told.synced[index], "{name}: partition {index} ends at {end}");
        assert!(start >= told.started[index], "{name}: partition {index} starts at {start}");
        assert!(start <= told.asked[index], "{name}: partition {index} starts at {start}");
        let mut offset = start;
        while offset < end {
            let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("readable");
            for record in fetched.records() {
                let record = record.expect("it can be decoded");
                assert_eq!(record.offset, offset, "{name}");
                let expected = value(index, offset);
                assert_eq!(record.value.as_deref(), Some(&expected[..]), "{name}");
                offset += 1;
            }
        }
    }
    if let Some(keyed) = engine.topic("keyed") {
        check_keyed(&engine, &keyed.partition(0).expect("it has one"), name);
    }
    // It goes on from there.
    append_batch(&engine, &partitions[0], batch_of(&[Record::keyless("more")]));
    test.clock.advance_ms(10_000);
    engine.maintenance().run().expect("it goes on");
}

/// Of each key the newest record is there, and every record that is there is right.
fn check_keyed(engine: &Engine, partition: &Partition, name: &str) {
    let marks = engine.watermarks(partition).expect("it exists");
    let mut found = Vec::new();
    for record in common::records_of(engine, partition) {
        let expected = value(3, record.offset);
        assert_eq!(record.value.as_deref(), Some(&expected[..]), "{name}");
        let key = format!("{}", record.offset % KEYS);
        assert_eq!(record.key.as_deref(), Some(key.as_bytes()), "{name}");
        found.push(record.offset);
    }
    for offset in (marks.log_end - KEYS).max(0)..marks.log_end {
        assert!(found.contains(&offset), "{name}: {offset} is missing of {found:?}");
    }
}

fn run(calls: u64) -> bool {
    let test = TestEngine::with(|config| {
        config.segment_bytes(32 << 10).relocation_bytes_per_second(15_000)
    });
    let engine = test.open();
    let mut told = Told::default();
    test.disk.crash_after_calls(calls);
    work(&test, &engine, &mut told);
    let has_crashed = test.disk.has_crashed();
    if !has_crashed {
        let metrics = engine.metrics();
        assert!(metrics.freed_segments > 5 && metrics.relocated_batches > 5, "{metrics:?}");
        assert!(metrics.cleaner_removed_records > 50, "{metrics:?}");
        assert!(metrics.reused_segments > 5, "{metrics:?}");
    }
    let loss = match calls % 3 {
        0 => PowerLoss::Nothing,
        1 => PowerLoss::Random(calls),
        _ => PowerLoss::Everything,
    };
    test.lose_power(loss);
    drop(engine);
    check(&test, &told, &format!("calls {calls}"));
    has_crashed
}

#[test]
fn whatever_call_is_the_last_one_what_was_acknowledged_is_there_and_what_was_deleted_is_not() {
    let mut calls = 1;
    while run(calls) {
        calls += 3;
    }
    assert!(calls > 150, "the workload has {calls} calls");
}

/// Runs with up to three calls that fail, and a power loss at the end; whether the engine halted.
fn run_with_failures(seed: u64) -> bool {
    let test = TestEngine::with(|config| {
        config.segment_bytes(32 << 10).relocation_bytes_per_second(15_000)
    });
    let engine = test.open();
    let mut told = Told::default();
    let mut bits = seed;
    let mut below = |bound: u64| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 33) % bound
    };
    test.disk.set_write_back(30);
    for _ in 0..=below(3) {
        let (operation, errno, calls) = match below(10) {
            0 => (FileCall::Create, EIO, 20),
            1 => (FileCall::Create, ENOSPC, 20),
            2 => (FileCall::Open, EIO, 60),
            3 => (FileCall::Read, EIO, 300),
            4 => (FileCall::Remove, EIO, 20),
            5 => (FileCall::Rename, EIO, 30),
            6 => (FileCall::SyncDirectory, EIO, 60),
            7 => (FileCall::SetLength, EIO, 12),
            8 => (FileCall::Sync, EIO, 40),
            _ => (FileCall::Write, ENOSPC, 150),
        };
        let fault = Fault::next(operation, errno).after_calls(below(calls));
        test.disk.plan(fault.after_bytes(below(9000)));
    }
    work(&test, &engine, &mut told);
    let halted = engine.metrics().halted;
    test.disk.clear_faults();
    match seed % 4 {
        0 => test.kill(),
        1 => test.lose_power(PowerLoss::Nothing),
        _ => test.lose_power(PowerLoss::Random(seed)),
    }
    drop(engine);
    check(&test, &told, &format!("seed {seed}"));
    halted
}

#[test]
fn whatever_calls_fail_what_was_acknowledged_is_there_and_what_was_deleted_is_not() {
    let seeds =
        std::env::var("TIDELOG_SEEDS").map_or(120, |seeds| seeds.parse().expect("a number"));
    let halted = (0..seeds).filter(|seed| run_with_failures(*seed)).count();
    assert!(halted > 10 && halted < 100 * seeds as usize / 120, "{halted} of {seeds} have halted");
}
