//! Both stores do what the engine expects of a store, and the memory store fails as it is told to.
#![cfg(feature = "test-util")]

#[cfg(feature = "rocksdb")]
use crate::temporary;

use std::path::Path;

use tidelog::internals::conformance;
use tidelog::internals::store::{OpenStore, Store};
use tidelog::internals::write_batch::{Family, WriteBatch};
use tidelog::testing::{FailedFlush, MemoryDisk};
#[cfg(feature = "rocksdb")]
use {
    temporary::TemporaryDirectory, tidelog::internals::differential,
    tidelog::internals::store::RocksOpener,
};

macro_rules! conformance_of_both_stores {
    ($($case:ident)*) => {
        mod memory {
            use super::*;
            $(
                #[test]
                fn $case() {
                    conformance::$case(&MemoryDisk::new(), Path::new("store"));
                }
            )*
        }

        #[cfg(feature = "rocksdb")]
        mod rocks {
            use super::*;
            $(
                #[test]
                fn $case() {
                    let directory = TemporaryDirectory::new();
                    conformance::$case(&RocksOpener::new(0), directory.path());
                }
            )*
        }
    };
}

conformance_of_both_stores! {
    operations_are_applied_in_their_order
    a_range_delete_takes_its_begin_and_leaves_its_end
    scans_keep_to_their_bounds
    a_scan_does_not_see_what_is_written_meanwhile
    families_do_not_see_each_other
    neighbouring_prefixes_are_kept_apart
    a_snapshot_keeps_its_instant
    keys_and_values_are_any_bytes
    a_reopened_store_shows_the_last_flush_alone
    writes_after_the_begin_of_a_flush_are_not_in_it
    a_second_flush_is_refused_while_one_is_under_way
    unflushed_bytes_follow_what_is_unflushed
    a_store_is_open_once_and_a_closed_one_refuses_all
}

#[cfg(feature = "rocksdb")]
#[test]
fn the_memory_store_and_rocksdb_agree_in_all_that_can_be_seen() {
    for seed in 0..6 {
        let directory = TemporaryDirectory::new();
        let memory = MemoryDisk::new();
        let (left, right) =
            ((&memory as _, Path::new("store")), (&RocksOpener::new(0) as _, directory.path()));
        differential::two_stores_agree(left, right, seed);
    }
}

const DIRECTORY: &str = "store";

fn put(store: &dyn Store, number: u8) -> Result<(), tidelog::error::StorageError> {
    let mut batch = WriteBatch::new();
    batch.put(Family::Meta, &[number], &[number]);
    store.write(&[&batch])
}

/// How many of the keys 1, 2, 3, ... are there, without a gap.
fn count(store: &dyn Store) -> u8 {
    let there = |number| {
        store.get(Family::Meta, &[number]).expect("the memory store does as it is told").is_some()
    };
    let count = (1..=50).take_while(|&number| there(number)).count() as u8;
    assert!((count + 1..=50).all(|number| !there(number)), "a write border leaves no gap");
    count
}

/// Six writes, of which the first two are in a complete flush and two more in one that is begun.
fn six_writes(disk: &MemoryDisk) -> std::sync::Arc<dyn Store> {
    let store = disk.open(Path::new(DIRECTORY), true).expect("the memory store does as it is told");
    (1..=2).for_each(|number| put(&*store, number).expect("the memory store does as it is told"));
    conformance::flush(&*store);
    (3..=4).for_each(|number| put(&*store, number).expect("the memory store does as it is told"));
    disk.hold_flushes(true);
    store.begin_flush().expect("the memory store does as it is told");
    assert!(!store.is_flushed().expect("the memory store does as it is told"));
    (5..=6).for_each(|number| put(&*store, number).expect("the memory store does as it is told"));
    store
}

fn found_after_crashes(arrange: impl Fn(&MemoryDisk)) -> Vec<u8> {
    let mut found: Vec<u8> = (0..100)
        .map(|seed| {
            let disk = MemoryDisk::new();
            arrange(&disk);
            disk.crash(seed);
            disk.set_flushes_at_close(false);
            count(
                &*disk
                    .open(Path::new(DIRECTORY), false)
                    .expect("the memory store does as it is told"),
            )
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_crash_during_a_flush_finds_the_old_or_the_new_checkpoint() {
    assert_eq!(found_after_crashes(|disk| drop(six_writes(disk))), [2, 4]);
}

#[test]
fn a_crash_between_flushes_finds_the_last_checkpoint() {
    let found = found_after_crashes(|disk| {
        let store = six_writes(disk);
        disk.hold_flushes(false);
        assert!(store.is_flushed().unwrap());
    });
    assert_eq!(found, [4]);
}

#[test]
fn a_store_that_flushes_by_itself_may_hold_any_write_border() {
    let found = found_after_crashes(|disk| {
        disk.set_flushes_by_itself(true);
        let _store = six_writes(disk);
    });
    assert_eq!(found, [2, 3, 4, 5, 6]);
}

#[test]
fn a_store_that_flushes_at_close_holds_everything() {
    let found = found_after_crashes(|disk| {
        disk.set_flushes_at_close(true);
        drop(six_writes(disk));
    });
    assert_eq!(found, [6]);
}

#[test]
fn a_crash_before_the_close_leaves_nothing_to_flush_at_close() {
    let disk = MemoryDisk::new();
    disk.set_flushes_at_close(true);
    let store = six_writes(&disk);
    disk.crash(0);
    assert!(put(&*store, 7).is_err(), "the handle is dead");
    let reopened = disk.open(Path::new(DIRECTORY), false).unwrap();
    drop(store);
    assert!(count(&*reopened) <= 4);
    put(&*reopened, 40).unwrap();
}

#[test]
fn a_failed_flush_stops_all_writes_and_keeps_the_checkpoint_it_was_given() {
    for (how, expected) in [(FailedFlush::KeepsOld, 2), (FailedFlush::KeepsNew, 4)] {
        let found = found_after_crashes(|disk| {
            let store = disk.open(Path::new(DIRECTORY), true).unwrap();
            (1..=2).for_each(|number| put(&*store, number).unwrap());
            conformance::flush(&*store);
            (3..=4).for_each(|number| put(&*store, number).unwrap());
            disk.fail_next_flush(how);
            store.begin_flush().unwrap();
            put(&*store, 5).expect("the failure is not known yet");
            assert!(store.is_flushed().is_err());
            assert!(store.is_flushed().is_err());
            assert!(put(&*store, 6).is_err());
            assert!(store.begin_flush().is_err());
            assert_eq!(count(&*store), 5, "reading goes on");
        });
        assert_eq!(found, [expected], "{how:?}");
    }
}

#[test]
fn a_failed_write_shows_nothing_and_stops_all_later_ones_until_a_reopen() {
    let disk = MemoryDisk::new();
    let store = disk.open(Path::new(DIRECTORY), true).unwrap();
    disk.fail_write_after(2);
    (1..=2).for_each(|number| put(&*store, number).unwrap());
    assert!(put(&*store, 3).is_err());
    assert!(put(&*store, 4).is_err());
    assert!(store.begin_flush().is_err());
    assert_eq!(count(&*store), 2);
    store.close().unwrap();
    let store = disk.open(Path::new(DIRECTORY), false).unwrap();
    assert_eq!(count(&*store), 0);
    put(&*store, 1).unwrap();
}

#[test]
fn a_removed_store_is_gone_and_its_handle_dead() {
    let disk = MemoryDisk::new();
    let store = six_writes(&disk);
    disk.remove(Path::new(DIRECTORY));
    assert!(!disk.exists(Path::new(DIRECTORY)).unwrap());
    assert!(store.get(Family::Meta, &[1]).is_err());
}
