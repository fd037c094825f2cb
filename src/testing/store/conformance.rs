//! What every store must do, as functions that a test runs on each kind in an empty directory.
//!
//! They panic where the store does something else.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::index::store::{Direction, OpenStore, Read, Store};
use crate::index::write_batch::{Family, WriteBatch};

/// Begin and end of a scan, and the keys it gives.
type Bounds<'a> = (&'a [u8], &'a [u8], &'a [&'a [u8]]);
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A key above all that these tests use.
pub(super) const LAST: &[u8] = &[0xff; 16];

pub(super) fn open(kind: &dyn OpenStore, directory: &Path) -> Arc<dyn Store> {
    kind.open(directory, true).expect("the store opens")
}

fn write(store: &dyn Store, build: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    build(&mut batch);
    store.write(&[&batch]).expect("the store takes writes");
}

fn put(store: &dyn Store, family: Family, key: &[u8], value: &[u8]) {
    write(store, |batch| {
        batch.put(family, key, value);
    });
}

pub(super) fn get(read: &dyn Read, family: Family, key: &[u8]) -> Option<Vec<u8>> {
    read.get(family, key).expect("the store can be read")
}

pub(super) fn scan(
    read: &dyn Read,
    family: Family,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
) -> Entries {
    let mut entries = Vec::new();
    let scanned = read.scan(family, begin, end, direction, &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    scanned.expect("the store can be scanned");
    entries
}

fn keys(read: &dyn Read, family: Family) -> Vec<Vec<u8>> {
    let entries = scan(read, family, b"", LAST, Direction::Forward);
    entries.into_iter().map(|(key, _)| key).collect()
}

/// Flushes and waits until that is complete.
///
/// # Panics
/// If the store cannot flush.
pub fn flush(store: &dyn Store) {
    store.begin_flush().expect("a flush can begin");
    wait_for_flush(store);
}

fn wait_for_flush(store: &dyn Store) {
    while !store.is_flushed().expect("the flush succeeds") {
        std::thread::yield_now();
    }
}

/// A later operation of a batch overrules an earlier one, in the same batch and the ones after it.
pub fn operations_are_applied_in_their_order(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    let family = Family::Batches;
    put(&*store, family, b"b", b"old");
    write(&*store, |batch| {
        batch.delete_range(family, b"a", b"z");
        batch.put(family, b"b", b"range, then put");
        batch.put(family, b"c", b"put, then range");
        batch.delete_range(family, b"c", b"d");
        batch.put(family, b"e", b"put, then delete");
        batch.delete(family, b"e");
        batch.delete(family, b"f");
        batch.put(family, b"f", b"delete, then put");
        batch.put(family, b"g", b"first");
        batch.put(family, b"g", b"second");
    });
    let expected: &[(&[u8], &[u8])] =
        &[(b"b", b"range, then put"), (b"f", b"delete, then put"), (b"g", b"second")];
    assert_entries(&*store, family, expected);

    let (mut first, mut second) = (WriteBatch::new(), WriteBatch::new());
    first.put(family, b"b", b"first batch");
    first.put(family, b"h", b"first batch");
    second.delete_range(family, b"f", b"g");
    second.put(family, b"h", b"second batch");
    store.write(&[&first, &WriteBatch::new(), &second]).expect("several batches are one write");
    let expected: &[(&[u8], &[u8])] =
        &[(b"b", b"first batch"), (b"g", b"second"), (b"h", b"second batch")];
    assert_entries(&*store, family, expected);
    flush(&*store);
    assert_entries(&*store, family, expected);
}

fn assert_entries(read: &dyn Read, family: Family, expected: &[(&[u8], &[u8])]) {
    let found = scan(read, family, b"", LAST, Direction::Forward);
    let expected: Entries =
        expected.iter().map(|&(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(found, expected);
}

/// A range delete takes its begin and leaves its end, whether the entries are flushed or not.
pub fn a_range_delete_takes_its_begin_and_leaves_its_end(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    let family = Family::Index;
    for flushed in [false, true] {
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            put(&*store, family, key, b"v");
        }
        if flushed {
            flush(&*store);
        }
        write(&*store, |batch| batch.delete_range(family, b"b", b"d"));
        assert_eq!(keys(&*store, family), [b"a", b"d", b"e"]);
        assert_eq!(get(&*store, family, b"b"), None);
        assert_eq!(get(&*store, family, b"d"), Some(b"v".to_vec()));
        flush(&*store);
        assert_eq!(keys(&*store, family), [b"a", b"d", b"e"]);
    }
}

/// A scan gives the entries from its begin up to, not including, its end, in its direction, and
/// stops when it is asked to.
pub fn scans_keep_to_their_bounds(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    let family = Family::Topics;
    for key in [b"b", b"d", b"f"] {
        put(&*store, family, key, key);
    }
    for flushed in [false, true] {
        if flushed {
            flush(&*store);
        }
        let cases: &[Bounds<'_>] = &[
            (b"", LAST, &[b"b", b"d", b"f"]),
            (b"b", b"f", &[b"b", b"d"]),
            (b"a", b"e", &[b"b", b"d"]),
            (b"c", b"f\0", &[b"d", b"f"]),
            (b"b\0", b"d", &[]),
            (b"g", b"z", &[]),
            (b"d", b"d", &[]),
            (b"f", b"b", &[]),
        ];
        for &(begin, end, expected) in cases {
            let forward = scan(&*store, family, begin, end, Direction::Forward);
            let mut backward = scan(&*store, family, begin, end, Direction::Backward);
            backward.reverse();
            assert_eq!(forward, backward, "{begin:?}..{end:?}");
            let found: Vec<_> = forward.iter().map(|(key, _)| &key[..]).collect();
            assert_eq!(found, expected, "{begin:?}..{end:?}");
            assert!(forward.iter().all(|(key, value)| key == value));
        }
        for (direction, first) in [(Direction::Forward, b"b"), (Direction::Backward, b"f")] {
            let mut seen = Vec::new();
            let scanned = store.scan(family, b"", LAST, direction, &mut |key, _| {
                seen.push(key.to_vec());
                ControlFlow::Break(())
            });
            scanned.expect("a scan may be stopped");
            assert_eq!(seen, [first.to_vec()]);
        }
    }
}

/// A scan gives the state that held when it began, and its visitor may read and write.
pub fn a_scan_does_not_see_what_is_written_meanwhile(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    let family = Family::Batches;
    put(&*store, family, b"a", b"1");
    put(&*store, family, b"c", b"1");
    let mut seen = Vec::new();
    let scanned = store.scan(family, b"", LAST, Direction::Forward, &mut |key, value| {
        seen.push((key.to_vec(), value.to_vec()));
        write(&*store, |batch| {
            batch.put(family, b"b", b"2");
            batch.put(family, b"c", b"2");
            batch.delete(family, b"a");
        });
        assert_eq!(get(&*store, family, b"b"), Some(b"2".to_vec()));
        ControlFlow::Continue(())
    });
    scanned.expect("the visitor may use the store");
    assert_eq!(seen, [(b"a".to_vec(), b"1".to_vec()), (b"c".to_vec(), b"1".to_vec())]);
    assert_eq!(keys(&*store, family), [b"b", b"c"]);
}

/// The same key in two families is two entries, in every family there is.
pub fn families_do_not_see_each_other(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    write(&*store, |batch| {
        for family in Family::ALL {
            batch.put(family, b"key", family.name().as_bytes());
        }
    });
    flush(&*store);
    write(&*store, |batch| batch.delete_range(Family::Groups, b"a", b"z"));
    for family in Family::ALL {
        let expected = (family != Family::Groups).then(|| family.name().as_bytes().to_vec());
        assert_eq!(get(&*store, family, b"key"), expected, "{family:?}");
    }
}

/// A scan over one partition gives only its own entries, in the order of their offsets, whatever
/// partitions stand beside it.
pub fn neighbouring_prefixes_are_kept_apart(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    let family = Family::Batches;
    let partitions = [0u32, 1, 10, 255, 256, 257, u32::MAX];
    let offsets = [0u64, 1, 255, 256, 1 << 40, i64::MAX as u64];
    let key = |partition: u32, offset: u64| {
        [&partition.to_be_bytes()[..], &offset.to_be_bytes()[..]].concat()
    };
    write(&*store, |batch| {
        for partition in partitions {
            for offset in offsets {
                batch.put(family, &key(partition, offset), &offset.to_le_bytes());
            }
        }
    });
    for flushed in [false, true] {
        if flushed {
            flush(&*store);
        }
        for partition in partitions {
            let (begin, end) = (key(partition, 0), key(partition, u64::MAX));
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = scan(&*store, family, &begin, &end, direction);
                if direction == Direction::Backward {
                    found.reverse();
                }
                let found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
                let expected: Vec<_> = offsets.map(|offset| key(partition, offset)).to_vec();
                assert_eq!(found, expected, "partition {partition} {direction:?}");
            }
            // The seek that a fetch makes: to the entry at the offset or the first after it.
            let begin = key(partition, 257);
            let found = scan(&*store, family, &begin, &end, Direction::Forward);
            assert_eq!(found[0].0, key(partition, 1 << 40));
        }
    }
}

/// A snapshot shows its instant across overwrites, deletes, range deletes and flushes.
pub fn a_snapshot_keeps_its_instant(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    let family = Family::Batches;
    let key = |number: u64| number.to_be_bytes();
    write(&*store, |batch| {
        (0..1000).for_each(|number| {
            batch.put(family, &key(number), b"first");
        });
    });
    let before = store.snapshot();
    write(&*store, |batch| {
        batch.delete_range(family, &key(0), &key(500));
        batch.delete(family, &key(500));
        batch.put(family, &key(501), b"second");
        batch.put(family, &key(2000), b"new");
    });
    let after = store.snapshot();
    flush(&*store);
    write(&*store, |batch| batch.delete_range(family, &key(0), &key(u64::MAX)));
    flush(&*store);

    assert_eq!(keys(&*store, family), Vec::<Vec<u8>>::new());
    let first = scan(&*before, family, b"", LAST, Direction::Forward);
    assert_eq!(first.len(), 1000);
    assert!(first.iter().all(|(_, value)| value == b"first"));
    assert_eq!(get(&*before, family, &key(2000)), None);
    let second = scan(&*after, family, b"", LAST, Direction::Backward);
    assert_eq!(second.len(), 500);
    assert_eq!(second[0], (key(2000).to_vec(), b"new".to_vec()));
    assert_eq!(get(&*after, family, &key(501)), Some(b"second".to_vec()));
    assert_eq!(get(&*after, family, &key(500)), None);
}

/// An empty value is not the same as no value; keys and values may hold any bytes.
pub fn keys_and_values_are_any_bytes(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    let family = Family::Producers;
    let large = vec![7; 1 << 20];
    let long_key = vec![1; 10_000];
    write(&*store, |batch| {
        batch.put(family, b"empty", b"");
        batch.put(family, &[0], b"zero");
        batch.put(family, &[0, 0], b"two zeros");
        batch.put(family, &[0xff, 0xff], &[0, 0xff, 0]);
        batch.put(family, &long_key, &large);
    });
    for flushed in [false, true] {
        if flushed {
            flush(&*store);
        }
        assert_eq!(get(&*store, family, b"empty"), Some(Vec::new()));
        assert_eq!(get(&*store, family, b"emptyx"), None);
        assert_eq!(get(&*store, family, b""), None);
        assert_eq!(get(&*store, family, &long_key).as_ref(), Some(&large));
        let expected: [&[u8]; 5] = [&[0], &[0, 0], &long_key, b"empty", &[0xff, 0xff]];
        assert_eq!(keys(&*store, family), expected);
    }
}

/// What was not flushed is not there after a reopen, however the store was closed; what was, is.
pub fn a_reopened_store_shows_the_last_flush_alone(kind: &dyn OpenStore, directory: &Path) {
    for (round, closes) in [(0u8, true), (1, false)] {
        let store = open(kind, directory);
        write(&*store, |batch| {
            for family in Family::ALL {
                batch.put(family, &[round, 1], b"flushed");
                batch.put(family, &[round, 2], b"flushed, then deleted");
                batch.put(family, &[round, 3], b"flushed, then overwritten");
            }
        });
        flush(&*store);
        write(&*store, |batch| {
            for family in Family::ALL {
                batch.delete(family, &[round, 2]);
                batch.put(family, &[round, 3], b"never flushed");
                batch.put(family, &[round, 4], b"never flushed");
                batch.delete_range(family, &[round, 1], &[round, 2]);
            }
        });
        if closes {
            store.close().expect("the store closes");
        }
        drop(store);
        let store = open(kind, directory);
        for family in Family::ALL {
            let value = |last| get(&*store, family, &[round, last]);
            assert_eq!(value(1), Some(b"flushed".to_vec()), "{family:?}");
            assert_eq!(value(2), Some(b"flushed, then deleted".to_vec()), "{family:?}");
            assert_eq!(value(3), Some(b"flushed, then overwritten".to_vec()), "{family:?}");
            assert_eq!(value(4), None, "{family:?}");
        }
    }
}

/// What is written after a flush began is not in it, although the flush was still under way.
pub fn writes_after_the_begin_of_a_flush_are_not_in_it(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    for round in 0..20u8 {
        let (flushed, later) = ([round, 0], [round, 1]);
        write(&*store, |batch| {
            for family in Family::ALL {
                batch.put(family, &flushed, b"in the flush");
            }
        });
        store.begin_flush().expect("a flush can begin");
        write(&*store, |batch| {
            for family in Family::ALL {
                batch.put(family, &later, b"after it");
                batch.delete(family, &flushed);
            }
        });
        wait_for_flush(&*store);
        assert_eq!(get(&*store, Family::Meta, &flushed), None);
    }
    store.close().expect("the store closes");
    let store = open(kind, directory);
    for family in Family::ALL {
        assert_eq!(get(&*store, family, &[19, 0]), Some(b"in the flush".to_vec()), "{family:?}");
        assert_eq!(get(&*store, family, &[19, 1]), None, "{family:?}");
        assert_eq!(get(&*store, family, &[18, 1]), Some(b"after it".to_vec()), "{family:?}");
    }
}

/// One flush at a time; one of nothing is complete at once or soon; none begun is complete.
pub fn a_second_flush_is_refused_while_one_is_under_way(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    assert!(store.is_flushed().expect("there is no flush"));
    flush(&*store);
    put(&*store, Family::Meta, b"k", b"v");
    store.begin_flush().expect("a flush can begin");
    let refused = store.begin_flush().expect_err("the first has not been seen to end");
    assert!(matches!(refused, StorageError::Store { operation: "flush", .. }), "{refused}");
    wait_for_flush(&*store);
    put(&*store, Family::Meta, b"k", b"later");
    flush(&*store);
}

/// The memory of unflushed writes grows with them and falls when they are flushed.
pub fn unflushed_bytes_follow_what_is_unflushed(kind: &dyn OpenStore, directory: &Path) {
    let store = open(kind, directory);
    assert_eq!(store.unflushed_bytes(), 0);
    put(&*store, Family::Topics, b"k", &[0; 10_000]);
    let one = store.unflushed_bytes();
    assert!(one >= 10_000, "{one}");
    store.begin_flush().expect("a flush can begin");
    put(&*store, Family::Topics, b"l", &[0; 1_000]);
    assert!(store.unflushed_bytes() >= one + 1_000);
    wait_for_flush(&*store);
    let rest = store.unflushed_bytes();
    assert!((1_000..10_000).contains(&rest), "{rest}");
    flush(&*store);
    assert_eq!(store.unflushed_bytes(), 0);
}

/// A store that is open cannot be opened again, and one that is closed answers nothing.
pub fn a_store_is_open_once_and_a_closed_one_refuses_all(kind: &dyn OpenStore, directory: &Path) {
    assert!(!kind.exists(directory).expect("that can be known"));
    assert!(kind.open(directory, false).is_err(), "there is nothing to open");
    assert!(!kind.exists(directory).expect("a refused open makes nothing"));
    let store = open(kind, directory);
    assert!(kind.exists(directory).expect("that can be known"));
    kind.open(directory, false).expect_err("it is open already");
    put(&*store, Family::Meta, b"k", b"v");
    flush(&*store);
    let held = store.snapshot();
    store.close().expect("it closes");

    let family = Family::Meta;
    for late in [held.get(family, b"k").map(drop), scan_of_all(&*held, family)] {
        assert!(matches!(late, Err(StorageError::Closed)), "a snapshot ends with it: {late:?}");
    }
    let mut batch = WriteBatch::new();
    batch.put(family, b"k", b"w");
    assert!(store.write(&[&batch]).is_err());
    assert!(store.get(family, b"k").is_err());
    let mut visit = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
    assert!(store.scan(family, b"", LAST, Direction::Forward, &mut visit).is_err());
    assert!(store.snapshot().get(family, b"k").is_err());
    assert!(store.begin_flush().is_err());
    assert!(store.is_flushed().is_err());
    assert!(store.close().is_err());

    let again = kind.open(directory, false).expect("a closed store can be opened");
    assert_eq!(get(&*again, family, b"k"), Some(b"v".to_vec()));
    drop(held);
    assert_eq!(get(&*again, family, b"k"), Some(b"v".to_vec()), "it is another store's");
}

fn scan_of_all(store: &dyn Read, family: Family) -> Result<(), StorageError> {
    let mut visit = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
    store.scan(family, b"", LAST, Direction::Forward, &mut visit)
}
