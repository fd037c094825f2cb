//! The commit queue: many commits under way at once, a full queue, tickets, held syncs, and closing.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use common::{TestEngine, append, one_partition, records_of, values_of};
use tidelog::{
    AppendTransaction, CommitError, CommitRefusal, Committed, Durability, Engine, FetchOptions,
    NotWritten, Partition, Record, StorageError, Ticket, TopicConfig, Visibility,
};

pub(crate) type Outcome = Result<Committed, CommitError>;

pub(crate) fn transaction(
    engine: &Engine,
    partition: &Partition,
    value: &str,
) -> AppendTransaction {
    let mut append = engine.append_transaction();
    append.records(partition, [Record::keyless(value)]).expect("the record is good");
    append
}

pub(crate) fn submit(
    engine: &Engine,
    partition: &Partition,
    durability: Durability,
) -> Ticket<Outcome> {
    transaction(engine, partition, "v").submit(durability).expect("there is room")
}

pub(crate) fn base_offset(outcome: Outcome) -> i64 {
    outcome.expect("it is committed").batches[0].base_offset
}

pub(crate) fn log_end(engine: &Engine, partition: &Partition) -> i64 {
    engine.watermarks(partition).unwrap().log_end
}

pub(crate) fn spin_until(is_there: impl Fn() -> bool) {
    while !is_there() {
        thread::yield_now();
    }
}

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_thousand_submitted_commits_are_under_way_from_one_thread() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(4)).unwrap();
    let partition = |i: i32| topic.partition(i % 4).unwrap();
    let groups_before = engine.metrics().commit_groups;
    let mut tickets: Vec<_> =
        (0..1000).map(|i| submit(&engine, &partition(i), Durability::Buffered)).collect();
    assert!(engine.metrics().queued_bytes > 0);
    assert_eq!(log_end(&engine, &partition(0)), 0);
    tickets = tickets.into_iter().map(|ticket| ticket.try_wait().unwrap_err()).collect();
    engine.maintenance().run_pending();
    assert_eq!(engine.metrics().queued_bytes, 0);
    assert_eq!(engine.metrics().commit_groups - groups_before, 1);
    for (i, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(base_offset(ticket.try_wait().unwrap()), i as i64 / 4);
    }
}

#[test]
fn a_thousand_commits_that_the_engines_own_threads_make_keep_the_order_of_one_thread() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let durability = |i| if i % 10 == 0 { Durability::Sync } else { Durability::Buffered };
    let tickets: Vec<_> = (0..1000).map(|i| submit(&engine, &partition, durability(i))).collect();
    for (i, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(base_offset(ticket.wait()), i as i64);
    }
}

#[test]
fn a_full_queue_gives_the_transaction_back_and_takes_it_once_there_is_room() {
    let test =
        TestEngine::with(|config| config.max_transaction_bytes(4096).commit_queue_bytes(4096));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let value = "x".repeat(1000);
    let mut tickets = Vec::new();
    let error = loop {
        match transaction(&engine, &partition, &value).submit(Durability::Buffered) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
    };
    assert_eq!(tickets.len(), 3);
    assert!(error.is_retriable());
    let CommitError::NotWritten { reason, transaction } = error else { panic!("{error:?}") };
    match reason {
        NotWritten::QueueFull { queued_bytes, limit_bytes } => {
            assert_eq!(limit_bytes, 4096);
            assert!((3000..=4096).contains(&queued_bytes), "{queued_bytes}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(transaction.batch_count(), 1);
    engine.maintenance().run_pending();
    let ticket = transaction.submit(Durability::Buffered).unwrap();
    engine.maintenance().run_pending();
    assert_eq!(base_offset(ticket.wait()), 3);
    assert_eq!(log_end(&engine, &partition), 4);
}

#[test]
fn a_commit_that_blocks_makes_room_in_a_full_queue_itself_and_comes_after_what_waits() {
    let test =
        TestEngine::with(|config| config.max_transaction_bytes(4096).commit_queue_bytes(4096));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let value = "x".repeat(2500);
    let ticket = transaction(&engine, &partition, &value).submit(Durability::Buffered).unwrap();
    let last = transaction(&engine, &partition, &value).commit(Durability::Buffered);
    assert_eq!(base_offset(ticket.try_wait().unwrap()), 0);
    assert_eq!(base_offset(last), 1);
}

#[test]
fn buffered_commits_are_answered_and_readable_while_a_sync_is_held_up() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let other = one_partition(&engine, "other", &[]);
    test.disk.hold_syncs();
    let synced = submit(&engine, &partition, Durability::Sync);
    spin_until(|| test.disk.held_syncs() == 1);
    for i in 1..=20 {
        append(&engine, &partition, [Record::keyless("same")]);
        append(&engine, &other, [Record::keyless("other")]);
        assert_eq!(base_offset(submit(&engine, &partition, Durability::Buffered).wait()), 2 * i);
        assert_eq!(records_of(&engine, &partition).len() as i64, 2 * i + 1);
        assert_eq!(records_of(&engine, &other).len() as i64, i);
    }
    // The commit that waits for its sync is applied, and readers of synced data do not see it.
    let synced = synced.try_wait().unwrap_err();
    let marks = engine.watermarks_of(&partition, Visibility::Synced).unwrap();
    assert_eq!((marks.high_watermark, marks.log_end), (0, 41));
    test.disk.release_syncs();
    assert_eq!(base_offset(synced.wait()), 0);
}

#[test]
fn one_sync_answers_all_who_wait_for_it_and_no_other() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    test.disk.hold_syncs();
    let first = submit(&engine, &partition, Durability::Sync);
    spin_until(|| test.disk.held_syncs() == 1);
    let before = test.disk.counters().syncs;
    thread::scope(|scope| {
        let blocked: Vec<_> = (0..8)
            .map(|_| {
                let append = transaction(&engine, &partition, "blocked");
                scope.spawn(move || append.commit(Durability::Sync))
            })
            .collect();
        spin_until(|| log_end(&engine, &partition) == 9);
        test.disk.release_syncs();
        blocked.into_iter().for_each(|blocked| _ = blocked.join().unwrap().unwrap());
    });
    first.wait().unwrap();
    // The held one, and one for all who came while it ran; who came between the two adds one.
    assert!(test.disk.counters().syncs - before <= 3, "{:?}", test.disk.counters());
}

#[test]
fn a_commit_from_its_own_thread_needs_no_other_thread() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for durability in [Durability::Buffered, Durability::Sync] {
        transaction(&engine, &partition, "v").commit(durability).unwrap();
    }
    let submitted = submit(&engine, &partition, Durability::Sync);
    // Submitted before, so committed before; the sync of the one covers the other.
    let committed = transaction(&engine, &partition, "v").commit(Durability::Sync);
    assert_eq!(base_offset(committed), 3);
    engine.maintenance().run_pending();
    assert_eq!(base_offset(submitted.wait()), 2);
    let marks = engine.watermarks_of(&partition, Visibility::Synced).unwrap();
    assert_eq!(marks.high_watermark, 4);
}

#[test]
fn a_ticket_is_a_future() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    for durability in [Durability::Buffered, Durability::Sync] {
        wakes.0.store(0, Ordering::SeqCst);
        let mut ticket = submit(&engine, &partition, durability);
        assert!(Pin::new(&mut ticket).poll(&mut context).is_pending());
        engine.maintenance().run_pending();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        let Poll::Ready(outcome) = Pin::new(&mut ticket).poll(&mut context) else {
            panic!("the waker was called");
        };
        outcome.unwrap();
    }
}

#[test]
fn a_ticket_that_is_dropped_takes_nothing_back() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    drop(submit(&engine, &partition, Durability::Buffered));
    drop(submit(&engine, &partition, Durability::Sync));
    engine.maintenance().run_pending();
    assert_eq!(log_end(&engine, &partition), 2);
}

#[test]
fn a_transaction_without_batches_is_committed_at_once_and_writes_nothing() {
    let test = TestEngine::new();
    let engine = test.open();
    let commits = engine.metrics().commits;
    let committed = engine.append_transaction().commit(Durability::Sync).unwrap();
    assert_eq!((committed.sequence, committed.batches.len()), (None, 0));
    let ticket = engine.append_transaction().submit(Durability::Sync).unwrap();
    assert_eq!(ticket.try_wait().unwrap().unwrap(), committed);
    assert_eq!(engine.metrics().commits, commits);
}

#[test]
fn the_time_of_every_group_and_of_every_sync_is_counted() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let before = engine.metrics();
    append(&engine, &partition, [Record::keyless("v")]);
    engine.sync().unwrap();
    let after = engine.metrics();
    assert_eq!(after.commit_groups - before.commit_groups, 1);
    assert_eq!(after.commit_group_time.count() - before.commit_group_time.count(), 1);
    assert_eq!(after.sync_time.count() - before.sync_time.count(), 1);
}

#[test]
fn one_refused_transaction_of_a_group_leaves_the_others_whole() {
    let test = TestEngine::new();
    let engine = test.open();
    let kept = one_partition(&engine, "kept", &[]);
    let gone = one_partition(&engine, "gone", &[]);
    let before = submit(&engine, &kept, Durability::Buffered);
    let mut both = transaction(&engine, &kept, "refused");
    both.records(&gone, [Record::keyless("refused")]).unwrap();
    engine.delete_topic("gone").unwrap();
    let refused = both.submit(Durability::Buffered).unwrap();
    let after = submit(&engine, &kept, Durability::Buffered);
    engine.maintenance().run_pending();
    assert_eq!((base_offset(before.wait()), base_offset(after.wait())), (0, 1));
    match refused.wait().unwrap_err() {
        CommitError::Refused {
            reason: CommitRefusal::UnknownPartition { partition },
            transaction,
        } => {
            assert_eq!((partition, transaction.batch_count()), (gone, 2));
        }
        error => panic!("{error:?}"),
    }
    assert_eq!(values_of(&engine, &kept), ["v", "v"]);
}

#[test]
fn closing_commits_what_waits_and_takes_nothing_more() {
    for background in [true, false] {
        let test = if background { TestEngine::in_background() } else { TestEngine::new() };
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let late = transaction(&engine, &partition, "late");
        let later = transaction(&engine, &partition, "later");
        let tickets: Vec<_> = [Durability::Sync, Durability::Buffered]
            .into_iter()
            .cycle()
            .take(200)
            .map(|durability| submit(&engine, &partition, durability))
            .collect();
        let closed = engine.clone();
        engine.close().unwrap();
        for (i, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(base_offset(ticket.try_wait().unwrap()), i as i64);
        }
        for error in [
            late.submit(Durability::Buffered).map(drop).unwrap_err(),
            later.commit(Durability::Buffered).unwrap_err(),
        ] {
            assert!(!error.is_retriable());
            let CommitError::NotWritten { reason, transaction } = error else {
                panic!("nothing was written");
            };
            assert!(matches!(reason, NotWritten::Storage(StorageError::Closed)), "{reason}");
            assert_eq!(transaction.batch_count(), 1);
        }
        assert!(matches!(closed.clone().close(), Err(StorageError::Closed)));
        assert!(closed.fetch(&partition, 0, FetchOptions::new()).is_err());
        assert!(matches!(closed.sync(), Err(StorageError::Closed)));
        let engine = test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(log_end(&engine, &partition), 200);
        assert!(engine.recovered().closed_cleanly);
        assert_eq!(engine.recovered().replayed_commits, 0);
    }
}

#[test]
fn dropping_the_engine_commits_what_waits_and_the_next_open_finds_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let tickets: Vec<_> =
        (0..20).map(|_| submit(&engine, &partition, Durability::Buffered)).collect();
    drop(engine);
    tickets.into_iter().for_each(|ticket| _ = ticket.try_wait().unwrap().unwrap());
    let engine = test.open();
    assert!(!engine.recovered().closed_cleanly);
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(log_end(&engine, &partition), 20);
}
