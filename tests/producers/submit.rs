//! Producers that submit: many appends under way, sequences that go back where one fails, transactions that abort.

use std::time::Duration;

use crate::common::{TestEngine, one_partition, values_of};
use tidelog::{
    CommitError, Durability, Isolation, NotWritten, Partition, ProducerError, Record, StorageError,
};

fn records<'a>(partition: &'a Partition, value: &str) -> [(&'a Partition, Vec<Record>); 1] {
    [(partition, vec![Record::keyless(value.to_owned())])]
}

/// A disk without room for anything.
fn fill(test: &TestEngine) {
    test.disk.set_capacity(Some(0));
}

fn is_disk_full(error: &CommitError) -> bool {
    let CommitError::NotWritten { reason, .. } = error else { return false };
    matches!(reason, NotWritten::Storage(StorageError::DiskFull { .. }))
}

#[test]
fn many_appends_of_an_idempotent_producer_are_under_way_and_keep_their_order() {
    for background in [false, true] {
        let test = if background { TestEngine::in_background() } else { TestEngine::new() };
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let mut producer = engine.producers().idempotent().unwrap();
        let values: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let mut submit = |value| producer.submit(records(&partition, value), Durability::Buffered);
        let tickets: Vec<_> = values.iter().map(|value| submit(value).unwrap()).collect();
        assert_eq!(producer.next_sequence(&partition), 50);
        for (offset, ticket) in (0..).zip(tickets) {
            assert_eq!(ticket.wait().unwrap().batches[0].base_offset, offset);
        }
        assert_eq!(values_of(&engine, &partition), values);
    }
}

#[test]
fn what_was_not_committed_is_submitted_again_in_its_order_with_the_same_sequences() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = engine.producers().idempotent().unwrap();
    producer.append(records(&partition, "first"), Durability::Buffered).unwrap();
    let before = producer.next_sequence(&partition);
    fill(&test);
    let submit = |producer: &mut tidelog::IdempotentProducer, value| {
        producer.submit(records(&partition, value), Durability::Buffered).unwrap()
    };
    let failed = ["a", "b"].map(|value| submit(&mut producer, value));
    engine.maintenance().run_pending();
    test.disk.set_capacity(None);
    assert_eq!(producer.next_sequence(&partition), before);
    let again = ["a", "b"].map(|value| submit(&mut producer, value));
    for ticket in failed {
        assert!(is_disk_full(&ticket.wait().unwrap_err()));
    }
    for ticket in again {
        assert!(!ticket.wait().unwrap().batches[0].is_duplicate);
    }
    assert_eq!(values_of(&engine, &partition), ["first", "a", "b"]);
}

#[test]
fn an_append_that_was_submitted_after_a_refused_one_is_refused_and_counts_only_once() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = engine.producers().idempotent().unwrap();
    producer.append(records(&partition, "first"), Durability::Buffered).unwrap();
    producer.set_next_sequence(&partition, 7);
    let submit = |producer: &mut tidelog::IdempotentProducer| {
        producer.submit(records(&partition, "gap"), Durability::Buffered).unwrap()
    };
    let refused = [submit(&mut producer), submit(&mut producer)];
    assert_eq!(producer.next_sequence(&partition), 9);
    for ticket in refused {
        assert!(matches!(ticket.wait().unwrap_err(), CommitError::Refused { .. }));
    }
    assert_eq!(producer.next_sequence(&partition), 7);
    assert_eq!(values_of(&engine, &partition), ["first"]);
}

#[test]
fn nothing_takes_the_place_of_a_first_batch_that_was_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    let (kept, gone) = (one_partition(&engine, "kept", &[]), one_partition(&engine, "gone", &[]));
    let mut producer = engine.producers().idempotent().unwrap();
    engine.delete_topic("gone").unwrap();
    let both = [&kept, &gone].map(|to| (to, vec![Record::keyless("both")]));
    let refused = producer.submit(both, Durability::Buffered).map(|ticket| ticket.wait());
    assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");
    for value in ["a", "b", "c"] {
        let ticket = producer.submit(records(&kept, value), Durability::Buffered).unwrap();
        ticket.wait().unwrap();
    }
    assert_eq!(values_of(&engine, &kept), ["a", "b", "c"]);
}

#[test]
fn a_full_queue_takes_no_append_of_a_producer_and_uses_no_sequence() {
    let limits =
        |config: tidelog::EngineConfig| config.max_transaction_bytes(4096).commit_queue_bytes(4096);
    let test = TestEngine::with(limits);
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = engine.producers().idempotent().unwrap();
    let value = "x".repeat(1000);
    let mut taken = 0;
    while let Ok(_ticket) = producer.submit(records(&partition, &value), Durability::Buffered) {
        taken += 1;
    }
    // The first batch of the partition is waited for.
    assert_eq!((taken, producer.next_sequence(&partition)), (4, 4));
    engine.maintenance().run_pending();
    let ticket = producer.submit(records(&partition, &value), Durability::Buffered).unwrap();
    assert_eq!(ticket.wait().unwrap().batches[0].base_offset, 4);
}

#[test]
fn a_transaction_commits_what_was_submitted_in_it_without_waiting_for_each() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = engine.producers().transactional("id", Duration::from_secs(60)).unwrap();
    for round in 0..3 {
        let mut transaction = producer.begin();
        let values = ["a", "b", "c"];
        let tickets = values.map(|value| transaction.submit(records(&partition, value)).unwrap());
        transaction.commit().unwrap();
        tickets.into_iter().for_each(|ticket| _ = ticket.try_wait().unwrap().unwrap());
        assert_eq!(values_of(&engine, &partition).len(), 3 * (round + 1));
    }
}

#[test]
fn a_transaction_with_a_submitted_append_that_failed_cannot_be_committed() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = engine.producers().transactional("id", Duration::from_secs(60)).unwrap();
    let mut transaction = producer.begin();
    transaction.append(records(&partition, "kept")).unwrap();
    fill(&test);
    let ticket = transaction.submit(records(&partition, "lost")).unwrap();
    engine.maintenance().run_pending();
    test.disk.set_capacity(None);
    let error = transaction.commit().unwrap_err();
    assert!(matches!(error, ProducerError::AppendFailed), "{error:?}");
    assert!(is_disk_full(&ticket.wait().unwrap_err()));
    // It was aborted when it was dropped, and the next one is whole.
    let mut transaction = producer.begin();
    transaction.submit(records(&partition, "next")).unwrap().wait().unwrap();
    transaction.commit().unwrap();
    let options = tidelog::FetchOptions::new().isolation(Isolation::Committed);
    let fetched = engine.fetch(&partition, 0, options).unwrap();
    assert_eq!(fetched.aborted.len(), 1);
}
