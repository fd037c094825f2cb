//! Freed segments are written over while something is appended, and given back when nothing is.

use crate::common;

use std::path::{Path, PathBuf};

use common::{TestEngine, append_batch, assert_verified, batch_of, offsets_of, one_partition};
use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::testing::PowerLoss;
use tidelog::{
    Engine, GroupOffset, Isolation, OffsetQuery, Partition, Record, ScanError, Visibility,
};

const SEGMENT_BYTES: u64 = 64 << 10;

fn with_at_most(max_free_segments: u32) -> TestEngine {
    TestEngine::with(|config| {
        config.segment_bytes(SEGMENT_BYTES).max_free_segments(max_free_segments)
    })
}

/// Appends more than a segment holds.
fn append_a_segment(engine: &Engine, partition: &Partition) {
    append_batches(engine, partition, 17);
}

/// Appends batches of which 14 fill a segment.
fn append_batches(engine: &Engine, partition: &Partition, count: usize) {
    for _ in 0..count {
        append_batch(engine, partition, batch_of(&[Record::keyless(vec![7; 4000])]));
    }
}

/// Deletes all records of a partition but the newest.
fn delete_most(engine: &Engine, partition: &Partition) {
    let end = engine.watermarks(partition).expect("it exists").log_end;
    engine.delete_records(partition, end - 1).expect("it works");
}

fn round(test: &TestEngine, engine: &Engine) {
    test.clock.advance_ms(10_000);
    engine.maintenance().run().expect("it goes on");
}

/// An engine with freed segments, and the partition whose records were in them.
fn with_free_segments(test: &TestEngine) -> (Engine, Partition) {
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    (0..4).for_each(|_| append_a_segment(&engine, &partition));
    delete_most(&engine, &partition);
    round(test, &engine);
    assert_eq!(engine.metrics().free_segment_count, 2);
    (engine, partition)
}

/// The files of the log with their lengths.
fn files(test: &TestEngine) -> Vec<(String, u64)> {
    let directory = Path::new("/engine/log");
    let process = test.disk.process();
    let mut names = process.list(directory).expect("the directory is there");
    names.sort();
    let length = |name: &String| process.open(&directory.join(name)).expect("it is there").length();
    names.iter().map(|name| (name.clone(), length(name).expect("it has one"))).collect()
}

fn free_file_count(test: &TestEngine) -> u64 {
    files(test).iter().filter(|(name, _)| name.ends_with(".free")).count() as u64
}

/// What the metrics and the description of the log say is what its directory holds.
fn assert_told(test: &TestEngine, engine: &Engine) {
    let metrics = engine.metrics();
    let space = engine.log_space().expect("the disk can be asked");
    let on_disk: u64 = files(test).iter().map(|(_, length)| length).sum();
    assert_eq!(metrics.log_size_bytes + metrics.free_segment_bytes, on_disk);
    assert_eq!(metrics.free_segment_count, free_file_count(test));
    assert_eq!(space.size_bytes, metrics.log_size_bytes);
    assert_eq!(space.free_segment_count, metrics.free_segment_count);
    assert_eq!(space.free_segment_bytes, metrics.free_segment_bytes);
}

#[test]
fn while_records_come_and_go_the_log_needs_hardly_a_new_file() {
    for max_free_segments in [0, 2] {
        let test = with_at_most(max_free_segments);
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        for _ in 0..30 {
            append_a_segment(&engine, &partition);
            delete_most(&engine, &partition);
            round(&test, &engine);
            assert_told(&test, &engine);
            assert!(free_file_count(&test) <= u64::from(max_free_segments));
        }
        let metrics = engine.metrics();
        assert!(metrics.freed_segments > 20, "{metrics:?}");
        assert_eq!(metrics.reused_segments > 20, max_free_segments > 0, "{metrics:?}");
        assert_eq!(offsets_of(&engine, &partition).len(), 1);
        assert_verified(&engine);
        engine.close().unwrap();
        let engine = test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(offsets_of(&engine, &partition).len(), 1);
        assert_verified(&engine);
    }
}

#[test]
fn what_is_kept_is_given_back_once_nothing_was_appended_between_two_rounds() {
    let test = with_at_most(2);
    let (engine, partition) = with_free_segments(&test);
    for kept in [1, 1] {
        append_batch(&engine, &partition, batch_of(&[Record::keyless("v")]));
        round(&test, &engine);
        assert_eq!(engine.metrics().free_segment_count, kept, "few bytes need few files");
        assert_told(&test, &engine);
    }
    // What a group commits is no append: nobody waits for more than a few bytes.
    let offset = GroupOffset::new(1);
    engine.group("readers").commit(vec![(partition.clone(), offset)]).unwrap();
    round(&test, &engine);
    assert_eq!(engine.metrics().free_segment_count, 0);
    assert_eq!(engine.metrics().free_segment_bytes, 0);
    assert_told(&test, &engine);
    append_a_segment(&engine, &partition);
    assert_verified(&engine);
}

#[test]
fn twice_as_many_files_are_kept_as_segments_are_begun_between_two_rounds() {
    let test = with_at_most(8);
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let append_and_free = |segments: usize| {
        (0..segments).for_each(|_| append_batches(&engine, &partition, 14));
        delete_most(&engine, &partition);
        round(&test, &engine);
        assert_told(&test, &engine);
        engine.metrics().free_segment_count
    };
    (0..3).for_each(|_| _ = append_and_free(9));
    assert_eq!(append_and_free(9), 8);
    let before = engine.metrics().reused_segments;
    (0..8).for_each(|_| append_batches(&engine, &partition, 14));
    assert_eq!(engine.metrics().reused_segments, before + 8);
    assert_eq!(append_and_free(1), 8);
    // Where less is begun, one goes with each round, down to twice as many.
    let kept: Vec<u64> = (0..8).map(|_| append_and_free(1)).collect();
    assert_eq!(kept, [7, 6, 5, 4, 3, 2, 2, 2]);
    assert_eq!((append_and_free(4), append_and_free(4)), (4, 5));
    assert_verified(&engine);
}

#[test]
fn the_rest_of_a_reused_segment_is_given_back_too() {
    let test = with_at_most(2);
    let (engine, partition) = with_free_segments(&test);
    append_batches(&engine, &partition, 7);
    assert_eq!(engine.metrics().reused_segments, 1);
    assert_told(&test, &engine);
    let before = engine.metrics();
    assert!(before.free_segment_bytes > SEGMENT_BYTES, "a file and a rest: {before:?}");
    round(&test, &engine);
    round(&test, &engine);
    let metrics = engine.metrics();
    assert_eq!((metrics.free_segment_count, metrics.free_segment_bytes), (0, 0));
    assert_told(&test, &engine);
    append_a_segment(&engine, &partition);
    assert_verified(&engine);
}

#[test]
fn a_disk_with_less_than_its_reserve_gets_back_what_is_kept() {
    let test = TestEngine::with(|config| {
        let config = config.segment_bytes(SEGMENT_BYTES).max_free_segments(2);
        config.disk_reserve_bytes(3 * SEGMENT_BYTES)
    });
    let (engine, partition) = with_free_segments(&test);
    append_batch(&engine, &partition, batch_of(&[Record::keyless("v")]));
    round(&test, &engine);
    let large = 1 << 40;
    for (free_bytes, kept) in [(3 * SEGMENT_BYTES + 9_000, 1), (3 * SEGMENT_BYTES, 0)] {
        test.disk.set_capacity(Some(large));
        let used = large - engine.log_space().unwrap().free_bytes;
        test.disk.set_capacity(Some(used + free_bytes));
        append_batch(&engine, &partition, batch_of(&[Record::keyless("v")]));
        round(&test, &engine);
        assert_eq!(engine.metrics().free_segment_count, kept, "{free_bytes}");
    }
    assert_told(&test, &engine);
}

#[test]
fn an_engine_that_is_closed_leaves_no_rest_and_the_next_one_takes_what_is_kept() {
    let test = with_at_most(2);
    let (engine, partition) = with_free_segments(&test);
    append_batches(&engine, &partition, 7);
    let before = engine.metrics();
    engine.close().unwrap();
    let after: u64 = files(&test).iter().map(|(_, length)| length).sum();
    assert!(after < before.log_size_bytes + before.free_segment_bytes, "the rest is cut off");
    assert_eq!(free_file_count(&test), 1);
    let engine = test.open();
    assert_eq!(engine.recovered().torn_bytes, 0);
    assert_eq!((engine.metrics().reused_segments, free_file_count(&test)), (1, 0));
    assert_told(&test, &engine);
    assert_verified(&engine);
}

#[test]
fn a_killed_engine_leaves_no_torn_bytes_in_a_reused_segment() {
    for loss in [None, Some(PowerLoss::Nothing), Some(PowerLoss::Random(5))] {
        let test = with_at_most(2);
        let (engine, partition) = with_free_segments(&test);
        append_a_segment(&engine, &partition);
        engine.sync().unwrap();
        let expected = offsets_of(&engine, &partition);
        match loss {
            None => test.kill(),
            Some(loss) => test.lose_power(loss),
        }
        drop(engine);
        let engine = test.open();
        assert_eq!(engine.recovered().torn_bytes, 0, "{loss:?}");
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(offsets_of(&engine, &partition), expected);
        assert_verified(&engine);
        // What that use left behind its end goes with the segment.
        delete_most(&engine, &partition);
        for _ in 0..6 {
            append_batch(&engine, &partition, batch_of(&[Record::keyless(vec![7; 30_000])]));
            delete_most(&engine, &partition);
            round(&test, &engine);
        }
        round(&test, &engine);
        let space = engine.log_space().unwrap();
        assert!(space.size_bytes <= 2 * SEGMENT_BYTES, "{space:?}");
        assert_told(&test, &engine);
        assert_verified(&engine);
    }
}

/// How a snapshot ends whose segments would have been freed and written over while it was read.
fn scan_while_segments_are_reused(broken: BrokenRules) -> (Result<Vec<usize>, ScanError>, u64) {
    let test = with_at_most(2);
    let engine = test.builder().broken(broken).open().expect("it works");
    let partition = one_partition(&engine, "t", &[]);
    for number in 0..60u8 {
        let record = Record::keyless(vec![number; 4000]);
        append_batch(&engine, &partition, batch_of(&[record]));
    }
    let other = one_partition(&engine, "other", &[]);
    let snapshot = engine.snapshot();
    let mut scan = snapshot.scan(partition.topic());
    // It has begun: the first segment is open.
    let first = scan.next().expect("there is one").expect("it is whole");
    engine.delete_topic("t").expect("it works");
    for _ in 0..10 {
        append_a_segment(&engine, &other);
        round(&test, &engine);
    }
    let records = std::iter::once(Ok(first)).chain(scan).map(|record| {
        let value = record?.record.value.expect("it has one");
        Ok(usize::from(value[0]))
    });
    (records.collect(), engine.metrics().reused_segments)
}

#[test]
fn f3_a_segment_is_not_written_over_while_an_older_pin_is_held() {
    let (read, reused) = scan_while_segments_are_reused(BrokenRules::NONE);
    assert_eq!(read.unwrap(), (0..60).collect::<Vec<_>>());
    assert_eq!(reused, 0);
    let (read, reused) = scan_while_segments_are_reused(BrokenRules::only(Rule::F3PinsHold));
    assert!(read.is_err() && reused > 0, "{reused}");
}

/// The oldest segment's file.
fn oldest_segment(test: &TestEngine) -> PathBuf {
    let names = files(test).into_iter().map(|(name, _)| name);
    let oldest = names.filter(|name| name.ends_with(".log")).min().expect("there is one");
    Path::new("/engine/log").join(oldest)
}

/// Reads a partition; tells whether it has found damage.
type Reader = fn(&Engine, &Partition) -> bool;

/// How many files are kept when a segment is freed in which this reader has found a wrong bit.
fn kept_after(damage: bool, reader: Reader) -> u64 {
    let test = with_at_most(2);
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("cleanup.policy", "compact,delete")]);
    for number in 0..17 {
        let record = Record::new(format!("k{number}"), vec![7; 4000]).timestamp(number);
        append_batch(&engine, &partition, batch_of(&[record]));
    }
    if damage {
        test.disk.tamper(&oldest_segment(&test), |bytes| {
            let at = bytes.windows(99).position(|part| part == [7; 99]).expect("a value is there");
            bytes[at] ^= 1;
        });
    }
    assert_eq!(reader(&engine, &partition), damage);
    delete_most(&engine, &partition);
    let _paused = engine.cleaner().pause();
    round(&test, &engine);
    assert_eq!(engine.metrics().freed_segments, 1);
    free_file_count(&test)
}

#[test]
fn f5_a_segment_in_which_any_reader_has_found_damage_is_not_written_over() {
    let scan = |engine: &Engine, partition: &Partition| {
        engine.snapshot().scan(partition.topic()).any(|record| record.is_err())
    };
    let look_up = |engine: &Engine, partition: &Partition| {
        let query = OffsetQuery::Timestamp(0);
        let visibility = Visibility::Applied;
        engine.list_offset(partition, query, Isolation::Uncommitted, visibility).is_err()
    };
    let clean = |engine: &Engine, partition: &Partition| {
        engine.cleaner().clean_partition(partition).is_err()
    };
    let verify = |engine: &Engine, _: &Partition| !engine.verify().unwrap().is_clean();
    let readers: [Reader; 4] = [scan, look_up, clean, verify];
    for (at, reader) in readers.into_iter().enumerate() {
        assert_eq!(kept_after(false, reader), 1, "reader {at}");
        assert_eq!(kept_after(true, reader), 0, "reader {at}");
    }
}

#[test]
fn a_reader_that_races_with_reuse_gets_its_own_bytes() {
    let test = with_at_most(2);
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let fill = |number: u64| {
        let record = Record::keyless(number.to_be_bytes().repeat(500));
        append_batch(&engine, &partition, batch_of(&[record]));
    };
    (0..20).for_each(fill);
    std::thread::scope(|scope| {
        let reader = || {
            let mut offset = 0;
            while offset < 600 {
                let options = tidelog::FetchOptions::new().max_bytes(1);
                match engine.fetch(&partition, offset, options) {
                    Ok(fetched) => {
                        let Some(record) = fetched.records().next() else { continue };
                        let record = record.expect("it is whole");
                        let value = (record.offset as u64).to_be_bytes().repeat(500);
                        assert_eq!(record.value.as_deref(), Some(&value[..]));
                        offset = record.offset + 1;
                    }
                    Err(tidelog::FetchError::OffsetOutOfRange { .. }) => {
                        offset = engine.watermarks(&partition).expect("it exists").log_start;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        scope.spawn(reader);
        scope.spawn(reader);
        for number in 20..620 {
            fill(number);
            if number % 20 == 0 {
                engine.delete_records(&partition, number as i64 - 10).unwrap();
                round(&test, &engine);
            }
        }
    });
    // What the readers had kept is freed now.
    round(&test, &engine);
    let metrics = engine.metrics();
    assert!(metrics.freed_segments > 5, "{metrics:?}");
    assert_verified(&engine);
}
