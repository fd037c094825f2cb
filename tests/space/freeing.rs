//! A segment goes only when nobody needs it: the rules of freeing hold, and each of them matters.

use crate::common;

use std::path::{Path, PathBuf};

use common::{TestEngine, append_batch, assert_verified, batch_of, offsets_of, one_partition};
use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::testing::PowerLoss;
use tidelog::{
    CommitError, Durability, Engine, MaintenanceStep, NotWritten, Partition, Record, ScanError,
    StorageError, TopicConfig,
};

const SEGMENT_BYTES: u64 = 64 << 10;

/// An engine with small segments.
fn small() -> TestEngine {
    TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES))
}

fn append_batches(engine: &Engine, partitions: &[Partition], count: usize) {
    for _ in 0..count {
        for partition in partitions {
            append_batch(engine, partition, batch_of(&[Record::keyless(vec![7; 4000])]));
        }
    }
}

/// Runs maintenance until a round finds nothing more to do.
fn settle(test: &TestEngine, engine: &Engine) {
    for _ in 0..100 {
        test.clock.advance_ms(10_000);
        let step = engine.maintenance().run().expect("it goes on");
        let MaintenanceStep { freed_segments, relocated_bytes, is_relocating, .. } = step;
        if freed_segments == 0 && relocated_bytes == 0 && !is_relocating {
            return;
        }
    }
    panic!("maintenance does not come to an end");
}

fn segment_files(test: &TestEngine) -> Vec<PathBuf> {
    let directory = Path::new("/engine/log");
    let mut names = test.disk.process().list(directory).expect("the directory is there");
    names.sort();
    names.iter().map(|name| directory.join(name)).collect()
}

/// Whether the engine can be opened and everything in it is right.
fn is_sound(test: &TestEngine) -> bool {
    let Ok(engine) = test.builder().open() else { return false };
    engine.verify().is_ok_and(|report| report.is_clean())
}

/// Retention that no sync has seen, a round that frees, and a power loss.
fn free_and_lose_power(broken: BrokenRules) -> TestEngine {
    let test = small();
    let engine = test.builder().broken(broken).open().expect("it opens");
    let partition = one_partition(&engine, "t", &[("retention.ms", "1000")]);
    append_batches(&engine, &[partition], 100);
    engine.maintenance().checkpoint().expect("it is taken");
    test.clock.advance_ms(60_000);
    let step = engine.maintenance().run().expect("it goes on");
    assert!(step.freed_segments > 0, "{step:?}");
    test.lose_power(PowerLoss::Nothing);
    drop(engine);
    test
}

#[test]
fn f1_a_segment_goes_only_once_a_checkpoint_has_made_durable_that_nothing_names_it() {
    assert!(is_sound(&free_and_lose_power(BrokenRules::NONE)));
    assert!(!is_sound(&free_and_lose_power(BrokenRules::only(Rule::F1IndexAtCheckpoint))));
}

#[test]
fn f1_a_count_alone_never_lets_a_segment_go() {
    for (broken, sound) in [(BrokenRules::NONE, true), (BrokenRules::only(Rule::F1LookUp), false)] {
        let test = small();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        append_batches(&engine, &[partition], 100);
        engine.close().unwrap();
        let engine = test.builder().broken(broken).open().unwrap();
        engine.maintenance().run().unwrap();
        assert_eq!(engine.verify().unwrap().is_clean(), sound);
    }
}

/// A relocation during which a partition loses all that is still to be moved.
fn delete_during_a_relocation(broken: BrokenRules, deletes_topic: bool) -> bool {
    let test = TestEngine::with(|config| {
        config.segment_bytes(SEGMENT_BYTES).relocation_bytes_per_second(20_000)
    });
    let engine = test.builder().broken(broken).open().expect("it works");
    let gone = one_partition(&engine, "gone", &[]);
    let kept = one_partition(&engine, "kept", &[]);
    let partitions = [gone.clone(), gone.clone(), gone.clone(), kept.clone()];
    append_batches(&engine, &partitions, 60);
    engine.delete_records(&gone, 180).expect("it works");
    let step = engine.maintenance().run().expect("it works");
    assert!(step.is_relocating && step.relocated_bytes > 0, "{step:?}");
    // Its segments stay, so that it could still be moved.
    let snapshot = engine.snapshot();
    if deletes_topic {
        engine.delete_topic("kept").expect("it works");
    } else {
        engine.delete_records(&kept, 60).expect("it works");
    }
    settle(&test, &engine);
    drop(snapshot);
    assert_eq!(engine.metrics().corruptions, 0);
    engine.verify().expect("it works").is_clean()
}

#[test]
fn f2_what_was_deleted_while_it_was_to_be_moved_stays_deleted() {
    for deletes_topic in [false, true] {
        assert!(delete_during_a_relocation(BrokenRules::NONE, deletes_topic));
        let broken = BrokenRules::only(Rule::F2CompareEntry);
        assert!(!delete_during_a_relocation(broken, deletes_topic), "topic {deletes_topic}");
    }
}

/// How a snapshot ends that was taken before its topic was deleted and its segments freed.
fn scan_after_freeing(broken: BrokenRules) -> Result<usize, ScanError> {
    let test = small();
    let engine = test.builder().broken(broken).open().expect("it works");
    let partition = one_partition(&engine, "t", &[]);
    append_batches(&engine, std::slice::from_ref(&partition), 100);
    let snapshot = engine.snapshot();
    engine.delete_topic("t").expect("it works");
    settle(&test, &engine);
    let records: Result<Vec<_>, _> = snapshot.scan(partition.topic()).collect();
    records.map(|records| records.len())
}

#[test]
fn f3_a_snapshot_that_began_before_a_deletion_ends_with_what_it_was_promised() {
    assert_eq!(scan_after_freeing(BrokenRules::NONE).unwrap(), 100);
    assert!(scan_after_freeing(BrokenRules::only(Rule::F3PinsHold)).is_err());
}

#[test]
fn what_a_snapshot_holds_comes_back_once_it_is_dropped() {
    let test = small();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batches(&engine, &[partition], 100);
    let snapshot = engine.snapshot();
    engine.delete_topic("t").unwrap();
    settle(&test, &engine);
    let metrics = engine.metrics();
    assert_eq!((metrics.pin_count, metrics.freed_segments), (1, 0));
    let checkpoints = metrics.checkpoints;
    settle(&test, &engine);
    assert_eq!(engine.metrics().checkpoints, checkpoints, "no checkpoint helps against a pin");
    drop(snapshot);
    settle(&test, &engine);
    let metrics = engine.metrics();
    assert_eq!(metrics.pin_count, 0);
    assert!(metrics.log_size_bytes <= 2 * SEGMENT_BYTES, "{metrics:?}");
}

#[test]
fn f3_a_snapshot_that_is_kept_too_long_fails_clearly_and_holds_nothing() {
    let test =
        TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES).max_snapshot_age_ms(100_000));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batches(&engine, std::slice::from_ref(&partition), 100);
    let snapshot = engine.snapshot();
    let mut scan = snapshot.scan(partition.topic());
    assert!(scan.next().unwrap().is_ok());
    engine.delete_topic("t").unwrap();
    test.clock.advance_ms(100_000);
    engine.maintenance().run().unwrap();
    assert!(scan.next().unwrap().is_ok(), "it is as old as it may be");
    test.clock.advance_ms(10_000);
    engine.maintenance().run().unwrap();
    assert!(matches!(scan.find(Result::is_err), Some(Err(ScanError::Expired))));
    settle(&test, &engine);
    assert!(engine.metrics().log_size_bytes <= 2 * SEGMENT_BYTES);
}

#[test]
fn f4_a_removed_segment_that_comes_back_is_dead() {
    let test = small();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batches(&engine, std::slice::from_ref(&partition), 100);
    engine.sync().unwrap();
    let before: Vec<_> =
        segment_files(&test).into_iter().map(|path| (test.disk.contents(&path), path)).collect();
    engine.delete_records(&partition, 90).unwrap();
    settle(&test, &engine);
    drop(engine);
    let left = segment_files(&test);
    let back: Vec<_> = before.into_iter().filter(|(_, path)| !left.contains(path)).collect();
    assert!(back.len() > 3);
    for (bytes, path) in back {
        test.disk.plant(&path, bytes.expect("it was there"));
    }
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(offsets_of(&engine, &partition), (90..100).collect::<Vec<_>>());
    settle(&test, &engine);
    assert!(segment_files(&test).len() <= left.len() + 2);
    assert_verified(&engine);
}

#[test]
fn e5_a_full_disk_gets_its_space_back_through_the_reserve_alone() {
    let test = TestEngine::with(|config| {
        config.segment_bytes(SEGMENT_BYTES).disk_reserve_bytes(3 * SEGMENT_BYTES)
    });
    test.disk.set_capacity(Some(20 * SEGMENT_BYTES));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("retention.ms", "1000")]);
    let append = || {
        let mut append = engine.append_transaction();
        append.records(&partition, [Record::keyless(vec![7; 4000])]).unwrap();
        append.commit(Durability::Buffered)
    };
    let refused = loop {
        if let Err(error) = append() {
            break error;
        }
    };
    let is_full = matches!(
        &refused,
        CommitError::NotWritten { reason: NotWritten::Storage(StorageError::DiskFull { .. }), .. }
    );
    assert!(is_full, "{refused}");
    test.clock.advance_ms(60_000);
    settle(&test, &engine);
    append().unwrap();
    assert_verified(&engine);
}

#[test]
fn a_segment_that_cannot_be_followed_goes_when_nothing_names_it_and_stays_when_something_does() {
    for deletes_all in [true, false] {
        let test = small();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        append_batches(&engine, std::slice::from_ref(&partition), 100);
        engine.maintenance().checkpoint().unwrap();
        let damaged = segment_files(&test)[1].clone();
        test.disk.tamper(&damaged, |bytes| bytes[4096..4200].fill(0xff));
        // All batches of that segment go, or only some.
        let end = if deletes_all { 99 } else { 20 };
        engine.delete_records(&partition, end).unwrap();
        settle(&test, &engine);
        assert_eq!(segment_files(&test).contains(&damaged), !deletes_all);
        assert_eq!(offsets_of(&engine, &partition), (end..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_damaged_batch_is_not_moved_and_does_not_keep_the_others_from_it() {
    let test = small();
    let engine = test.open();
    let gone = one_partition(&engine, "gone", &[]);
    let kept = one_partition(&engine, "kept", &[]);
    append_batches(&engine, &[gone.clone(), gone.clone(), gone.clone(), kept.clone()], 60);
    engine.maintenance().checkpoint().unwrap();
    engine.delete_records(&gone, 180).unwrap();
    let damaged = segment_files(&test)[1].clone();
    test.disk.tamper(&damaged, |bytes| {
        // One bit in each batch of the segment, whose frames are nearly of one length.
        let frame_bytes = (bytes.len() - 4096) / ((bytes.len() - 4096) / 4200);
        for middle in (4096 + frame_bytes / 2..bytes.len()).step_by(frame_bytes) {
            bytes[middle] ^= 1;
        }
    });
    settle(&test, &engine);
    assert!(segment_files(&test).contains(&damaged));
    assert!(segment_files(&test).len() < 12, "{:?}", segment_files(&test));
    let metrics = engine.metrics();
    assert!(metrics.corruptions > 0 && metrics.relocated_batches > 40, "{metrics:?}");
}

#[test]
fn readers_that_race_with_freeing_get_data_or_an_offset_below_the_start() {
    let test = small();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(1)).unwrap();
    let partition = topic.partition(0).unwrap();
    append_batches(&engine, std::slice::from_ref(&partition), 300);
    std::thread::scope(|scope| {
        let reader = |first: i64| {
            let mut offset = first;
            while offset < 300 {
                match engine.fetch(&partition, offset, tidelog::FetchOptions::new().max_bytes(1)) {
                    Ok(fetched) => {
                        let record = fetched.records().next().expect("one").expect("whole");
                        assert_eq!(record.offset, offset);
                        offset += 1;
                    }
                    Err(tidelog::FetchError::OffsetOutOfRange { .. }) => {
                        offset = engine.watermarks(&partition).expect("it exists").log_start;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        scope.spawn(move || reader(0));
        for start in (10..=300).step_by(10) {
            engine.delete_records(&partition, start).unwrap();
            test.clock.advance_ms(10_000);
            engine.maintenance().run().unwrap();
        }
    });
    // A reader that rested with its pin has held up what is freed now.
    settle(&test, &engine);
    assert!(engine.metrics().freed_segments > 10);
    assert_verified(&engine);
}
