//! Failures that other decoders of record batches had, and what is right.

use crate::raw_batches;

use bytes::Bytes;
use raw_batches::{NOW, RawBatch, record, repaired, varint, with_length};
use tidelog::record::{
    AppendRules, BatchBuilder, BatchRefusal, Batches, Codec, ErrorCode, Field, Header, Headers,
    Record, RecordBatch, RecordError, RecordFault, TimestampType, stamp, validate_append,
};

fn build(records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for record in records {
        builder.push(record).expect("a small record");
    }
    builder.finish().expect("a small batch")
}

fn read(batch: Bytes) -> Result<Vec<Record>, RecordError> {
    RecordBatch::parse(batch)?.records().collect()
}

fn refusal(batch: Bytes) -> BatchRefusal {
    validate_append(batch, &AppendRules::new(NOW)).expect_err("the batch is bad")
}

fn code(batch: Bytes) -> ErrorCode {
    refusal(batch).code()
}

#[test]
fn null_empty_and_full_header_values_come_back_apart() {
    let record = Record::new("k", "v")
        .header("a", None::<Bytes>)
        .header("b", "")
        .header("c", "x")
        .timestamp(NOW);
    let batch = build(&[record]);
    let headers = &read(batch.clone()).unwrap()[0].headers;
    let values: Vec<_> = headers.iter().map(|header| header.value).collect();
    assert_eq!(values, [None, Some(Bytes::new()), Some(Bytes::from("x"))]);
    // Header count 3, then name length 1, name, value length -1, 0, 1.
    assert!(batch.ends_with(&[6, 2, b'a', 1, 2, b'b', 0, 2, b'c', 2, b'x']));
}

#[test]
fn headers_keep_their_order_and_repeated_and_empty_names() {
    let names = ["k", "j", "k", ""];
    let mut record = Record::keyless("v").timestamp(NOW);
    for (name, value) in names.iter().zip(["1", "2", "3", "4"]) {
        record = record.header(name, value);
    }
    let headers = read(build(&[record])).unwrap().remove(0).headers;
    let wanted: Headers =
        names.iter().zip(["1", "2", "3", "4"]).map(|(n, v)| Header::new(n, v)).collect();
    assert_eq!(headers, wanted);
}

#[test]
fn a_header_name_that_is_no_text_is_kept_and_says_so() {
    let headers = read(build(&[Record::keyless("v").header([0xff, 0xfe], "x").header("n", "y")]))
        .unwrap()
        .remove(0)
        .headers;
    let headers: Vec<_> = headers.iter().collect();
    assert!(headers[0].name_str().is_err());
    assert_eq!(&headers[0].name[..], [0xff, 0xfe]);
    assert_eq!(headers[1].name_str(), Ok("n"));
}

#[test]
fn a_count_of_two_billion_without_records_is_refused() {
    for last_offset_delta in [0, i32::MAX - 1, i32::MAX] {
        let mut batch = RawBatch::of(&[]);
        batch.record_count = i32::MAX;
        batch.last_offset_delta = last_offset_delta;
        assert_eq!(code(batch.bytes()), ErrorCode::InvalidRecord);
        let fault = RecordFault::PastEnd { field: Field::RecordLength };
        assert_eq!(read(batch.bytes()), Err(RecordError::Record { index: 0, fault }));
    }
    assert!(validate_append(RawBatch::of(&[record(0, 0)]).bytes(), &AppendRules::new(NOW)).is_ok());
}

#[test]
fn a_negative_count_is_refused() {
    for record_count in [-1, i32::MIN] {
        let mut batch = RawBatch::of(&[record(0, 0)]);
        batch.record_count = record_count;
        assert_eq!(code(batch.bytes()), ErrorCode::InvalidRecord);
        assert_eq!(read(batch.bytes()), Err(RecordError::NegativeCount { record_count }));
    }
}

#[test]
fn timestamps_that_lie_decades_apart_in_one_batch_are_exact() {
    for timestamps in [[0, 1_800_000_000_000, 5], [1 << 40, 0, -1], [0, i64::MAX, i64::MIN]] {
        let records: Vec<_> = timestamps
            .iter()
            .map(|&t| Record::new("key", "value").header("h", "1").timestamp(t))
            .collect();
        let got = read(build(&records)).unwrap();
        assert_eq!(got.iter().map(|record| record.timestamp).collect::<Vec<_>>(), timestamps);
        for record in got {
            assert_eq!(record.key.as_deref(), Some(b"key".as_slice()));
            assert_eq!(record.headers, vec![Header::new("h", "1")].into());
        }
    }
}

#[test]
fn a_record_length_past_the_end_of_the_batch_is_refused() {
    let good = record(0, 0);
    let mut long = good.clone();
    long[0] += 20;
    let batch = RawBatch::of(&[good, long]).bytes();
    let fault = RecordFault::PastEnd { field: Field::RecordLength };
    assert_eq!(refusal(batch), RecordError::Record { index: 1, fault }.into());
}

#[test]
fn a_record_that_ends_before_its_length_is_refused() {
    let mut body = record(0, 0)[1..].to_vec();
    body.push(0);
    let fault = RecordFault::LengthMismatch { left_bytes: 1 };
    let batch = RawBatch::of(&[with_length(&body)]).bytes();
    assert_eq!(refusal(batch), RecordError::Record { index: 0, fault }.into());
}

#[test]
fn a_last_offset_delta_that_is_not_the_count_less_one_is_refused() {
    for last_offset_delta in [5, -1, 1] {
        let mut batch = RawBatch::of(&[record(0, 0), record(0, 1), record(0, 2)]);
        batch.last_offset_delta = last_offset_delta;
        assert_eq!(
            refusal(batch.bytes()),
            BatchRefusal::Counts { record_count: 3, last_offset_delta }
        );
    }
}

#[test]
fn an_empty_batch_is_refused_from_a_client_and_readable_where_a_cleaner_left_it() {
    for last_offset_delta in [-1, 0] {
        let mut batch = RawBatch::of(&[]);
        batch.last_offset_delta = last_offset_delta;
        assert_eq!(code(batch.bytes()), ErrorCode::InvalidRecord);
    }
    let mut emptied = RawBatch::of(&[]);
    (emptied.base_offset, emptied.last_offset_delta) = (10, 2);
    let mut behind = RawBatch::of(&[record(0, 0)]);
    behind.base_offset = 13;
    let log = [emptied.bytes(), behind.bytes()].concat();
    let batches: Vec<_> = Batches::new(log.into()).map(Result::unwrap).collect();
    assert_eq!(batches[0].records().count(), 0);
    assert_eq!(batches[0].header().last_offset(), 12);
    assert_eq!(batches[1].records().next().unwrap().unwrap().offset, 13);
}

#[test]
fn a_second_batch_is_refused_and_a_start_of_one_is_corrupt() {
    let one = RawBatch::of(&[record(0, 0), record(0, 1)]).bytes();
    let two = [one.clone(), one.clone()].concat();
    assert_eq!(refusal(two.clone().into()), BatchRefusal::SecondBatch);
    assert_eq!(code(two.into()), ErrorCode::InvalidRecord);
    for behind in 1..one.len() {
        let cut = [&one[..], &one[..behind]].concat();
        assert_eq!(code(cut.into()), ErrorCode::CorruptMessage, "behind={behind}");
    }
}

#[test]
fn offset_deltas_out_of_order_or_with_gaps_are_refused_but_read_back() {
    for deltas in [[0, 2, 1], [0, 1, 3], [0, 0, 1], [1, 2, 3], [0, 1, -2]] {
        let records: Vec<_> = deltas.iter().map(|&delta| record(0, delta)).collect();
        let batch = RawBatch::of(&records).bytes();
        assert_eq!(code(batch.clone()), ErrorCode::InvalidRecord, "{deltas:?}");
        let offsets: Vec<_> = read(batch).unwrap().iter().map(|record| record.offset).collect();
        assert_eq!(offsets, deltas, "a cleaner leaves gaps, so a reader takes them");
    }
}

#[test]
fn the_builder_counts_the_last_offset() {
    let records: Vec<_> = (0..3).map(|_| Record::new("k", "v").timestamp(NOW)).collect();
    let batch = build(&records);
    let mut stored = validate_append(batch, &AppendRules::new(NOW)).unwrap().stored(NOW).to_vec();
    stamp(&mut stored, 1000, 7);
    let served = RecordBatch::parse(stored.into()).unwrap();
    let header = served.header();
    assert_eq!((header.record_count(), header.last_offset_delta()), (3, 2));
    assert_eq!((header.base_offset(), header.last_offset()), (1000, 1002));
}

#[test]
fn damage_inside_a_batch_is_an_error_and_never_a_short_list() {
    let records: Vec<_> = (0..5).map(|index| record(0, index)).collect();
    let batch = RawBatch::of(&records).bytes().to_vec();
    let third = 61 + records[0].len() * 2;
    for damage in [0x00, 0x7f, 0xff, 0x81] {
        let mut damaged = batch.clone();
        damaged[third] = damage;
        let mut read = RecordBatch::parse(damaged.clone().into()).unwrap().records();
        assert!(read.next().unwrap().is_ok() && read.next().unwrap().is_ok());
        let error = read.next().expect("an item for the damage").unwrap_err();
        assert!(matches!(error, RecordError::Record { index: 2, .. }), "{error}");
        assert_eq!(read.next(), None, "nothing is made up behind the damage");
        let mut batches = Batches::new([damaged, batch.clone()].concat().into());
        assert!(matches!(batches.next(), Some(Err(RecordError::Crc { .. }))));
        assert!(batches.next().is_none(), "no jump over a damaged batch");
    }
}

#[test]
fn every_flipped_bit_under_the_checksum_is_found_and_those_before_it_do_not_matter() {
    let batch = RawBatch::of(&[record(0, 0)]).bytes().to_vec();
    for at in 17..batch.len() {
        for bit in 0..8 {
            let mut flipped = batch.clone();
            flipped[at] ^= 1 << bit;
            assert_eq!(code(flipped.clone().into()), ErrorCode::CorruptMessage, "byte {at}");
            let parsed = RecordBatch::parse(flipped.into()).unwrap();
            assert!(matches!(parsed.verify_crc(), Err(RecordError::Crc { .. })), "byte {at}");
        }
    }
    let mut stamped = batch;
    stamp(&mut stamped, 1 << 40, 12);
    assert_eq!(RecordBatch::parse(stamped.into()).unwrap().verify_crc(), Ok(()));
}

#[test]
#[cfg(feature = "snappy")]
fn snappy_in_blocks_and_raw_short_and_long_read_the_same() {
    for value in ["v".repeat(3), "v".repeat(300), "value".repeat(20_000)] {
        let records = [Record::new("key", value.as_str()).timestamp(NOW)];
        let plain = build(&records);
        let payload = &plain[61..];
        let wanted = read(plain.clone()).unwrap();
        let mut raw = plain[..61].to_vec();
        raw.extend(snap::raw::Encoder::new().compress_vec(payload).unwrap());
        raw[22] |= Codec::Snappy.id();
        assert_eq!(read(repaired(raw)).unwrap(), wanted, "raw");
        let mut builder = BatchBuilder::new().codec(Codec::Snappy);
        builder.push(&records[0]).unwrap();
        let framed = builder.finish().unwrap();
        assert_eq!(framed[61..69], *b"\x82SNAPPY\0");
        assert_eq!(read(framed).unwrap(), wanted, "in blocks");
    }
}

#[test]
#[cfg(feature = "lz4")]
fn an_lz4_frame_is_refused_for_a_wrong_content_checksum_and_may_have_none() {
    use lz4_flex::frame::{FrameEncoder, FrameInfo};
    use std::io::Write;

    let payload = [record(0, 0), record(1, 1)].concat();
    for with_checksum in [true, false] {
        let info = FrameInfo::new().content_checksum(with_checksum);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&payload).unwrap();
        let mut batch = RawBatch::of(&[record(0, 0), record(1, 1)]);
        batch.attributes = u16::from(Codec::Lz4.id());
        batch.max_timestamp = NOW + 1;
        batch.payload = encoder.finish().unwrap();
        assert!(validate_append(batch.bytes(), &AppendRules::new(NOW)).is_ok());
        let last = batch.payload.len() - 1;
        batch.payload[last] ^= 1;
        assert_eq!(code(batch.bytes()), ErrorCode::CorruptMessage);
    }
}

#[test]
fn a_client_that_claims_append_time_is_refused_or_its_bit_is_cleared() {
    let mut batch = RawBatch::of(&[record(0, 0), record(5, 1)]);
    batch.attributes = 1 << 3;
    batch.max_timestamp = NOW + 7;
    let mut rules = AppendRules::new(NOW);
    rules.timestamp_type = TimestampType::LogAppendTime;
    let refused = validate_append(batch.bytes(), &rules).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidTimestamp);
    assert_eq!(refused.record_errors().len(), 2);

    rules.timestamp_type = TimestampType::CreateTime;
    let stored = validate_append(batch.bytes(), &rules).unwrap().stored(NOW).to_vec();
    let read = RecordBatch::parse(stored.into()).unwrap();
    assert_eq!(read.verify_crc(), Ok(()));
    assert_eq!(read.header().timestamp_type(), TimestampType::CreateTime);
    assert_eq!(read.header().max_timestamp(), NOW + 7, "kept as it was sent");
    let timestamps: Vec<_> = read.records().map(|record| record.unwrap().timestamp).collect();
    assert_eq!(timestamps, [NOW, NOW + 5]);
    rules.after_max_ms = 6;
    let refused = validate_append(batch.bytes(), &rules).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidTimestamp);
}

#[test]
fn on_an_append_time_topic_every_record_reads_as_the_time_of_the_log() {
    let batch = RawBatch::of(&[record(0, 0), record(5, 1)]).bytes();
    let mut rules = AppendRules::new(NOW);
    rules.timestamp_type = TimestampType::LogAppendTime;
    let validated = validate_append(batch.clone(), &rules).unwrap();
    for append_time in [NOW + 100, 0, i64::MAX] {
        let stored = validated.stored(append_time);
        assert_eq!(stored.max_timestamp, append_time);
        assert_eq!(stored.body.as_ptr(), batch[61..].as_ptr(), "the records are not copied");
        let read = RecordBatch::parse(stored.to_vec().into()).unwrap();
        assert_eq!(read.verify_crc(), Ok(()));
        assert!(read.records().all(|record| record.unwrap().timestamp == append_time));
    }
}

#[test]
fn a_right_batch_is_stored_as_it_came_without_a_copy() {
    let batch = RawBatch::of(&[record(0, 0)]).bytes();
    let validated = validate_append(batch.clone(), &AppendRules::new(NOW)).unwrap();
    let stored = validated.stored(NOW + 100);
    assert_eq!((stored.head, stored.body.as_ptr()), (None, batch.as_ptr()));
    assert_eq!(stored.crc, validated.header().crc());
}

#[test]
fn records_of_an_uncompressed_batch_are_slices_of_it() {
    let batch = build(&[Record::new("a key", "a value").header("name", "header")]);
    let inside = batch.as_ptr_range();
    let record = read(batch.clone()).unwrap().remove(0);
    let header = record.headers.get("name").expect("the header");
    for part in
        [record.key.as_ref(), record.value.as_ref(), Some(&header.name), header.value.as_ref()]
    {
        assert!(inside.contains(&part.expect("it is not null").as_ptr()));
    }
}

#[test]
fn a_batch_truncated_at_any_byte_is_no_batch_and_ends_the_reading() {
    let batch = RawBatch::of(&[record(0, 0)]).bytes();
    for length in 0..batch.len() {
        let cut = batch.slice(..length);
        assert_eq!(code(cut.clone()), ErrorCode::InvalidRecord, "length={length}");
        let mut batches = Batches::new(cut.clone());
        assert!(batches.next().is_none());
        assert_eq!(*batches.rest(), cut);
    }
}

#[test]
fn a_batch_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
    let batch = RawBatch::of(&[record(0, 0)]).bytes();
    let mut rules = AppendRules::new(NOW);
    rules.max_message_bytes = batch.len() as u32;
    assert!(validate_append(batch.clone(), &rules).is_ok());
    rules.max_message_bytes -= 1;
    let refused = validate_append(batch.clone(), &rules).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::MessageTooLarge);
    assert_eq!(refused.to_string(), "a batch is larger than its limit: size_bytes=70 limit=69");
}

#[test]
fn the_window_of_timestamps_holds_at_both_ends_and_does_not_wrap() {
    let at = |timestamp: i64| build(&[Record::new("k", "v").timestamp(timestamp)]);
    let mut rules = AppendRules::new(NOW);
    (rules.before_max_ms, rules.after_max_ms) = (1000, 10);
    for (timestamp, passes) in
        [(NOW - 1000, true), (NOW - 1001, false), (NOW + 10, true), (NOW + 11, false), (-1, true)]
    {
        let verdict = validate_append(at(timestamp), &rules);
        assert_eq!(verdict.is_ok(), passes, "timestamp={timestamp}");
    }
    (rules.before_max_ms, rules.after_max_ms) = (i64::MAX, i64::MAX);
    assert!(validate_append(at(NOW - i64::MAX), &rules).is_ok());
    assert!(validate_append(at(NOW - i64::MAX - 1), &rules).is_err(), "no wrap at 2^63");
    assert!(validate_append(at(i64::MAX), &rules).is_ok());
}

#[test]
fn all_refused_records_are_counted_and_ten_thousand_of_them_named() {
    let records: Vec<_> = (0..10_001).map(|_| Record::keyless("").timestamp(NOW)).collect();
    let mut rules = AppendRules::new(NOW);
    rules.compacted = true;
    let refused = validate_append(build(&records), &rules).unwrap_err();
    assert_eq!(refused.record_errors().len(), 10_000);
    let BatchRefusal::Records(records) = &refused else { panic!("{refused}") };
    assert_eq!(records.total_count(), 10_001);
    assert_eq!(
        refused.to_string(),
        "a record of a compacted topic must have a key: record_index=0 refused_count=10001"
    );
}

#[test]
fn varints_are_taken_in_their_shortest_form_only() {
    let good = record(0, 0);
    let mut body = vec![0x00, 0x80, 0x00];
    body.extend_from_slice(&good[3..]);
    let batch = RawBatch::of(&[with_length(&body)]).bytes();
    let fault = RecordFault::NotShortest { field: Field::TimestampDelta };
    assert_eq!(refusal(batch.clone()), RecordError::Record { index: 0, fault }.into());
    assert_eq!(read(batch), Err(RecordError::Record { index: 0, fault }));
}

#[test]
fn lengths_below_minus_one_are_not_null() {
    for (field, prefix) in [(Field::Key, vec![0, 0, 0]), (Field::Value, vec![0, 0, 0, 1])] {
        let mut body = prefix;
        body.extend(varint(-2));
        body.extend([1, 0]);
        let batch = RawBatch::of(&[with_length(&body)]).bytes();
        let fault = RecordFault::Negative { field, value: -2 };
        assert_eq!(refusal(batch), RecordError::Record { index: 0, fault }.into());
    }
}
