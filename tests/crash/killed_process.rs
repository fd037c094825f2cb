//! kill -9 of a process in the middle of three-partition transactions, a hundred times, on RocksDB.
#![cfg(feature = "rocksdb")]

use crate::temporary;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use temporary::TemporaryDirectory;
use tidelog::{
    Durability, Engine, EngineConfig, FetchOptions, Offset, Partition, Record, Topic, TopicConfig,
};

const CHILD_DIRECTORY: &str = "TIDELOG_TEST_KILL_DIRECTORY";
const CHILD_FIRST: &str = "TIDELOG_TEST_KILL_FIRST";
const KILLS: u64 = 100;
/// Kills after which a new engine is made, so that reading everything back stays quick.
const KILLS_AN_ENGINE: u64 = 10;
const PARTITIONS: u32 = 3;
const WRITERS: u64 = 3;
/// Numbers of transactions that one life of the child may use.
const NUMBERS_A_LIFE: u64 = 1_000_000;

fn config() -> EngineConfig {
    // Small enough that rolls and checkpoints happen all the time.
    EngineConfig::default()
        .segment_bytes(256 << 10)
        .checkpoint_log_bytes(1 << 20)
        .disk_reserve_bytes(0)
}

/// What the child does until it is killed: writers commit numbered transactions, each into all
/// partitions, and tell every one that is acknowledged.
fn write_until_killed(directory: &Path, first: u64) {
    let engine = Engine::open(directory, config()).expect("the engine opens");
    let topic = match engine.topic("load") {
        Some(topic) => topic,
        None => engine.create_topic("load", TopicConfig::new(PARTITIONS)).expect("made"),
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, topic) = (&engine, &topic);
            scope.spawn(move || write(engine, topic, first, writer));
        }
    });
}

fn write(engine: &Engine, topic: &Topic, first: u64, writer: u64) {
    for number in (first + writer..first + NUMBERS_A_LIFE).step_by(WRITERS as usize) {
        let mut append = engine.append_transaction();
        for partition in topic.partitions() {
            let padding = vec![b'.'; (number % 1_777) as usize];
            let record = Record::new(number.to_string(), padding);
            append.records(&partition, [record]).expect("the record is good");
        }
        let durability =
            if number.is_multiple_of(7) { Durability::Sync } else { Durability::Buffered };
        append.commit(durability).expect("it is committed");
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {number}").expect("the parent reads");
    }
}

#[test]
fn the_child_writes_where_it_is_told_to() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else {
        // The parent's own run: the test below starts this one in a process of its own.
        assert!(std::env::var_os(CHILD_FIRST).is_none());
        return;
    };
    let first = std::env::var(CHILD_FIRST).expect("the parent says where to begin");
    write_until_killed(Path::new(&directory), first.parse().expect("a number"));
}

fn start_child(directory: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().expect("this test has a file"))
        .args(["--exact", "killed_process::the_child_writes_where_it_is_told_to", "--nocapture"])
        .env(CHILD_DIRECTORY, directory)
        .env(CHILD_FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts")
}

/// Kills the child once it has acknowledged this many, and gives all that it had acknowledged.
fn kill_after(mut child: Child, wanted: usize) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let mut killed = false;
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while out.read_line(&mut line).expect("the child writes text") > 0 {
        // A line that is cut was not told whole.
        let told = line.strip_suffix('\n').and_then(|line| line.strip_prefix("acknowledged "));
        acknowledged.extend(told.and_then(|number| number.parse::<u64>().ok()));
        line.clear();
        if acknowledged.len() >= wanted && !killed {
            child.kill().expect("it is killed");
            killed = true;
        }
    }
    let status = child.wait().expect("it has ended");
    assert!(killed && !status.success(), "the child ended by itself: {status}");
    acknowledged
}

/// The number of every record of a partition, with its offset.
fn numbers(engine: &Engine, partition: &Partition) -> BTreeMap<u64, Offset> {
    let mut found = BTreeMap::new();
    let mut offset = 0;
    loop {
        let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("readable");
        if fetched.bytes.is_empty() {
            return found;
        }
        for record in fetched.records() {
            let record = record.expect("it can be decoded");
            let key = record.key.expect("every record has a key");
            let number = std::str::from_utf8(&key).expect("text").parse().expect("a number");
            assert_eq!(found.insert(number, record.offset), None, "{number} is there twice");
        }
        offset = fetched.next_offset;
    }
}

#[test]
fn after_each_of_a_hundred_kills_every_transaction_is_whole_or_absent_and_none_is_lost() {
    let mut directory = TemporaryDirectory::new();
    let mut acknowledged: Vec<u64> = Vec::new();
    let mut state = 7u64;
    for kill in 0..KILLS {
        if kill.is_multiple_of(KILLS_AN_ENGINE) {
            directory = TemporaryDirectory::new();
            acknowledged.clear();
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        let wanted = 1 + (state >> 33) as usize % 400;
        let child = start_child(directory.path(), kill * NUMBERS_A_LIFE);
        acknowledged.extend(kill_after(child, wanted));
        check(directory.path(), &acknowledged, kill);
    }
}

fn check(directory: &Path, acknowledged: &[u64], kill: u64) {
    let engine = Engine::open(directory, config()).expect("it opens unattended");
    let topic = engine.topic("load").expect("the topic was acknowledged");
    let partitions = topic.partitions();
    let found: Vec<_> = partitions.iter().map(|partition| numbers(&engine, partition)).collect();
    assert_eq!(found[0], found[1], "kill {kill}: a transaction is split");
    assert_eq!(found[0], found[2], "kill {kill}: a transaction is split");
    for number in acknowledged {
        assert!(
            found[0].contains_key(number),
            "kill {kill}: {number} was acknowledged and is lost"
        );
    }
    for partition in &partitions {
        let marks = engine.watermarks(partition).expect("the topic is there");
        assert_eq!(marks.log_end, found[0].len() as i64, "kill {kill}: offsets are dense");
    }
    let report = engine.verify().expect("the index is readable");
    assert!(report.is_clean(), "kill {kill}: {report}");
    // Dropped, not closed: the next child recovers after a crash again.
}
