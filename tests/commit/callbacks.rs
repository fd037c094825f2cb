//! Callbacks of tickets and listeners: they may submit, commit, panic, and close or drop the engine.

use super::queue::{Outcome, base_offset, log_end, spin_until, submit, transaction};
use crate::common;

use std::sync::{Arc, mpsc};
use std::thread;

use common::{TestEngine, append, one_partition, values_of};
use tidelog::{Durability, Engine, Record};

#[test]
fn a_ticket_calls_back_once_with_the_outcome() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let (send, receive) = mpsc::channel();
    for i in 0..100 {
        let send = send.clone();
        let durability = if i % 2 == 0 { Durability::Sync } else { Durability::Buffered };
        let ticket = submit(&engine, &partition, durability);
        ticket.on_done(move |outcome| send.send(base_offset(outcome)).unwrap());
    }
    drop(send);
    let mut given: Vec<_> = receive.iter().collect();
    given.sort_unstable();
    assert_eq!(given, (0..100).collect::<Vec<_>>());
}

#[test]
fn callbacks_may_submit_and_commit_whatever_the_outcome_they_were_given() {
    let test = TestEngine::new();
    let engine = test.open();
    let kept = one_partition(&engine, "kept", &[]);
    let gone = one_partition(&engine, "gone", &[]);
    let refused = transaction(&engine, &gone, "refused");
    engine.delete_topic("gone").unwrap();
    let next = |name: &'static str| {
        let (engine, kept) = (engine.clone(), kept.clone());
        move |_outcome: Outcome| {
            transaction(&engine, &kept, name).commit(Durability::Sync).unwrap();
            _ = transaction(&engine, &kept, "submitted").submit(Durability::Buffered).unwrap();
        }
    };
    submit(&engine, &kept, Durability::Buffered).on_done(next("after a buffered one"));
    refused.submit(Durability::Buffered).unwrap().on_done(next("after a refused one"));
    submit(&engine, &kept, Durability::Sync).on_done(next("after a synced one"));
    submit(&engine, &kept, Durability::Buffered).on_done(|_| ());
    engine.maintenance().run_pending();
    let mut values = values_of(&engine, &kept);
    assert_eq!(values[..3], ["v", "v", "v"]);
    values.sort_unstable();
    let after = ["after a buffered one", "after a refused one", "after a synced one"];
    assert_eq!(values[..3], after);
    assert_eq!(values[3..], [&["submitted"; 3][..], &["v"; 3]].concat());
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn a_callback_that_panics_harms_nobody_else() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let first = submit(&engine, &partition, Durability::Buffered);
    first.on_done(|_| panic!("a callback panics, as this test wants"));
    let others: Vec<_> = [Durability::Buffered, Durability::Sync]
        .map(|durability| submit(&engine, &partition, durability))
        .into();
    engine.maintenance().run_pending();
    others.into_iter().for_each(|ticket| _ = ticket.try_wait().unwrap().unwrap());
    append(&engine, &partition, [Record::keyless("v")]);
    assert_eq!(log_end(&engine, &partition), 4);
    engine.close().unwrap();
}

#[test]
fn the_last_engine_may_be_dropped_in_a_callback() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let test = TestEngine::in_background();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let transactions: Vec<_> =
            (0..100).map(|_| transaction(&engine, &partition, "v")).collect();
        let (send, receive) = mpsc::channel();
        let mut last = Some(engine);
        for append in transactions {
            let (last, send) = (last.take(), send.clone());
            let submitted = append.submit(durability);
            // After the drop a submit may find the engine closed.
            let Ok(ticket) = submitted else { break };
            ticket.on_done(move |outcome| {
                drop(last);
                send.send(outcome.map(drop)).unwrap();
            });
        }
        drop(send);
        let answered: Vec<_> = receive.iter().collect();
        let committed = answered.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(committed, answered.len());
        let engine = reopen_once_it_ended(&test);
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(log_end(&engine, &partition), committed as i64);
        assert!(engine.verify().unwrap().is_clean());
    }
}

/// The engine's directory is let go when the callback has dropped the engine, a moment later.
fn reopen_once_it_ended(test: &TestEngine) -> Engine {
    loop {
        match test.builder().open() {
            Ok(engine) => return engine,
            Err(tidelog::OpenError::Locked { .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_listener_may_hold_the_last_engine_and_drop_it_when_it_is_called() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let append = transaction(&engine, &partition, "v");
    let held = parking_lot::Mutex::new(None);
    let held = Arc::new(held);
    let taken = Arc::clone(&held);
    let listening = engine.listen(std::slice::from_ref(&partition), move || {
        // The end of the engine calls its listeners too, so the lock is let go first.
        let engine = taken.lock().take();
        drop(engine);
    });
    *held.lock() = Some(engine);
    append.submit(Durability::Sync).unwrap().wait().unwrap();
    // The ticket is answered first, then the listener is called.
    spin_until(|| held.lock().is_none());
    drop(listening);
    let engine = reopen_once_it_ended(&test);
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(log_end(&engine, &partition), 1);
}

#[test]
fn the_engine_may_be_closed_in_a_callback() {
    for background in [true, false] {
        let test = if background { TestEngine::in_background() } else { TestEngine::new() };
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let (send, receive) = mpsc::channel();
        let closing = engine.clone();
        let ticket = submit(&engine, &partition, Durability::Buffered);
        ticket.on_done(move |_| send.send(closing.close()).unwrap());
        if !background {
            engine.maintenance().run_pending();
        }
        receive.recv().unwrap().unwrap();
        drop(engine);
        let engine = reopen_once_it_ended(&test);
        assert!(engine.recovered().closed_cleanly);
        assert_eq!(engine.leader_epoch(), 0);
    }
}
