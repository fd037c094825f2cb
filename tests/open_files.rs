//! The engine keeps fewer files open than its process may have, however many segments it has.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod temporary;

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use temporary::TemporaryDirectory;
use tidelog::testing::MemoryDisk;
use tidelog::{
    Durability, Engine, EngineConfig, FetchOptions, Maintenance, Partition, Record, TopicConfig,
};

const ALLOWED_FILES: u64 = 64;
const BATCHES: i64 = 300;

fn fetch_all(engine: &Engine, partition: &Partition) {
    // Each from another segment than the one before.
    for number in 0..BATCHES {
        let offset = number * 7 % BATCHES;
        let fetched = engine.fetch(partition, offset, FetchOptions::new()).unwrap();
        assert_eq!(fetched.records().next().unwrap().unwrap().offset, offset);
    }
}

#[test]
fn many_segments_are_written_read_and_recovered_with_few_files_open() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(ALLOWED_FILES), maximum }).unwrap();
    let directory = TemporaryDirectory::new();
    let store = MemoryDisk::new();
    let open = || {
        let config = EngineConfig::default().segment_bytes(8 << 10).disk_reserve_bytes(0);
        let builder = Engine::builder(directory.path()).store(Arc::new(store.clone()));
        builder.config(config.maintenance(Maintenance::Manual)).open().unwrap()
    };
    let engine = open();
    let topic = engine.create_topic("t", TopicConfig::new(1)).unwrap();
    let partition = topic.partition(0).unwrap();
    for _ in 0..BATCHES {
        let mut append = engine.append_transaction();
        append.records(&partition, [Record::keyless(vec![7; 6000])]).unwrap();
        append.commit(Durability::Buffered).unwrap();
    }
    assert!(engine.metrics().segment_count > 4 * ALLOWED_FILES);
    fetch_all(&engine, &partition);
    // What no checkpoint covers is read from the log.
    store.crash(0);
    drop(partition);
    drop(topic);
    drop(engine);
    let engine = open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    fetch_all(&engine, &partition);
    engine.close().unwrap();
}
