//! Whose directory it is: one engine at a time, a known format, a log and an index of one engine.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{TestEngine, append, one_partition, values_of};
use tidelog::config::{EngineConfig, Maintenance};
use tidelog::error::Place;
use tidelog::testing::{MemoryDisk, PowerLoss};
use tidelog::{Durability, Engine, OpenError, Partition, Record, StorageError};

const FORMAT: &str = "/engine/FORMAT";
const LOG: &str = "/engine/log";

/// Every file of the engine but the lock, with its bytes.
fn all_files(test: &TestEngine) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for directory in ["/engine", LOG] {
        for name in test.disk.process().list(Path::new(directory)).unwrap_or_default() {
            let path = Path::new(directory).join(&name);
            if let Some(bytes) = test.disk.contents(&path).filter(|_| name != "LOCK") {
                files.insert(path, bytes);
            }
        }
    }
    files
}

fn segments(test: &TestEngine) -> Vec<PathBuf> {
    all_files(test).into_keys().filter(|path| path.starts_with(LOG)).collect()
}

/// The error of an open that must leave everything as it is.
fn refused(test: &TestEngine) -> OpenError {
    let before = all_files(test);
    let error = test.builder().open().unwrap_err();
    assert!(all_files(test) == before, "a refused open changed something: {error:?}");
    error
}

fn the_partition(engine: &Engine) -> Partition {
    engine.topic("t").unwrap().partition(0).unwrap()
}

fn append_sync(engine: &Engine, partition: &Partition, value: &str) {
    let mut append = engine.append_transaction();
    append.records(partition, [Record::keyless(value)]).unwrap();
    append.commit(Durability::Sync).unwrap();
}

/// An engine with one topic of one record, closed.
fn closed_engine() -> TestEngine {
    let test = TestEngine::new();
    let engine = test.open();
    append(&engine, &one_partition(&engine, "t", &[]), [Record::keyless("v")]);
    engine.close().unwrap();
    test
}

#[test]
fn a_second_open_is_told_who_has_the_engine_open_and_harms_nobody() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    match refused(&test) {
        OpenError::Locked { holder, path } => {
            assert!(holder.starts_with("pid="), "{holder}");
            assert_eq!(path, Path::new("/engine/LOCK"));
            let text = OpenError::Locked { holder: holder.clone(), path }.to_string();
            assert!(text.contains(&holder), "{text}");
        }
        error => panic!("{error:?}"),
    }
    append(&engine, &partition, [Record::keyless("v")]);
    engine.close().unwrap();
    let engine = test.open();
    assert!(matches!(refused(&test), OpenError::Locked { .. }));
    drop(engine);
    let engine = test.open();
    assert_eq!(values_of(&engine, &the_partition(&engine)), ["v"]);
}

#[test]
fn two_engines_cannot_share_a_directory_for_their_logs() {
    let test = TestEngine::new();
    let open = |directory: &str| {
        Engine::builder(directory)
            .log_dir("/logs")
            .config(EngineConfig::default().maintenance(Maintenance::Manual))
            .files(test.disk.process())
            .store(Arc::new(test.store.clone()))
            .open()
    };
    let one = open("/one").unwrap();
    match open("/two").unwrap_err() {
        OpenError::Locked { path, .. } => assert_eq!(path, Path::new("/logs/LOCK")),
        error => panic!("{error:?}"),
    }
    one.close().unwrap();
    // Also when the first one is closed: its commits are there.
    let error = open("/two").unwrap_err();
    assert!(matches!(error, OpenError::Storage(StorageError::Corruption(_))), "{error:?}");
    open("/one").unwrap();
}

#[test]
fn a_format_that_is_not_known_is_refused_and_nothing_is_touched() {
    let test = closed_engine();
    let good = test.disk.contents(Path::new(FORMAT)).unwrap();
    let newer = String::from_utf8(good.clone()).unwrap().replace("format 3", "format 4");
    let long = vec![b'x'; 100_000];
    let damaged = String::from_utf8(good.clone()).unwrap().replace("engine", "engin3");
    let damaged = damaged.as_bytes();
    for unknown in [newer.as_bytes(), damaged, b"", b"\0\xff", b"tidelog format 2\n", &long] {
        test.disk.plant(Path::new(FORMAT), unknown.to_vec());
        match refused(&test) {
            OpenError::UnknownFormat { path, found } => {
                assert_eq!(path, Path::new(FORMAT));
                assert!(found.len() <= 400);
                assert!(!found.contains("secret"), "no error repeats it");
            }
            error => panic!("{error:?}"),
        }
    }
    test.disk.plant(Path::new(FORMAT), good);
    let engine = test.open();
    assert!(engine.recovered().closed_cleanly);
    assert_eq!(values_of(&engine, &the_partition(&engine)), ["v"]);
}

#[test]
fn an_engine_whose_format_file_is_gone_is_not_made_anew() {
    let test = closed_engine();
    let good = test.disk.contents(Path::new(FORMAT)).unwrap();
    test.disk.vanish(Path::new(FORMAT));
    assert!(matches!(refused(&test), OpenError::FormatMissing { .. }));
    test.disk.plant(Path::new(FORMAT), good);
    assert_eq!(test.open().recovered().torn_bytes, 0);
}

#[test]
fn an_engine_whose_index_is_gone_is_not_made_anew() {
    let mut test = closed_engine();
    let index = std::mem::replace(&mut test.store, MemoryDisk::new());
    match refused(&test) {
        OpenError::IndexMissing { directory } => {
            assert_eq!(directory, Path::new("/engine/store"));
        }
        error => panic!("{error:?}"),
    }
    // Neither when all that tells of the engine is gone but its log.
    let format = test.disk.contents(Path::new(FORMAT)).unwrap();
    test.disk.vanish(Path::new(FORMAT));
    let error = test.builder().open().unwrap_err();
    assert!(matches!(error, OpenError::Storage(StorageError::Corruption(_))), "{error:?}");
    test.disk.plant(Path::new(FORMAT), format);
    test.store = index;
    let engine = test.open();
    assert_eq!(values_of(&engine, &the_partition(&engine)), ["v"]);
}

#[test]
fn an_index_and_a_log_of_different_engines_are_not_taken_for_one() {
    let other = TestEngine::new();
    other.builder().seed(8).open().unwrap().close().unwrap();
    let mut test = closed_engine();

    let own_index = std::mem::replace(&mut test.store, other.store.clone());
    let error = refused(&test);
    assert!(error_text(&error).contains("another engine"), "{error:?}");
    test.store = own_index;

    let own_log: Vec<_> =
        segments(&test).into_iter().map(|path| (test.disk.contents(&path), path)).collect();
    for (_, path) in &own_log {
        test.disk.vanish(path);
    }
    for path in segments(&other) {
        test.disk.plant(&path, other.disk.contents(&path).unwrap());
    }
    let error = refused(&test);
    assert!(error_text(&error).contains("another engine"), "{error:?}");
    for path in segments(&test) {
        test.disk.vanish(&path);
    }
    for (bytes, path) in own_log {
        test.disk.plant(&path, bytes.unwrap());
    }
    let engine = test.open();
    assert_eq!(values_of(&engine, &the_partition(&engine)), ["v"]);
}

fn error_text(error: &OpenError) -> String {
    match error {
        OpenError::Storage(error) => error.to_string(),
        error => error.to_string(),
    }
}

#[test]
fn a_log_that_is_gone_is_refused_and_what_is_missing_is_named() {
    let test = closed_engine();
    let log: Vec<_> =
        segments(&test).into_iter().map(|path| (test.disk.contents(&path), path)).collect();
    for (_, path) in &log {
        test.disk.vanish(path);
    }
    let error = refused(&test);
    assert!(error_text(&error).contains("missing"), "{error:?}");
    for (bytes, path) in log {
        test.disk.plant(&path, bytes.unwrap());
    }
    assert_eq!(test.open().leader_epoch(), 0);
}

/// An engine whose log has several segments behind its last checkpoint.
fn engine_with_segments(durability: Durability) -> TestEngine {
    let test = TestEngine::with(|config| config.segment_bytes(8 << 10));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    engine.maintenance().checkpoint().unwrap();
    for i in 0..12 {
        let value = format!("{i} {}", "x".repeat(1500));
        match durability {
            Durability::Sync => append_sync(&engine, &partition, &value),
            Durability::Buffered => append(&engine, &partition, [Record::keyless(value)]),
        }
    }
    assert!(segments(&test).len() >= 4);
    test.kill();
    test
}

#[test]
fn a_newest_file_that_was_truncated_to_nothing_loses_only_what_was_never_synced() {
    let test = engine_with_segments(Durability::Buffered);
    let newest = segments(&test).pop().unwrap();
    test.disk.tamper(&newest, Vec::clear);
    let engine = test.open();
    let values = values_of(&engine, &the_partition(&engine));
    assert!((4..12).contains(&values.len()), "{}", values.len());
    assert!(values.iter().enumerate().all(|(i, value)| value.starts_with(&format!("{i} "))));
    assert_eq!(engine.leader_epoch(), 1);
    append(&engine, &the_partition(&engine), [Record::keyless("next")]);
    assert!(engine.verify().unwrap().is_clean());
    engine.close().unwrap();
    let engine = test.open();
    assert_eq!(values_of(&engine, &the_partition(&engine)).len(), values.len() + 1);
}

#[test]
fn a_file_in_the_middle_that_was_truncated_or_taken_away_is_refused_and_the_commits_are_named() {
    for vanishes in [true, false] {
        let test = engine_with_segments(Durability::Sync);
        let middle = segments(&test)[2].clone();
        if vanishes {
            test.disk.vanish(&middle);
        } else {
            test.disk.tamper(&middle, Vec::clear);
        }
        match refused(&test) {
            OpenError::Storage(StorageError::Corruption(damage)) => {
                let named = matches!(damage.place, Place::Segment { .. } | Place::Commits { .. });
                assert!(named, "{damage}");
            }
            error => panic!("{error:?}"),
        }
    }
}

#[test]
fn an_empty_file_more_is_no_trouble() {
    let test = engine_with_segments(Durability::Sync);
    let newest = segments(&test).pop().unwrap();
    let name = newest.file_name().unwrap().to_str().unwrap();
    let more = name.replace(name.trim_end_matches(".log"), "00000000000000000999");
    test.disk.plant(&Path::new(LOG).join(more), Vec::new());
    test.disk.plant(Path::new("/engine/log/notes.txt"), b"not ours".to_vec());
    let engine = test.open();
    assert_eq!(values_of(&engine, &the_partition(&engine)).len(), 12);
    append_sync(&engine, &the_partition(&engine), "next");
    drop(engine);
    let engine = test.open();
    assert_eq!(values_of(&engine, &the_partition(&engine)).len(), 13);
    assert!(test.disk.contents(Path::new("/engine/log/notes.txt")).is_some());
}

#[test]
fn a_flipped_bit_is_an_error_where_it_lies_and_nowhere_else() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for i in 0..3 {
        append_sync(&engine, &partition, &format!("value {i}"));
    }
    engine.close().unwrap();
    let segment = segments(&test)[0].clone();
    let bytes = test.disk.contents(&segment).unwrap();
    let at = bytes.windows(7).position(|window| window == b"value 1").unwrap();
    test.disk.flip_bit(&segment, 8 * at as u64);
    // All of it is in the checkpoint, so the open need not read it.
    let engine = test.open();
    let partition = the_partition(&engine);
    assert_eq!(engine.watermarks(&partition).unwrap().log_end, 3);
    let read = |offset| engine.fetch(&partition, offset, tidelog::FetchOptions::new().max_bytes(1));
    let is_good =
        |offset| read(offset).is_ok_and(|fetched| fetched.records().all(|record| record.is_ok()));
    assert_eq!([0, 1, 2].map(is_good), [true, false, true]);
    let scanned: Vec<_> = engine.snapshot().scan(partition.topic()).collect();
    assert!(scanned.last().unwrap().is_err(), "a scan must not end as if nothing came behind");
    assert_eq!(engine.verify().unwrap().problem_count, 1);
}

#[test]
fn the_making_of_an_engine_that_is_interrupted_anywhere_is_begun_again() {
    for calls in 0.. {
        for loss in [None, Some(PowerLoss::Nothing), Some(PowerLoss::Random(calls))] {
            let test = TestEngine::new();
            test.disk.crash_after_calls(calls);
            let opened = test.builder().open();
            let has_crashed = test.disk.has_crashed();
            test.disk.clear_faults();
            if has_crashed {
                assert!(opened.is_err());
                match loss {
                    None => test.kill(),
                    Some(loss) => test.lose_power(loss),
                }
            }
            drop(opened);
            let engine = test.open();
            let partition = one_partition(&engine, "t", &[]);
            append_sync(&engine, &partition, "v");
            drop(engine);
            let engine = test.open();
            assert_eq!(values_of(&engine, &the_partition(&engine)), ["v"]);
            if !has_crashed {
                assert!(calls > 5, "calls={calls}");
                return;
            }
        }
    }
}

#[test]
fn limits_that_contradict_each_other_are_all_named_before_anything_is_made() {
    let test = TestEngine::with(|config| config.segment_bytes(1).max_topics(0));
    match test.builder().open().unwrap_err() {
        OpenError::Config(error) => assert_eq!(error.problems().len(), 2, "{error}"),
        error => panic!("{error:?}"),
    }
    assert!(test.disk.process().list(Path::new("/engine")).is_err());
}

#[test]
fn an_engine_is_opened_with_other_limits_than_it_was_made_with() {
    let mut test = closed_engine();
    for segment_bytes in [8 << 10, 1 << 30] {
        test.config = test.config.clone().segment_bytes(segment_bytes);
        let engine = test.open();
        append(&engine, &the_partition(&engine), [Record::keyless("x".repeat(10_000))]);
        engine.close().unwrap();
    }
    let engine = test.open();
    assert_eq!(values_of(&engine, &the_partition(&engine)).len(), 3);
}
