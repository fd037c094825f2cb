//! What was taken into the log can be read, looked up, verified and cleaned, whatever it unpacks to.

use crate::common;

use bytes::Bytes;
use common::{
    NOW_MS, TestEngine, append_batch, assert_verified, offsets_of, one_partition, records_of,
};
use tidelog::record::{BatchBuilder, BatchView, MAX_DECOMPRESSED_BYTES};
use tidelog::{Codec, Isolation, OffsetQuery, Record, Visibility};

const SETTINGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("delete.retention.ms", "5000"),
    ("max.message.bytes", "16777216"),
];

fn compressed(codec: Codec, records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new().codec(codec);
    for record in records {
        builder.push(&record.clone().timestamp(NOW_MS)).expect("the batch is small");
    }
    builder.finish().expect("there is a record")
}

fn unpacked_bytes(batch: &Bytes) -> usize {
    let batch = BatchView::parse(batch).expect("it was just built");
    batch.unpack().expect("it was just built").unpacked_bytes()
}

#[test]
fn a_batch_above_the_default_limit_is_whole_where_the_engine_takes_it() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let test = TestEngine::with(|config| config.max_decompressed_bytes(128 << 20));
        let engine = test.open();
        let partition = one_partition(&engine, "t", &SETTINGS);
        let large = Record::new("large", vec![0; MAX_DECOMPRESSED_BYTES]);
        append_batch(&engine, &partition, compressed(codec, &[Record::new("k", "1"), large]));
        append_batch(&engine, &partition, compressed(codec, &[Record::new("k", "2")]));
        assert_verified(&engine);
        assert!(
            engine.cleaner().clean_partition(&partition).unwrap().unwrap().is_finished,
            "{codec:?}"
        );
        assert_eq!(offsets_of(&engine, &partition), [1, 2]);
        let (isolation, visibility) = (Isolation::Committed, Visibility::Applied);
        let query = OffsetQuery::Timestamp(NOW_MS);
        let found = engine.list_offset(&partition, query, isolation, visibility).unwrap();
        assert_eq!(found.map(|found| found.offset), Some(1));
        let scanned = engine.snapshot().scan(partition.topic());
        let scanned = scanned.map(|scanned| scanned.expect("it is readable").record.offset);
        assert_eq!(scanned.collect::<Vec<_>>(), [1, 2]);
        assert_verified(&engine);
    }
}

#[test]
fn a_horizon_makes_no_batch_too_large_to_be_cleaned_again() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &SETTINGS);
        let of = |value_bytes| {
            let large = Record::new("large", vec![0; value_bytes]);
            compressed(codec, &[large, Record::tombstone("gone"), Record::new("k", "1")])
        };
        let beside_value =
            unpacked_bytes(&of(MAX_DECOMPRESSED_BYTES / 2)) - MAX_DECOMPRESSED_BYTES / 2;
        let batch = of(MAX_DECOMPRESSED_BYTES - beside_value);
        assert_eq!(unpacked_bytes(&batch), MAX_DECOMPRESSED_BYTES);
        append_batch(&engine, &partition, batch);
        assert!(engine.cleaner().clean_partition(&partition).unwrap().unwrap().is_finished);
        assert_verified(&engine);
        test.clock.advance_ms(5000);
        assert!(
            engine.cleaner().clean_partition(&partition).unwrap().unwrap().is_finished,
            "{codec:?}"
        );
        assert_eq!(offsets_of(&engine, &partition), [0, 2]);
        assert_eq!(records_of(&engine, &partition)[0].timestamp, NOW_MS);
    }
}
