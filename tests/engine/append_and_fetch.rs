//! An append transaction is there in all its partitions or in none, and comes back as it was written.

use crate::common;

use common::{TestEngine, append, one_partition, records_of};
use tidelog::{
    CommitError, Durability, Engine, FetchError, FetchOptions, Record, TopicConfig, Visibility,
};

fn two_topics(engine: &Engine) -> (tidelog::Topic, tidelog::Topic) {
    let orders = engine.create_topic("orders", TopicConfig::new(3)).expect("it is made");
    let audit = engine.create_topic("audit", TopicConfig::new(1)).expect("it is made");
    (orders, audit)
}

#[test]
fn a_transaction_over_several_partitions_is_read_back_before_and_after_a_reopen() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, audit) = two_topics(&engine);
    let mut append = engine.append_transaction();
    let first = Record::new("k1", "v1").header("source", "web").header("source", "app");
    append.records(&orders.partition(0).unwrap(), [first.clone()]).unwrap();
    append.records(&orders.partition(2).unwrap(), [Record::new("k2", "v2")]).unwrap();
    let entries = [Record::keyless("a"), Record::tombstone("b"), Record::keyless("")];
    append.records(&audit.partition(0).unwrap(), entries).unwrap();
    let committed = append.commit(Durability::Sync).unwrap();
    assert_eq!(committed.batches.len(), 3);
    assert_eq!(committed.batches[2].base_offset, 0);
    assert_eq!(committed.batches[2].last_offset, 2);

    let check = |engine: &Engine| {
        let orders = engine.topic("orders").unwrap();
        let audit = engine.topic("audit").unwrap();
        let found = records_of(engine, &orders.partition(0).unwrap());
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].key, &found[0].value), (&first.key, &first.value));
        assert_eq!(found[0].headers, first.headers);
        assert_eq!(records_of(engine, &orders.partition(1).unwrap()), []);
        let audited = records_of(engine, &audit.partition(0).unwrap());
        let values: Vec<_> = audited.iter().map(|record| record.value.as_deref()).collect();
        assert_eq!(values, [Some(&b"a"[..]), None, Some(&b""[..])]);
        let keys: Vec<_> = audited.iter().map(|record| record.key.as_deref()).collect();
        assert_eq!(keys, [None, Some(&b"b"[..]), None]);
        assert!(engine.verify().unwrap().is_clean());
    };
    check(&engine);
    engine.close().unwrap();
    let engine = test.open();
    check(&engine);
    assert_eq!(engine.leader_epoch(), 0);
}

#[test]
fn a_topic_is_described_with_the_sizes_and_offsets_of_its_partitions() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, _) = two_topics(&engine);
    let mut append = engine.append_transaction();
    let records = [5, 9, 7].map(|at| Record::keyless("x").timestamp(at));
    append.records(&orders.partition(1).unwrap(), records).unwrap();
    let size_bytes = append.size_bytes();
    append.commit(Durability::Buffered).unwrap();
    let described = engine.topics().describe("orders").unwrap();
    assert_eq!((described.id, described.partitions.len()), (orders.id(), 3));
    let filled = described.partitions[1];
    assert_eq!((filled.watermarks.log_end, filled.synced_end), (3, 0));
    assert_eq!((filled.size_bytes, filled.batch_count, filled.record_count), (size_bytes, 1, 3));
    assert_eq!((filled.max_timestamp, filled.newest_epoch), (Some(9), Some(0)));
    let empty = described.partitions[0];
    assert_eq!((empty.size_bytes, empty.max_timestamp, empty.newest_epoch), (0, None, None));
    assert!(engine.topics().describe("nothing").is_none());
}

#[test]
fn dropping_a_transaction_writes_nothing_and_uses_no_offset() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, _) = two_topics(&engine);
    let partition = orders.partition(0).unwrap();
    let mut aborted = engine.append_transaction();
    aborted.records(&partition, [Record::keyless("x")]).unwrap();
    drop(aborted);
    let mut kept = engine.append_transaction();
    kept.records(&partition, [Record::keyless("y")]).unwrap();
    let committed = kept.commit(Durability::Buffered).unwrap();
    assert_eq!(committed.batches[0].base_offset, 0);
    assert_eq!(engine.watermarks(&partition).unwrap().log_end, 1);
}

#[test]
fn a_rejected_batch_leaves_the_transaction_as_it_was() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, _) = two_topics(&engine);
    let partition = orders.partition(0).unwrap();
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::keyless("good")]).unwrap();
    let too_large = Record::keyless(vec![0; 2 << 20]);
    let records = [Record::keyless("lost with it"), too_large];
    let refused = append.records(&partition, records).unwrap_err();
    assert_eq!(refused.code(), 10);
    let refused = append.batch(&partition, bytes::Bytes::from_static(b"no batch")).unwrap_err();
    assert_eq!(refused.code(), 87);
    assert_eq!(append.batch_count(), 1);
    append.commit(Durability::Buffered).unwrap();
    assert_eq!(records_of(&engine, &partition).len(), 1);
}

#[test]
fn a_commit_after_topic_deletion_writes_nothing_and_gives_the_transaction_back() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, audit) = two_topics(&engine);
    let mut append = engine.append_transaction();
    let kept = audit.partition(0).unwrap();
    append.records(&kept, [Record::keyless("kept")]).unwrap();
    append.records(&orders.partition(0).unwrap(), [Record::keyless("gone")]).unwrap();
    engine.delete_topic("orders").unwrap();
    let error = append.commit(Durability::Sync).unwrap_err();
    assert!(matches!(error, CommitError::Refused { .. }), "{error:?}");
    assert_eq!(error.into_transaction().unwrap().batch_count(), 2);
    assert_eq!(engine.watermarks(&kept).unwrap().log_end, 0);
}

#[test]
fn a_fetch_outside_of_the_log_says_where_the_log_is() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, _) = two_topics(&engine);
    let partition = orders.partition(0).unwrap();
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::keyless("x"), Record::keyless("y")]).unwrap();
    append.commit(Durability::Buffered).unwrap();
    let fetch = |offset| engine.fetch(&partition, offset, FetchOptions::new());
    assert!(fetch(2).unwrap().bytes.is_empty());
    for offset in [-1, 3, i64::MAX, i64::MIN] {
        match fetch(offset) {
            Err(FetchError::OffsetOutOfRange { watermarks, .. }) => {
                assert_eq!((watermarks.log_start, watermarks.log_end), (0, 2));
            }
            other => panic!("offset {offset}: {other:?}"),
        }
    }
}

#[test]
fn a_fetch_inside_a_batch_gives_the_whole_batch_and_only_records_from_there_on() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, _) = two_topics(&engine);
    let partition = orders.partition(0).unwrap();
    let mut append = engine.append_transaction();
    append.records(&partition, ["a", "b", "c"].map(Record::keyless)).unwrap();
    append.commit(Durability::Buffered).unwrap();
    let fetched = engine.fetch(&partition, 1, FetchOptions::new()).expect("readable");
    assert_eq!(fetched.next_offset, 3);
    assert_eq!(fetched.bytes[..8], [0; 8]);
    let offsets: Vec<_> =
        fetched.records().map(|record| record.expect("readable").offset).collect();
    assert_eq!(offsets, [1, 2]);
}

#[test]
fn a_reader_of_synced_data_sees_a_buffered_commit_only_after_a_sync() {
    let test = TestEngine::new();
    let engine = test.open();
    let (orders, _) = two_topics(&engine);
    let partition = orders.partition(0).unwrap();
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::keyless("x")]).unwrap();
    append.commit(Durability::Buffered).unwrap();
    let high = |visibility| engine.watermarks_of(&partition, visibility).unwrap().high_watermark;
    assert_eq!((high(Visibility::Applied), high(Visibility::Synced)), (1, 0));
    engine.sync().unwrap();
    assert_eq!((high(Visibility::Applied), high(Visibility::Synced)), (1, 1));
}

#[test]
fn a_fetch_inside_a_batch_serves_it_whole_and_gives_no_record_below_the_offset() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, ["a", "b", "c"].map(Record::keyless));
    let fetched = engine.fetch(&partition, 1, FetchOptions::new()).expect("readable");
    let offsets: Vec<i64> =
        fetched.records().map(|record| record.expect("readable").offset).collect();
    assert_eq!(offsets, [1, 2]);
    assert_eq!(fetched.bytes[..8], 0i64.to_be_bytes(), "the batch begins where it begins");
}
