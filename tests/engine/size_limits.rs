//! Sizes: what is exactly at a limit passes, one byte more is refused, and a reader never sticks.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use bytes::Bytes;
use common::{TestEngine, append, append_batch, batch_of, batches_of, one_partition, records_of};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::record::{BatchBuilder, Batches};
use tidelog::{
    Codec, CommitError, Durability, Engine, FetchOptions, FirstBatch, Partition, Record, TooLarge,
};

const MIB: usize = 1 << 20;

/// A batch of one record that is exactly so long.
fn batch_of_size(size_bytes: usize) -> Bytes {
    let batch = |value_bytes| batch_of(&[Record::keyless(vec![b'x'; value_bytes])]);
    let value_bytes = (0..size_bytes).find(|bytes| batch(*bytes).len() == size_bytes);
    batch(value_bytes.expect("a batch can have this size"))
}

/// The code with which a batch is refused, 0 if it is committed.
fn code_of(engine: &Engine, partition: &Partition, batch: Bytes) -> i16 {
    let mut append = engine.append_transaction();
    match append.batch(partition, batch) {
        Ok(()) => append.commit(Durability::Buffered).map(|_| 0).expect("it is committed"),
        Err(error) => error.code(),
    }
}

fn log_end(engine: &Engine, partition: &Partition) -> i64 {
    engine.watermarks(partition).unwrap().log_end
}

/// Bytes that no codec can shorten.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn set(engine: &Engine, topic: &str, name: &str, value: &str) {
    let operation = ConfigOperation::Set(value.to_owned());
    engine.topics().alter(topic, &[ConfigChange { name: name.to_owned(), operation }]).unwrap();
}

#[test]
fn a_batch_as_long_as_the_limit_passes_and_one_byte_more_is_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "1000")]);
    assert_eq!(code_of(&engine, &partition, batch_of_size(999)), 0);
    assert_eq!(code_of(&engine, &partition, batch_of_size(1000)), 0);
    assert_eq!(code_of(&engine, &partition, batch_of_size(1001)), 10);
    assert_eq!(log_end(&engine, &partition), 2);

    let mut append = engine.append_transaction();
    let error = append.batch(&partition, batch_of_size(1001)).unwrap_err();
    let too_large = TooLarge { record_index: None, size_bytes: 1001, limit_bytes: 1000 };
    assert_eq!(error.too_large(), Some(too_large));
}

#[test]
fn a_record_that_fills_a_batch_exactly_passes_and_one_byte_more_is_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "1000")]);
    let value = |size| records_in(&batch_of_size(size))[0].value.clone();
    let mut transaction = engine.append_transaction();
    transaction.records(&partition, [Record::keyless(value(1000))]).unwrap();
    let error = transaction.records(&partition, [Record::keyless(value(1001))]).unwrap_err();
    assert_eq!(error.code(), 10);
    transaction.commit(Durability::Buffered).unwrap();
    assert_eq!(batches_of(&engine, &partition)[0].bytes().len(), 1000);
    assert_eq!(log_end(&engine, &partition), 1);
}

fn records_in(batch: &Bytes) -> Vec<Record> {
    let batches = Batches::new(batch.clone());
    batches.flat_map(|batch| batch.unwrap().records()).map(Result::unwrap).collect()
}

#[test]
fn the_limit_is_on_the_batch_as_it_was_sent_and_not_on_what_it_unpacks_to() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "1048576")]);
    let gzip = |value: Vec<u8>| {
        let mut builder = BatchBuilder::new().codec(Codec::Gzip);
        builder.push(&Record::keyless(value)).unwrap();
        builder.finish().unwrap()
    };
    let zeros = gzip(vec![0; 5 * MIB]);
    assert!(zeros.len() < 64 << 10);
    assert_eq!(code_of(&engine, &partition, zeros), 0);
    assert_eq!(code_of(&engine, &partition, gzip(noise(5 * MIB))), 10);
    assert_eq!(log_end(&engine, &partition), 1);
    assert_eq!(records_of(&engine, &partition)[0].value.as_ref().unwrap().len(), 5 * MIB);
}

#[test]
fn what_a_batch_unpacks_to_has_a_limit_of_its_own() {
    // One record: length, attributes, two deltas, null key, value length, value, no headers.
    let overhead = 3 + 1 + 1 + 1 + 1 + 3 + 1;
    let value = vec![0; 100_000];
    let mut builder = BatchBuilder::new().codec(Codec::Gzip);
    builder.push(&Record::keyless(value.clone())).unwrap();
    let batch = builder.finish().unwrap();
    for (room, is_taken) in [(0, true), (1, false)] {
        let limit = (value.len() + overhead - room) as u64;
        let test = TestEngine::with(|config| config.max_decompressed_bytes(limit));
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let mut append = engine.append_transaction();
        assert_eq!(append.batch(&partition, batch.clone()).is_ok(), is_taken, "limit={limit}");
    }
}

#[test]
fn a_size_above_four_gigabytes_does_not_wrap() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "1048576")]);
    let part = Bytes::from(vec![0; 64 * MIB]);
    let mut record = Record::keyless("v");
    for _ in 0..64 {
        record = record.header("h", part.clone());
    }
    let mut append = engine.append_transaction();
    let error = append.records(&partition, [record]).unwrap_err();
    assert_eq!(error.code(), 10);
    assert_eq!(error.too_large().unwrap().size_bytes, 4_294_967_754);
    assert!(append.is_empty());
}

#[test]
fn a_limit_that_is_lowered_later_leaves_what_is_stored_readable() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let large = batch_of(&[Record::new("k", noise(900_000))]);
    append_batch(&engine, &partition, large.clone());
    set(&engine, "t", "max.message.bytes", "1024");
    assert_eq!(code_of(&engine, &partition, large.clone()), 10);
    append(&engine, &partition, [Record::keyless("small")]);
    engine.maintenance().checkpoint().unwrap();
    engine.close().unwrap();

    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(code_of(&engine, &partition, large.clone()), 10);
    let stored = batches_of(&engine, &partition);
    assert_eq!(stored[0].bytes()[16..], large[16..]);
    let scanned = engine.snapshot().scan(partition.topic());
    assert_eq!(scanned.map(|record| record.unwrap().record.offset).collect::<Vec<_>>(), [0, 1]);
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn a_batch_above_a_limit_that_was_lowered_is_cleaned_and_built_again() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
    let partition = one_partition(&engine, "t", &settings);
    let large = batch_of(&[Record::new("gone", "v"), Record::new("kept", noise(900_000))]);
    append_batch(&engine, &partition, large);
    append(&engine, &partition, [Record::new("gone", "newer")]);
    set(&engine, "t", "max.message.bytes", "1024");
    let pass = engine.cleaner().clean_partition(&partition).unwrap().unwrap();
    assert!(pass.is_finished && pass.written_bytes > 900_000, "{pass:?}");
    let records = common::records_of(&engine, &partition);
    let kept: Vec<_> = records.iter().map(|record| (record.offset, record.value.clone())).collect();
    assert_eq!(kept, [(1, Some(noise(900_000).into())), (2, Some("newer".into()))]);
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn the_limit_holds_for_a_batch_and_not_for_each_of_its_records() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "1048576")]);
    let records: Vec<_> = (0..1000).map(|_| Record::keyless(vec![b'x'; 2000])).collect();
    assert_eq!(code_of(&engine, &partition, batch_of(&records)), 10);
    assert_eq!(log_end(&engine, &partition), 0);
    let mut single = engine.append_transaction();
    for record in &records {
        single.batch(&partition, batch_of(std::slice::from_ref(record))).unwrap();
    }
    single.commit(Durability::Buffered).unwrap();
    assert_eq!(log_end(&engine, &partition), 1000);
}

#[test]
fn records_are_packed_into_the_fewest_batches_that_the_limit_allows() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("max.message.bytes", "10000")]);
    append(&engine, &partition, (0..100).map(|_| Record::keyless(vec![b'x'; 990])));
    let batches = batches_of(&engine, &partition);
    let counts: Vec<_> = batches.iter().map(|batch| batch.header().record_count()).collect();
    assert_eq!(counts, [9; 11].into_iter().chain([1]).collect::<Vec<_>>());
    assert!(batches.iter().all(|batch| batch.bytes().len() <= 10_000));
    let offsets: Vec<_> = records_of(&engine, &partition).iter().map(|r| r.offset).collect();
    assert_eq!(offsets, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_fetch_with_too_small_a_limit_gives_exactly_the_first_batch_and_goes_on_after_it() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for _ in 0..3 {
        append(&engine, &partition, [Record::keyless(vec![0; 100_000])]);
    }
    for max_bytes in [0, 1, 100_000] {
        let options = FetchOptions::new().max_bytes(max_bytes);
        let mut offset = 0;
        for expected in 0..3 {
            let fetched = engine.fetch(&partition, offset, options).unwrap();
            let read: Vec<_> = fetched.records().map(|record| record.unwrap().offset).collect();
            assert_eq!(read, [expected], "max_bytes={max_bytes}");
            offset = fetched.next_offset;
        }
        assert_eq!(engine.fetch(&partition, offset, options).unwrap().next_offset, 3);
        // The second partition of a request gets nothing beyond the limit.
        let fetched =
            engine.fetch(&partition, 0, options.first_batch(FirstBatch::IfItFits)).unwrap();
        assert!(fetched.bytes.is_empty());
        assert_eq!(fetched.next_offset, 0);
    }
}

#[test]
fn a_fetch_gives_as_many_whole_batches_as_its_limit_holds() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    (0..3).for_each(|_| _ = append_batch(&engine, &partition, batch_of_size(500)));
    for (max_bytes, batch_count) in [(499, 1), (999, 1), (1000, 2), (1499, 2), (1500, 3)] {
        let options = FetchOptions::new().max_bytes(max_bytes);
        let fetched = engine.fetch(&partition, 0, options).unwrap();
        assert_eq!(fetched.bytes.len(), batch_count * 500, "max_bytes={max_bytes}");
        assert_eq!(fetched.next_offset, batch_count as i64);
    }
}

#[test]
fn no_fetch_gives_more_than_the_engine_allows_but_for_one_batch_that_is_larger_by_itself() {
    let test = TestEngine::with(|config| config.max_fetch_bytes(1000));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    (0..3).for_each(|_| _ = append_batch(&engine, &partition, batch_of_size(500)));
    append_batch(&engine, &partition, batch_of_size(1001));
    let options = FetchOptions::new().max_bytes(u64::MAX);
    let length = |offset| engine.fetch(&partition, offset, options).unwrap().bytes.len();
    assert_eq!([length(0), length(2), length(3)], [1000, 500, 1001]);
}

#[test]
fn batches_are_served_as_they_came_and_never_merged() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let sent: Vec<_> = (0..1000).map(|i| batch_of(&[Record::keyless(format!("{i}"))])).collect();
    let mut append = engine.append_transaction();
    sent.iter().for_each(|batch| append.batch(&partition, batch.clone()).unwrap());
    append.commit(Durability::Buffered).unwrap();
    let options = FetchOptions::new().max_bytes(50 << 20);
    let fetched = engine.fetch(&partition, 0, options).unwrap();
    let served: Vec<_> = Batches::new(fetched.bytes).map(Result::unwrap).collect();
    assert_eq!(served.len(), 1000);
    assert!(served.iter().zip(&sent).all(|(served, sent)| served.bytes()[16..] == sent[16..]));
}

#[test]
fn a_transaction_holds_as_many_bytes_and_batches_as_it_may_and_no_more() {
    let test = TestEngine::with(|config| {
        config.max_transaction_bytes(1000).max_batches_per_transaction(4)
    });
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut append = engine.append_transaction();
    append.batch(&partition, batch_of_size(501)).unwrap();
    let error = append.batch(&partition, batch_of_size(500)).unwrap_err();
    assert_eq!(error.code(), 18);
    assert!(error.to_string().contains("bytes=1001 limit=1000"), "{error}");
    append.batch(&partition, batch_of_size(499)).unwrap();
    assert_eq!((append.size_bytes(), append.batch_count()), (1000, 2));
    append.commit(Durability::Buffered).unwrap();

    let mut append = engine.append_transaction();
    (0..4).for_each(|_| append.batch(&partition, batch_of_size(100)).unwrap());
    let error = append.batch(&partition, batch_of_size(100)).unwrap_err();
    assert!(error.to_string().contains("limit=4"), "{error}");
    append.commit(Durability::Buffered).unwrap();
    assert_eq!(log_end(&engine, &partition), 6);
}

#[test]
fn a_transaction_of_the_largest_size_fits_into_an_empty_queue_of_the_same_size() {
    let test = TestEngine::with(|config| {
        config.max_transaction_bytes(4096).commit_queue_bytes(4096).commit_group_bytes(1)
    });
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    for submits in [true, false] {
        let mut append = engine.append_transaction();
        append.batch(&partition, batch_of_size(4096)).unwrap();
        if submits {
            let ticket = append.submit(Durability::Buffered).unwrap();
            engine.maintenance().run_pending();
            ticket.wait().unwrap();
        } else {
            append.commit(Durability::Buffered).unwrap();
        }
    }
    assert_eq!(log_end(&engine, &partition), 2);
}

#[test]
fn a_frame_larger_than_a_segment_is_stored_and_read_back() {
    let test = TestEngine::with(|config| config.segment_bytes(8 << 10));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let value = noise(100_000);
    append(&engine, &partition, [Record::keyless("before")]);
    append(&engine, &partition, [Record::keyless(value.clone())]);
    append(&engine, &partition, [Record::keyless("behind")]);
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    let records = records_of(&engine, &partition);
    assert_eq!(records.len(), 3);
    assert_eq!(records[1].value.as_deref(), Some(&value[..]));
}

#[test]
fn a_refused_transaction_comes_back_and_can_be_read() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut append = engine.append_transaction();
    append.batch(&partition, batch_of_size(300)).unwrap();
    engine.delete_topic("t").unwrap();
    let error = append.commit(Durability::Buffered).unwrap_err();
    assert!(matches!(error, CommitError::Refused { .. }), "{error:?}");
    assert!(!error.is_retriable());
    assert_eq!(error.into_transaction().unwrap().size_bytes(), 300);
}
