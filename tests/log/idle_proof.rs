//! Proof of the last sync: an idle engine writes it once, and then damage is never taken for a torn tail.

use std::path::{Path, PathBuf};

use tidelog::error::StorageError;
use tidelog::{Durability, Engine, OpenError, Record};

use crate::common::{NOW_MS, TestEngine, one_partition};

const RECORDS: i64 = 5;

fn segment() -> PathBuf {
    Path::new("/engine/log/00000000000000000001.log").to_owned()
}

fn length(test: &TestEngine) -> usize {
    test.disk.contents(&segment()).expect("it is there").len()
}

fn sync(engine: &Engine) {
    let topic = engine.topic("orders").expect("it exists");
    let partition = topic.partition(0).expect("it has one");
    let mut append = engine.append_transaction();
    let record = Record::keyless(vec![5; 300]).timestamp(NOW_MS);
    append.records(&partition, [record]).expect("the record is good");
    append.commit(Durability::Sync).expect("it is committed");
}

/// An engine whose last act was a sync; then it is idle, or is killed at once. Where its frames of
/// that time end.
fn life(is_idle: bool) -> (TestEngine, usize) {
    let test = TestEngine::new();
    let engine = test.open();
    one_partition(&engine, "orders", &[]);
    for _ in 0..RECORDS {
        sync(&engine);
    }
    let end = length(&test);
    if is_idle {
        engine.maintenance().run().expect("nothing fails");
    }
    drop(engine);
    test.kill();
    (test, end)
}

/// Flips a bit at many places of what was synced, one at a time: how many opens name damage, and
/// how many show fewer records.
fn flip_each(is_idle: bool) -> (usize, usize) {
    let (mut named, mut shorter) = (0, 0);
    let (_, end) = life(is_idle);
    for at in (4096..end).step_by(17) {
        let (test, _) = life(is_idle);
        test.disk.flip_bit(&segment(), at as u64 * 8 + at as u64 % 8);
        match test.builder().open() {
            Ok(engine) => {
                // Where a read meets the damage, it names it too: the records are not lost unseen.
                let count = engine.topic("orders").map_or(0, |topic| {
                    engine
                        .watermarks(&topic.partition(0).expect("it has one"))
                        .expect("it exists")
                        .log_end
                });
                assert!(count <= RECORDS);
                shorter += usize::from(count < RECORDS);
            }
            Err(OpenError::Storage(StorageError::Corruption(_))) => named += 1,
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    (named, shorter)
}

#[test]
fn after_an_idle_moment_no_damage_to_what_was_synced_is_taken_for_a_torn_tail() {
    let (named, shorter) = flip_each(true);
    assert_eq!(shorter, 0, "and {named} were named");
    assert!(named > 50, "most bytes are summed: {named}");
}

#[test]
fn without_it_the_last_commit_goes_in_silence() {
    let (named, shorter) = flip_each(false);
    assert!(shorter > 10, "{shorter} opens are shorter, {named} name damage");
}

#[test]
fn each_sync_gets_one_proof_and_an_idle_engine_then_writes_nothing() {
    let test = TestEngine::new();
    let engine = test.open();
    one_partition(&engine, "orders", &[]);
    for _ in 0..3 {
        sync(&engine);
        let before = length(&test);
        engine.maintenance().run().unwrap();
        let after = length(&test);
        assert_eq!(after - before, 80, "the sync is proven, at the cost that is documented");
        for hours in 1..5 {
            test.clock.advance_ms(3_600_000 * hours);
            engine.maintenance().run().unwrap();
            // A checkpoint syncs the proof itself, which needs none.
            engine.maintenance().checkpoint().unwrap();
            engine.maintenance().run().unwrap();
            assert_eq!(length(&test), after, "once is enough");
        }
    }
}

#[test]
fn a_later_commit_is_proof_enough() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "orders", &[]);
    sync(&engine);
    crate::common::append(&engine, &partition, [Record::keyless("v").timestamp(NOW_MS)]);
    let before = length(&test);
    engine.maintenance().run().unwrap();
    assert_eq!(length(&test), before);
}

#[test]
fn a_step_of_maintenance_commits_nothing_of_what_was_submitted() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "orders", &[]);
    sync(&engine);
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::keyless("v").timestamp(NOW_MS)]).unwrap();
    let ticket = append.submit(Durability::Buffered).unwrap();
    let before = length(&test);
    engine.maintenance().run().unwrap();
    assert_eq!(length(&test), before, "with work in the queue the engine is not idle");
    engine.maintenance().run_pending();
    ticket.wait().unwrap();
    let after = length(&test);
    engine.maintenance().run().unwrap();
    assert_eq!(length(&test), after, "and what was submitted is proof enough");
}
