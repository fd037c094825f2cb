//! Scans: a topic as it was at one instant, by offset, timestamp or append time, in chosen partitions.

use crate::common;

use common::{NOW_MS, TestEngine, append, append_batch, append_to_all, batch_of, one_partition};
use tidelog::{
    Durability, Engine, Partition, Record, Scan, ScanError, ScannedRecord, StorageError,
    TopicConfig,
};

/// Partition, offset and value of all that a scan gives.
fn found(scan: Scan) -> Vec<(i32, i64, String)> {
    scan.map(|scanned| {
        let ScannedRecord { partition, record, .. } = scanned.expect("it is readable");
        let value = record.value.expect("it has a value");
        (partition, record.offset, String::from_utf8(value.to_vec()).expect("it is text"))
    })
    .collect()
}

fn offsets(scan: Scan) -> Vec<i64> {
    found(scan).into_iter().map(|(_, offset, _)| offset).collect()
}

/// A partition with six records in three batches, whose times are ten times their offsets.
fn six_records(engine: &Engine) -> Partition {
    let partition = one_partition(engine, "t", &[]);
    for first in [0, 2, 4] {
        let record = |i: i64| Record::keyless(format!("{i}")).timestamp(10 * i);
        append_batch(engine, &partition, batch_of(&[record(first), record(first + 1)]));
    }
    partition
}

#[test]
fn a_scan_gives_all_of_a_record_with_its_partition_and_both_times() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    test.clock.set_ms(NOW_MS + 5);
    let sent = Record::new("k", "v").header("h", "1").header("h", None::<&str>).timestamp(7);
    append(&engine, &topic.partition(1).unwrap(), [sent.clone(), Record::tombstone("gone")]);
    let scanned: Vec<_> = engine.snapshot().scan(&topic).map(Result::unwrap).collect();
    assert_eq!(scanned.len(), 2);
    assert_eq!(scanned[0].record, sent);
    assert_eq!((scanned[0].partition, scanned[0].append_time), (1, NOW_MS + 5));
    assert_eq!((scanned[1].record.offset, scanned[1].record.value.as_ref()), (1, None));
}

#[test]
fn a_snapshot_shows_one_instant_over_all_partitions_whatever_comes_later() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
    append_to_all(&engine, &topic.partitions(), "before");
    let snapshot = engine.snapshot();
    append_to_all(&engine, &topic.partitions(), "behind");
    engine.maintenance().checkpoint().unwrap();
    let expected = [0, 1, 2].map(|partition| (partition, 0, "before".to_owned()));
    assert_eq!(found(snapshot.scan(&topic)), expected);
    assert_eq!(found(engine.snapshot().scan(&topic)).len(), 6);
    let begun = snapshot.scan(&topic);
    append_to_all(&engine, &topic.partitions(), "while it runs");
    assert_eq!(found(begun), expected);
}

#[test]
fn a_snapshot_shows_all_that_a_reader_has_seen_before() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for i in 0..20 {
        append(&engine, &partition, [Record::keyless(format!("{i}"))]);
        assert_eq!(engine.watermarks(&partition).unwrap().high_watermark, i + 1);
        assert_eq!(offsets(engine.snapshot().scan(partition.topic())).len() as i64, i + 1);
    }
}

#[test]
fn partitions_are_given_one_after_the_other_in_the_order_that_was_chosen() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(4)).unwrap();
    append_to_all(&engine, &topic.partitions(), "a");
    append_to_all(&engine, &topic.partitions(), "b");
    let partitions =
        |scan: Scan| -> Vec<i32> { found(scan).iter().map(|(partition, ..)| *partition).collect() };
    let scan = || engine.snapshot().scan(&topic);
    assert_eq!(partitions(scan()), [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(partitions(scan().partitions(&[3, 1])), [3, 3, 1, 1]);
    assert_eq!(partitions(scan().partitions(&[])), [0; 0]);
}

#[test]
fn a_partition_that_there_is_not_is_an_error_and_the_others_are_scanned() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    append_to_all(&engine, &topic.partitions(), "v");
    let mut scan = engine.snapshot().scan(&topic).partitions(&[0, 2, 1]);
    assert_eq!(scan.next().unwrap().unwrap().partition, 0);
    let error = scan.next().unwrap().unwrap_err();
    assert!(matches!(error, ScanError::UnknownPartition { partition: 2 }), "{error:?}");
    assert_eq!(scan.next().unwrap().unwrap().partition, 1);
    assert!(scan.next().is_none());
}

#[test]
fn offsets_can_be_bounded_at_both_ends_also_inside_a_batch() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = six_records(&engine);
    let scan = || engine.snapshot().scan(partition.topic());
    assert_eq!(offsets(scan().offsets(..)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(offsets(scan().offsets(1..4)), [1, 2, 3]);
    assert_eq!(offsets(scan().offsets(1..=4)), [1, 2, 3, 4]);
    assert_eq!(offsets(scan().offsets(..1)), [0]);
    assert_eq!(offsets(scan().offsets(5..)), [5]);
    assert_eq!(offsets(scan().offsets(6..)), [0; 0]);
    assert_eq!(offsets(scan().offsets(3..3)), [0; 0]);
    assert_eq!(offsets(scan().offsets(i64::MIN..=i64::MAX)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(offsets(scan().offsets(i64::MAX..)), [0; 0]);
    assert_eq!(offsets(scan().offsets(..i64::MIN)), [0; 0]);
}

#[test]
fn timestamps_can_be_bounded_also_where_they_are_out_of_order() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = six_records(&engine);
    let late = [Record::keyless("late").timestamp(15), Record::keyless("early").timestamp(60)];
    append_batch(&engine, &partition, batch_of(&late));
    let scan = || engine.snapshot().scan(partition.topic());
    assert_eq!(offsets(scan().timestamps(10..30)), [1, 2, 6]);
    assert_eq!(offsets(scan().timestamps(10..=30)), [1, 2, 3, 6]);
    assert_eq!(offsets(scan().timestamps(50..)), [5, 7]);
    assert_eq!(offsets(scan().timestamps(61..)), [0; 0]);
    assert_eq!(offsets(scan().timestamps(..0)), [0; 0]);
    assert_eq!(offsets(scan().timestamps(..=0)), [0]);
    assert_eq!(offsets(scan().timestamps(10..=30).offsets(2..)), [2, 3, 6]);
}

#[test]
fn append_times_are_those_of_the_engine_and_select_whole_commits() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for i in 0..4 {
        test.clock.set_ms(NOW_MS + i);
        append(&engine, &partition, [1, 2].map(|t| Record::keyless(format!("{i}")).timestamp(t)));
    }
    let scan = || engine.snapshot().scan(partition.topic());
    assert_eq!(offsets(scan().append_times(NOW_MS + 1..NOW_MS + 3)), [2, 3, 4, 5]);
    assert_eq!(offsets(scan().append_times(..=NOW_MS)), [0, 1]);
    assert_eq!(offsets(scan().append_times(NOW_MS + 4..)), [0; 0]);
    assert_eq!(offsets(scan().append_times(NOW_MS + 2..).timestamps(2..)), [5, 7]);
}

#[test]
fn the_time_of_the_log_is_the_timestamp_where_the_topic_keeps_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("message.timestamp.type", "LogAppendTime")]);
    for _ in 0..2 {
        append(&engine, &partition, [5, 6].map(|t| Record::keyless("v").timestamp(t)));
        test.clock.advance_ms(10);
    }
    let scan = || engine.snapshot().scan(partition.topic());
    assert_eq!(offsets(scan().timestamps(NOW_MS + 1..)), [2, 3]);
    assert_eq!(offsets(scan().timestamps(..NOW_MS)), [0; 0]);
}

#[test]
fn a_deleted_topic_can_be_scanned_in_a_snapshot_that_was_taken_before_and_in_none_after() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    (0..100).for_each(|i| append_to_all(&engine, &topic.partitions(), &format!("{i}")));
    let snapshot = engine.snapshot();
    let mut begun = snapshot.scan(&topic);
    assert_eq!(begun.next().unwrap().unwrap().record.offset, 0);
    engine.delete_topic("t").unwrap();
    engine.maintenance().checkpoint().unwrap();
    assert_eq!(found(begun).len(), 199);
    assert_eq!(found(snapshot.scan(&topic)).len(), 200);
    let gone: Vec<_> = engine.snapshot().scan(&topic).collect();
    assert_eq!(gone.len(), 2);
    assert!(gone.iter().all(|gone| matches!(gone, Err(ScanError::UnknownPartition { .. }))));
    // Neither does a topic that is made anew under the name show in the older snapshot.
    let new = one_partition(&engine, "t", &[]);
    append(&engine, new.topic().partitions().first().unwrap(), [Record::keyless("new")]);
    assert!(snapshot.scan(new.topic()).next().unwrap().is_err());
}

#[test]
fn partitions_that_were_added_after_the_snapshot_are_not_in_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(1)).unwrap();
    append_to_all(&engine, &topic.partitions(), "before");
    let snapshot = engine.snapshot();
    engine.topics().add_partitions("t", 3).unwrap();
    append_to_all(&engine, &topic.partitions(), "behind");
    assert_eq!(found(snapshot.scan(&topic)), [(0, 0, "before".to_owned())]);
    assert_eq!(found(engine.snapshot().scan(&topic)).len(), 4);
    let asked_for: Vec<_> = snapshot.scan(&topic).partitions(&[2]).collect();
    assert!(matches!(asked_for[..], [Err(ScanError::UnknownPartition { partition: 2 })]));
}

#[test]
fn a_scan_over_more_than_it_reads_ahead_gives_every_record_once() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let value = "x".repeat(30_000);
    for _ in 0..100 {
        append(&engine, &partition, [Record::keyless(&value), Record::keyless(&value)]);
    }
    let topic = partition.topic();
    assert_eq!(offsets(engine.snapshot().scan(topic)), (0..200).collect::<Vec<_>>());
    let middle = engine.snapshot().scan(topic).offsets(33..177);
    assert_eq!(offsets(middle), (33..177).collect::<Vec<_>>());
}

#[test]
fn a_scan_ends_with_an_error_once_the_engine_is_closed() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = six_records(&engine);
    let snapshot = engine.snapshot();
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::keyless("6")]).unwrap();
    append.commit(Durability::Sync).unwrap();
    engine.close().unwrap();
    let scanned: Vec<_> = snapshot.scan(partition.topic()).collect();
    assert!(matches!(scanned[..], [Err(ScanError::Storage(StorageError::Closed))]), "{scanned:?}");
}
