//! What the builder makes and refuses, control batches, and headers as a list.

use bytes::Bytes;
use tidelog::TooLarge;
use tidelog::record::{
    AppendRules, BatchBuilder, BatchRefusal, BuildError, ControlError, ControlRecord, EndMarker,
    Header, Headers, MarkerKind, Record, RecordBatch, TimestampType, validate_append,
};

const NOW: i64 = 1_700_000_000_000;

fn read(batch: Bytes) -> Vec<Record> {
    let batch = RecordBatch::parse(batch).expect("a whole batch");
    batch.records().map(|record| record.expect("a good record")).collect()
}

#[test]
fn the_size_given_before_is_the_size_written_over_every_step_of_a_length() {
    let values: [Option<Vec<u8>>; 7] = [
        None,
        Some(vec![]),
        Some(vec![1; 63]),
        Some(vec![1; 64]),
        Some(vec![1; 127]),
        Some(vec![1; 128]),
        Some(vec![1; 8192]),
    ];
    let mut builder = BatchBuilder::new();
    let mut records = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let record = Record::new(value.clone(), value.clone())
            .header("h", value.clone())
            .timestamp(NOW + index as i64 * 1000);
        let told = builder.encoded_size_with(&record);
        builder.push(&record).unwrap();
        assert_eq!(builder.encoded_size(), told, "value {index}");
        records.push(record);
    }
    let told = builder.encoded_size();
    let batch = builder.finish().unwrap();
    assert_eq!(batch.len(), told);
    let got = read(batch);
    assert_eq!(got.len(), records.len());
    for (got, wanted) in got.iter().zip(&records) {
        assert_eq!(
            (&got.key, &got.value, &got.headers),
            (&wanted.key, &wanted.value, &wanted.headers)
        );
    }
}

#[test]
fn markers_are_the_bytes_that_kafka_writes_and_are_refused_from_a_client() {
    let marker = EndMarker { kind: MarkerKind::Commit, coordinator_epoch: 1 };
    let batch = marker.batch(7, 3, NOW);
    let wanted = "000000000000000000000042ffffffff02888797c10030000000000000018bcfe568000000018bcf\
                  e5680000000000000000070003ffffffff000000012000000008000000010c00000000000100";
    let hex: String = batch.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, wanted);
    assert_eq!(validate_append(batch, &AppendRules::new(NOW)).unwrap_err(), BatchRefusal::Control);
}

#[test]
fn a_batch_of_exactly_its_limit_is_built_and_one_byte_more_leaves_it_as_it_was() {
    let record = Record::new("k", "value").timestamp(NOW);
    let size_bytes = BatchBuilder::new().encoded_size_with(&record);
    let mut builder = BatchBuilder::new().max_bytes(size_bytes);
    builder.push(&record).unwrap();
    let refused = builder.push(&Record::keyless("").timestamp(NOW)).unwrap_err();
    assert_eq!(refused, BuildError::TooLarge(TooLarge::batch(size_bytes + 7, size_bytes)));
    assert_eq!((builder.record_count(), builder.encoded_size()), (1, size_bytes));
    assert_eq!(builder.finish().unwrap().len(), size_bytes);
    let mut builder = BatchBuilder::new().max_bytes(size_bytes - 1);
    assert!(builder.push(&record).is_err());
    assert_eq!(builder.finish(), Err(BuildError::Empty));
}

#[test]
fn a_producer_has_an_id_an_epoch_and_a_sequence_or_there_is_none() {
    let build = |builder: BatchBuilder| {
        let mut builder = builder;
        builder.push(&Record::new("k", "v").timestamp(NOW)).unwrap();
        builder.finish()
    };
    for (id, epoch, sequence) in [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (-2, -1, -1)] {
        let refused = build(BatchBuilder::new().producer(id, epoch, sequence)).unwrap_err();
        assert!(matches!(refused, BuildError::BadProducer { .. }), "{id} {epoch} {sequence}");
    }
    let refused = build(BatchBuilder::new().transactional()).unwrap_err();
    assert_eq!(refused, BuildError::TransactionalWithoutProducer);
    let batch = build(BatchBuilder::new().producer(0, 0, 0).transactional()).unwrap();
    let validated = validate_append(batch, &AppendRules::new(NOW)).unwrap();
    assert!(validated.is_transactional() && validated.has_producer_id());
    assert_eq!(validated.header().last_sequence(), 0);
}

#[test]
fn the_base_timestamp_is_the_first_and_the_maximum_the_greatest() {
    for (timestamps, greatest) in [([5, 9, 2], 9), ([-7, -9, -8], -1), ([i64::MIN, 0, 1], 1)] {
        let mut builder = BatchBuilder::new();
        for timestamp in timestamps {
            builder.push(&Record::keyless("v").timestamp(timestamp)).unwrap();
        }
        let batch = RecordBatch::parse(builder.finish().unwrap()).unwrap();
        assert_eq!(batch.header().base_timestamp(), timestamps[0]);
        assert_eq!(batch.header().max_timestamp(), greatest);
    }
}

#[test]
fn in_a_batch_with_the_times_of_the_log_every_record_reads_as_the_maximum() {
    let mut builder = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
    builder.push(&Record::keyless("a").timestamp(3)).unwrap();
    builder.push(&Record::keyless("b").timestamp(8)).unwrap();
    assert!(read(builder.finish().unwrap()).iter().all(|record| record.timestamp == 8));
}

#[test]
fn markers_come_back_and_unknown_control_records_say_their_type() {
    for kind in [MarkerKind::Abort, MarkerKind::Commit] {
        let marker = EndMarker { kind, coordinator_epoch: 12 };
        let batch = RecordBatch::parse(marker.batch(7, 3, NOW)).unwrap();
        let header = *batch.header();
        assert!(header.is_control() && header.is_transactional());
        assert_eq!((header.producer_id(), header.producer_epoch()), (7, 3));
        assert_eq!((header.base_sequence(), header.record_count()), (-1, 1));
        let record = batch.records().next().unwrap().unwrap();
        assert_eq!(ControlRecord::parse(&record), Ok(ControlRecord::End(marker)));
    }
    let leader_change = Record::new(&[0, 0, 0, 2], "anything");
    assert_eq!(ControlRecord::parse(&leader_change), Ok(ControlRecord::Other { kind: 2 }));
    let later_version = Record::new(&[0, 1, 0, 1, 9], &[0, 5, 0, 0, 0, 1, 9]);
    let wanted = EndMarker { kind: MarkerKind::Commit, coordinator_epoch: 1 };
    assert_eq!(ControlRecord::parse(&later_version), Ok(ControlRecord::End(wanted)));
}

#[test]
fn what_is_no_control_record_is_refused_with_its_length_or_version() {
    let parse = |key: &[u8], value: Option<&[u8]>| ControlRecord::parse(&Record::new(key, value));
    let null_key = Record::keyless(&[0; 6]);
    assert_eq!(ControlRecord::parse(&null_key), Err(ControlError::Key { length_bytes: 0 }));
    assert_eq!(parse(&[0; 3], None), Err(ControlError::Key { length_bytes: 3 }));
    assert_eq!(parse(&[0xff, 0xff, 0, 1], None), Err(ControlError::Version { version: -1 }));
    assert_eq!(parse(&[0, 0, 0, 1], None), Err(ControlError::Value { length_bytes: 0 }));
    assert_eq!(parse(&[0; 4], Some(&[0; 5])), Err(ControlError::Value { length_bytes: 5 }));
    let negative = parse(&[0; 4], Some(&[0x80, 0, 0, 0, 0, 0]));
    assert_eq!(negative, Err(ControlError::Version { version: i16::MIN }));
}

#[test]
fn headers_that_were_read_and_headers_that_were_made_are_one_list() {
    let made = Record::keyless("v").header("a", "1").header("b", None::<Bytes>).header("a", "2");
    let mut builder = BatchBuilder::new();
    builder.push(&made).unwrap();
    let read_back = read(builder.finish().unwrap()).remove(0);
    assert_eq!(read_back.headers, made.headers);
    assert_eq!(read_back.headers.iter().len(), 3);
    assert_eq!(read_back.headers.get("a"), Some(Header::new("a", "1")));
    assert_eq!(read_back.headers.get("c"), None);

    // Written again as it was read, and with one more.
    let mut builder = BatchBuilder::new();
    builder.push(&read_back).unwrap();
    let longer = read_back.header("c", "3");
    builder.push(&longer).unwrap();
    let both = read(builder.finish().unwrap());
    assert_eq!(both[0].headers, made.headers);
    let names: Vec<_> = both[1].headers.iter().map(|header| header.name).collect();
    assert_eq!(names, ["a", "b", "a", "c"]);
    assert_ne!(both[0].headers, both[1].headers);
    assert!(Headers::default().is_empty() && Headers::new() == Headers::from(Vec::new()));
}
