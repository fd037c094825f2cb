//! The engine over its index: neighbours, many partitions, deletions and checkpoints, on each store.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;
use crate::temporary;

use std::sync::Arc;

use common::{append, append_to_all, one_partition, values_of};
use temporary::TemporaryDirectory;
use tidelog::config::Maintenance;
use tidelog::internals::store::OpenStore;
use tidelog::testing::MemoryDisk;
use tidelog::{
    Engine, EngineConfig, FetchOptions, FirstBatch, Isolation, OffsetQuery, OffsetTarget,
    Partition, Record, ScanError, ScannedRecord, StorageError, TopicConfig, Visibility,
};

/// A directory and a kind of store; the engine in it can be opened again and again.
struct Place {
    directory: TemporaryDirectory,
    store: Arc<dyn OpenStore>,
}

impl Place {
    fn new(store: Arc<dyn OpenStore>) -> Self {
        Self { directory: TemporaryDirectory::new(), store }
    }

    fn open(&self) -> Engine {
        let config = EngineConfig::default()
            .maintenance(Maintenance::Manual)
            .segment_bytes(1 << 20)
            .disk_reserve_bytes(0);
        Engine::builder(self.directory.path())
            .config(config)
            .store(Arc::clone(&self.store))
            .seed(7)
            .open()
            .expect("the engine opens")
    }
}

fn memory() -> Place {
    Place::new(Arc::new(MemoryDisk::new()))
}

#[cfg(feature = "rocksdb")]
fn rocksdb() -> Place {
    Place::new(Arc::new(tidelog::internals::store::RocksOpener::new(8 << 20)))
}

/// Runs each check on each store.
macro_rules! on_each_store {
    ($($name:ident),* $(,)?) => {
        mod on_memory {
            $(
                #[test]
                fn $name() {
                    super::$name(&super::memory());
                }
            )*
        }

        #[cfg(feature = "rocksdb")]
        mod on_rocksdb {
            $(
                #[test]
                fn $name() {
                    super::$name(&super::rocksdb());
                }
            )*
        }
    };
}

on_each_store!(
    a_partition_never_shows_records_of_its_neighbours,
    a_partition_never_shows_records_of_neighbours_that_are_gone,
    deleting_what_is_empty_leaves_all_else_as_it_is,
    many_deletions_leave_seeks_right,
    seeks_are_right_after_many_small_deletions_and_one_large_one,
    a_cursor_made_anew_gives_nothing_below_the_start_and_a_snapshot_goes_on,
    a_snapshot_shows_what_the_cleaner_removes_under_it,
    closing_lets_go_of_everything_that_snapshots_and_handles_held,
    a_scan_goes_on_over_what_is_deleted_and_flushed_meanwhile,
    thousands_of_partitions_are_read_within_the_bytes_that_were_asked_for,
    every_mix_of_checkpoints_and_kills_is_replayed_to_the_same_end,
    an_index_that_was_flushed_is_read_after_a_clean_close_without_a_replay,
);

fn offset(engine: &Engine, partition: &Partition, query: OffsetQuery) -> Option<i64> {
    let (isolation, visibility) = (Isolation::Committed, Visibility::Applied);
    let found = engine.list_offset(partition, query, isolation, visibility);
    found.expect("the partition exists").map(|found| found.offset)
}

fn a_partition_never_shows_records_of_its_neighbours(place: &Place) {
    let engine = place.open();
    let names = ["a", "ab", "a-1"];
    for name in names {
        let topic = engine.create_topic(name, TopicConfig::new(300)).unwrap();
        for index in [1, 10, 255, 256, 257] {
            let value = format!("{name} {index}");
            append(&engine, &topic.partition(index).unwrap(), [Record::keyless(value)]);
        }
    }
    let check = |engine: &Engine| {
        for name in names {
            for partition in engine.topic(name).unwrap().partitions() {
                let index = partition.index();
                let has_record = [1, 10, 255, 256, 257].contains(&index);
                let expected: Vec<_> =
                    has_record.then(|| format!("{name} {index}")).into_iter().collect();
                assert_eq!(values_of(engine, &partition), expected);
                let greatest = offset(engine, &partition, OffsetQuery::MaxTimestamp);
                assert_eq!(greatest, has_record.then_some(0));
                let scan = engine.snapshot().scan(partition.topic()).partitions(&[index]);
                assert_eq!(scan.count(), expected.len());
            }
        }
    };
    check(&engine);
    engine.close().unwrap();
    check(&place.open());
}

fn a_partition_never_shows_records_of_neighbours_that_are_gone(place: &Place) {
    let engine = place.open();
    for round in 0..3 {
        let names = ["x", "y", "z"].map(|name| format!("{name}{round}"));
        for name in &names {
            let topic = engine.create_topic(name, TopicConfig::new(3)).unwrap();
            (0..70).for_each(|_| append_to_all(&engine, &topic.partitions(), name));
        }
        engine.delete_topic(&names[1]).unwrap();
        engine.maintenance().checkpoint().unwrap();
        for name in [&names[0], &names[2]] {
            for partition in engine.topic(name).unwrap().partitions() {
                assert_eq!(values_of(&engine, &partition), vec![name.clone(); 70]);
            }
        }
    }
    let report = engine.verify().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    assert_eq!((report.partition_count, report.record_count), (18, 18 * 70));
}

fn deleting_what_is_empty_leaves_all_else_as_it_is(place: &Place) {
    let engine = place.open();
    let kept = one_partition(&engine, "kept", &[]);
    append(&engine, &kept, [Record::keyless("v")]);
    for partitions in [1, 2, 63, 64, 65] {
        engine.create_topic("empty", TopicConfig::new(partitions)).unwrap();
        engine.delete_topic("empty").unwrap();
    }
    append(&engine, &kept, [Record::keyless("w")]);
    drop(engine);
    let engine = place.open();
    let kept = engine.topic("kept").unwrap().partition(0).unwrap();
    assert_eq!(values_of(&engine, &kept), ["v", "w"]);
    assert!(engine.verify().unwrap().is_clean());
}

// By what is found; `benches/fetch.rs` has the times.
fn seeks_are_right_after_many_small_deletions_and_one_large_one(place: &Place) {
    let engine = place.open();
    let partition = one_partition(&engine, "t", &[]);
    for at in 0..3000 {
        append(&engine, &partition, [Record::keyless("v").timestamp(at)]);
        if at % 20 == 19 {
            engine.delete_records(&partition, at - 9).unwrap();
        }
    }
    engine.maintenance().checkpoint().unwrap();
    (3000..6000).for_each(|at| append(&engine, &partition, [Record::keyless("v").timestamp(at)]));
    engine.delete_records(&partition, 5990).unwrap();
    let check = |engine: &Engine, partition: &Partition| {
        for at in 5990..6000 {
            let fetched = engine.fetch(partition, at, FetchOptions::new()).unwrap();
            assert_eq!(fetched.records().next().unwrap().unwrap().offset, at);
            assert_eq!(offset(engine, partition, OffsetQuery::Timestamp(at)), Some(at));
        }
        assert_eq!(offset(engine, partition, OffsetQuery::Earliest), Some(5990));
        assert_eq!(offset(engine, partition, OffsetQuery::Timestamp(0)), Some(5990));
        assert_eq!(engine.verify().unwrap().record_count, 10);
    };
    check(&engine, &partition);
    engine.close().unwrap();
    let engine = place.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    check(&engine, &partition);
}

fn a_cursor_made_anew_gives_nothing_below_the_start_and_a_snapshot_goes_on(place: &Place) {
    let engine = place.open();
    let partition = one_partition(&engine, "t", &[("retention.ms", "-1")]);
    for at in 0..1000 {
        append(&engine, &partition, [Record::keyless("v").timestamp(at)]);
    }
    let mut cursor = engine.snapshot().scan(partition.topic());
    assert_eq!(cursor.next().unwrap().unwrap().record.offset, 0);
    engine.delete_records(&partition, 500).unwrap();
    engine.maintenance().run().unwrap();
    let anew = engine.snapshot().scan(partition.topic());
    assert!(anew.map(|found| found.unwrap().record.offset).eq(500..1000));
    assert!(cursor.map(|found| found.unwrap().record.offset).eq(1..1000));
    assert!(engine.fetch(&partition, 499, FetchOptions::new()).is_err());
}

fn a_snapshot_shows_what_the_cleaner_removes_under_it(place: &Place) {
    let engine = place.open();
    let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
    let partition = one_partition(&engine, "t", &settings);
    for number in 0..3000 {
        append(&engine, &partition, [Record::new(format!("{}", number % 100), "v")]);
    }
    let mut slow = engine.snapshot().scan(partition.topic());
    assert_eq!(slow.next().unwrap().unwrap().record.offset, 0);
    engine.cleaner().clean_partition(&partition).unwrap().unwrap();
    engine.maintenance().checkpoint().unwrap();
    engine.maintenance().run().unwrap();
    let anew = engine.snapshot().scan(partition.topic());
    assert!(anew.map(|found| found.unwrap().record.offset).eq(2900..3000));
    assert!(slow.map(|found| found.unwrap().record.offset).eq(1..3000));
}

fn closing_lets_go_of_everything_that_snapshots_and_handles_held(place: &Place) {
    let is_closed = |found: Option<Result<ScannedRecord, ScanError>>| {
        matches!(found, Some(Err(ScanError::Storage(StorageError::Closed))))
    };
    for (first, how) in [(0, "closed"), (100, "dropped")] {
        let engine = place.open();
        let topic = engine.open_or_create_topic("t", TopicConfig::new(1)).unwrap();
        let partition = topic.partition(0).unwrap();
        (0..100).for_each(|_| append(&engine, &partition, [Record::keyless(vec![b'v'; 50_000])]));
        let snapshot = engine.snapshot();
        let mut begun = snapshot.scan(&topic);
        assert!(begun.next().unwrap().is_ok());
        let fetched = engine.fetch(&partition, first, FetchOptions::new()).unwrap();
        match how {
            "closed" => engine.close().unwrap(),
            _ => drop(engine),
        }
        let again = place.open();
        // What the old ones name may be freed and written over by now.
        let partition = again.topic("t").unwrap().partition(0).unwrap();
        again.delete_records(&partition, OffsetTarget::HighWatermark).unwrap();
        again.maintenance().checkpoint().unwrap();
        again.maintenance().run().unwrap();
        append(&again, &partition, [Record::keyless("new")]);

        assert!(fetched.records().next().unwrap().is_ok(), "it was read before: {how}");
        assert!(begun.any(|found| is_closed(Some(found))), "a scan ends so: {how}");
        assert!(is_closed(snapshot.scan(&topic).next()), "a snapshot ends so: {how}");
        again.close().unwrap();
    }
}

fn many_deletions_leave_seeks_right(place: &Place) {
    let engine = place.open();
    let kept = one_partition(&engine, "kept", &[]);
    for i in 0..60 {
        let gone = one_partition(&engine, "gone", &[]);
        let values = (0..100).map(|_| Record::keyless("gone"));
        values.for_each(|record| append(&engine, &gone, [record]));
        append(&engine, &kept, [Record::keyless(format!("{i}")).timestamp(i)]);
        engine.delete_topic("gone").unwrap();
        assert_eq!(offset(&engine, &kept, OffsetQuery::Earliest), Some(0));
        assert_eq!(offset(&engine, &kept, OffsetQuery::Timestamp(i)), Some(i));
        let last = engine.fetch(&kept, i, FetchOptions::new()).unwrap();
        assert_eq!(last.records().count(), 1);
    }
    engine.close().unwrap();
    let engine = place.open();
    let kept = engine.topic("kept").unwrap().partition(0).unwrap();
    assert_eq!(values_of(&engine, &kept).len(), 60);
    assert_eq!(engine.verify().unwrap().record_count, 60);
}

fn a_scan_goes_on_over_what_is_deleted_and_flushed_meanwhile(place: &Place) {
    let engine = place.open();
    let partition = one_partition(&engine, "t", &[]);
    let value = "x".repeat(1000);
    for i in 0..2000 {
        append(&engine, &partition, [Record::keyless(&value).timestamp(i)]);
    }
    engine.maintenance().checkpoint().unwrap();
    let mut scan = engine.snapshot().scan(partition.topic());
    for expected in 0..10 {
        assert_eq!(scan.next().unwrap().unwrap().record.offset, expected);
    }
    engine.delete_topic("t").unwrap();
    engine.maintenance().checkpoint().unwrap();
    let other = one_partition(&engine, "t", &[]);
    (0..200).for_each(|_| append(&engine, &other, [Record::keyless("new")]));
    engine.maintenance().checkpoint().unwrap();
    let rest: Vec<_> = scan.map(|scanned| scanned.unwrap().record).collect();
    assert_eq!(rest.len(), 1990);
    assert!(rest.iter().zip(10..).all(|(record, i)| record.offset == i && record.timestamp == i));
}

fn thousands_of_partitions_are_read_within_the_bytes_that_were_asked_for(place: &Place) {
    let engine = place.open();
    let topic = engine.create_topic("t", TopicConfig::new(2000)).unwrap();
    append_to_all(&engine, &topic.partitions(), &"x".repeat(100));
    let mut left = 50_000;
    let (mut given, mut answered) = (0, 0);
    for partition in topic.partitions() {
        let first = if given == 0 { FirstBatch::Always } else { FirstBatch::IfItFits };
        let options = FetchOptions::new().max_bytes(left).first_batch(first);
        let fetched = engine.fetch(&partition, 0, options).unwrap();
        given += fetched.bytes.len() as u64;
        answered += u64::from(!fetched.bytes.is_empty());
        left = left.saturating_sub(fetched.bytes.len() as u64);
    }
    assert!(given <= 50_000);
    assert_eq!(answered, 50_000 / (given / answered));
    engine.delete_topic("t").unwrap();
    assert_eq!(engine.metrics().partition_count, 0);
    assert_eq!(engine.verify().unwrap().batch_count, 0);
}

// There is one mode, and one checkpoint over all families.
fn every_mix_of_checkpoints_and_kills_is_replayed_to_the_same_end(place: &Place) {
    let mut engine = place.open();
    engine.create_topic("t", TopicConfig::new(3)).unwrap();
    let mut expected = Vec::new();
    for round in 0..6 {
        for i in 0..5 {
            let topic = engine.topic("t").unwrap();
            append_to_all(&engine, &topic.partitions(), &format!("{round} {i}"));
            expected.push(format!("{round} {i}"));
            if i == round {
                engine.maintenance().checkpoint().unwrap();
            }
        }
        drop(engine);
        engine = place.open();
        for partition in engine.topic("t").unwrap().partitions() {
            assert_eq!(values_of(&engine, &partition), expected);
        }
        assert!(engine.verify().unwrap().is_clean());
    }
}

fn an_index_that_was_flushed_is_read_after_a_clean_close_without_a_replay(place: &Place) {
    let engine = place.open();
    let partition = one_partition(&engine, "t", &[]);
    (0..100).for_each(|i| append(&engine, &partition, [Record::keyless(format!("{i}"))]));
    engine.close().unwrap();
    let engine = place.open();
    let recovered = engine.recovered();
    assert!(recovered.closed_cleanly);
    assert_eq!((recovered.replayed_commits, recovered.torn_bytes), (0, 0));
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(values_of(&engine, &partition).len(), 100);
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_damaged_table_of_the_index_is_an_error_and_never_the_end_of_the_data() {
    for block in ["first", "middle"] {
        let place = rocksdb();
        let engine = place.open();
        let partition = one_partition(&engine, "t", &[]);
        (0..2000).for_each(|i| append(&engine, &partition, [Record::keyless(format!("{i}"))]));
        engine.close().unwrap();
        let tables = std::fs::read_dir(place.directory.path().join("store")).unwrap();
        let tables = tables.map(|entry| entry.unwrap().path());
        let tables = tables.filter(|path| path.extension().is_some_and(|name| name == "sst"));
        let largest = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
        let mut bytes = std::fs::read(&largest).unwrap();
        let at = if block == "first" { 100 } else { bytes.len() / 2 };
        bytes[at] ^= 0x55;
        std::fs::write(&largest, bytes).unwrap();

        let engine = place.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(engine.watermarks(&partition).unwrap().log_end, 2000);
        let mut read = 0;
        let options = FetchOptions::new().max_bytes(4000);
        while let Ok(fetched) = engine.fetch(&partition, read, options) {
            assert!(fetched.next_offset > read, "{block}: an empty answer at {read}");
            read = fetched.next_offset;
        }
        assert!(read < 2000, "{block}: the damage was not noticed");
        let scanned: Vec<_> = engine.snapshot().scan(partition.topic()).collect();
        assert!(scanned.last().unwrap().is_err(), "{block}");
    }
}
