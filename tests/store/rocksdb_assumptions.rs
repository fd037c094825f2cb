//! What the commit log takes for granted of RocksDB, each shown on the real one.
#![cfg(all(feature = "rocksdb", feature = "test-util"))]

use crate::temporary;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use temporary::TemporaryDirectory;
use tidelog::error::StorageError;
use tidelog::internals::conformance;
use tidelog::internals::store::{Direction, OpenStore, Read, RocksOpener, Store};
use tidelog::internals::write_batch::{Family, WriteBatch};

const BLOCK_CACHE_BYTES: u64 = 4 << 20;

fn open(directory: &Path) -> Arc<dyn Store> {
    RocksOpener::new(BLOCK_CACHE_BYTES).open(directory, true).expect("the store opens")
}

fn put_all(store: &dyn Store, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
    let mut batch = WriteBatch::new();
    for family in Family::ALL {
        batch.put(family, key, value);
    }
    store.write(&[&batch])
}

fn is_there(read: &dyn Read, key: &[u8]) -> Vec<bool> {
    let there = |family| read.get(family, key).expect("the store can be read").is_some();
    Family::ALL.map(there).to_vec()
}

const EVERYWHERE: [bool; 10] = [true; 10];
const NOWHERE: [bool; 10] = [false; 10];

/// The files of a store whose names end like this.
fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory can be listed");
    let paths = entries.map(|entry| entry.expect("its entries can be read").path());
    let mut found: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the copy can be made");
    for path in files(from, "") {
        let name = path.file_name().expect("a listed path has a name");
        // The lock file is held by the store that lives on.
        if name != "LOCK" {
            fs::copy(&path, to.join(name)).expect("a file can be copied");
        }
    }
}

/// The sections of the options file that RocksDB wrote, with the lines of each.
fn written_options(directory: &Path) -> Vec<(String, Vec<String>)> {
    let entries = files(directory, "");
    let is_options = |path: &&PathBuf| path.to_string_lossy().contains("OPTIONS-");
    let newest = entries.iter().rfind(is_options).expect("RocksDB writes its options");
    let text = fs::read_to_string(newest).expect("the options can be read");
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            sections.push((line.to_owned(), Vec::new()));
        } else if let Some((_, lines)) = sections.last_mut() {
            lines.push(line.to_owned());
        }
    }
    sections
}

#[test]
fn the_written_options_are_those_that_durability_depends_on_in_every_family() {
    let directory = TemporaryDirectory::new();
    let store = open(directory.path());
    let sections = written_options(directory.path());
    let section = |name: String| {
        let found = sections.iter().find(|(title, _)| *title == name);
        &found.unwrap_or_else(|| panic!("there is no section {name}")).1
    };
    let expect = |name: &str, lines: &[&str]| {
        let written = section(name.to_owned());
        for line in lines {
            assert!(written.iter().any(|found| found == line), "{name} lacks {line}: {written:?}");
        }
    };
    expect(
        "[DBOptions]",
        &[
            "atomic_flush=true",
            "db_write_buffer_size=0",
            "paranoid_checks=true",
            "avoid_flush_during_shutdown=true",
            "max_bgerror_resume_count=0",
            "persist_stats_to_disk=false",
            "allow_concurrent_memtable_write=false",
            "enable_pipelined_write=false",
            "unordered_write=false",
            "two_write_queues=false",
            "use_fsync=false",
            "stats_dump_period_sec=0",
            "stats_persist_period_sec=0",
            "bytes_per_sync=1048576",
        ],
    );
    let names = Family::ALL.iter().map(|family| family.name()).chain(["default"]);
    for name in names {
        expect(
            &format!("[CFOptions \"{name}\"]"),
            &[
                "write_buffer_size=68719476736",
                "max_write_buffer_number=6",
                "min_write_buffer_number_to_merge=1",
                "memtable_max_range_deletions=0",
                "memtable_op_scan_flush_trigger=0",
                "memtable_avg_op_scan_flush_trigger=0",
                "experimental_mempurge_threshold=0.000000",
                "memtable_prefix_bloom_size_ratio=0.000000",
                "level0_slowdown_writes_trigger=1073741824",
                "level0_stop_writes_trigger=1073741824",
                "soft_pending_compaction_bytes_limit=1152921504606846976",
                "hard_pending_compaction_bytes_limit=1152921504606846976",
                "compression=kNoCompression",
                "prefix_extractor=nullptr",
                "disable_auto_compactions=false",
            ],
        );
        expect(
            &format!("[TableOptions/BlockBasedTable \"{name}\"]"),
            &["cache_index_and_filter_blocks=true", "whole_key_filtering=true"],
        );
    }
    drop(store);
}

#[test]
fn the_limit_of_open_files_is_the_one_that_was_set_or_half_of_the_processs() {
    let limit = |opener: RocksOpener| {
        let directory = TemporaryDirectory::new();
        let _store = opener.open(directory.path(), true).unwrap();
        let sections = written_options(directory.path());
        let lines = sections.into_iter().find(|(title, _)| title == "[DBOptions]").unwrap().1;
        let value = lines.iter().find_map(|line| line.strip_prefix("max_open_files="));
        value.unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(limit(RocksOpener::new(0).max_open_files(77)), 77);
    let derived = limit(RocksOpener::new(0));
    assert!((64..=4096).contains(&derived), "{derived}");
}

#[test]
fn the_log_of_rocksdb_stays_empty_and_nothing_is_flushed_unasked() {
    let directory = TemporaryDirectory::new();
    let store = open(directory.path());
    // More than RocksDB's own default for a memtable, in writes, ranges, snapshots and scans.
    let value = vec![1; 4096];
    for number in 0..20_000u32 {
        let mut batch = WriteBatch::new();
        batch.put(Family::Batches, &number.to_be_bytes(), &value);
        if number % 8 == 0 {
            batch.delete_range(Family::Batches, &[0], &number.to_be_bytes());
        }
        store.write(&[&batch]).unwrap();
        if number % 1000 == 0 {
            let snapshot = store.snapshot();
            let mut count = 0;
            let mut visit = |_: &[u8], _: &[u8]| {
                count += 1;
                ControlFlow::Continue(())
            };
            snapshot.scan(Family::Batches, &[0], &[9], Direction::Forward, &mut visit).unwrap();
            assert_eq!(count, 1);
        }
    }
    assert!(store.unflushed_bytes() > 64 << 20);
    assert_eq!(files(directory.path(), ".sst"), Vec::<PathBuf>::new());
    store.close().unwrap();
    drop(store);
    assert_eq!(files(directory.path(), ".sst"), Vec::<PathBuf>::new(), "nor when it is closed");
    let logs = files(directory.path(), ".log");
    assert!(!logs.is_empty());
    for log in logs {
        assert_eq!(fs::metadata(&log).unwrap().len(), 0, "{log:?}");
    }
}

#[test]
fn a_drop_and_a_panic_flush_nothing() {
    let directory = TemporaryDirectory::new();
    let store = open(directory.path());
    put_all(&*store, b"cut", b"v").unwrap();
    conformance::flush(&*store);
    put_all(&*store, b"behind", b"v").unwrap();
    let held = store.snapshot();
    drop(store);
    assert_eq!(is_there(&*held, b"behind"), EVERYWHERE, "a snapshot outlives its store");
    drop(held);

    let path = directory.path().to_owned();
    let panicked = std::thread::spawn(move || {
        let store = open(&path);
        put_all(&*store, b"panic", b"v").unwrap();
        panic!("with a store open");
    });
    assert!(panicked.join().is_err());
    let store = open(directory.path());
    assert_eq!(is_there(&*store, b"cut"), EVERYWHERE);
    assert_eq!(is_there(&*store, b"behind"), NOWHERE);
    assert_eq!(is_there(&*store, b"panic"), NOWHERE);
}

#[test]
fn what_a_killed_process_leaves_is_the_last_flush_in_every_family() {
    let directory = TemporaryDirectory::new();
    let store = open(&directory.path().join("store"));
    for round in 0..10u8 {
        put_all(&*store, &[round, 0], b"in the cut").unwrap();
        store.begin_flush().unwrap();
        put_all(&*store, &[round, 1], b"behind it").unwrap();
        while !store.is_flushed().unwrap() {
            std::thread::yield_now();
        }
        // A copy of the files is what a kill at this moment leaves.
        let killed = directory.path().join(format!("killed-{round}"));
        copy(&directory.path().join("store"), &killed);
        let found = open(&killed);
        assert_eq!(is_there(&*found, &[round, 0]), EVERYWHERE);
        assert_eq!(is_there(&*found, &[round, 1]), NOWHERE);
        if let Some(before) = round.checked_sub(1) {
            assert_eq!(is_there(&*found, &[before, 1]), EVERYWHERE);
        }
    }
}

#[test]
fn a_failed_flush_is_seen_stops_all_writes_and_leaves_the_last_flush() {
    let directory = TemporaryDirectory::new();
    let (path, away) = (directory.path().join("store"), directory.path().join("away"));
    let store = open(&path);
    put_all(&*store, b"cut", b"v").unwrap();
    conformance::flush(&*store);
    put_all(&*store, b"lost", b"v").unwrap();
    // Tables are made by their path: where the directory has another name, none can be.
    fs::rename(&path, &away).unwrap();
    let seen = store.begin_flush().and_then(|()| {
        loop {
            match store.is_flushed() {
                Ok(false) => std::thread::yield_now(),
                Ok(true) => panic!("a flush without a directory cannot succeed"),
                Err(error) => return Err::<(), _>(error),
            }
        }
    });
    let error = seen.unwrap_err();
    assert!(matches!(error, StorageError::Store { operation: "flush", .. }), "{error}");
    fs::rename(&away, &path).unwrap();

    assert!(put_all(&*store, b"later", b"v").is_err(), "also when the cause is gone");
    assert!(store.begin_flush().is_err());
    assert!(store.is_flushed().is_err());
    assert_eq!(is_there(&*store, b"lost"), EVERYWHERE, "reading goes on");
    assert_eq!(is_there(&*store.snapshot(), b"later"), NOWHERE);
    store.close().unwrap();

    let store = open(&path);
    assert_eq!(is_there(&*store, b"cut"), EVERYWHERE);
    assert_eq!(is_there(&*store, b"lost"), NOWHERE);
    put_all(&*store, b"again", b"v").unwrap();
    conformance::flush(&*store);
}

#[test]
fn ranges_that_hold_nothing_do_not_reach_it_and_later_ones_work() {
    let directory = TemporaryDirectory::new();
    let store = open(directory.path());
    let family = Family::Batches;
    let mut batch = WriteBatch::new();
    batch.put(family, b"b", b"v");
    batch.delete_range(family, b"b", b"b");
    batch.delete_range(family, b"c", b"a");
    store.write(&[&batch]).unwrap();
    assert!(store.get(family, b"b").unwrap().is_some());
    let mut batch = WriteBatch::new();
    batch.delete_range(family, b"a", b"c");
    store.write(&[&batch]).unwrap();
    assert_eq!(store.get(family, b"b").unwrap(), None);
    conformance::flush(&*store);
}

const ENTRY_COUNT: u32 = 4000;

/// A store with one table of many blocks, closed.
fn store_with_a_table(path: &Path) -> PathBuf {
    let store = open(path);
    let mut batch = WriteBatch::new();
    for number in 0..ENTRY_COUNT {
        batch.put(Family::Batches, &number.to_be_bytes(), &[number as u8; 100]);
    }
    store.write(&[&batch]).expect("the store works");
    conformance::flush(&*store);
    store.close().expect("the store works");
    let [table] = &files(path, ".sst")[..] else { panic!("one family makes one table") };
    table.clone()
}

fn scan_count(
    read: &dyn Read,
    begin: u32,
    end: u32,
    direction: Direction,
) -> Result<usize, StorageError> {
    let mut count = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        count += 1;
        ControlFlow::Continue(())
    };
    let (begin, end) = (begin.to_be_bytes(), end.to_be_bytes());
    read.scan(Family::Batches, &begin, &end, direction, &mut visit)?;
    Ok(count)
}

// The first seek fails, or a step does, in either direction; what begins anew is right.
#[test]
fn a_damaged_table_gives_errors_and_never_less_than_there_was() {
    for (place, damaged) in [(100, 0), (200_000, ENTRY_COUNT / 2)] {
        let directory = TemporaryDirectory::new();
        let table = store_with_a_table(directory.path());
        let mut bytes = fs::read(&table).unwrap();
        assert!(bytes.len() > 400_000, "entries lie evenly in the table");
        bytes[place] ^= 1;
        fs::write(&table, bytes).unwrap();

        let store = open(directory.path());
        let reads: [&dyn Read; 2] = [&*store, &*store.snapshot()];
        for read in reads {
            for direction in [Direction::Forward, Direction::Backward] {
                let all = scan_count(read, 0, ENTRY_COUNT, direction);
                assert!(
                    matches!(all, Err(StorageError::Store { operation: "scan", .. })),
                    "{all:?}"
                );
                let sound = scan_count(read, ENTRY_COUNT - 500, ENTRY_COUNT, direction);
                assert_eq!(sound.unwrap(), 500, "what is not damaged can be read");
            }
            let mut failed = 0;
            for number in 0..ENTRY_COUNT {
                match read.get(Family::Batches, &number.to_be_bytes()) {
                    Ok(value) => assert_eq!(value, Some(vec![number as u8; 100]), "{number}"),
                    Err(StorageError::Store { operation: "get", .. }) => {
                        failed += 1;
                        assert!(number.abs_diff(damaged) < 400, "{number}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(failed > 0);
        }
    }
}

#[test]
fn a_missing_or_shortened_table_fails_the_open_or_the_read() {
    for shorten in [false, true] {
        let directory = TemporaryDirectory::new();
        let table = store_with_a_table(directory.path());
        if shorten {
            let bytes = fs::read(&table).unwrap();
            fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
        } else {
            fs::remove_file(&table).unwrap();
        }
        let opened = RocksOpener::new(BLOCK_CACHE_BYTES).open(directory.path(), false);
        let count =
            opened.and_then(|store| scan_count(&*store, 0, ENTRY_COUNT, Direction::Forward));
        assert!(matches!(count, Err(StorageError::Store { .. })), "{count:?}");
    }
}

#[test]
fn what_is_deleted_stays_deleted_through_compactions_under_a_snapshot() {
    let directory = TemporaryDirectory::new();
    let store = open(directory.path());
    let first = {
        let mut batch = WriteBatch::new();
        (0..1000u32).for_each(|number| {
            batch.put(Family::Batches, &number.to_be_bytes(), b"v");
        });
        store.write(&[&batch]).unwrap();
        conformance::flush(&*store);
        store.snapshot()
    };
    // Enough tables for compactions to start.
    for round in 0..12u32 {
        let mut batch = WriteBatch::new();
        let (begin, end) = (round * 50, (round + 1) * 50);
        batch.delete_range(Family::Batches, &begin.to_be_bytes(), &end.to_be_bytes());
        store.write(&[&batch]).unwrap();
        conformance::flush(&*store);
        let left = scan_count(&*store, 0, 1000, Direction::Forward).unwrap();
        assert_eq!(left, 1000 - end as usize);
        assert_eq!(scan_count(&*first, 0, 1000, Direction::Backward).unwrap(), 1000);
    }
    drop(first);
    store.close().unwrap();
    drop(store);
    let store = open(directory.path());
    assert_eq!(scan_count(&*store, 0, 1000, Direction::Forward).unwrap(), 400);
}
