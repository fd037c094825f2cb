//! Idempotent producers: what a retried, a late, a missing and a fenced batch become, also after a restart.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use bytes::Bytes;
use common::{TestEngine, assert_verified, one_partition, values_of};
use tidelog::record::BatchBuilder;
use tidelog::testing::PowerLoss;
use tidelog::{
    CommitError, Committed, CommittedBatch, Durability, Engine, Partition, Record, TopicConfig,
};

/// Who sends, in which generation, and from which sequence on.
type Sender = (i64, i16, i32);

fn batch((producer_id, epoch, first_sequence): Sender, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new().producer(producer_id, epoch, first_sequence);
    for value in values {
        builder.push(&Record::keyless(*value).timestamp(common::NOW_MS)).unwrap();
    }
    builder.finish().unwrap()
}

/// A batch that no client makes: with any base sequence.
fn with_sequence(sequence: i32) -> Bytes {
    let mut bytes = batch((5, 0, 0), &["v"]).to_vec();
    bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

fn code_of(error: &CommitError) -> i16 {
    match error {
        CommitError::Refused { reason, .. } => reason.code(),
        other => panic!("it was not refused: {other:?}"),
    }
}

fn commit(engine: &Engine, batches: &[(&Partition, Bytes)]) -> Result<Committed, CommitError> {
    let mut append = engine.append_transaction();
    for (partition, batch) in batches {
        append.batch(partition, batch.clone()).unwrap();
    }
    append.commit(Durability::Buffered)
}

/// Sends one record a sequence; tells its offset, or the code.
fn send(engine: &Engine, partition: &Partition, sender: Sender, value: &str) -> Result<i64, i16> {
    let committed = commit(engine, &[(partition, batch(sender, &[value]))]);
    committed.map(|done| done.batches[0].base_offset).map_err(|error| code_of(&error))
}

fn end(engine: &Engine, partition: &Partition) -> i64 {
    engine.watermarks(partition).unwrap().log_end
}

#[test]
fn a_retried_batch_among_the_last_five_is_answered_with_its_first_offsets() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for sequence in 0..5 {
        assert_eq!(send(&engine, &partition, (1, 0, sequence), "v"), Ok(i64::from(sequence)));
    }
    for sequence in [0, 2, 4] {
        let committed = commit(&engine, &[(&partition, batch((1, 0, sequence), &["v"]))]).unwrap();
        let CommittedBatch { base_offset, last_offset, is_duplicate, max_timestamp, .. } =
            committed.batches[0];
        let offset = i64::from(sequence);
        assert_eq!((base_offset, last_offset, is_duplicate), (offset, offset, true));
        assert_eq!(max_timestamp, common::NOW_MS, "the time that was stored");
    }
    assert_eq!(end(&engine, &partition), 5);
    assert_eq!(engine.metrics().duplicate_batches, 3);
    assert_eq!(engine.metrics().appended_records, 5);
    assert_verified(&engine);
}

#[test]
fn a_retried_batch_older_than_the_last_five_is_refused_and_not_stored() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for sequence in 0..6 {
        send(&engine, &partition, (1, 0, sequence), "v").unwrap();
    }
    assert_eq!(send(&engine, &partition, (1, 0, 0), "v"), Err(45));
    assert_eq!(end(&engine, &partition), 6);
}

#[test]
fn a_batch_after_a_gap_is_refused_until_what_is_missing_was_sent() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    commit(&engine, &[(&partition, batch((1, 0, 0), &["a"; 5]))]).unwrap();
    assert_eq!(send(&engine, &partition, (1, 0, 6), "v"), Err(45));
    assert_eq!(end(&engine, &partition), 5);
    assert_eq!(send(&engine, &partition, (1, 0, 5), "v"), Ok(5));
    assert_eq!(send(&engine, &partition, (1, 0, 6), "v"), Ok(6));
}

#[test]
fn after_the_greatest_sequence_comes_zero_and_a_negative_one_is_invalid() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    assert_eq!(send(&engine, &partition, (1, 0, i32::MAX - 1), "v"), Ok(0));
    assert_eq!(send(&engine, &partition, (1, 0, 0), "v"), Err(45));
    assert_eq!(send(&engine, &partition, (1, 0, i32::MAX), "v"), Ok(1));
    assert_eq!(send(&engine, &partition, (1, 0, 0), "v"), Ok(2));
    for sequence in [-1, i32::MIN] {
        let mut append = engine.append_transaction();
        let refused = append.batch(&partition, with_sequence(sequence));
        assert_eq!(refused.unwrap_err().code(), 87, "sequence={sequence}");
    }
}

#[test]
fn a_new_epoch_begins_at_zero_and_fences_the_one_before() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    commit(&engine, &[(&partition, batch((1, 0, 0), &["a"; 10]))]).unwrap();
    assert_eq!(send(&engine, &partition, (1, 1, 10), "v"), Err(45));
    assert_eq!(send(&engine, &partition, (1, 1, 0), "v"), Ok(10));
    assert_eq!(send(&engine, &partition, (1, 0, 10), "v"), Err(47));
    let old = commit(&engine, &[(&partition, batch((1, 0, 0), &["a"; 10]))]);
    assert_eq!(code_of(&old.unwrap_err()), 47, "its batches are not known any more");
}

#[test]
fn what_a_partition_knows_of_its_producers_survives_a_kill_and_a_power_loss() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for sequence in 0..3 {
        send(&engine, &partition, (1, 0, sequence), "v").unwrap();
    }
    engine.maintenance().checkpoint().unwrap();
    for sequence in 3..6 {
        send(&engine, &partition, (1, 0, sequence), "v").unwrap();
    }
    engine.sync().unwrap();
    send(&engine, &partition, (1, 0, 6), "lost").unwrap();
    drop(engine);
    test.lose_power(PowerLoss::Nothing);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(end(&engine, &partition), 6);
    assert_eq!(send(&engine, &partition, (1, 0, 1), "v"), Ok(1));
    assert_eq!(send(&engine, &partition, (1, 0, 0), "v"), Err(45));
    assert_eq!(send(&engine, &partition, (1, 0, 6), "again"), Ok(6), "what was lost is new");
    assert_eq!(engine.metrics().producer_count, 1);
    drop(engine);
    test.kill();
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(send(&engine, &partition, (1, 0, 6), "again"), Ok(6));
    assert_verified(&engine);
}

#[test]
fn in_one_append_a_retried_batch_counts_as_accepted_and_the_others_are_stored() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
    let [a, b, c] = [0, 1, 2].map(|index| topic.partition(index).unwrap());
    commit(&engine, &[(&a, batch((1, 0, 0), &["a0"])), (&b, batch((1, 0, 0), &["b0"]))]).unwrap();
    let committed = commit(
        &engine,
        &[
            (&a, batch((1, 0, 0), &["a0"])),
            (&b, batch((1, 0, 1), &["b1"])),
            (&c, batch((1, 0, 0), &["c0"])),
            (&c, batch((1, 0, 1), &["c1"])),
            (&c, batch((1, 0, 0), &["c0"])),
        ],
    );
    let got: Vec<_> =
        committed.unwrap().batches.iter().map(|b| (b.base_offset, b.is_duplicate)).collect();
    assert_eq!(got, [(0, true), (1, false), (0, false), (1, false), (0, true)]);
    assert_eq!(values_of(&engine, &a), ["a0"]);
    assert_eq!(values_of(&engine, &b), ["b0", "b1"]);
    assert_eq!(values_of(&engine, &c), ["c0", "c1"]);
    assert_verified(&engine);
}

#[test]
fn in_one_append_a_wrong_sequence_or_epoch_refuses_all_and_uses_no_sequence() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    let [a, b] = [0, 1].map(|index| topic.partition(index).unwrap());
    send(&engine, &b, (1, 3, 0), "b0").unwrap();
    for (sender, code) in [((1, 3, 5), 45), ((1, 2, 1), 47)] {
        let refused =
            commit(&engine, &[(&a, batch((9, 0, 0), &["a"])), (&b, batch(sender, &["b"]))]);
        let refused = refused.unwrap_err();
        assert_eq!(code_of(&refused), code);
        assert_eq!((end(&engine, &a), end(&engine, &b)), (0, 1));
    }
    assert_eq!(engine.metrics().producer_count, 1);
    assert_eq!(send(&engine, &a, (9, 0, 4), "a"), Ok(0), "nothing is known of it yet");
}

#[test]
fn a_batch_that_could_not_be_written_is_as_if_it_had_never_been_sent() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    send(&engine, &partition, (1, 0, 0), "v").unwrap();
    test.disk.set_capacity(Some(0));
    let large = "x".repeat(40_000);
    for sequence in [1, 1] {
        let failed = commit(&engine, &[(&partition, batch((1, 0, sequence), &[&large]))]);
        assert!(matches!(failed, Err(CommitError::NotWritten { .. })), "{failed:?}");
        let failed = commit(&engine, &[(&partition, batch((2, 0, 0), &[&large]))]);
        assert!(matches!(failed, Err(CommitError::NotWritten { .. })), "{failed:?}");
    }
    assert_eq!(engine.metrics().producer_count, 1);
    test.disk.set_capacity(None);
    assert_eq!(send(&engine, &partition, (1, 0, 1), "v"), Ok(1));
    assert_eq!(send(&engine, &partition, (2, 0, 7), "v"), Ok(2), "nothing is known of it yet");
    assert_verified(&engine);
}

#[test]
fn a_batch_of_a_producer_transaction_needs_the_transactional_id() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut builder = BatchBuilder::new().producer(1, 0, 0).transactional();
    builder.push(&Record::keyless("v")).unwrap();
    let mut append = engine.append_transaction();
    let refused = append.batch(&partition, builder.finish().unwrap()).unwrap_err();
    assert_eq!(refused.code(), 53);
    assert!(append.is_empty());
}

#[test]
fn above_the_limit_new_producers_are_refused_and_known_ones_go_on() {
    let test = TestEngine::with(|config| config.max_producers(2));
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(2)).unwrap();
    let [a, b] = [0, 1].map(|index| topic.partition(index).unwrap());
    send(&engine, &a, (1, 0, 0), "v").unwrap();
    send(&engine, &b, (1, 0, 0), "v").unwrap();
    assert_eq!(send(&engine, &a, (2, 0, 0), "v"), Err(44));
    assert_eq!(send(&engine, &a, (1, 0, 1), "v"), Ok(1));
    engine.delete_topic("t").unwrap();
    let again = one_partition(&engine, "t", &[]);
    assert_eq!(engine.metrics().producer_count, 0);
    assert_eq!(send(&engine, &again, (2, 0, 70), "v"), Ok(0), "a topic made anew knows nobody");
    assert_eq!(send(&engine, &again, (2, 0, 71), "v"), Ok(1));
}

/// A batch with a producer id and no epoch, which no client makes and Kafka takes.
fn without_epoch(sequence: i32) -> Bytes {
    let mut bytes = batch((7, 0, sequence), &["v"]).to_vec();
    bytes[51..53].copy_from_slice(&(-1i16).to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

#[test]
fn a_producer_without_an_epoch_is_fenced_by_the_first_and_known_after_a_restart() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    commit(&engine, &[(&partition, without_epoch(0))]).unwrap();
    assert_verified(&engine);
    drop((engine, partition));
    test.kill();
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    let again = commit(&engine, &[(&partition, without_epoch(0))]).unwrap();
    assert!(again.batches[0].is_duplicate);
    commit(&engine, &[(&partition, without_epoch(1))]).unwrap();
    assert_eq!(send(&engine, &partition, (7, 0, 0), "v"), Ok(2));
    let fenced = commit(&engine, &[(&partition, without_epoch(2))]).unwrap_err();
    assert_eq!(code_of(&fenced), 47);
}

#[test]
fn a_batch_whose_append_stopped_anywhere_is_stored_once_when_it_is_sent_again() {
    let mut stored_before = 0;
    for calls in 0..8 {
        for loses_power in [false, true] {
            let test = TestEngine::new();
            let engine = test.open();
            let partition = one_partition(&engine, "t", &[]);
            send(&engine, &partition, (1, 0, 0), "first").unwrap();
            test.disk.crash_after_calls(calls);
            let mut append = engine.append_transaction();
            append.batch(&partition, batch((1, 0, 1), &["second"])).unwrap();
            let _stopped = append.commit(Durability::Sync);
            drop(engine);
            if loses_power {
                test.lose_power(PowerLoss::Everything);
            } else {
                test.kill();
            }
            test.disk.clear_faults();
            let engine = test.open();
            let partition = engine.topic("t").unwrap().partition(0).unwrap();
            stored_before += end(&engine, &partition) - 1;
            assert_eq!(send(&engine, &partition, (1, 0, 1), "second"), Ok(1), "calls={calls}");
            assert_eq!(values_of(&engine, &partition), ["first", "second"]);
            assert_verified(&engine);
        }
    }
    assert!((1..16).contains(&stored_before), "some are stored by then: {stored_before}");
}
