//! Who waits for tickets, and for room in the queue, with threads of the engine and without.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::thread;

use common::{TestEngine, one_partition};
use tidelog::{
    AppendTransaction, CommitError, Committed, Durability, Engine, NotWritten, Partition, Record,
    StorageError, Ticket,
};

type Outcome = Result<Committed, CommitError>;

fn transaction(engine: &Engine, partition: &Partition, value: &str) -> AppendTransaction {
    let mut append = engine.append_transaction();
    append.records(partition, [Record::keyless(value)]).expect("the record is good");
    append
}

fn submit(engine: &Engine, partition: &Partition, durability: Durability) -> Ticket<Outcome> {
    transaction(engine, partition, "v").submit(durability).expect("there is room")
}

fn base_offset(outcome: Outcome) -> i64 {
    outcome.expect("it is committed").batches[0].base_offset
}

fn log_end(engine: &Engine, partition: &Partition) -> i64 {
    engine.watermarks(partition).unwrap().log_end
}

#[test]
fn who_waits_for_a_ticket_commits_and_syncs_where_no_thread_does() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for (place, durability) in [Durability::Buffered, Durability::Sync].into_iter().enumerate() {
        let before = submit(&engine, &partition, durability);
        let waited_for = submit(&engine, &partition, durability);
        assert_eq!(base_offset(waited_for.wait()), 2 * place as i64 + 1);
        assert_eq!(base_offset(before.try_wait().unwrap()), 2 * place as i64);
    }
}

#[test]
fn many_who_wait_for_tickets_without_threads_of_the_engine_all_get_them() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (engine, partition) = (&engine, &partition);
            scope.spawn(move || {
                for round in 0..100 {
                    let is_sync = (worker + round) % 3 == 0;
                    let durability = if is_sync { Durability::Sync } else { Durability::Buffered };
                    if worker == 3 {
                        transaction(engine, partition, "v").commit(durability).unwrap();
                    } else {
                        submit(engine, partition, durability).wait().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(log_end(&engine, &partition), 400);
}

#[test]
fn who_waits_for_room_gets_it_and_then_the_queue_takes_the_transaction() {
    for background in [true, false] {
        let limits = |config: tidelog::EngineConfig| {
            config.max_transaction_bytes(4096).commit_queue_bytes(4096)
        };
        let mut test = TestEngine::with(limits);
        if background {
            test.config = test.config.clone().maintenance(tidelog::Maintenance::Background);
        }
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let value = "x".repeat(1000);
        let mut left = 50;
        let mut append = transaction(&engine, &partition, &value);
        while left > 0 {
            append = match append.submit(Durability::Buffered) {
                Ok(_ticket) => {
                    left -= 1;
                    transaction(&engine, &partition, &value)
                }
                Err(CommitError::NotWritten {
                    reason: NotWritten::QueueFull { .. },
                    transaction,
                }) => {
                    transaction.queue_room().wait().unwrap();
                    *transaction
                }
                Err(error) => panic!("{error:?}"),
            };
        }
        engine.queue_room(4096).wait().unwrap();
        engine.clone().close().unwrap();
        assert!(matches!(engine.queue_room(1).wait(), Err(StorageError::Closed)));
    }
}
