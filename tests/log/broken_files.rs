//! Segments whose files cannot be read or removed: they hold up nothing but themselves, and all is told.

use crate::common;

use std::path::Path;
use std::sync::Arc;

use common::failing::{Broken, Call, FailingFiles};
use common::{TestEngine, append_batch, assert_verified, batch_of, offsets_of, one_partition};
use tidelog::testing::PowerLoss;
use tidelog::{CommitError, Durability, Engine, NotWritten, Partition, Record, StorageError};

const SEGMENT_BYTES: u64 = 64 << 10;

fn open(test: &TestEngine) -> (Engine, Arc<Broken>) {
    let broken = Arc::new(Broken::default());
    let files = FailingFiles { inner: test.disk.process(), broken: Arc::clone(&broken) };
    let engine = test.builder().files(Arc::new(files)).open().expect("the engine opens");
    (engine, broken)
}

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

#[test]
fn a_dead_segment_that_cannot_be_read_goes_and_keeps_no_other() {
    for call in [Call::Open, Call::Read] {
        let test = small();
        let (engine, broken) = open(&test);
        let partition = one_partition(&engine, "t", &[]);
        append_batches(&engine, std::slice::from_ref(&partition), 100);
        engine.delete_records(&partition, 99).unwrap();
        broken.fail(call, "00000000000000000001.log");
        test.clock.advance_ms(10_000);
        let step = engine.maintenance().run().expect("it goes on");
        assert_eq!(step.freed_segments, 7, "{call:?} {step:?}");
        assert!(broken.take_failed() > 0);
        assert_verified(&engine);
    }
}

#[test]
fn survivors_that_cannot_be_read_stay_and_keep_no_others_from_being_moved() {
    // Of the second segment its name, any place of it, or the batches alone.
    for (call, fails_late) in [(Call::Open, false), (Call::Read, false), (Call::Read, true)] {
        let test = TestEngine::with(|config| {
            config.segment_bytes(SEGMENT_BYTES).relocation_bytes_per_second(10_000)
        });
        let (engine, broken) = open(&test);
        let (gone, kept) =
            (one_partition(&engine, "gone", &[]), one_partition(&engine, "kept", &[]));
        append_batches(&engine, &[gone.clone(), gone.clone(), gone.clone(), kept.clone()], 60);
        engine.delete_records(&gone, 180).unwrap();
        let fail = || broken.fail(call, "00000000000000000002.log");
        if fails_late {
            // The segments are chosen, and looked through.
            assert!(engine.maintenance().run().unwrap().is_relocating);
        }
        fail();
        let mut failures = 0;
        for _ in 0..100 {
            test.clock.advance_ms(10_000);
            failures += u64::from(engine.maintenance().run().is_err());
        }
        assert_eq!(failures, u64::from(fails_late), "it is told once");
        let metrics = engine.metrics();
        assert!(metrics.relocated_batches > 40, "{call:?} {metrics:?}");
        assert!(metrics.segment_count < 10, "{call:?} {metrics:?}");
        broken.mend();
        assert_eq!(offsets_of(&engine, &kept), (0..60).collect::<Vec<_>>());
        assert_verified(&engine);
    }
}

/// Bytes of the files of the log.
fn disk_bytes(test: &TestEngine) -> u64 {
    let directory = Path::new("/engine/log");
    let files = test.disk.process();
    let names = files.list(directory).expect("the directory is there");
    let length = |name: &String| files.open(&directory.join(name)).expect("it is there").length();
    names.iter().map(|name| length(name).expect("it has one")).sum()
}

/// What the metrics and the description of the log say is what its directory holds.
fn assert_told(test: &TestEngine, engine: &Engine, unfreed: u64) {
    let (metrics, space) = (engine.metrics(), engine.log_space().expect("it can be asked"));
    assert_eq!(metrics.log_size_bytes + metrics.free_segment_bytes, disk_bytes(test));
    assert_eq!(space.size_bytes + space.free_segment_bytes, disk_bytes(test));
    assert_eq!(metrics.unfreed_segments, unfreed);
}

/// An engine with more than seven dead segments; the partition whose records were in them.
fn with_dead_segments(test: &TestEngine) -> (Engine, Arc<Broken>, Partition) {
    let (engine, broken) = open(test);
    let partition = one_partition(&engine, "t", &[]);
    append_batches(&engine, std::slice::from_ref(&partition), 100);
    engine.delete_records(&partition, 99).expect("it works");
    (engine, broken, partition)
}

/// A round; how many removals have failed in it.
fn round(test: &TestEngine, engine: &Engine) -> u64 {
    test.clock.advance_ms(10_000);
    engine.maintenance().run().expect("it goes on").failed_removals
}

#[test]
fn a_freed_segment_that_cannot_be_removed_is_tried_again_in_each_round_and_reported_until_it_goes()
{
    // The one that is removed, or all: those that are kept to be written over, too.
    for (max_free_segments, end, unfreed) in [(0, "03.log", 1), (2, ".free", 2), (2, ".log", 5)] {
        let test = TestEngine::with(|config| {
            config.segment_bytes(SEGMENT_BYTES).max_free_segments(max_free_segments)
        });
        let (engine, broken, partition) = with_dead_segments(&test);
        broken.fail(Call::Remove, end);
        let mut failed = round(&test, &engine);
        assert_eq!(engine.metrics().freed_segments, 7, "{end}");
        for _ in 0..4 {
            failed += round(&test, &engine);
            assert_told(&test, &engine, unfreed);
        }
        let metrics = engine.metrics();
        assert!(failed >= 4, "each round has tried it: {failed}");
        assert_eq!(metrics.failed_maintenance, failed);
        assert!(metrics.freed_bytes > 6 * SEGMENT_BYTES, "{metrics:?}");
        assert_verified(&engine);
        // All else goes on, relocation too.
        let gone = one_partition(&engine, "gone", &[]);
        append_batches(&engine, &[gone.clone(), gone.clone(), gone.clone(), partition], 60);
        engine.delete_records(&gone, 180).unwrap();
        (0..6).for_each(|_| _ = round(&test, &engine));
        assert!(engine.metrics().relocated_batches > 30, "{end} {:?}", engine.metrics());
        broken.mend();
        (0..2).for_each(|_| _ = round(&test, &engine));
        assert_eq!(round(&test, &engine), 0);
        assert_told(&test, &engine, 0);
        assert_verified(&engine);
    }
}

#[test]
fn however_many_files_cannot_be_removed_a_round_tries_a_few_of_them_and_all_in_turn() {
    let test = TestEngine::with(|config| config.segment_bytes(8 << 10).max_free_segments(0));
    let (engine, broken, _) = with_dead_segments(&test);
    broken.fail(Call::Remove, ".log");
    let before = disk_bytes(&test);
    round(&test, &engine);
    let proof_bytes = 80;
    assert_eq!(disk_bytes(&test), before + proof_bytes, "the last sync is proven, and none goes");
    let unfreed = engine.metrics().unfreed_segments;
    assert!(unfreed > 90, "{unfreed}");
    broken.take_failed();
    for _ in 0..3 {
        round(&test, &engine);
        assert_eq!(broken.take_failed(), 16);
    }
    broken.mend();
    // One that never goes does not keep the others.
    broken.fail(Call::Remove, "07.log");
    (0..unfreed / 16 + 1).for_each(|_| _ = round(&test, &engine));
    assert_told(&test, &engine, 1);
    assert_verified(&engine);
}

#[test]
fn what_could_not_be_removed_when_the_process_ends_is_gone_soon_after_the_next_open() {
    for ends in ["close", "kill", "power"] {
        for end in [".log", ".free"] {
            let test =
                TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES).max_free_segments(2));
            let (engine, broken, partition) = with_dead_segments(&test);
            broken.fail(Call::Remove, end);
            (0..3).for_each(|_| _ = round(&test, &engine));
            assert!(engine.metrics().unfreed_segments > 0);
            match ends {
                "close" => engine.clone().close().unwrap(),
                "kill" => test.kill(),
                _ => test.lose_power(PowerLoss::Nothing),
            }
            drop((engine, partition));
            let engine = test.open();
            let partition = engine.topic("t").unwrap().partition(0).unwrap();
            assert_eq!(offsets_of(&engine, &partition), [99], "{ends} {end}");
            (0..3).for_each(|_| assert_eq!(round(&test, &engine), 0));
            assert_told(&test, &engine, 0);
            assert!(disk_bytes(&test) <= 3 * SEGMENT_BYTES, "{ends} {end} {}", disk_bytes(&test));
            assert_verified(&engine);
        }
    }
}

#[test]
fn a_call_that_was_made_and_says_that_it_failed_leaves_no_file_that_nobody_knows_of() {
    for call in [Call::LateRemove, Call::LateRename, Call::SyncDirectory] {
        for max_free_segments in [0, 2] {
            let test = TestEngine::with(|config| {
                config.segment_bytes(SEGMENT_BYTES).max_free_segments(max_free_segments)
            });
            let (engine, broken, _) = with_dead_segments(&test);
            // Neither a segment that is begun: that halts where its name is not durable.
            let end = if call == Call::SyncDirectory { "/log" } else { "" };
            broken.fail(call, end);
            round(&test, &engine);
            broken.mend();
            (0..3).for_each(|_| _ = round(&test, &engine));
            assert_told(&test, &engine, 0);
            assert_eq!(engine.metrics().freed_segments, 7, "{call:?}");
            assert!(disk_bytes(&test) <= 2 * SEGMENT_BYTES, "{call:?} {}", disk_bytes(&test));
            assert_verified(&engine);
        }
    }
}

#[test]
fn a_full_disk_whose_kept_files_cannot_be_removed_is_reported_as_full() {
    let test = TestEngine::with(|config| {
        config.segment_bytes(SEGMENT_BYTES).disk_reserve_bytes(4 * SEGMENT_BYTES)
    });
    let (engine, ..) = with_dead_segments(&test);
    round(&test, &engine);
    test.kill();
    drop(engine);
    // How much is free is looked at when something is appended first.
    let (engine, broken) = open(&test);
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert!(engine.metrics().free_segment_count > 1);
    let large = 1 << 40;
    test.disk.set_capacity(Some(large));
    let used = large - engine.log_space().unwrap().free_bytes;
    test.disk.set_capacity(Some(used + 2 * SEGMENT_BYTES));
    broken.fail(Call::Remove, ".free");
    let append = || {
        let mut append = engine.append_transaction();
        append.records(&partition, [Record::keyless(vec![7; 4000])]).unwrap();
        append.commit(Durability::Buffered)
    };
    for _ in 0..3 {
        let refused = append().unwrap_err();
        let CommitError::NotWritten { reason: NotWritten::Storage(reason), .. } = &refused else {
            panic!("{refused}");
        };
        assert!(matches!(reason, StorageError::DiskFull { .. }), "{reason}");
    }
    broken.mend();
    round(&test, &engine);
    append().unwrap();
    assert_told(&test, &engine, 0);
    assert_verified(&engine);
}

#[test]
fn a_file_that_was_renamed_for_a_new_segment_and_is_said_not_to_be_leaves_nothing() {
    for cannot_be_removed in [false, true] {
        let test =
            TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES).max_free_segments(2));
        let (engine, broken, partition) = with_dead_segments(&test);
        round(&test, &engine);
        assert_eq!(engine.metrics().free_segment_count, 2);
        broken.fail(Call::LateRename, "");
        if cannot_be_removed {
            broken.fail(Call::Remove, ".log");
        }
        let append = || {
            let mut append = engine.append_transaction();
            append.records(&partition, [Record::keyless(vec![7; 60_000])]).unwrap();
            append.commit(Durability::Buffered)
        };
        let refused = append().unwrap_err();
        assert!(matches!(refused, CommitError::NotWritten { .. }), "{refused}");
        assert_told(&test, &engine, u64::from(cannot_be_removed));
        broken.mend();
        append().unwrap();
        append().unwrap();
        round(&test, &engine);
        assert_told(&test, &engine, 0);
        assert_verified(&engine);
    }
}

#[test]
fn a_copy_under_the_name_of_a_freed_segment_never_takes_the_segment_with_it() {
    for ends_in_life in [false, true] {
        let test =
            TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES).max_free_segments(2));
        let (engine, _, partition) = with_dead_segments(&test);
        append_batches(&engine, std::slice::from_ref(&partition), 60);
        engine.maintenance().checkpoint().unwrap();
        test.kill();
        drop(engine);
        // A segment full of records that stay.
        let name = Path::new("/engine/log").join("00000000000000000009.log");
        let bytes = test.disk.contents(&name).expect("it is there");
        test.disk.plant(&name.with_extension("free"), bytes);
        let (engine, broken) = open(&test);
        if ends_in_life {
            broken.fail(Call::Remove, ".free");
        }
        let expected = offsets_of(&engine, &partition_of(&engine));
        (0..4).for_each(|_| _ = round(&test, &engine));
        broken.mend();
        (0..4).for_each(|_| _ = round(&test, &engine));
        assert!(test.disk.contents(&name).is_some());
        assert_eq!(offsets_of(&engine, &partition_of(&engine)), expected);
        assert_verified(&engine);
    }
}

fn partition_of(engine: &Engine) -> Partition {
    engine.topic("t").expect("it is there").partition(0).expect("it has one")
}
