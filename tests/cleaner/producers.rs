//! The cleaner with producers, rule by rule: aborted data, markers and their horizon, last sequences.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    NOW_MS, TestEngine, as_a_client_reads, assert_verified, batches_of, offsets_of, one_partition,
};
use tidelog::internals;
use tidelog::record::{BatchBuilder, MarkerKind};
use tidelog::types::ProducerIdentity;
use tidelog::{
    CleanerPass, CommitError, CommittedBatch, Durability, Engine, FetchOptions, FirstSequence,
    Isolation, Partition, Record, RecordBatch,
};

const HORIZON_MS: u64 = 5000;
const EAGER: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("delete.retention.ms", "5000"),
];

fn start(test: &TestEngine) -> (Engine, Partition) {
    let engine = test.open();
    let partition = one_partition(&engine, "t", &EAGER);
    (engine, partition)
}

fn reopen(test: &TestEngine, engine: Engine) -> (Engine, Partition) {
    engine.close().unwrap();
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    (engine, partition)
}

fn identity(producer_id: i64, producer_epoch: i16) -> ProducerIdentity {
    ProducerIdentity { producer_id, producer_epoch }
}

/// Sends one batch with one record for each key; tells where it is stored, or the code.
fn send(
    (engine, partition): (&Engine, &Partition),
    (producer, sequence): (ProducerIdentity, i32),
    is_transactional: bool,
    records: &[(&str, &str)],
) -> Result<CommittedBatch, i16> {
    let mut builder =
        BatchBuilder::new().producer(producer.producer_id, producer.producer_epoch, sequence);
    let mut append = engine.append_transaction();
    if is_transactional {
        builder = builder.transactional();
        internals::pretend_open_transaction(engine, "p", producer, partition);
        append.transactional_id("p", FirstSequence::Any);
    }
    for &(key, value) in records {
        builder.push(&Record::new(key, value).timestamp(NOW_MS)).unwrap();
    }
    append.batch(partition, builder.finish().unwrap()).unwrap();
    append.commit(Durability::Buffered).map(|done| done.batches[0]).map_err(|error| match error {
        CommitError::Refused { reason, .. } => reason.code(),
        other => panic!("it was not refused: {other:?}"),
    })
}

fn plain(engine: &Engine, partition: &Partition, records: &[(&str, &str)]) {
    let records = records.iter().map(|&(key, value)| Record::new(key, value).timestamp(NOW_MS));
    common::append(engine, partition, records);
}

fn end(engine: &Engine, partition: &Partition, producer: ProducerIdentity, kind: MarkerKind) {
    internals::write_marker(engine, producer, partition, kind).unwrap();
}

fn clean(engine: &Engine, partition: &Partition) -> Option<CleanerPass> {
    let pass = engine.cleaner().clean_partition(partition).expect("nothing is damaged");
    assert_verified(engine);
    assert_eq!(as_a_client_reads(engine, partition), offsets_of(engine, partition));
    pass
}

/// Every batch, committed or not.
fn all_batches(engine: &Engine, partition: &Partition) -> Vec<RecordBatch> {
    let options = FetchOptions::new().isolation(Isolation::Uncommitted);
    let start = engine.watermarks(partition).unwrap().log_start;
    let fetched = engine.fetch(partition, start, options).unwrap();
    tidelog::record::Batches::new(fetched.bytes).map(|batch| batch.unwrap()).collect()
}

/// Of every batch: base offset, records, and the horizon if it has one.
fn shape(engine: &Engine, partition: &Partition) -> Vec<(i64, i32, Option<i64>)> {
    let headers = all_batches(engine, partition).into_iter().map(|batch| *batch.header());
    headers.map(|h| (h.base_offset(), h.record_count(), h.delete_horizon_ms())).collect()
}

fn aborted_count(engine: &Engine, partition: &Partition) -> usize {
    let start = engine.watermarks(partition).unwrap().log_start;
    engine.fetch(partition, start, FetchOptions::new()).unwrap().aborted.len()
}

#[test]
fn the_last_sequence_of_a_producer_survives_cleaning_and_a_reopen() {
    let test = TestEngine::new();
    let (engine, partition) = start(&test);
    let (one, two) = (identity(1, 0), identity(2, 0));
    send((&engine, &partition), (one, 0), false, &[("k", "1")]).unwrap();
    send((&engine, &partition), (two, 0), false, &[("k", "2")]).unwrap();
    clean(&engine, &partition).unwrap();
    assert_eq!(shape(&engine, &partition), [(0, 0, None), (1, 1, None)]);
    let (engine, partition) = reopen(&test, engine);
    let again = send((&engine, &partition), (one, 0), false, &[("k", "1")]).unwrap();
    assert_eq!((again.base_offset, again.is_duplicate), (0, true));
    let next = send((&engine, &partition), (one, 1), false, &[("k", "3")]).unwrap();
    assert_eq!((next.base_offset, next.is_duplicate), (2, false));
    assert_eq!(engine.watermarks(&partition).unwrap().log_end, 3);
    clean(&engine, &partition).unwrap();
    assert_eq!(shape(&engine, &partition), [(1, 0, None), (2, 1, None)]);
}

#[test]
fn of_a_producer_that_begins_again_and_again_one_header_stays() {
    let test = TestEngine::new();
    let (engine, partition) = start(&test);
    for epoch in 0..1000 {
        send((&engine, &partition), (identity(1, epoch), 0), false, &[("k", "v")]).unwrap();
        if epoch % 250 == 0 {
            plain(&engine, &partition, &[("k", "other")]);
            clean(&engine, &partition).unwrap();
            assert!(shape(&engine, &partition).len() <= 2);
        }
    }
    plain(&engine, &partition, &[("k", "last")]);
    clean(&engine, &partition).unwrap();
    let last = engine.watermarks(&partition).unwrap().log_end - 1;
    assert_eq!(shape(&engine, &partition), [(last - 1, 0, None), (last, 1, None)]);
}

#[test]
fn markers_are_never_compared_by_their_keys() {
    let test = TestEngine::new();
    let (engine, partition) = start(&test);
    let (one, two) = (identity(1, 0), identity(2, 0));
    send((&engine, &partition), (one, 0), true, &[("a", "aborted"), ("b", "aborted")]).unwrap();
    end(&engine, &partition, one, MarkerKind::Abort);
    send((&engine, &partition), (one, 2), false, &[("c", "plain")]).unwrap();
    send((&engine, &partition), (two, 0), true, &[("d", "committed")]).unwrap();
    end(&engine, &partition, two, MarkerKind::Commit);
    send((&engine, &partition), (one, 3), true, &[("e", "aborted")]).unwrap();
    end(&engine, &partition, one, MarkerKind::Abort);
    let (mut engine, mut partition) = (engine, partition);
    for round in 0..4 {
        plain(&engine, &partition, &[("z", "v")]);
        clean(&engine, &partition).unwrap();
        (engine, partition) = reopen(&test, engine);
        assert_eq!(offsets_of(&engine, &partition), [3, 4, 8 + round]);
        test.clock.advance_ms(HORIZON_MS);
    }
}

#[test]
fn a_pass_that_ends_half_way_leaves_an_aborted_transaction_after_it_as_it_was() {
    // Memory for two keys.
    let test = TestEngine::with(|config| config.cleaner_memory_bytes(80));
    let (engine, partition) = start(&test);
    plain(&engine, &partition, &[("a", "1"), ("b", "1")]);
    plain(&engine, &partition, &[("c", "1")]);
    send((&engine, &partition), (identity(1, 0), 0), true, &[("a", "aborted")]).unwrap();
    end(&engine, &partition, identity(1, 0), MarkerKind::Abort);
    let pass = clean(&engine, &partition).unwrap();
    assert_eq!((pass.cleaned_to, pass.uncleanable), (2, 5));
    let (engine, partition) = reopen(&test, engine);
    assert_eq!(shape(&engine, &partition).len(), 4, "nothing above its reach is touched");
    assert_eq!(offsets_of(&engine, &partition), [0, 1, 2]);
    assert_eq!(aborted_count(&engine, &partition), 1);
    clean(&engine, &partition).unwrap();
    assert_eq!(offsets_of(&engine, &partition), [0, 1, 2]);
    let expected = [(0, 2, None), (2, 1, None), (3, 0, None), (4, 1, None)];
    assert_eq!(shape(&engine, &partition), expected);
}

#[test]
fn an_aborted_record_supersedes_nothing_also_when_it_was_open_during_a_pass() {
    let test = TestEngine::new();
    let (engine, partition) = start(&test);
    let producer = identity(1, 0);
    plain(&engine, &partition, &[("k", "1")]);
    send((&engine, &partition), (producer, 0), true, &[("k", "2")]).unwrap();
    plain(&engine, &partition, &[("k", "behind it")]);
    let pass = clean(&engine, &partition).unwrap();
    assert_eq!((pass.cleaned_to, pass.uncleanable), (1, 1), "it ends at the last stable offset");
    assert_eq!(all_batches(&engine, &partition).len(), 3);
    end(&engine, &partition, producer, MarkerKind::Abort);
    send((&engine, &partition), (producer, 1), true, &[("k", "3")]).unwrap();
    end(&engine, &partition, producer, MarkerKind::Abort);
    clean(&engine, &partition).unwrap();
    assert_eq!(offsets_of(&engine, &partition), [2]);
    // The record at 1 went, and the last batch of the producer is a header.
    assert_eq!(
        shape(&engine, &partition),
        [(2, 1, None), (3, 1, None), (4, 0, None), (5, 1, None)]
    );
}

#[test]
fn gaps_that_cleaning_leaves_in_the_sequences_of_a_producer_are_no_fault() {
    let test = TestEngine::new();
    let (engine, partition) = start(&test);
    let producer = identity(1, 0);
    for sequence in 0..20 {
        let key = if sequence % 7 == 0 { format!("own{sequence}") } else { "k".to_owned() };
        send((&engine, &partition), (producer, sequence), false, &[(&key, "v")]).unwrap();
    }
    clean(&engine, &partition).unwrap();
    assert_eq!(offsets_of(&engine, &partition), [0, 7, 14, 19]);
    let before = engine.producers().describe(&partition);
    test.kill();
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(engine.producers().describe(&partition), before);
    assert_eq!(send((&engine, &partition), (producer, 21), false, &[("k", "v")]), Err(45));
    let next = send((&engine, &partition), (producer, 20), false, &[("k", "v")]).unwrap();
    assert_eq!(next.base_offset, 20);
}

#[test]
fn a_marker_goes_after_three_passes_the_last_of_which_starts_at_its_horizon() {
    let test = TestEngine::new();
    for kind in [MarkerKind::Abort, MarkerKind::Commit] {
        let topic = format!("{kind:?}");
        let engine = test.open();
        let partition = one_partition(&engine, &topic, &EAGER);
        let producer = identity(1, 0);
        send((&engine, &partition), (producer, 0), true, &[("k", "1")]).unwrap();
        end(&engine, &partition, producer, kind);
        send((&engine, &partition), (producer, 1), false, &[("k", "2")]).unwrap();
        let now = NOW_MS;
        test.clock.set_ms(now);
        clean(&engine, &partition).unwrap();
        assert_eq!(shape(&engine, &partition), [(1, 1, None), (2, 1, None)]);
        assert_eq!(clean(&engine, &partition), None, "nothing is dirty");
        plain(&engine, &partition, &[("z", "1")]);
        clean(&engine, &partition).unwrap();
        let horizon = now + HORIZON_MS.cast_signed();
        let stamped = [(1, 1, Some(horizon)), (2, 1, None), (3, 1, None)];
        assert_eq!(shape(&engine, &partition), stamped);
        test.clock.set_ms(horizon - 1);
        assert_eq!(clean(&engine, &partition), None);
        test.clock.set_ms(horizon);
        let pass = clean(&engine, &partition).unwrap();
        assert_eq!((pass.from, pass.cleaned_to, pass.removed_records), (4, 4, 1));
        assert_eq!(shape(&engine, &partition), [(2, 1, None), (3, 1, None)]);
        assert_eq!(aborted_count(&engine, &partition), 0);
        assert_eq!(clean(&engine, &partition), None);
        engine.close().unwrap();
    }
}

#[test]
fn the_marker_that_alone_proves_an_epoch_stays_empty_and_hides_nothing() {
    let test = TestEngine::new();
    let (engine, partition) = start(&test);
    // The end raises the epoch, so that no batch of this epoch is there.
    send((&engine, &partition), (identity(1, 0), 0), true, &[("k", "1")]).unwrap();
    end(&engine, &partition, identity(1, 1), MarkerKind::Abort);
    plain(&engine, &partition, &[("z", "0")]);
    for value in ["1", "2"] {
        clean(&engine, &partition).unwrap();
        plain(&engine, &partition, &[("z", value)]);
    }
    test.clock.advance_ms(HORIZON_MS);
    clean(&engine, &partition).unwrap();
    assert_eq!(shape(&engine, &partition), [(1, 0, None), (4, 1, None)]);
    let producer = identity(1, 1);
    send((&engine, &partition), (producer, 0), true, &[("k", "committed")]).unwrap();
    end(&engine, &partition, producer, MarkerKind::Commit);
    assert_eq!(as_a_client_reads(&engine, &partition), [4, 5]);
    clean(&engine, &partition).unwrap();
    assert_eq!(offsets_of(&engine, &partition), [4, 5]);
    assert_eq!(shape(&engine, &partition).len(), 3, "the empty marker goes when data follows");
}

#[test]
fn a_header_goes_once_its_producer_is_forgotten() {
    let test = TestEngine::with(|config| config.producer_id_expiration_ms(60_000));
    let (engine, partition) = start(&test);
    send((&engine, &partition), (identity(1, 0), 0), false, &[("k", "1")]).unwrap();
    plain(&engine, &partition, &[("k", "2")]);
    clean(&engine, &partition).unwrap();
    test.clock.advance_ms(59_999);
    engine.producers().expire().unwrap();
    plain(&engine, &partition, &[("k", "3")]);
    clean(&engine, &partition).unwrap();
    assert_eq!(shape(&engine, &partition), [(0, 0, None), (2, 1, None)]);
    test.clock.advance_ms(1);
    engine.producers().expire().unwrap();
    plain(&engine, &partition, &[("k", "4")]);
    clean(&engine, &partition).unwrap();
    assert_eq!(shape(&engine, &partition), [(3, 1, None)]);
}

#[test]
fn a_reader_of_committed_data_gets_to_the_last_stable_offset_over_what_was_emptied() {
    let test = TestEngine::new();
    let (engine, partition) = start(&test);
    let (one, two) = (identity(1, 0), identity(2, 0));
    send((&engine, &partition), (one, 0), true, &[("a", "1")]).unwrap();
    send((&engine, &partition), (two, 0), true, &[("b", "1")]).unwrap();
    end(&engine, &partition, one, MarkerKind::Abort);
    send((&engine, &partition), (one, 1), false, &[("a", "2")]).unwrap();
    end(&engine, &partition, two, MarkerKind::Abort);
    // The marker at 4 is the last batch below the transaction that stays open.
    send((&engine, &partition), (two, 1), true, &[("b", "2")]).unwrap();
    clean(&engine, &partition).unwrap();
    assert_eq!(batches_of(&engine, &partition).last().unwrap().header().last_offset(), 4);
    plain(&engine, &partition, &[("z", "1")]);
    for _ in 0..3 {
        test.clock.advance_ms(HORIZON_MS);
        internals::forget_cleaned(&engine, &partition).unwrap();
        clean(&engine, &partition).unwrap();
        let last = batches_of(&engine, &partition).last().unwrap().header().last_offset();
        assert_eq!(last + 1, engine.watermarks(&partition).unwrap().last_stable);
    }
    assert!(shape(&engine, &partition).contains(&(4, 0, None)), "it is a header by now");
}

#[test]
fn a_pass_over_transactions_that_was_stopped_anywhere_is_done_by_the_next_one() {
    for stop_at in 0..12 {
        let test = TestEngine::new();
        let (engine, partition) = start(&test);
        let large = "v".repeat(300 << 10);
        for round in 0..4 {
            let producer = identity(1, 0);
            let sent = send((&engine, &partition), (producer, round), true, &[("k", &large)]);
            sent.unwrap();
            let kind = if round % 2 == 0 { MarkerKind::Abort } else { MarkerKind::Commit };
            end(&engine, &partition, producer, kind);
            plain(&engine, &partition, &[("own", &large), (&round.to_string(), &large)]);
        }
        let mut calls = 0;
        let pass = engine.cleaner().clean_partition_at(&partition, |_| {
            calls += 1;
            if calls > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        pass.unwrap().unwrap();
        assert_verified(&engine);
        let (engine, partition) = reopen(&test, engine);
        assert_eq!(as_a_client_reads(&engine, &partition), offsets_of(&engine, &partition));
        clean(&engine, &partition);
        assert_eq!(offsets_of(&engine, &partition), [3, 7, 11, 12, 14, 15], "at {stop_at}");
    }
}

/// Tells when it is dropped, also by a failure.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_reader_gets_an_aborted_record_while_it_is_cleaned_and_deleted() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [EAGER[0], EAGER[1], ("delete.retention.ms", "0")];
    let partition = one_partition(&engine, "t", &settings);
    let is_done = AtomicBool::new(false);
    let read = || {
        while !is_done.load(Ordering::Relaxed) {
            let start = engine.watermarks(&partition).unwrap().log_start;
            // The start may have moved on.
            let Ok(fetched) = engine.fetch(&partition, start, FetchOptions::new()) else {
                continue;
            };
            for record in fetched.records() {
                assert_eq!(record.unwrap().value.as_deref(), Some(&b"committed"[..]));
            }
        }
    };
    std::thread::scope(|scope| {
        let done = Done(&is_done);
        let readers = [scope.spawn(read), scope.spawn(read)];
        for sequence in 0..1500 {
            let aborted = [("a", "aborted")];
            send((&engine, &partition), (identity(1, 0), sequence), true, &aborted).unwrap();
            end(&engine, &partition, identity(1, 0), MarkerKind::Abort);
            let committed = [("a", "committed")];
            send((&engine, &partition), (identity(2, 0), sequence), true, &committed).unwrap();
            end(&engine, &partition, identity(2, 0), MarkerKind::Commit);
            match sequence % 3 {
                0 => _ = engine.cleaner().clean_partition(&partition).unwrap(),
                1 => {
                    let end = engine.watermarks(&partition).unwrap().high_watermark;
                    _ = engine.delete_records(&partition, end - 2).unwrap();
                }
                _ => {}
            }
        }
        drop(done);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_verified(&engine);
}
