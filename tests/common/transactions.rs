//! What the tests of producer transactions share: producers, what readers see, requests by hand.

use std::time::Duration;

use tidelog::producer::transaction::ProducerTransactionError;
use tidelog::record::BatchBuilder;
use tidelog::types::ProducerIdentity;
use tidelog::{
    CommitError, Durability, Engine, FetchOptions, FirstSequence, GroupOffset, InitProducer,
    Partition, ProducerError, Record, TransactionalProducer,
};

use super::{NOW_MS, values};

pub const MINUTE: Duration = Duration::from_secs(60);

/// Asks for a transactional id as a new producer does.
pub const INIT: InitProducer = InitProducer { timeout_ms: 60_000, expected: None };

pub fn producer(engine: &Engine, id: &str) -> TransactionalProducer {
    engine.producers().transactional(id, MINUTE).expect("a test asks for what exists")
}

pub fn record(value: &str) -> Vec<Record> {
    vec![Record::keyless(value)]
}

/// The values that a reader of committed data sees from an offset on, batch by batch.
pub fn committed_from(engine: &Engine, partition: &Partition, mut offset: i64) -> Vec<String> {
    let mut records = Vec::new();
    loop {
        let fetched = engine
            .fetch(partition, offset, FetchOptions::new().max_bytes(1))
            .expect("a test asks for what exists");
        if fetched.bytes.is_empty() {
            return values(&records);
        }
        records
            .extend(fetched.records().map(|record| record.expect("a test asks for what exists")));
        offset = fetched.next_offset;
    }
}

/// The same; all ways to read committed data agree.
pub fn committed(engine: &Engine, partition: &Partition) -> Vec<String> {
    let seen = committed_from(engine, partition, 0);
    let scanned: Vec<Record> = engine
        .snapshot()
        .scan(partition.topic())
        .partitions(&[partition.index()])
        .map(|scanned| scanned.expect("a test asks for what exists").record)
        .collect();
    assert!(values(&scanned).starts_with(&seen), "a scan leaves out nothing that is stable");
    let fetched =
        engine.fetch(partition, 0, FetchOptions::new()).expect("a test asks for what exists");
    let at_once: Vec<Record> =
        fetched.records().map(|record| record.expect("a test asks for what exists")).collect();
    assert_eq!(values(&at_once), seen);
    seen
}

pub fn marks(engine: &Engine, partition: &Partition) -> (i64, i64) {
    let marks = engine.watermarks(partition).expect("a test asks for what exists");
    assert_eq!(marks.high_watermark, marks.log_end);
    (marks.last_stable, marks.log_end)
}

pub fn aborted_of(engine: &Engine, partition: &Partition, offset: i64) -> Vec<(i64, i64)> {
    let fetched =
        engine.fetch(partition, offset, FetchOptions::new()).expect("a test asks for what exists");
    fetched.aborted.iter().map(|a| (a.producer_id, a.first_offset)).collect()
}

pub fn offset(offset: i64) -> GroupOffset {
    GroupOffset::new(offset)
}

pub fn refusal(error: ProducerError) -> ProducerTransactionError {
    match error {
        ProducerError::Refused(refusal) => refusal,
        other => panic!("it was not refused: {other:?}"),
    }
}

/// Appends one record of a producer's transaction, adding the partition.
pub fn send(
    engine: &Engine,
    id: &str,
    producer: ProducerIdentity,
    partition: &Partition,
    sequence: i32,
) -> Result<i64, CommitError> {
    engine
        .producers()
        .add_partitions_of_append(id, producer, std::slice::from_ref(partition))
        .expect("a test asks for what exists");
    let ProducerIdentity { producer_id, producer_epoch } = producer;
    let builder = BatchBuilder::new().producer(producer_id, producer_epoch, sequence);
    let mut builder = builder.transactional();
    builder.push(&Record::keyless("v").timestamp(NOW_MS)).expect("a test asks for what exists");
    let mut append = engine.append_transaction();
    append.transactional_id(id, FirstSequence::Zero);
    append
        .batch(partition, builder.finish().expect("a test asks for what exists"))
        .expect("a test asks for what exists");
    append.commit(Durability::Buffered).map(|committed| committed.batches[0].base_offset)
}
