//! The cleaner, rule by rule: what stays, what goes, and what happens beside it while a pass runs.

use crate::common;

use std::ops::ControlFlow;
use std::path::Path;

use common::{
    NOW_MS, TestEngine, append, append_batch, assert_verified, batch_of, described, offsets_of,
    one_partition, records_of, values_of,
};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::internals;
use tidelog::{
    CleanError, CleanerPass, Engine, FetchOptions, Isolation, OffsetQuery, Partition, Record,
    StorageError, Visibility,
};

const EAGER: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("delete.retention.ms", "5000"),
];

fn compacted(engine: &Engine, name: &str) -> Partition {
    one_partition(engine, name, &EAGER)
}

/// One batch for each of the records.
fn append_each(engine: &Engine, partition: &Partition, records: &[(&str, &str)]) {
    for &(key, value) in records {
        append(engine, partition, [Record::new(key, value).timestamp(NOW_MS)]);
    }
}

fn clean(engine: &Engine, partition: &Partition) -> Option<CleanerPass> {
    let pass = engine.cleaner().clean_partition(partition).expect("nothing is damaged");
    assert_verified(engine);
    pass
}

fn set(engine: &Engine, topic: &str, name: &str, value: &str) {
    let operation = ConfigOperation::Set(value.to_owned());
    let change = ConfigChange { name: name.to_owned(), operation };
    engine.topics().alter(topic, &[change]).expect("the setting is legal");
}

/// Flips a bit of the newest place in the log that holds this text.
fn flip(test: &TestEngine, text: &str) {
    let directory = Path::new("/engine/log");
    let mut names = test.disk.process().list(directory).expect("it is there");
    names.sort();
    for name in names.iter().rev() {
        let path = directory.join(name);
        let contents = test.disk.contents(&path).expect("it is there");
        let found = contents.windows(text.len()).rposition(|part| part == text.as_bytes());
        if let Some(at) = found {
            return test.disk.tamper(&path, |bytes| bytes[at] ^= 1);
        }
    }
    panic!("the log does not hold {text}");
}

#[test]
fn survivors_more_than_2_31_offsets_apart_keep_their_offsets() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("a", "1"), ("b", "1")]);
    internals::skip_offsets(&engine, &partition, 3_000_000_000).unwrap();
    append_each(&engine, &partition, &[("b", "2")]);
    assert!(clean(&engine, &partition).unwrap().is_finished);
    assert_eq!(offsets_of(&engine, &partition), [0, 3_000_000_000]);
    append_each(&engine, &partition, &[("a", "2")]);
    assert!(clean(&engine, &partition).unwrap().is_finished);
    assert_eq!(offsets_of(&engine, &partition), [3_000_000_000, 3_000_000_001]);
}

#[test]
fn a_log_start_after_the_cleaned_range_is_where_the_next_pass_begins() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append(&engine, &partition, (0..10).map(|key| Record::new(key.to_string(), "1")));
    engine.delete_records(&partition, 10).unwrap();
    assert_eq!(clean(&engine, &partition), None);
    append_each(&engine, &partition, &[("a", "1")]);
    let pass = clean(&engine, &partition).unwrap();
    assert_eq!((pass.from, pass.cleaned_to), (10, 11));
    assert_eq!(offsets_of(&engine, &partition), [10]);
}

#[test]
fn one_damaged_partition_stops_no_other_and_is_tried_again_in_every_round() {
    let test = TestEngine::new();
    let engine = test.open();
    let (bad, good) = (compacted(&engine, "bad"), compacted(&engine, "good"));
    for partition in [&bad, &good] {
        append_each(&engine, partition, &[("a", "1"), ("k", "damaged"), ("a", "2")]);
    }
    // Both hold the text; the newest place is that of `good`, so `bad` comes once more.
    append_each(&engine, &bad, &[("k", "damaged soon")]);
    flip(&test, "damaged soon");
    let before = records_of(&engine, &good).len();
    for _ in 0..2 {
        let step = engine.maintenance().run().unwrap();
        assert_eq!(step.cleaner_failures, 1);
        assert!(matches!(engine.cleaner().failure(&bad), Some(StorageError::Corruption(_))));
        assert_eq!(engine.metrics().uncleanable_partitions, 1);
        test.clock.advance_ms(test.config.maintenance_interval_ms);
    }
    assert_eq!((before, offsets_of(&engine, &good)), (3, vec![1, 2]));
    assert!(matches!(
        engine.cleaner().clean_partition(&bad),
        Err(CleanError::Storage(StorageError::Corruption(_)))
    ));
    assert_eq!(described(&engine, &bad).batch_count, 4, "it is left alone");
    flip(&test, "eamaged soon");
    assert_eq!(engine.maintenance().run().unwrap().cleaner_failures, 0);
    assert_eq!(offsets_of(&engine, &bad), [2, 3]);
    assert_eq!(engine.metrics().uncleanable_partitions, 0);
    assert!(engine.cleaner().failure(&bad).is_none());
}

#[test]
fn more_keys_than_memory_holds_are_cleaned_in_several_passes() {
    let test = TestEngine::with(|config| config.cleaner_memory_bytes(1000 * 40));
    let engine = test.open();
    let partition = compacted(&engine, "t");
    for round in 0..3 {
        for batch in 0..50 {
            let keys = batch * 100..(batch + 1) * 100;
            let record = |key: i32| Record::new(key.to_string(), round.to_string());
            append(&engine, &partition, keys.map(record));
        }
    }
    let mut passes = 0;
    while let Some(pass) = engine.cleaner().clean_partition(&partition).unwrap() {
        assert!(pass.key_count <= 1000 && pass.cleaned_to > pass.from);
        passes += 1;
    }
    assert_eq!(passes, 15);
    assert_verified(&engine);
    let records = records_of(&engine, &partition);
    assert_eq!(records.len(), 5000);
    assert!(records.iter().all(|record| record.value.as_deref() == Some(b"2")));
    assert_eq!(records[0].offset, 10_000);
}

#[test]
fn timestamps_stay_when_the_first_record_of_a_batch_goes() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    let first = [("a", NOW_MS), ("b", 1000), ("c", 2000)];
    let records = first.map(|(key, timestamp)| Record::new(key, "1").timestamp(timestamp));
    append_batch(&engine, &partition, batch_of(&records));
    append_batch(&engine, &partition, batch_of(&[Record::new("a", "2").timestamp(3000)]));
    clean(&engine, &partition).unwrap();
    let found = records_of(&engine, &partition);
    let times: Vec<_> = found.iter().map(|record| (record.offset, record.timestamp)).collect();
    assert_eq!(times, [(1, 1000), (2, 2000), (3, 3000)]);
    let (isolation, visibility) = (Isolation::Committed, Visibility::Applied);
    let look_up = |query| {
        let found = engine.list_offset(&partition, query, isolation, visibility).unwrap();
        found.map(|found| (found.offset, found.timestamp))
    };
    assert_eq!(look_up(OffsetQuery::Timestamp(2000)), Some((2, 2000)));
    assert_eq!(look_up(OffsetQuery::Timestamp(3001)), None);
    assert_eq!(look_up(OffsetQuery::MaxTimestamp), Some((3, 3000)));
}

#[test]
fn records_deleted_while_a_pass_runs_do_not_come_back() {
    for pause_at in 0..2 {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = compacted(&engine, "t");
        for index in 0..10 {
            let records = (0..10).map(|key| Record::new(key.to_string(), index.to_string()));
            append(&engine, &partition, records.chain([Record::new(format!("own{index}"), "1")]));
        }
        let mut calls = 0;
        let pass = engine.cleaner().clean_partition_at(&partition, |_| {
            if calls == pause_at {
                engine.delete_records(&partition, 50).unwrap();
                append_each(&engine, &partition, &[("3", "newer")]);
            }
            calls += 1;
            ControlFlow::Continue(())
        });
        assert!(calls > pause_at && pass.unwrap().unwrap().is_finished);
        let check = |engine: &Engine, partition: &Partition| {
            assert_verified(engine);
            assert_eq!(engine.watermarks(partition).unwrap().log_start, 50);
            let offsets = offsets_of(engine, partition);
            let owns = [54, 65, 76, 87, 98].into_iter();
            let newest = owns.chain(99..111).collect::<Vec<i64>>();
            assert_eq!(offsets, newest);
        };
        check(&engine, &partition);
        test.kill();
        drop(engine);
        let engine = test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        check(&engine, &partition);
        assert!(clean(&engine, &partition).unwrap().is_finished);
        let found = records_of(&engine, &partition);
        let threes = found.iter().filter(|record| record.key.as_deref() == Some(b"3"));
        assert_eq!(threes.map(|record| record.offset).collect::<Vec<_>>(), [110]);
    }
}

#[test]
fn delete_records_and_fetch_into_a_gap_go_on_with_the_next_record() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("a", "1")]);
    for start in [1, 11] {
        let records = (start..start + 9).map(|index| Record::new("k", index.to_string()));
        append(&engine, &partition, records.chain([Record::new(start.to_string(), "1")]));
    }
    clean(&engine, &partition).unwrap();
    assert_eq!(offsets_of(&engine, &partition), [0, 10, 19, 20]);
    assert_eq!(engine.delete_records(&partition, 5).unwrap(), 5);
    let first = |offset| {
        let fetched = engine.fetch(&partition, offset, FetchOptions::new()).unwrap();
        fetched.records().next().unwrap().unwrap().offset
    };
    assert_eq!((first(5), first(11), first(20)), (10, 19, 20));
    assert_verified(&engine);
}

#[test]
fn a_topic_is_deleted_while_a_pass_runs_and_what_is_made_anew_is_empty() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("a", "1"), ("a", "2"), ("b", "1")]);
    let mut anew = None;
    let pass = engine.cleaner().clean_partition_at(&partition, |_| {
        if anew.is_none() {
            engine.delete_topic("t").unwrap();
            anew = Some(compacted(&engine, "t"));
        }
        ControlFlow::Continue(())
    });
    assert!(!pass.unwrap().unwrap().is_finished);
    assert!(engine.delete_topic("nothing").is_err());
    assert_eq!(values_of(&engine, &anew.unwrap()), Vec::<String>::new());
    let gone = engine.cleaner().clean_partition(&partition);
    assert!(matches!(gone, Err(CleanError::UnknownPartition { .. })));
    assert_verified(&engine);
}

#[test]
fn a_tombstone_goes_with_the_first_pass_after_its_time_however_many_come_before() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append(&engine, &partition, [Record::new("k", "1").timestamp(NOW_MS)]);
    append(&engine, &partition, [Record::tombstone("k").timestamp(NOW_MS)]);
    let has_tombstone = || {
        let records = records_of(&engine, &partition);
        records.iter().any(|record| record.value.is_none())
    };
    for second in 0..5 {
        append_each(&engine, &partition, &[("other", &second.to_string())]);
        assert!(clean(&engine, &partition).is_some());
        assert!(has_tombstone(), "after {second} seconds");
        test.clock.advance_ms(1000);
    }
    // Nothing is dirty: the horizon alone starts this pass.
    let pass = clean(&engine, &partition).unwrap();
    assert!(!has_tombstone());
    assert_eq!((pass.from, pass.cleaned_to), (7, 7));
    assert_eq!(clean(&engine, &partition), None, "no pass is due for what has gone");
    assert_eq!(described(&engine, &partition).next_horizon, None);
}

#[test]
fn a_record_without_a_key_is_refused_with_its_index_and_an_empty_key_is_a_key() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    let records = [Record::new("a", "1"), Record::keyless("2"), Record::new("b", "3")];
    let refused = engine.append_transaction().records(&partition, records).unwrap_err();
    assert_eq!(refused.code(), 87);
    assert_eq!(engine.watermarks(&partition).unwrap().log_end, 0);
    append_each(&engine, &partition, &[("", "1"), ("", "2"), ("a", "1")]);
    clean(&engine, &partition).unwrap();
    assert_eq!(offsets_of(&engine, &partition), [1, 2]);
}

#[test]
fn records_without_a_key_from_before_a_policy_change_are_dropped() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("min.cleanable.dirty.ratio", "0")]);
    append(&engine, &partition, [Record::keyless("x"), Record::new("a", "1")]);
    append(&engine, &partition, [Record::new("a", "2")]);
    append(&engine, &partition, [Record::keyless("y"), Record::keyless("z")]);
    assert_eq!(clean(&engine, &partition), None, "policy delete does not clean");
    set(&engine, "t", "cleanup.policy", "compact");
    let pass = clean(&engine, &partition).unwrap();
    assert_eq!(pass.removed_records, 4);
    assert_eq!(offsets_of(&engine, &partition), [2]);
    // The last batch stays as a header, so that a reader gets to the end.
    let fetched = engine.fetch(&partition, 3, FetchOptions::new()).unwrap();
    assert_eq!((fetched.bytes.len(), fetched.next_offset), (61, 5));
    append(&engine, &partition, [Record::new("b", "1")]);
    clean(&engine, &partition).unwrap();
    let fetched = engine.fetch(&partition, 3, FetchOptions::new()).unwrap();
    assert_eq!(fetched.records().next().unwrap().unwrap().offset, 5);
}

#[test]
fn a_reader_on_a_removed_offset_gets_the_next_record_whatever_its_limit() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    for value in 0..10 {
        append_each(&engine, &partition, &[("x", &value.to_string())]);
    }
    clean(&engine, &partition).unwrap();
    for max_bytes in [1, 1 << 20] {
        for offset in 0..10 {
            let options = FetchOptions::new().max_bytes(max_bytes);
            let fetched = engine.fetch(&partition, offset, options).unwrap();
            assert_eq!(fetched.records().next().unwrap().unwrap().offset, 9);
        }
    }
    let earliest = engine
        .list_offset(&partition, OffsetQuery::Earliest, Isolation::Committed, Visibility::Applied)
        .unwrap();
    assert_eq!(earliest.unwrap().offset, 0, "cleaning does not move the log start");
}

#[test]
fn the_cleaner_runs_again_once_the_last_of_its_pauses_is_gone() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("a", "1"), ("a", "2")]);
    let (first, second) = (engine.cleaner().pause(), engine.cleaner().pause());
    assert_eq!(clean(&engine, &partition), None);
    drop(first);
    assert_eq!(clean(&engine, &partition), None);
    assert_eq!(engine.cleaner().run().unwrap().passes.len(), 0);
    drop(second);
    assert!(clean(&engine, &partition).unwrap().is_finished);
}

#[test]
fn a_pause_stops_a_pass_that_runs_on_another_thread() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("a", "1"), ("a", "2"), ("b", "1")]);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let pauser = engine.clone();
    let thread = std::thread::spawn(move || {
        has_begun.recv().expect("a pass has begun");
        pauser.cleaner().pause()
    });
    let pass = engine.cleaner().clean_partition_at(&partition, |_| {
        // It may be gone already: then the cleaner is paused.
        let _ = begun.send(());
        while !engine.cleaner().is_paused() {
            std::thread::yield_now();
        }
        ControlFlow::Continue(())
    });
    assert!(!pass.unwrap().unwrap().is_finished);
    let pause = thread.join().unwrap();
    assert_eq!(clean(&engine, &partition), None);
    drop(pause);
    assert!(clean(&engine, &partition).unwrap().is_finished);
}

#[test]
fn a_batch_that_loses_nothing_is_not_written_again() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append(&engine, &partition, (0..50).map(|key| Record::new(key.to_string(), "1")));
    append(&engine, &partition, (50..100).map(|key| Record::new(key.to_string(), "1")));
    let before = engine.metrics();
    let pass = clean(&engine, &partition).unwrap();
    assert_eq!((pass.written_bytes, pass.replaced_bytes, pass.commits), (0, 0, 1));
    assert_eq!(pass.read_bytes, before.live_bytes, "each batch was read once");
    append(&engine, &partition, [Record::new("0", "2")]);
    let pass = clean(&engine, &partition).unwrap();
    assert!(pass.written_bytes > 0 && pass.written_bytes < before.live_bytes / 2);
}

#[test]
fn a_pass_ends_when_its_topic_is_compacted_no_more() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("a", "1"), ("a", "2"), ("b", "1")]);
    let mut is_set = false;
    let pass = engine.cleaner().clean_partition_at(&partition, |_| {
        if !is_set {
            set(&engine, "t", "cleanup.policy", "delete");
            is_set = true;
        }
        ControlFlow::Continue(())
    });
    assert!(!pass.unwrap().unwrap().is_finished);
    assert_eq!(offsets_of(&engine, &partition), [0, 1, 2]);
    set(&engine, "t", "cleanup.policy", "compact");
    assert!(clean(&engine, &partition).unwrap().is_finished);
    assert_eq!(offsets_of(&engine, &partition), [1, 2]);
}

#[test]
fn where_the_cleaner_was_survives_a_reopen_and_shows_in_describe_and_metrics() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("a", "1"), ("a", "2")]);
    append(&engine, &partition, [Record::tombstone("b")]);
    assert_eq!(engine.metrics().dirty_offsets, 3);
    clean(&engine, &partition).unwrap();
    let metrics = engine.metrics();
    assert_eq!((metrics.dirty_offsets, metrics.cleaner_passes), (0, 1));
    assert_eq!(metrics.cleaner_removed_records, 1);
    let check = |engine: &Engine| {
        let topic = engine.topic("t").unwrap();
        let found = described(engine, &topic.partition(0).unwrap());
        assert_eq!((found.first_dirty, found.is_uncleanable), (3, false));
        assert_eq!(found.next_horizon, Some(NOW_MS + 5000));
        assert!(!engine.cleaner().plan(&topic.partition(0).unwrap()).unwrap().is_due);
    };
    check(&engine);
    engine.close().unwrap();
    let engine = test.open();
    check(&engine);
    test.kill();
    drop(engine);
    check(&test.open());
}

#[test]
fn a_full_disk_fails_a_pass_and_loses_nothing() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    for index in 0..8 {
        let large = vec![b'v'; 300 << 10];
        let records = [Record::new("k", index.to_string()), Record::new(index.to_string(), large)];
        append(&engine, &partition, records);
    }
    let before = records_of(&engine, &partition);
    test.disk.set_capacity(Some(engine.metrics().log_size_bytes + (100 << 10)));
    let failed = engine.cleaner().clean_partition(&partition);
    assert!(
        matches!(failed, Err(CleanError::Storage(StorageError::DiskFull { .. }))),
        "{failed:?}"
    );
    assert_eq!(records_of(&engine, &partition), before);
    test.disk.set_capacity(None);
    assert!(clean(&engine, &partition).unwrap().is_finished);
    assert_eq!(records_of(&engine, &partition).len(), 9);
}

#[test]
fn what_a_pass_has_committed_before_it_found_damage_counts_in_the_metrics() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = compacted(&engine, "t");
    append_each(&engine, &partition, &[("k", "damaged")]);
    for index in 0..4 {
        // Each value fills a commit of its own.
        let own = Record::new(index.to_string(), vec![b'v'; 600 << 10]);
        append(&engine, &partition, [Record::new("k", "v"), own]);
    }
    flip(&test, "damaged");
    let before = described(&engine, &partition).record_count;
    assert!(engine.cleaner().clean_partition(&partition).is_err());
    let removed = before - described(&engine, &partition).record_count;
    let metrics = engine.metrics();
    assert_eq!((removed, metrics.cleaner_removed_records), (3, 3));
    assert!(metrics.cleaner_read_bytes > 4 * (600 << 10));
    assert!(metrics.cleaner_written_bytes > 3 * (600 << 10));
}
