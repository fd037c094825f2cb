//! A batch built again out of some of its records, or emptied, as Kafka's cleaner leaves it.
//!
//! Kept: base offset and last offset, the records' offsets, timestamps and headers, their order,
//! codec, kind of timestamps, producer fields. New: the base timestamp is the first record's, or
//! the delete horizon; the maximum is the greatest that is left (the append time stays).

use bytes::Bytes;

use crate::base::types::{NO_TIMESTAMP, TimestampMs};

use super::attributes::{Codec, TimestampType};
use super::builder::{BuildError, MAX_BATCH_BYTES};
use super::compression::compress;
use super::header::{BatchHeader, CRC_START, HEADER_BYTES};
use super::too_large::TooLarge;
use super::varint::{put_i32, put_i64, size_i32, size_i64};
use super::view::RecordView;

/// Builds the batch of this header out of these of its records. `horizon` is when its tombstones
/// may go, if that is decided.
///
/// # Errors
/// [`BuildError`] where there are no records (see [`emptied`]), where the batch would pass its
/// greatest size, or where its codec is not in this build.
pub fn rebuild(
    header: &BatchHeader,
    kept: &[RecordView<'_>],
    horizon: Option<TimestampMs>,
) -> Result<Bytes, BuildError> {
    let first = kept.first().ok_or(BuildError::Empty)?;
    let is_log_time = header.timestamp_type() == TimestampType::LogAppendTime;
    let base_timestamp = horizon.unwrap_or(first.timestamp);
    // A timestamp delta may grow, by nine bytes at most, and the length before it by one.
    const MOST_GROWTH: usize = 10;
    let grown = |record: &RecordView<'_>| {
        let is_same = record.timestamp.wrapping_sub(base_timestamp) == record.timestamp_delta;
        record.whole.len() + if is_same { 0 } else { MOST_GROWTH }
    };
    let mut encoded = Vec::with_capacity(HEADER_BYTES + kept.iter().map(grown).sum::<usize>());
    encoded.resize(HEADER_BYTES, 0);
    for record in kept {
        put_record(&mut encoded, record, record.timestamp.wrapping_sub(base_timestamp));
    }
    let codec = header.codec().unwrap_or_default();
    if codec != Codec::None {
        let mut compressed = vec![0; HEADER_BYTES];
        compress(codec, &encoded[HEADER_BYTES..], &mut compressed)
            .map_err(BuildError::Compression)?;
        encoded = compressed;
    }
    let size_bytes = encoded.len();
    if size_bytes > MAX_BATCH_BYTES {
        return Err(BuildError::TooLarge(TooLarge::batch(size_bytes, MAX_BATCH_BYTES)));
    }
    let greatest = kept.iter().map(|record| record.timestamp).max().unwrap_or(NO_TIMESTAMP);
    let rebuilt = BatchHeader {
        size_bytes,
        attributes: header.attributes.with_delete_horizon(horizon.is_some()),
        base_timestamp,
        max_timestamp: if is_log_time { header.max_timestamp } else { greatest.max(NO_TIMESTAMP) },
        record_count: i32::try_from(kept.len()).expect("no more than the batch had"),
        ..*header
    };
    Ok(sealed(rebuilt, encoded))
}

/// The header of a batch that has lost all its records: codec and horizon are gone with them, all
/// else is as it was, so that a reader gets behind its offsets.
#[must_use]
pub fn emptied(header: &BatchHeader) -> Bytes {
    let empty = BatchHeader {
        size_bytes: HEADER_BYTES,
        attributes: header.attributes.with_codec(Codec::None).with_delete_horizon(false),
        base_timestamp: NO_TIMESTAMP,
        record_count: 0,
        ..*header
    };
    sealed(empty, vec![0; HEADER_BYTES])
}

fn put_record(out: &mut Vec<u8>, record: &RecordView<'_>, timestamp_delta: i64) {
    if timestamp_delta == record.timestamp_delta {
        out.extend_from_slice(record.whole);
        return;
    }
    let head = 1 + size_i64(timestamp_delta) + size_i32(record.offset_delta);
    let length = head + record.tail.len();
    put_i32(out, i32::try_from(length).expect("a record lies within a batch below 2 GiB"));
    out.push(record.attributes);
    put_i64(out, timestamp_delta);
    put_i32(out, record.offset_delta);
    out.extend_from_slice(record.tail);
}

fn sealed(mut header: BatchHeader, mut encoded: Vec<u8>) -> Bytes {
    encoded[..HEADER_BYTES].copy_from_slice(&header.encode());
    header.crc = crc32c::crc32c(&encoded[CRC_START..]);
    encoded[..HEADER_BYTES].copy_from_slice(&header.encode());
    encoded.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, BatchView, Record, RecordBatch, stamp};

    fn source(codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new().codec(codec).producer(7, 3, 11).transactional();
        for (key, timestamp) in [("a", 500), ("b", 90_000), ("c", -1), ("d", 1 << 41)] {
            let record = Record::new(key, "v").header("h", key).timestamp(timestamp);
            builder.push(&record).unwrap();
        }
        let mut bytes = builder.finish().unwrap().to_vec();
        stamp(&mut bytes, 40, 9);
        bytes
    }

    #[test]
    fn survivors_keep_offsets_timestamps_and_headers_under_every_codec_and_horizon() {
        for codec in Codec::ALL {
            let bytes = source(codec);
            let unpacked = BatchView::parse(&bytes).unwrap().unpack().unwrap();
            let all: Vec<_> = unpacked.records().map(Result::unwrap).collect();
            let before = RecordBatch::parse(bytes.clone().into()).unwrap();
            for mask in 1u32..16 {
                for horizon in [None, Some(i64::MAX), Some(i64::MIN), Some(0)] {
                    let is_kept = |index: &usize| mask & (1 << *index) != 0;
                    let kept: Vec<_> = (0..4).filter(is_kept).map(|index| all[index]).collect();
                    let rebuilt = rebuild(unpacked.header(), &kept, horizon).unwrap();
                    let after = RecordBatch::parse(rebuilt).unwrap();
                    assert_eq!(after.verify_crc(), Ok(()));
                    let header = after.header();
                    assert_eq!((header.base_offset(), header.last_offset()), (40, 43));
                    assert_eq!((header.producer_id(), header.base_sequence()), (7, 11));
                    assert_eq!((header.codec(), header.leader_epoch()), (Some(codec), 9));
                    assert_eq!(header.delete_horizon_ms(), horizon);
                    assert!(header.is_transactional());
                    let records = after.records().map(Result::unwrap);
                    let expected = before.records().map(Result::unwrap).enumerate();
                    let expected = expected.filter(|(index, _)| is_kept(index));
                    assert!(records.eq(expected.map(|(_, record)| record)));
                    let greatest = kept.iter().map(|record| record.timestamp).max().unwrap();
                    assert_eq!(header.max_timestamp(), greatest.max(-1));
                }
            }
        }
    }

    #[test]
    fn a_batch_rebuilt_out_of_all_its_records_has_the_same_bytes() {
        let bytes = source(Codec::None);
        let unpacked = BatchView::parse(&bytes).unwrap().unpack().unwrap();
        let all: Vec<_> = unpacked.records().map(Result::unwrap).collect();
        assert_eq!(rebuild(unpacked.header(), &all, None).unwrap(), bytes);
    }

    #[test]
    fn an_emptied_batch_is_a_header_that_ends_where_the_batch_ended() {
        let bytes = source(Codec::Gzip);
        let view = BatchView::parse(&bytes).unwrap();
        let batch = RecordBatch::parse(emptied(view.header())).unwrap();
        assert_eq!(batch.verify_crc(), Ok(()));
        assert_eq!(batch.records().count(), 0);
        let header = batch.header();
        assert_eq!((header.size_bytes(), header.record_count()), (61, 0));
        assert_eq!((header.last_offset(), header.max_timestamp()), (43, 1 << 41));
        assert_eq!((header.codec(), header.base_timestamp()), (Some(Codec::None), -1));
        assert_eq!(emptied(header), *batch.bytes(), "once more it is the same");
    }

    #[test]
    fn no_records_are_no_batch() {
        let bytes = source(Codec::None);
        let view = BatchView::parse(&bytes).unwrap();
        assert_eq!(rebuild(view.header(), &[], None), Err(BuildError::Empty));
    }
}
