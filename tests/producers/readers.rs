//! Readers that hammer while producer transactions end: whoever sees one in a partition sees it in all.
//!
//! Where others have transactions open, a fetch ends at the oldest of them in its partition, as in
//! Kafka; so those who fetch are shown one writer here. A scan of a snapshot is not bound by that.

use crate::common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::transactions::{MINUTE, committed_from, producer, record};
use common::{TestEngine, append, assert_verified, one_partition};
use tidelog::record::MarkerKind;
use tidelog::{Engine, FetchOptions, Partition, Record, TopicConfig, Visibility};

const PARTITIONS: u32 = 8;

/// The transactions whose records a reader of committed data finds, in their order.
fn seen(engine: &Engine, partition: &Partition) -> Vec<u64> {
    let values = committed_from(engine, partition, 0);
    values.iter().map(|value| value.parse().expect("a number")).collect()
}

/// Ends a transaction over all partitions again and again; every third one is aborted. Every
/// committed one has the numbers of two records, one appended before the other.
fn write(engine: &Engine, id: &str, partitions: &[Partition], numbers: &AtomicU64, count: u32) {
    let mut producer = engine.producers().transactional(id, MINUTE).expect("the disk is good");
    for turn in 0..count {
        let number = numbers.fetch_add(1, Ordering::SeqCst).to_string();
        let mut transaction = producer.begin();
        // One append a partition: what makes them one is their end.
        for partition in partitions {
            transaction.append([(partition, record(&number))]).expect("the disk is good");
        }
        if turn % 3 == 2 { transaction.abort() } else { transaction.commit() }
            .expect("the disk is good");
    }
}

type Look = fn(&Engine, &tidelog::Topic);

#[test]
fn a_transaction_that_is_seen_in_one_partition_is_seen_in_every_one_read_later() {
    hammer(&["a"], read_one_after_the_other);
}

#[test]
fn a_scan_of_a_snapshot_never_shows_a_part_of_a_transaction_whatever_else_is_open() {
    hammer(&["a", "b", "c"], scan_at_one_instant);
}

/// Readers look all the time while writers end transactions, and once when all have ended.
fn hammer(writers: &[&str], look: Look) {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(PARTITIONS)).expect("a good disk");
    let partitions = topic.partitions();
    let (is_over, numbers) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Barrier::new(2 + writers.len());
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (engine, topic) = (&engine, &topic);
                let (is_over, start) = (&is_over, &start);
                scope.spawn(move || {
                    start.wait();
                    loop {
                        let is_last = is_over.load(Ordering::SeqCst);
                        look(engine, topic);
                        if is_last {
                            break;
                        }
                    }
                })
            })
            .collect();
        let writing: Vec<_> = writers
            .iter()
            .map(|id| {
                let (engine, partitions, numbers) = (&engine, &partitions, &numbers);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    write(engine, id, partitions, numbers, 60);
                })
            })
            .collect();
        let wrote = writing.into_iter().all(|writer| writer.join().is_ok());
        is_over.store(true, Ordering::SeqCst);
        assert!(wrote && readers.into_iter().all(|reader| reader.join().is_ok()));
    });
    let all: Vec<Vec<u64>> = partitions.iter().map(|partition| seen(&engine, partition)).collect();
    assert!(all.iter().all(|seen| seen.len() == 40 * writers.len()));
    assert_verified(&engine);
}

/// What is seen in a partition is seen in every one that is looked at later.
fn read_one_after_the_other(engine: &Engine, topic: &tidelog::Topic) {
    let partitions = topic.partitions();
    let mut before: Vec<u64> = Vec::new();
    for partition in partitions.iter().chain(partitions.iter().rev()) {
        let mut now = seen(engine, partition);
        now.sort_unstable();
        let missing = before.iter().find(|number| now.binary_search(number).is_err());
        assert_eq!(missing, None, "a transaction that was seen before is not in {partition}");
        before = now;
    }
}

/// At one instant every partition has the same transactions.
fn scan_at_one_instant(engine: &Engine, topic: &tidelog::Topic) {
    let snapshot = engine.snapshot();
    let mut found: Vec<Vec<String>> = vec![Vec::new(); PARTITIONS as usize];
    for scanned in snapshot.scan(topic) {
        let scanned = scanned.expect("nothing is damaged");
        let value = scanned.record.value.expect("it has a value");
        let value = String::from_utf8(value.to_vec()).expect("it is text");
        found[scanned.partition as usize].push(value);
    }
    found.iter_mut().for_each(|values| values.sort_unstable());
    assert!(found.iter().all(|values| *values == found[0]), "a part of a transaction is seen");
}

// Nothing at or above the last stable offset of the same answer.
#[test]
fn a_fetch_of_committed_data_stays_below_the_last_stable_offset_that_it_gives() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(1)).expect("a good disk");
    let partitions = topic.partitions();
    let (is_over, numbers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            loop {
                let is_last = is_over.load(Ordering::SeqCst);
                let fetched = engine.fetch(&partitions[0], 0, FetchOptions::new());
                let fetched = fetched.expect("readable");
                let marks = fetched.watermarks;
                assert!(marks.last_stable <= marks.high_watermark);
                assert!(fetched.next_offset <= marks.last_stable, "{marks:?}");
                if is_last {
                    break;
                }
            }
        });
        write(&engine, "a", &partitions, &numbers, 100);
        is_over.store(true, Ordering::SeqCst);
        assert!(reader.join().is_ok());
    });
}

#[test]
fn a_reader_of_synced_data_sees_a_transaction_once_its_end_is_synced() {
    for kind in [MarkerKind::Commit, MarkerKind::Abort] {
        let test = TestEngine::in_background();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let mut producer = producer(&engine, "p");
        let mut transaction = producer.begin();
        transaction.append([(&partition, record("v"))]).unwrap();
        append(&engine, &partition, [Record::keyless("behind")]);
        engine.sync().unwrap();
        let stable = |visibility| {
            let options = FetchOptions::new().visibility(visibility);
            let fetched = engine.fetch(&partition, 0, options).unwrap();
            assert_eq!(fetched.next_offset, fetched.watermarks.last_stable);
            fetched.watermarks.last_stable
        };
        test.disk.hold_syncs();
        let seen = thread::scope(|scope| {
            let ending = scope.spawn(move || match kind {
                MarkerKind::Commit => transaction.commit(),
                MarkerKind::Abort => transaction.abort(),
            });
            while stable(Visibility::Applied) == 0 {
                thread::yield_now();
            }
            let both = || (stable(Visibility::Applied), stable(Visibility::Synced));
            let ended = both();
            append(&engine, &partition, [Record::keyless("later")]);
            let seen = [ended, both()];
            test.disk.release_syncs();
            ending.join().unwrap().unwrap();
            seen
        });
        assert_eq!(seen, [(3, 0), (4, 0)]);
        assert!(stable(Visibility::Synced) >= 3);
        engine.sync().unwrap();
        assert_eq!(stable(Visibility::Synced), 4);
        let marks = engine.watermarks_of(&partition, Visibility::Synced).unwrap();
        assert_eq!(marks.last_stable, 4);
    }
}
