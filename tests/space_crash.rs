//! Retention, cleaning, freeing and relocation, stopped at any call, lose nothing and bring nothing back.

mod common;

use common::{TestEngine, append_batch, batch_of};
use tidelog::io::simulated::PowerLoss;
use tidelog::{Durability, Engine, FetchOptions, Partition, Record, StorageError, TopicConfig};

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

/// Appends to all, trims, retains, frees and relocates, until the disk stops it.
fn work(test: &TestEngine, engine: &Engine, told: &mut Told) -> Result<(), StorageError> {
    for (name, ms) in NAMES.iter().zip(["20000", "-1", "-1"]) {
        let config = TopicConfig::new(1).set("retention.ms", ms).expect("it is legal");
        if engine.create_topic(name, config).is_err() {
            return Ok(());
        }
    }
    let config = TopicConfig::new(1).set("cleanup.policy", "compact").expect("it is legal");
    let config = config.set("min.cleanable.dirty.ratio", "0.3").expect("it is legal");
    let Ok(keyed) = engine.create_topic("keyed", config) else { return Ok(()) };
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
            keyed_end += 3;
            if append.commit(Durability::Buffered).is_err() {
                return Ok(());
            }
            told.appended.iter_mut().for_each(|end| *end += 1);
        }
        if round % 3 == 2 {
            let synced = told.appended;
            engine.sync()?;
            told.synced = synced;
        }
        if round % 2 == 1 {
            told.asked[2] = told.appended[2] - 3;
            if engine.delete_records(&partitions[2], told.asked[2]).is_err() {
                return Ok(());
            }
            told.started[2] = told.asked[2];
            // All before it is synced with it.
            told.synced = told.appended;
        }
        test.clock.advance_ms(10_000);
        told.asked[0] = told.appended[0];
        engine.run_maintenance()?;
    }
    Ok(())
}

fn check(test: &TestEngine, told: &Told, name: &str) {
    let engine = test.builder().open().unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let report = engine.verify().expect("the index can be read");
    assert!(report.is_content(), "{name}: {report}");
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
    engine.run_maintenance().expect("it goes on");
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
    // A crash shows as an error of whatever was under way.
    let _ = work(&test, &engine, &mut told);
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
