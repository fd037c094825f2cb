//! What one append allocates on its way through the commit path, counted: no more than a bound.

use crate::common::{TestEngine, batch_of, one_partition};
use tidelog::{AppendTransaction, Durability, Record};

/// Allocations of an append of one batch, in the commit path, the log and the index of the tests.
const MAX_ALLOCATIONS: u64 = 48;

fn least(mut run: impl FnMut() -> u64) -> u64 {
    (0..100).map(|_| run()).min().unwrap_or(0)
}

#[test]
fn an_append_of_one_batch_allocates_no_more_than_its_bound() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let batch = batch_of(&[Record::keyless("v")]);
    let transaction = || -> AppendTransaction {
        let mut append = engine.append_transaction();
        append.batch(&partition, batch.clone()).unwrap();
        append
    };
    let committed = least(|| {
        let append = transaction();
        allocation_counter::measure(|| drop(append.commit(Durability::Buffered).unwrap()))
            .count_total
    });
    let submitted = least(|| {
        let append = transaction();
        let run = || {
            let ticket = append.submit(Durability::Buffered).unwrap();
            engine.maintenance().run_pending();
            drop(ticket.try_wait().unwrap().unwrap());
        };
        allocation_counter::measure(run).count_total
    });
    println!("allocations: committed={committed} submitted={submitted}");
    assert!(committed <= MAX_ALLOCATIONS, "{committed} allocations of a commit");
    assert!(submitted <= committed, "{submitted} allocations of a submit, {committed} of a commit");
}
