//! Space that is not needed any more comes back, whatever shares the log, and little is written for it.
//!
//! `TIDELOG_SPACE=whole` runs the sizes of a day of work in place of those for every day.

use crate::common;

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use common::{NOW_MS, TestEngine, append_batch, assert_verified, batch_of, offsets_of};
use tidelog::{Durability, Engine, Partition, Record, TopicConfig};

const MINUTE_MS: u64 = 60_000;
/// One number for every day, and one for the whole size.
fn sized(every_day: usize, whole: usize) -> usize {
    match std::env::var("TIDELOG_SPACE").as_deref() {
        Ok("whole") => whole,
        Ok(other) => panic!("TIDELOG_SPACE={other} is not known"),
        Err(_) => every_day,
    }
}

const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// Bytes of the files in the log's directory.
fn disk_bytes(test: &TestEngine) -> u64 {
    let files = test.disk.process();
    let directory = Path::new("/engine/log");
    let names = files.list(directory).expect("the directory is there");
    let length = |name: &String| files.open(&directory.join(name)).expect("it is there").length();
    names.iter().map(|name| length(name).expect("it can be measured")).sum()
}

/// A minute in which nothing is appended.
fn idle(test: &TestEngine, engine: &Engine) {
    for _ in 0..60 {
        test.clock.advance_ms(1000);
        engine.maintenance().run().expect("it goes on");
    }
}

/// The bound that must hold after a minute of idling.
fn assert_space_came_back(test: &TestEngine, engine: &Engine) {
    let (disk, live) = (disk_bytes(test), engine.metrics().live_bytes);
    let bound = live * 13 / 10 + 2 * test.config.segment_bytes;
    assert!(disk <= bound, "disk {disk} live {live} bound {bound}");
    assert_eq!(disk, engine.metrics().log_size_bytes);
}

fn batch(bytes: usize) -> Bytes {
    batch_of(&[Record::keyless(vec![7; bytes])])
}

#[test]
fn a_topic_of_which_nine_tenths_were_deleted_gives_their_space_back() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(1)).unwrap();
    let partition = topic.partition(0).unwrap();
    // A GiB as a whole.
    let (count, batch) = (sized(6400, 1 << 18), batch(4096 - 100));
    for _ in 0..count {
        append_batch(&engine, &partition, batch.clone());
    }
    let before = disk_bytes(&test);
    let (start, end) = (count as i64 * 9 / 10, count as i64);
    engine.delete_records(&partition, start).unwrap();
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
    assert!(disk_bytes(&test) < before / 7, "{} of {before}", disk_bytes(&test));
    assert_eq!(offsets_of(&engine, &partition), (start..end).collect::<Vec<_>>());
    let metrics = engine.metrics();
    assert!(metrics.relocated_bytes < test.config.segment_bytes, "{metrics:?}");
    assert_verified(&engine);
    drop(engine);
    let engine = test.open();
    assert_verified(&engine);
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
}

#[test]
fn nine_tenths_deleted_evenly_over_all_segments_come_back_too() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(10)).unwrap();
    let kept = topic.partition(3).unwrap();
    for _ in 0..600 {
        for partition in topic.partitions() {
            append_batch(&engine, &partition, batch(4096));
        }
    }
    for partition in topic.partitions().iter().filter(|partition| **partition != kept) {
        engine.delete_records(partition, 600).unwrap();
    }
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
    assert_eq!(offsets_of(&engine, &kept), (0..600).collect::<Vec<_>>());
    assert_verified(&engine);
    let metrics = engine.metrics();
    assert!(metrics.relocated_bytes <= metrics.live_bytes, "each was moved once: {metrics:?}");
}

#[test]
fn deleted_topics_give_their_space_back_whatever_they_shared_segments_with() {
    let test = TestEngine::new();
    let engine = test.open();
    let names: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    let partitions: Vec<Partition> = names
        .iter()
        .map(|name| engine.create_topic(name, TopicConfig::new(1)).unwrap().partition(0).unwrap())
        .collect();
    for _ in 0..400 {
        for partition in &partitions {
            append_batch(&engine, partition, batch(2048));
        }
    }
    idle(&test, &engine);
    for name in &names[..7] {
        engine.delete_topic(name).unwrap();
    }
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
    assert_eq!(offsets_of(&engine, &partitions[7]).len(), 400);
    engine.delete_topic(&names[7]).unwrap();
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
    assert_eq!(engine.metrics().live_bytes, 0);
    assert_verified(&engine);
}

/// Numbers that look random and are the same in every run.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn two_hundred_topics_of_very_different_lives_share_the_log_for_three_days() {
    const TOPICS: usize = 200;
    let per_minute = sized(20, 200);
    const BATCH_BYTES: usize = 8000;
    let test = TestEngine::with(|config| config.segment_bytes(sized(2 << 20, 16 << 20) as u64));
    let engine = test.open();
    let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15);
    let partitions: Vec<Partition> = (0..TOPICS)
        .map(|number| {
            let minutes = (1440f64).powf(sequence.unit());
            let ms = if number % 10 == 0 { -1 } else { (minutes * MINUTE_MS as f64) as i64 };
            let config = TopicConfig::new(1).set("retention.ms", &ms.to_string()).unwrap();
            engine.create_topic(format!("t{number}"), config).unwrap().partition(0).unwrap()
        })
        .collect();
    let body = Bytes::from(vec![7; BATCH_BYTES]);
    let mut worst = 0f64;
    for minute in 0..(3 * DAY_MS / MINUTE_MS) as usize {
        let mut append = engine.append_transaction();
        for number in 0..per_minute {
            let partition = &partitions[(minute * per_minute + number) % TOPICS];
            let now = NOW_MS + (minute as u64 * MINUTE_MS) as i64;
            let record = Record::keyless(body.clone()).timestamp(now);
            append.batch(partition, batch_of(&[record])).unwrap();
        }
        append.commit(Durability::Buffered).unwrap();
        test.clock.advance_ms(MINUTE_MS);
        engine.maintenance().run().unwrap();
        let metrics = engine.metrics();
        let slack = (2 * test.config.segment_bytes) as f64;
        worst = worst.max((metrics.log_size_bytes as f64 - slack) / metrics.live_bytes as f64);
    }
    let metrics = engine.metrics();
    let amplification = metrics.log_bytes as f64 / metrics.appended_bytes as f64;
    println!(
        "appended {} live {} disk {} written {amplification:.3} times, at most {worst:.3} of live",
        metrics.appended_bytes, metrics.live_bytes, metrics.log_size_bytes,
    );
    assert!(amplification <= 1.7, "{amplification}: {metrics:?}");
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
    assert_verified(&engine);
}

const KEYS: usize = 1000;

/// Updates of any keys of a compacted topic, in batches of ten, with maintenance beside them. The
/// offset of the last update of each key.
fn update(
    test: &TestEngine,
    engine: &Engine,
    partition: &Partition,
    updates: usize,
) -> BTreeSet<i64> {
    let mut sequence = Sequence(0x2545_f491_4f6c_dd1d);
    let mut newest = [-1; KEYS];
    for first in (0..updates).step_by(10) {
        let records: Vec<Record> = (first..first + 10)
            .map(|number| {
                let key = sequence.next() as usize % KEYS;
                newest[key] = number as i64;
                let key = format!("key-{key:04}");
                let value = format!("{number:080}");
                Record::new(key, value).timestamp(NOW_MS + number as i64 / 100)
            })
            .collect();
        append_batch(engine, partition, batch_of(&records));
        if first % 1000 == 0 {
            test.clock.advance_ms(1000);
            engine.maintenance().run().expect("it goes on");
        }
    }
    newest.into_iter().filter(|offset| *offset >= 0).collect()
}

#[test]
fn a_compacted_topic_takes_the_space_of_its_keys_however_often_they_were_updated() {
    let updates = sized(100_000, 1_000_000);
    let test = TestEngine::with(|config| config.segment_bytes(256 << 10));
    let engine = test.open();
    let config = TopicConfig::new(1).set("cleanup.policy", "compact").unwrap();
    let partition = engine.create_topic("t", config).unwrap().partition(0).unwrap();
    let newest = update(&test, &engine, &partition, updates);
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
    let metrics = engine.metrics();
    let written = metrics.log_bytes as f64 / metrics.appended_bytes as f64;
    println!(
        "appended {} live {} disk {} written {written:.3} times, {} passes",
        metrics.appended_bytes, metrics.live_bytes, metrics.log_size_bytes, metrics.cleaner_passes,
    );
    let offsets: BTreeSet<i64> = offsets_of(&engine, &partition).into_iter().collect();
    assert!(offsets.is_superset(&newest), "each key's newest record is there");
    // What may be dirty is at most half of what can be cleaned.
    assert!(offsets.len() <= 2010, "{}", offsets.len());
    assert!(metrics.live_bytes < 300_000, "{metrics:?}");
    assert_verified(&engine);
}
