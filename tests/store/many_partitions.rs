//! Ten thousand partitions with a record each: all are read back after a reopen.
#![cfg(feature = "rocksdb")]

use crate::temporary;

use temporary::TemporaryDirectory;
use tidelog::{Durability, Engine, EngineConfig, FetchOptions, Record, TopicConfig};

const PARTITION_COUNT: u32 = 10_000;

#[test]
fn ten_thousand_partitions_with_a_record_each_are_read_back_after_a_reopen() {
    let directory = TemporaryDirectory::new();
    let config = EngineConfig::default().disk_reserve_bytes(0);
    let engine = Engine::open(directory.path(), config.clone()).expect("the engine opens");
    let topic = engine.create_topic("many", TopicConfig::new(PARTITION_COUNT)).expect("made");
    for partition in topic.partitions() {
        let mut append = engine.append_transaction();
        let record = Record::new(partition.index().to_string(), "value");
        append.records(&partition, [record]).expect("the record is good");
        append.commit(Durability::Buffered).expect("it is committed");
    }
    engine.close().expect("it closes");

    let engine = Engine::open(directory.path(), config).expect("the engine opens again");
    let topic = engine.topic("many").expect("it is there");
    assert_eq!(topic.partition_count(), PARTITION_COUNT);
    for partition in topic.partitions() {
        let fetched = engine.fetch(&partition, 0, FetchOptions::new()).expect("readable");
        let records: Result<Vec<_>, _> = fetched.records().collect();
        let records = records.expect("they can be decoded");
        assert_eq!(records.len(), 1, "{partition}");
        let key = partition.index().to_string();
        assert_eq!(records[0].key.as_deref(), Some(key.as_bytes()), "{partition}");
    }
    let report = engine.verify().expect("the index is readable");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.partition_count, u64::from(PARTITION_COUNT));
    engine.delete_topic("many").expect("it is deleted");
    assert_eq!(engine.verify().expect("the index is readable").batch_count, 0);
    engine.close().expect("it closes");
}
