//! Timestamps: the producer's kept or the log's own, what is stored for each, and the window that bounds them.

use crate::common;

use bytes::Bytes;
use common::{NOW_MS, TestEngine, append_batch, batch_of, batches_of, one_partition, records_of};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::record::{BatchBuilder, RecordRefusal, TimestampType};
use tidelog::types::NO_TIMESTAMP;
use tidelog::{Codec, Engine, Partition, Record};

const LOG_APPEND_TIME: &[(&str, &str)] = &[("message.timestamp.type", "LogAppendTime")];
const HOUR_MS: i64 = 3_600_000;

fn at(timestamps: &[i64]) -> Vec<Record> {
    timestamps.iter().map(|t| Record::new("k", "v").timestamp(*t)).collect()
}

fn timestamps_of(engine: &Engine, partition: &Partition) -> Vec<i64> {
    records_of(engine, partition).iter().map(|record| record.timestamp).collect()
}

/// The code and the records at fault of a batch with these timestamps; nothing if it is taken.
fn refusal(engine: &Engine, partition: &Partition, timestamps: &[i64]) -> Option<(i16, Vec<u32>)> {
    let mut append = engine.append_transaction();
    let refused = append.batch(partition, batch_of(&at(timestamps))).err()?;
    let indices = refused.record_errors().iter().map(|record| record.index).collect();
    Some((refused.code(), indices))
}

/// The batch with another maximum timestamp in its header, and the checksum to go with it.
fn with_max_timestamp(batch: &Bytes, max_timestamp: i64) -> Bytes {
    let mut bytes = batch.to_vec();
    bytes[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

#[test]
fn a_create_time_batch_is_served_as_it_was_sent_but_for_offset_and_epoch() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_batch(&engine, &partition, batch_of(&at(&[1])));
    let sent = batch_of(&at(&[1000, 10, NOW_MS, 20]));
    let committed = append_batch(&engine, &partition, sent.clone());
    // There is no log append time to tell.
    assert_eq!((committed.append_time, committed.log_append_time), (NOW_MS, None));
    let served = batches_of(&engine, &partition)[1].clone();
    assert_eq!(served.bytes()[8..12], sent[8..12]);
    assert_eq!(served.bytes()[16..], sent[16..]);
    assert_eq!(served.header().base_offset(), 1);
    assert_eq!(timestamps_of(&engine, &partition), [1, 1000, 10, NOW_MS, 20]);
}

#[test]
fn a_log_append_time_batch_has_the_clock_of_the_engine_whatever_the_producer_said() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", LOG_APPEND_TIME);
    let far = 10_i64.pow(15);
    let sent = batch_of(&at(&[far, 5, NO_TIMESTAMP]));
    test.clock.set_ms(NOW_MS + 7);
    let committed = append_batch(&engine, &partition, sent.clone());
    assert_eq!(committed.log_append_time, Some(NOW_MS + 7));
    let served = batches_of(&engine, &partition)[0].clone();
    let header = served.header();
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!((header.base_timestamp(), header.max_timestamp()), (far, NOW_MS + 7));
    served.verify_crc().unwrap();
    // All but the checksum, the attributes and the maximum timestamp is the producer's.
    assert_eq!(served.bytes()[23..35], sent[23..35]);
    assert_eq!(served.bytes()[43..], sent[43..]);
    assert_eq!(timestamps_of(&engine, &partition), [NOW_MS + 7; 3]);
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(timestamps_of(&engine, &partition), [NOW_MS + 7; 3]);
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn a_compressed_batch_gets_its_append_time_without_being_compressed_anew() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", LOG_APPEND_TIME);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut builder = BatchBuilder::new().codec(codec);
        at(&[1, 2, 3]).iter().for_each(|record| builder.push(record).unwrap());
        let sent = builder.finish().unwrap();
        append_batch(&engine, &partition, sent.clone());
        let served = batches_of(&engine, &partition).pop().unwrap();
        assert_eq!(served.bytes()[61..], sent[61..], "{codec:?}");
        assert_eq!(served.header().codec(), Some(codec));
    }
    assert_eq!(timestamps_of(&engine, &partition), [NOW_MS; 12]);
}

#[test]
fn a_wrong_maximum_timestamp_of_a_client_is_put_right() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let right = batch_of(&at(&[1000, 10, 500]));
    for wrong in [0, 999, 1001, NOW_MS] {
        append_batch(&engine, &partition, with_max_timestamp(&right, wrong));
    }
    for served in batches_of(&engine, &partition) {
        assert_eq!(served.bytes()[16..], right[16..]);
        served.verify_crc().unwrap();
    }
    assert!(engine.verify().unwrap().is_clean());
}

#[test]
fn a_client_cannot_claim_the_append_time_for_itself() {
    let test = TestEngine::new();
    let engine = test.open();
    let claimed = || {
        let mut builder = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
        at(&[NOW_MS, 5]).iter().for_each(|record| builder.push(record).unwrap());
        builder.finish().unwrap()
    };
    let of_the_log = one_partition(&engine, "log", LOG_APPEND_TIME);
    let mut refused = engine.append_transaction();
    assert_eq!(refused.batch(&of_the_log, claimed()).unwrap_err().code(), 32);
    let of_the_client = one_partition(&engine, "client", &[]);
    append_batch(&engine, &of_the_client, claimed());
    let served = batches_of(&engine, &of_the_client)[0].clone();
    assert_eq!(served.header().timestamp_type(), TimestampType::CreateTime);
    served.verify_crc().unwrap();
    assert_eq!(timestamps_of(&engine, &of_the_client), [NOW_MS, 5]);
}

#[test]
fn timestamps_have_to_lie_within_the_window_of_their_topic_both_ends_included() {
    let test = TestEngine::new();
    let engine = test.open();
    let window =
        [("message.timestamp.before.max.ms", "1000"), ("message.timestamp.after.max.ms", "10")];
    let partition = one_partition(&engine, "t", &window);
    assert_eq!(refusal(&engine, &partition, &[NOW_MS - 1000, NOW_MS + 10]), None);
    let bad = [NOW_MS - 1001, NOW_MS, NOW_MS + 11, i64::MAX, i64::MIN, 0];
    assert_eq!(refusal(&engine, &partition, &bad), Some((32, vec![0, 2, 3, 4, 5])));
    assert_eq!(refusal(&engine, &partition, &[NO_TIMESTAMP]), None);
    test.clock.set_ms(NOW_MS + 1);
    assert_eq!(refusal(&engine, &partition, &[NOW_MS - 1000]), Some((32, vec![0])));
    assert_eq!(refusal(&engine, &partition, &[NOW_MS + 11]), None);
}

#[test]
fn by_default_a_record_may_be_as_old_as_it_likes_and_one_hour_ahead() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    assert_eq!(refusal(&engine, &partition, &[0, NOW_MS + HOUR_MS]), None);
    assert_eq!(refusal(&engine, &partition, &[NOW_MS + HOUR_MS + 1]), Some((32, vec![0])));
    let mut append = engine.append_transaction();
    let error = append.batch(&partition, batch_of(&at(&[i64::MAX]))).unwrap_err();
    let [refused] = error.record_errors() else { panic!("{error:?}") };
    assert_eq!(refused.reason, RecordRefusal::TimestampOutOfWindow { timestamp: i64::MAX });
}

#[test]
fn a_window_of_nothing_takes_the_present_instant_alone() {
    let test = TestEngine::new();
    let engine = test.open();
    let window =
        [("message.timestamp.before.max.ms", "0"), ("message.timestamp.after.max.ms", "0")];
    let partition = one_partition(&engine, "t", &window);
    assert_eq!(refusal(&engine, &partition, &[NOW_MS]), None);
    assert!(refusal(&engine, &partition, &[NOW_MS - 1]).is_some());
    assert!(refusal(&engine, &partition, &[NOW_MS + 1]).is_some());
}

#[test]
fn the_window_does_not_bound_a_topic_that_keeps_the_time_of_the_log() {
    let test = TestEngine::new();
    let engine = test.open();
    let settings = [LOG_APPEND_TIME[0], ("message.timestamp.before.max.ms", "0")];
    let partition = one_partition(&engine, "t", &settings);
    assert_eq!(refusal(&engine, &partition, &[i64::MIN, 0, i64::MAX]), None);
}

#[test]
fn timestamps_far_apart_in_one_batch_are_kept_exactly() {
    let test = TestEngine::new();
    let engine = test.open();
    let after = i64::MAX.to_string();
    let partition = one_partition(&engine, "t", &[("message.timestamp.after.max.ms", &after)]);
    let far = [0, 1_800_000_000_000, 5, 1_800_000_000_000 - (1 << 40), i64::MAX, NO_TIMESTAMP];
    append_batch(&engine, &partition, batch_of(&at(&far)));
    append_batch(&engine, &partition, batch_of(&at(&[i64::MAX, 0])));
    assert_eq!(timestamps_of(&engine, &partition), [&far[..], &[i64::MAX, 0]].concat());
}

#[test]
fn another_kind_of_timestamps_holds_for_what_comes_next() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let alter = |operation| {
        let name = "message.timestamp.type".to_owned();
        engine.topics().alter("t", &[ConfigChange { name, operation }]).unwrap();
    };
    append_batch(&engine, &partition, batch_of(&at(&[1])));
    alter(ConfigOperation::Set("LogAppendTime".to_owned()));
    append_batch(&engine, &partition, batch_of(&at(&[2])));
    alter(ConfigOperation::Delete);
    append_batch(&engine, &partition, batch_of(&at(&[3])));
    assert_eq!(timestamps_of(&engine, &partition), [1, NOW_MS, 3]);
}

#[test]
fn a_record_without_a_timestamp_gets_the_clock_of_the_engine_and_one_in_a_ready_batch_gets_none() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    common::append(&engine, &partition, [Record::keyless("v"), Record::keyless("v").timestamp(7)]);
    append_batch(&engine, &partition, batch_of(&at(&[NO_TIMESTAMP])));
    assert_eq!(timestamps_of(&engine, &partition), [NOW_MS, 7, NO_TIMESTAMP]);
}

#[test]
fn a_clock_that_steps_back_stops_no_append_and_turns_no_offset_around() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", LOG_APPEND_TIME);
    let clock = [NOW_MS, NOW_MS - HOUR_MS, NOW_MS + 60_000];
    for (offset, now_ms) in clock.into_iter().enumerate() {
        test.clock.set_ms(now_ms);
        let committed = append_batch(&engine, &partition, batch_of(&at(&[1])));
        assert_eq!((committed.base_offset, committed.append_time), (offset as i64, now_ms));
    }
    assert_eq!(timestamps_of(&engine, &partition), clock);
}

#[test]
fn a_client_that_claims_the_logs_time_keeps_its_maximum_and_the_engine_is_clean() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut builder = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
    builder.push(&at(&[NOW_MS])[0]).expect("it is small");
    let claimed = builder.finish().expect("there is a record");
    append_batch(&engine, &partition, with_max_timestamp(&claimed, NOW_MS + 5));
    let stored = batches_of(&engine, &partition)[0].clone();
    assert_eq!(stored.header().timestamp_type(), TimestampType::CreateTime);
    assert_eq!(stored.header().max_timestamp(), NOW_MS + 5);
    assert_eq!(timestamps_of(&engine, &partition), [NOW_MS]);
    let report = engine.verify().expect("the index can be read");
    assert!(report.is_clean(), "{report}");
}
