//! Any bytes as record batches: what reader, validator and another decoder must agree on.

use bytes::Bytes;
use tidelog::record::{
    AppendRules, BatchView, Batches, ControlRecord, HEADER_BYTES, Record, RecordBatch, RecordError,
    TimestampType, stamp, validate_append,
};

use crate::other_decoder;

/// The other decoder trusts what comes out of a stream, and a target must not run out of memory.
const MAX_DECOMPRESSED_BYTES: usize = 1 << 20;

const NOW: i64 = 1_700_000_000_000;

/// Reads `data` as it is, and once more with its length and checksum repaired, so that damage
/// behind the checksum is seen too.
///
/// # Panics
/// If reader, validator and the other decoder disagree where they must not.
pub fn decode_record_batch(data: &[u8]) {
    look_at(Bytes::copy_from_slice(data));
    if data.len() < HEADER_BYTES {
        return;
    }
    let mut repaired = data.to_vec();
    let length = u32::try_from(data.len() - 12).expect("an input is small");
    repaired[8..12].copy_from_slice(&length.to_be_bytes());
    repaired[16] = 2;
    let crc = crc32c::crc32c(&repaired[21..]);
    repaired[17..21].copy_from_slice(&crc.to_be_bytes());
    look_at(repaired.clone().into());
    stamp(&mut repaired, 0, -1);
    judge(repaired.into());
}

fn look_at(data: Bytes) {
    for batch in Batches::new(data.clone()) {
        let Ok(batch) = batch else { break };
        let header = *batch.header();
        assert_eq!(header.encode(), batch.bytes()[..HEADER_BYTES], "a header is its fields");
        compare_views(&batch);
        if let Some(records) = read(&batch) {
            assert_eq!(records.len(), header.record_count() as usize);
            other_decoder::compare(&batch, &records);
            if header.is_control() {
                let _ = records.iter().map(ControlRecord::parse).filter(Result::is_ok).count();
            }
        }
    }
    judge(data);
}

/// The view shows the records that the owning reader shows, up to the same fault; and the keys
/// alone are those of the records, however far these can be read.
fn compare_views(batch: &RecordBatch) {
    let records: Vec<_> = batch.records_within(MAX_DECOMPRESSED_BYTES).collect();
    if let [Err(RecordError::Stream { .. })] = records[..] {
        // The view may unpack more.
        return;
    }
    let view = BatchView::parse(batch.bytes()).expect("the reader took its framing");
    let Ok(unpacked) = view.unpack() else {
        assert!(matches!(records[..], [Err(_)]), "the view alone finds a fault");
        return;
    };
    let (views, keys): (Vec<_>, Vec<_>) = (unpacked.records().collect(), unpacked.keys().collect());
    assert_eq!(views.len(), records.len());
    for (index, (record, view)) in records.iter().zip(views).enumerate() {
        let (record, view) = match (record, view) {
            (Ok(record), Ok(view)) => (record, view),
            (record, view) => {
                assert_eq!(record.as_ref().err(), view.as_ref().err());
                assert!(keys.len() > index, "the keys end before the fault");
                return;
            }
        };
        assert_eq!((record.offset, record.timestamp), (view.offset, view.timestamp));
        assert_eq!((record.key.as_deref(), record.value.as_deref()), (view.key, view.value));
        let key = keys[index].as_ref().expect("a key is a part of a record");
        assert_eq!((key.offset, key.key), (view.offset, view.key));
        assert_eq!(key.has_value, view.value.is_some());
    }
    assert_eq!(keys.len(), records.len());
}

fn read(batch: &RecordBatch) -> Option<Vec<Record>> {
    batch.records_within(MAX_DECOMPRESSED_BYTES).collect::<Result<_, _>>().ok()
}

/// What the validator takes, the reader reads; and its stored form reads the same.
fn judge(data: Bytes) {
    for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        let mut rules = AppendRules::new(NOW);
        rules.timestamp_type = timestamp_type;
        rules.max_decompressed_bytes = MAX_DECOMPRESSED_BYTES;
        rules.after_max_ms = i64::MAX;
        match validate_append(data.clone(), &rules) {
            Err(refusal) => {
                assert!(!refusal.to_string().is_empty() && refusal.code().number() != 0);
            }
            Ok(validated) => {
                let sent = RecordBatch::parse(data.clone()).expect("the validator took it");
                let stored = validated.stored(NOW + 1);
                let stored = RecordBatch::parse(stored.to_vec().into()).expect("a whole batch");
                stored.verify_crc().expect("the combined checksum is right");
                let sent = read(&sent).expect("the validator took its records");
                let kept = read(&stored).expect("storing changes no record");
                assert_eq!(kept.len(), validated.record_count() as usize);
                for (index, (sent, kept)) in sent.iter().zip(&kept).enumerate() {
                    assert_eq!(kept.offset, index as i64);
                    assert_eq!((&sent.key, &sent.value), (&kept.key, &kept.value));
                    assert_eq!(sent.headers, kept.headers);
                    assert!(kept.timestamp <= stored.header().max_timestamp() || is_claimed(&data));
                }
            }
        }
    }
}

/// Whether a client claims the log's time: its maximum is kept as it was sent then.
fn is_claimed(data: &[u8]) -> bool {
    data[22] & 8 != 0
}
