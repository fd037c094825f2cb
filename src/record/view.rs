//! A batch in borrowed bytes, and its records without a copy: for who reads very many.

use std::borrow::Cow;

use crate::base::types::{Offset, TimestampMs};

use super::attributes::{Codec, TimestampType};
use super::compression::{MAX_STORED_DECOMPRESSED_BYTES, decompress};
use super::fault::RecordError;
use super::framing::batch_size;
use super::header::{BatchHeader, CRC_START, HEADER_BYTES};
use super::keys::RecordKeys;
use super::raw::{RawRecord, bytes_behind, take_record};
use super::varint::size_i32;

/// One batch in borrowed bytes, its framing good.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

/// A batch whose records are unpacked.
#[derive(Debug)]
pub struct UnpackedBatch<'a> {
    header: BatchHeader,
    records: Cow<'a, [u8]>,
}

/// One record, where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Its place in the partition.
    pub offset: Offset,
    /// Its timestamp, as a reader gets it.
    pub timestamp: TimestampMs,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; null is a tombstone on a compacted topic.
    pub value: Option<&'a [u8]>,
    pub(super) attributes: u8,
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    /// The record as it stands there, its length before it.
    pub(super) whole: &'a [u8],
    /// From the length of the key to the end.
    pub(super) tail: &'a [u8],
}

/// The records of an [`UnpackedBatch`]. A fault is the last item.
#[derive(Debug)]
pub struct RecordViews<'a> {
    header: &'a BatchHeader,
    records: &'a [u8],
    at: usize,
    index: u32,
    left: u32,
}

impl<'a> BatchView<'a> {
    /// Takes bytes that are exactly one batch. The checksum is left to [`BatchView::verify_crc`].
    ///
    /// # Errors
    /// [`RecordError`] for anything but one whole batch of version 2.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let size_bytes =
            batch_size(bytes)?.ok_or(RecordError::Incomplete { present_bytes: bytes.len() })?;
        if size_bytes < bytes.len() {
            return Err(RecordError::BytesBehindBatch { count_bytes: bytes.len() - size_bytes });
        }
        let head = bytes.first_chunk::<HEADER_BYTES>().expect("framing leaves room for the header");
        Ok(Self { header: BatchHeader::read(head), bytes })
    }

    /// The fields of the header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Compares the checksum with the bytes.
    ///
    /// # Errors
    /// [`RecordError::Crc`] with both sums.
    pub fn verify_crc(&self) -> Result<(), RecordError> {
        let computed = crc32c::crc32c(&self.bytes[CRC_START..]);
        if computed != self.header.crc {
            return Err(RecordError::Crc { stored: self.header.crc, computed });
        }
        Ok(())
    }

    /// Decompresses the records of a batch that comes out of a log, up to
    /// [`MAX_STORED_DECOMPRESSED_BYTES`]; uncompressed ones stay where they are.
    ///
    /// # Errors
    /// [`RecordError`] for a codec or a stream that cannot be read, or a negative count.
    pub fn unpack(&self) -> Result<UnpackedBatch<'a>, RecordError> {
        let header = self.header;
        let codec =
            header.codec().ok_or(RecordError::UnknownCodec { id: header.attributes.codec_id() })?;
        if header.record_count < 0 {
            return Err(RecordError::NegativeCount { record_count: header.record_count });
        }
        let payload = &self.bytes[HEADER_BYTES..];
        let records = match codec {
            Codec::None => Cow::Borrowed(payload),
            codec => Cow::Owned(decompress(codec, payload, MAX_STORED_DECOMPRESSED_BYTES)?),
        };
        Ok(UnpackedBatch { header, records })
    }
}

impl UnpackedBatch<'_> {
    /// The fields of the header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes of its records, unpacked.
    #[must_use]
    pub fn unpacked_bytes(&self) -> usize {
        self.records.len()
    }

    /// The keys of the records, in their order.
    #[must_use]
    pub fn keys(&self) -> RecordKeys<'_> {
        RecordKeys {
            base_offset: self.header.base_offset,
            records: &self.records,
            at: 0,
            index: 0,
            left: self.header.record_count.unsigned_abs(),
        }
    }

    /// The records, in their order.
    #[must_use]
    pub fn records(&self) -> RecordViews<'_> {
        RecordViews {
            header: &self.header,
            records: &self.records,
            at: 0,
            index: 0,
            left: self.header.record_count.unsigned_abs(),
        }
    }
}

impl<'a> RecordViews<'a> {
    fn read(&mut self) -> Result<RecordView<'a>, RecordError> {
        let (records, begin) = (self.records, self.at);
        let raw = take_record(records, &mut self.at, u32::MAX)
            .map_err(|fault| RecordError::Record { index: self.index, fault })?;
        let tail = tail_start(&raw);
        let timestamp = match self.header.timestamp_type() {
            TimestampType::LogAppendTime => self.header.max_timestamp,
            TimestampType::CreateTime => {
                self.header.base_timestamp.wrapping_add(raw.timestamp_delta)
            }
        };
        Ok(RecordView {
            offset: self.header.base_offset.wrapping_add(i64::from(raw.offset_delta)),
            timestamp,
            key: raw.key.map(|range| &records[range]),
            value: raw.value.map(|range| &records[range]),
            attributes: raw.attributes,
            timestamp_delta: raw.timestamp_delta,
            offset_delta: raw.offset_delta,
            whole: &records[begin..self.at],
            tail: &records[tail..self.at],
        })
    }
}

/// Where the length of the key stands. Every varint that was read is the shortest one.
fn tail_start(raw: &RawRecord) -> usize {
    let part = |range: &Option<std::ops::Range<usize>>| {
        range.as_ref().map_or(1, |range| range.len() + length_size(range.len()))
    };
    let count = length_size(raw.header_count as usize);
    raw.headers.start - count - part(&raw.value) - part(&raw.key)
}

fn length_size(length: usize) -> usize {
    size_i32(i32::try_from(length).expect("it was read as 31 bits"))
}

impl<'a> Iterator for RecordViews<'a> {
    type Item = Result<RecordView<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return bytes_behind(&mut self.at, self.records.len()).map(Err);
        }
        let record = self.read();
        self.left -= 1;
        self.index += 1;
        if record.is_err() {
            self.left = 0;
            self.at = self.records.len();
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, Record, RecordBatch};

    fn batch(codec: Codec) -> bytes::Bytes {
        let mut builder = BatchBuilder::new().codec(codec);
        let long = vec![b'x'; 70];
        for record in [
            Record::new("k", "v").timestamp(5),
            Record::tombstone(long.clone()).timestamp(-1),
            Record::keyless(long.clone()).header("", None::<&str>).timestamp(1 << 40),
            Record::new("", "").header("a", long).timestamp(5),
            Record::keyless(None::<&str>),
        ] {
            builder.push(&record).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn a_view_shows_what_the_owning_reader_shows() {
        for codec in Codec::ALL {
            let bytes = batch(codec);
            let view = BatchView::parse(&bytes).unwrap();
            assert_eq!(view.verify_crc(), Ok(()));
            let unpacked = view.unpack().unwrap();
            let owned = RecordBatch::parse(bytes.clone()).unwrap();
            let mut seen = 0;
            for (record, view) in owned.records().zip(unpacked.records()) {
                let (record, view) = (record.unwrap(), view.unwrap());
                assert_eq!((record.offset, record.timestamp), (view.offset, view.timestamp));
                assert_eq!(record.key.as_deref(), view.key);
                assert_eq!(record.value.as_deref(), view.value);
                assert!(view.whole.ends_with(view.tail));
                seen += 1;
            }
            assert_eq!(seen, 5);
        }
    }

    #[test]
    fn a_cut_at_any_byte_and_a_changed_count_are_faults() {
        let bytes = batch(Codec::None);
        for length in 0..bytes.len() {
            assert!(BatchView::parse(&bytes[..length]).is_err(), "length {length}");
        }
        for (count, faults) in [(-1i32, true), (4, true), (5, false), (6, true)] {
            let mut changed = bytes.to_vec();
            changed[57..61].copy_from_slice(&count.to_be_bytes());
            let view = BatchView::parse(&changed).unwrap();
            assert!(view.verify_crc().is_err() || !faults);
            let read = view.unpack().is_ok_and(|batch| batch.records().all(|one| one.is_ok()));
            assert_eq!(!read, faults, "count {count}");
        }
    }
}
