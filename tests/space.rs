//! Space that is not needed any more comes back, whatever shares the log, and little is written for it.

mod common;

use std::path::Path;

use bytes::Bytes;
use common::{NOW_MS, TestEngine, append_batch, assert_verified, batch_of, offsets_of};
use tidelog::{Durability, Engine, Partition, Record, TopicConfig};

const MINUTE_MS: u64 = 60_000;
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
        engine.run_maintenance().expect("it goes on");
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
fn ret_14_a_topic_of_which_nine_tenths_were_deleted_gives_their_space_back() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(1)).unwrap();
    let partition = topic.partition(0).unwrap();
    for _ in 0..6400 {
        append_batch(&engine, &partition, batch(4096));
    }
    let before = disk_bytes(&test);
    engine.delete_records(&partition, 5760).unwrap();
    idle(&test, &engine);
    assert_space_came_back(&test, &engine);
    assert!(disk_bytes(&test) < before / 7, "{} of {before}", disk_bytes(&test));
    assert_eq!(offsets_of(&engine, &partition), (5760..6400).collect::<Vec<_>>());
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
    const PER_MINUTE: usize = 20;
    const BATCH_BYTES: usize = 8000;
    let test = TestEngine::with(|config| config.segment_bytes(2 << 20));
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
        for number in 0..PER_MINUTE {
            let partition = &partitions[(minute * PER_MINUTE + number) % TOPICS];
            let now = NOW_MS + (minute as u64 * MINUTE_MS) as i64;
            let record = Record::keyless(body.clone()).timestamp(now);
            append.batch(partition, batch_of(&[record])).unwrap();
        }
        append.commit(Durability::Buffered).unwrap();
        test.clock.advance_ms(MINUTE_MS);
        engine.run_maintenance().unwrap();
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
