//! How long producers live: ids, epochs, timeouts, expiry, and what a restart leaves of them.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::thread;

use common::transactions::{
    INIT, MINUTE, committed, marks, offset, producer, record, refusal, send,
};
use common::{TestEngine, assert_verified, one_partition};
use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::producer::transaction::{EndProtocol, ProducerTransactionError};
use tidelog::record::MarkerKind;
use tidelog::testing::PowerLoss;
use tidelog::{Durability, Engine, GroupMembership, InitProducer, ProducerError, Record};

const DAY_MS: u64 = 86_400_000;

#[test]
fn a_transaction_that_is_open_too_long_is_aborted_and_its_producer_told_so() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = producer(&engine, "p");
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("late"))]).unwrap();
    test.clock.advance_ms(60_000);
    assert_eq!(engine.producers().expire().unwrap().aborted_transactions, 0);
    test.clock.advance_ms(1);
    assert_eq!(engine.producers().expire().unwrap().aborted_transactions, 1);
    assert_eq!(marks(&engine, &partition), (2, 2));
    let refused = transaction.append([(&partition, record("later"))]).unwrap_err();
    assert!(refused.is_timed_out() && !refused.is_fenced(), "{refused}");
    let refused_commit = transaction.commit().unwrap_err();
    assert!(refused_commit.is_timed_out() && !refused_commit.is_fenced(), "{refused_commit}");
    for text in [refused.to_string(), refused_commit.to_string()] {
        assert!(text.contains("its timeout of 60000 ms and was aborted"), "{text}");
        assert!(text.contains("in a new transaction"), "{text}");
    }
    assert_eq!(marks(&engine, &partition), (2, 2));
    assert!(committed(&engine, &partition).is_empty());

    // As the text says: the same producer sends it again.
    let mut transaction = producer.begin();
    transaction.append([(&partition, record("late"))]).unwrap();
    transaction.commit().unwrap();
    assert_eq!(committed(&engine, &partition).len(), 1);
}

#[test]
fn open_transactions_and_staged_offsets_survive_a_kill_and_can_be_ended() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let producer = engine.producers().init("p", INIT).unwrap();
    send(&engine, "p", producer, &partition, 0).unwrap();
    engine.maintenance().checkpoint().unwrap();
    send(&engine, "p", producer, &partition, 1).unwrap();
    engine
        .producers()
        .stage_offsets(
            "p",
            producer,
            "g",
            vec![(partition.clone(), offset(3))],
            GroupMembership::Implied,
        )
        .unwrap();
    drop(engine);
    test.kill();
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(marks(&engine, &partition), (0, 2));
    assert!(engine.group("g").is_offset_staged(&partition));
    let open = engine.producers().describe_transactional_id("p").unwrap();
    assert_eq!((open.producer, open.partitions), (producer, vec![partition.clone()]));
    send(&engine, "p", producer, &partition, 2).unwrap();
    engine.producers().end("p", producer, MarkerKind::Commit, EndProtocol::RaisesEpoch).unwrap();
    drop(engine);
    test.lose_power(PowerLoss::Nothing);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(committed(&engine, &partition).len(), 3, "an end is synced");
    let found = engine.group("g").offset(&partition).unwrap().map(|found| found.offset);
    assert_eq!(found, Some(3));
    assert_verified(&engine);
}

// C17 of the commit log's faults: an id that was told is never told again.
#[test]
fn no_producer_id_is_given_twice_also_across_power_loss() {
    let test = TestEngine::new();
    let mut given = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let engine = test.open();
        for _ in 0..3 {
            assert!(given.insert(engine.producers().new_id().unwrap()));
        }
        drop(engine);
        test.lose_power(PowerLoss::Nothing);
    }
    let engine = test.open();
    for _ in 0..2500 {
        assert!(given.insert(engine.producers().new_id().unwrap()));
    }
}

#[test]
fn d1_a_block_of_ids_that_is_not_synced_is_given_out_twice() {
    let test = TestEngine::new();
    let broken = BrokenRules::only(Rule::D1ProducerIdsSynced);
    let draw = || {
        let engine = test.builder().broken(broken).open().unwrap();
        let id = engine.producers().new_id().unwrap();
        drop(engine);
        test.lose_power(PowerLoss::Nothing);
        id
    };
    assert_eq!(draw(), draw());
}

#[test]
fn a_producer_expires_by_the_engines_clock_and_then_may_go_on_with_any_sequence() {
    let test = TestEngine::with(|config| config.producer_id_expiration_ms(7 * DAY_MS));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut producer = engine.producers().idempotent().unwrap();
    let old = vec![Record::keyless("old").timestamp(0)];
    producer.append([(&partition, old.clone())], Durability::Buffered).unwrap();
    assert_eq!(engine.producers().expire().unwrap().forgotten_producers, 0);
    let mut again = engine.producers().resume_idempotent(producer.identity());
    let repeated = again.append([(&partition, old)], Durability::Buffered).unwrap();
    assert!(repeated.batches[0].is_duplicate, "however old its records are");
    test.clock.advance_ms(7 * DAY_MS);
    assert_eq!(engine.producers().expire().unwrap().forgotten_producers, 1);
    assert!(engine.producers().describe(&partition).is_empty());
    producer.append([(&partition, record("new"))], Durability::Buffered).unwrap();
    assert_eq!(engine.producers().describe(&partition)[0].last_sequence, 1);

    let longest = 900_000;
    let init = InitProducer { timeout_ms: longest, expected: None };
    let transactional = engine.producers().init("p", init).unwrap();
    send(&engine, "p", transactional, &partition, 0).unwrap();
    test.clock.advance_ms(6 * DAY_MS);
    assert_eq!(engine.producers().expire().unwrap().aborted_transactions, 1);
    test.clock.advance_ms(2 * DAY_MS);
    engine.producers().expire().unwrap();
    let known = engine.producers().describe(&partition);
    let ids: Vec<i64> = known.iter().map(|producer| producer.producer_id).collect();
    assert_eq!(ids, [transactional.producer_id], "the marker counts");
}

#[test]
fn after_the_last_epoch_comes_a_new_producer_id_also_with_a_transaction_open() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let init = |expected| {
        let init = InitProducer { timeout_ms: 60_000, expected };
        loop {
            match engine.producers().init("p", init) {
                Err(error) if error.is_retriable() => {}
                settled => return settled.unwrap(),
            }
        }
    };
    let first = init(None);
    let mut last = first;
    while last.producer_epoch < 32_766 {
        let next = init(None);
        assert_eq!(next.producer_id, first.producer_id);
        assert_eq!(next.producer_epoch, last.producer_epoch + 1);
        last = next;
    }
    send(&engine, "p", last, &partition, 0).unwrap();
    let next = init(None);
    assert_ne!(next.producer_id, first.producer_id);
    assert!((0..=1).contains(&next.producer_epoch), "{next}");
    assert_eq!(marks(&engine, &partition), (2, 2), "nothing is stuck");
    assert!(
        engine.producers().add_partitions("p", last, std::slice::from_ref(&partition)).is_err()
    );
    send(&engine, "p", next, &partition, 0).unwrap();
    engine.producers().end("p", next, MarkerKind::Commit, EndProtocol::RaisesEpoch).unwrap();
    assert_eq!(committed(&engine, &partition), ["v"]);
}

#[test]
fn a_fence_that_cannot_be_written_burns_no_epoch_and_an_empty_abort_fences_nobody() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let holder = engine.producers().init("p", INIT).unwrap();
    send(&engine, "p", holder, &partition, 0).unwrap();
    test.disk.set_capacity(Some(0));
    for _ in 0..100 {
        let failed = engine.producers().init("p", INIT).unwrap_err();
        assert!(matches!(failed, ProducerError::NotWritten(_)), "{failed:?}");
    }
    test.disk.set_capacity(None);
    let held = engine.producers().describe_transactional_id("p").unwrap();
    assert_eq!(held.producer, holder, "the one that wrote is not fenced yet");
    assert!(engine.producers().init("p", INIT).unwrap_err().is_retriable());
    let fenced = engine.producers().describe_transactional_id("p").unwrap().producer;
    assert_eq!(fenced.producer_epoch, holder.producer_epoch + 1, "it rose once");

    let holder = engine.producers().init("p", INIT).unwrap();
    send(&engine, "p", holder, &partition, 0).unwrap();
    let (commit, abort) = (MarkerKind::Commit, MarkerKind::Abort);
    let next = engine.producers().end("p", holder, commit, EndProtocol::RaisesEpoch).unwrap();
    let refused = engine.producers().end("p", next, abort, EndProtocol::KeepsEpoch).unwrap_err();
    let refused = refusal(refused);
    assert!(matches!(refused, ProducerTransactionError::InvalidTxnState { .. }), "{refused}");
    let next = engine.producers().end("p", next, abort, EndProtocol::RaisesEpoch).unwrap();
    send(&engine, "p", next, &partition, 0).unwrap();
    engine.producers().end("p", next, commit, EndProtocol::RaisesEpoch).unwrap();
    assert_eq!(committed(&engine, &partition).len(), 2);
}

/// Draws ids, and has ids drawn that are given back: of those who ask for one transactional id at
/// once only the first needs one.
fn draw_and_give_back(engine: &Engine) -> Vec<i64> {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..400 {
                    engine.producers().init(&format!("p{number}"), INIT).unwrap();
                }
            });
        }
        let draw = || (0..5000).map(|_| engine.producers().new_id().unwrap()).collect::<Vec<_>>();
        let drawing: Vec<_> = (0..2).map(|_| scope.spawn(draw)).collect();
        drawing.into_iter().flat_map(|drawing| drawing.join().unwrap()).collect()
    })
}

#[test]
fn ids_are_drawn_while_others_are_given_back_and_none_is_ever_given_twice() {
    let test = TestEngine::new();
    let engine = test.open();
    let (told, drawn) = std::sync::mpsc::channel();
    let drawing = engine.clone();
    thread::spawn(move || told.send(draw_and_give_back(&drawing)));
    let mut ids = drawn.recv_timeout(MINUTE).expect("nobody waits for another for ever");
    ids.extend(
        engine.producers().transactional_ids().into_iter().map(|held| held.producer.producer_id),
    );
    let greatest = ids.iter().copied().max();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((count, ids.len()), (10_400, 10_400));
    drop(engine);
    test.lose_power(PowerLoss::Nothing);
    assert!(Some(test.open().producers().new_id().unwrap()) > greatest);
}

#[test]
fn a_transaction_that_opens_at_any_time_of_the_clock_is_read_back() {
    for now_ms in [i64::MIN, -2, -1, 0, 1, i64::MAX] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let holder = engine.producers().init("p", INIT).unwrap();
        test.clock.set_ms(now_ms);
        let partitions = std::slice::from_ref(&partition);
        engine.producers().add_partitions("p", holder, partitions).unwrap();
        drop(engine);
        test.kill();
        let held = test.open().producers().describe_transactional_id("p").unwrap();
        assert_eq!((held.producer, held.partitions.len()), (holder, 1), "now_ms={now_ms}");
    }
}
