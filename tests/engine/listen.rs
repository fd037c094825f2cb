//! Waiting for new data: a listener that is called and a wait that blocks, for applied and for synced data.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{TestEngine, append, one_partition};
use tidelog::{Durability, Engine, Listening, Partition, Record, TopicConfig, Visibility, WaitFor};

/// Longer than any test waits for what will come.
const LONG: Duration = Duration::from_secs(600);

#[derive(Clone, Default)]
struct Calls(Arc<AtomicU64>);

impl Calls {
    fn listen(&self, engine: &Engine, partitions: &[Partition]) -> Listening {
        let calls = Arc::clone(&self.0);
        engine.listen(partitions, move || _ = calls.fetch_add(1, Ordering::SeqCst))
    }

    /// The calls since this was asked last.
    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::SeqCst)
    }
}

fn has(engine: &Engine, partition: &Partition, offset: i64, visibility: Visibility) -> bool {
    engine.wait_for_data(&[WaitFor::new(partition, offset).visibility(visibility)], Duration::ZERO)
}

fn spin_until(is_there: impl Fn() -> bool) {
    while !is_there() {
        thread::yield_now();
    }
}

#[test]
fn a_listener_is_called_after_a_commit_to_one_of_its_partitions_and_no_other() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
    let partition = |index| topic.partition(index).unwrap();
    let calls = Calls::default();
    let _listening = calls.listen(&engine, &[partition(0), partition(1)]);
    calls.take();
    append(&engine, &partition(0), [Record::keyless("v")]);
    assert!(calls.take() >= 1);
    append(&engine, &partition(1), [Record::keyless("v")]);
    assert!(calls.take() >= 1);
    engine.sync().unwrap();
    calls.take();
    append(&engine, &partition(2), [Record::keyless("v")]);
    assert_eq!(calls.take(), 0);
}

#[test]
fn a_listener_is_called_when_the_commit_can_be_read_already() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let seen = Arc::new(AtomicU64::new(0));
    let (reader, read, at) = (engine.clone(), partition.clone(), Arc::clone(&seen));
    let listening = engine.listen(std::slice::from_ref(&partition), move || {
        let high = reader.watermarks(&read).unwrap().high_watermark;
        at.store(high.unsigned_abs(), Ordering::SeqCst);
    });
    for i in 1..5 {
        append(&engine, &partition, [Record::keyless("v")]);
        assert_eq!(seen.load(Ordering::SeqCst), i);
    }
    drop(listening);
}

#[test]
fn a_listener_that_was_dropped_is_called_no_more() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let calls = Calls::default();
    let listening = calls.listen(&engine, std::slice::from_ref(&partition));
    append(&engine, &partition, [Record::keyless("v")]);
    drop(listening);
    calls.take();
    append(&engine, &partition, [Record::keyless("v")]);
    engine.sync().unwrap();
    assert_eq!(calls.take(), 0);
}

#[test]
fn a_listener_is_called_again_once_the_commit_is_synced() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let other = one_partition(&engine, "other", &[]);
    let calls = Calls::default();
    let _listening = calls.listen(&engine, std::slice::from_ref(&partition));
    append(&engine, &partition, [Record::keyless("v")]);
    assert!(calls.take() >= 1);
    // The sync of another partition's commit covers this one too.
    let mut append = engine.append_transaction();
    append.records(&other, [Record::keyless("v")]).unwrap();
    append.commit(Durability::Sync).unwrap();
    assert!(has(&engine, &partition, 0, Visibility::Synced));
    assert!(calls.take() >= 1);
}

#[test]
fn who_listens_after_a_commit_hears_of_its_sync() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("v")]);
    let calls = Calls::default();
    let _listening = calls.listen(&engine, std::slice::from_ref(&partition));
    assert!(!has(&engine, &partition, 0, Visibility::Synced));
    calls.take();
    engine.sync().unwrap();
    assert!(calls.take() >= 1);
}

#[test]
fn who_listens_while_a_sync_runs_hears_of_its_end_also_if_it_does_not_cover_all() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let other = one_partition(&engine, "other", &[]);
    append(&engine, &partition, [Record::keyless("v")]);
    test.disk.hold_syncs();
    thread::scope(|scope| {
        let syncing = scope.spawn(|| engine.sync().unwrap());
        spin_until(|| test.disk.held_syncs() == 1);
        // Written while the sync runs, so not covered by it.
        append(&engine, &other, [Record::keyless("v")]);
        let calls = Calls::default();
        let _listening = calls.listen(&engine, std::slice::from_ref(&partition));
        assert!(!has(&engine, &partition, 0, Visibility::Synced));
        calls.take();
        test.disk.release_syncs();
        syncing.join().unwrap();
        assert!(has(&engine, &partition, 0, Visibility::Synced));
        assert!(calls.take() >= 1);
        assert!(!has(&engine, &other, 0, Visibility::Synced));
    });
}

#[test]
fn who_listens_for_the_second_of_two_commits_hears_of_the_sync_that_covers_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("first")]);
    test.disk.hold_syncs();
    let calls = Calls::default();
    let _listening = thread::scope(|scope| {
        let syncing = scope.spawn(|| engine.sync().unwrap());
        spin_until(|| test.disk.held_syncs() == 1);
        append(&engine, &partition, [Record::keyless("second")]);
        let listening = calls.listen(&engine, std::slice::from_ref(&partition));
        test.disk.release_syncs();
        syncing.join().unwrap();
        listening
    });
    assert!(!has(&engine, &partition, 1, Visibility::Synced));
    calls.take();
    engine.sync().unwrap();
    assert!(has(&engine, &partition, 1, Visibility::Synced));
    assert!(calls.take() >= 1);
}

#[test]
fn a_listener_hears_of_the_deletion_of_a_topic() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    let calls = Calls::default();
    let partition = topic.partition(1).unwrap();
    let _listening = calls.listen(&engine, std::slice::from_ref(&partition));
    calls.take();
    engine.delete_topic("t").unwrap();
    assert!(calls.take() >= 1);
    assert!(has(&engine, &partition, i64::MAX, Visibility::Applied));
}

#[test]
fn a_wait_that_has_no_time_says_whether_the_data_is_there() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    assert!(!has(&engine, &partition, 0, Visibility::Applied));
    append(&engine, &partition, [Record::keyless("v")]);
    assert!(has(&engine, &partition, 0, Visibility::Applied));
    assert!(has(&engine, &partition, -5, Visibility::Applied));
    assert!(!has(&engine, &partition, 1, Visibility::Applied));
    assert!(!has(&engine, &partition, 0, Visibility::Synced));
    engine.sync().unwrap();
    assert!(has(&engine, &partition, 0, Visibility::Synced));
    assert!(!engine.wait_for_data(&[], Duration::ZERO));
}

#[test]
fn a_wait_ends_when_the_data_comes_in_one_of_its_partitions() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
    let partitions = topic.partitions();
    for visibility in [Visibility::Applied, Visibility::Synced] {
        let wanted: Vec<_> = partitions
            .iter()
            .map(|partition| {
                let marks = engine.watermarks(partition).unwrap();
                WaitFor::new(partition, marks.log_end).visibility(visibility)
            })
            .collect();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| engine.wait_for_data(&wanted, LONG));
            append(&engine, &partitions[2], [Record::keyless("v")]);
            if visibility == Visibility::Synced {
                engine.sync().unwrap();
            }
            assert!(waiting.join().unwrap());
        });
    }
}

#[test]
fn a_wait_for_synced_data_ends_with_the_sync_of_a_submitted_commit() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    thread::scope(|scope| {
        let wanted = [WaitFor::new(&partition, 0).visibility(Visibility::Synced)];
        let waiter = engine.clone();
        let waiting = scope.spawn(move || waiter.wait_for_data(&wanted, LONG));
        let mut append = engine.append_transaction();
        append.records(&partition, [Record::keyless("v")]).unwrap();
        let ticket = append.submit(Durability::Sync).unwrap();
        assert!(waiting.join().unwrap());
        ticket.wait().unwrap();
    });
}

#[test]
fn a_wait_ends_when_a_topic_of_its_partitions_is_deleted() {
    let test = TestEngine::new();
    let engine = test.open();
    let kept = one_partition(&engine, "kept", &[]);
    let gone = one_partition(&engine, "gone", &[]);
    thread::scope(|scope| {
        let wanted = [WaitFor::new(&kept, 0), WaitFor::new(&gone, 0)];
        let waiter = engine.clone();
        let waiting = scope.spawn(move || waiter.wait_for_data(&wanted, LONG));
        engine.delete_topic("gone").unwrap();
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn a_wait_ends_when_the_engine_is_closed() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    thread::scope(|scope| {
        let wanted = [WaitFor::new(&partition, 0)];
        let waiter = engine.clone();
        let waiting = scope.spawn(move || waiter.wait_for_data(&wanted, LONG));
        engine.close().unwrap();
        assert!(!waiting.join().unwrap());
    });
}

#[test]
fn a_thousand_waits_each_end_with_their_own_partition() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(1000)).unwrap();
    let calls: Vec<Calls> = (0..1000).map(|_| Calls::default()).collect();
    let partitions = topic.partitions();
    let one = |index: usize| std::slice::from_ref(&partitions[index]);
    let _listening: Vec<_> =
        calls.iter().enumerate().map(|(index, calls)| calls.listen(&engine, one(index))).collect();
    engine.sync().unwrap();
    calls.iter().for_each(|calls| _ = calls.take());
    append(&engine, &partitions[500], [Record::keyless("v")]);
    let called: Vec<_> = (0..1000).filter(|index| calls[*index].take() > 0).collect();
    assert_eq!(called, [500]);
}
