//! Builds batches out of records, as Kafka's own builder would: the base timestamp is the first
//! record's, the maximum the greatest, offset deltas are indices, every varint is shortest.

use std::fmt;

use bytes::Bytes;

use crate::base::types::{NO_TIMESTAMP, TimestampMs};

use super::attributes::{Attributes, Codec, TimestampType};
use super::compression::compress;
use super::data::Record;
use super::fault::RecordError;
use super::header::{BatchHeader, CRC_START, HEADER_BYTES, NO_PRODUCER_ID, NO_SEQUENCE};
use super::headers::Headers;
use super::too_large::TooLarge;
use super::varint::{put_i32, put_i64, size_i32, size_i64};

/// The size that no batch can pass: its length field has 31 bits and counts all but 12 bytes.
pub const MAX_BATCH_BYTES: usize = i32::MAX as usize;

/// The leader epoch of a batch that no leader has seen.
const NO_LEADER_EPOCH: i32 = -1;

/// Builds one batch. What it holds stays as it was when a record is refused.
///
/// ```
/// use tidelog::record::{BatchBuilder, Codec, Record, RecordBatch};
///
/// let mut builder = BatchBuilder::new().codec(Codec::None);
/// builder.push(&Record::new("k", "v").header("source", "web").timestamp(1_700_000_000_000))?;
/// builder.push(&Record::tombstone("k2").timestamp(1_700_000_000_005))?;
/// let size_bytes = builder.encoded_size();
/// let batch = RecordBatch::parse(builder.finish()?)?;
/// assert_eq!(batch.bytes().len(), size_bytes);
/// assert_eq!(batch.records().count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    attributes: Attributes,
    codec: Codec,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    max_bytes: usize,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    record_count: i32,
    /// Room for the header, and the records behind it.
    encoded: Vec<u8>,
}

/// Why a batch cannot be built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The batch would have no records.
    Empty,
    /// The batch would be larger than its limit.
    TooLarge(TooLarge),
    /// The transactional bit without a producer.
    TransactionalWithoutProducer,
    /// A negative producer id, epoch or sequence.
    BadProducer {
        /// The producer id.
        producer_id: i64,
        /// The epoch.
        producer_epoch: i16,
        /// The base sequence.
        base_sequence: i32,
    },
    /// The records could not be compressed.
    Compression(RecordError),
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// A builder of an uncompressed batch without a producer.
    #[must_use]
    pub fn new() -> Self {
        Self {
            attributes: Attributes::default(),
            codec: Codec::None,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: -1,
            base_sequence: NO_SEQUENCE,
            max_bytes: MAX_BATCH_BYTES,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            record_count: 0,
            encoded: vec![0; HEADER_BYTES],
        }
    }

    /// A builder of a control batch, which has a producer and no sequence.
    pub(super) fn control(producer_id: i64, producer_epoch: i16) -> Self {
        let mut builder = Self::new();
        builder.attributes = builder.attributes.with_transactional(true).with_control(true);
        builder.producer_id = producer_id;
        builder.producer_epoch = producer_epoch;
        builder
    }

    /// The same, compressed.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self.attributes = self.attributes.with_codec(codec);
        self
    }

    /// The same with another kind of timestamps.
    #[must_use]
    pub fn timestamp_type(mut self, timestamp_type: TimestampType) -> Self {
        self.attributes = self.attributes.with_timestamp_type(timestamp_type);
        self
    }

    /// The same with a producer: its id, its epoch and the sequence of the first record.
    #[must_use]
    pub fn producer(mut self, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Self {
        self.producer_id = producer_id;
        self.producer_epoch = producer_epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// The same as part of a producer transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes = self.attributes.with_transactional(true);
        self
    }

    /// The same with a limit to its size, uncompressed, header included.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes.min(MAX_BATCH_BYTES);
        self
    }

    /// How many records there are.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        self.record_count.unsigned_abs()
    }

    /// The exact size of the batch, were it finished now without a codec.
    #[must_use]
    pub fn encoded_size(&self) -> usize {
        self.encoded.len()
    }

    /// The exact size of the batch with one more record, without a codec.
    #[must_use]
    pub fn encoded_size_with(&self, record: &Record) -> usize {
        let body = self.body_size(record);
        let length = i32::try_from(body).map_or(5, size_i32);
        self.encoded.len().saturating_add(length).saturating_add(body)
    }

    /// Adds a record behind the others; its offset is ignored.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`] if the batch would pass its limit; it is then as it was.
    pub fn push(&mut self, record: &Record) -> Result<(), BuildError> {
        let size_bytes = self.encoded_size_with(record);
        if size_bytes > self.max_bytes {
            return Err(BuildError::TooLarge(TooLarge::batch(size_bytes, self.max_bytes)));
        }
        // Below 2 GiB in all, so every length and count here fits 31 bits.
        let body = self.body_size(record);
        if self.record_count == 0 {
            self.base_timestamp = record.timestamp;
        }
        let out = &mut self.encoded;
        out.reserve(size_bytes - out.len());
        put_length(out, body);
        out.push(record.attributes);
        put_i64(out, record.timestamp.wrapping_sub(self.base_timestamp));
        put_i32(out, self.record_count);
        put_nullable(out, record.key.as_deref());
        put_nullable(out, record.value.as_deref());
        put_length(out, record.headers.len());
        put_headers(out, &record.headers);
        assert_eq!(out.len(), size_bytes, "the size told before is the size written");
        self.record_count += 1;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        Ok(())
    }

    /// The size of a record behind its length.
    fn body_size(&self, record: &Record) -> usize {
        let base = if self.record_count == 0 { record.timestamp } else { self.base_timestamp };
        let mut size = 1 + size_i64(record.timestamp.wrapping_sub(base));
        size += size_i32(self.record_count);
        size = size.saturating_add(nullable_size(record.key.as_deref()));
        size = size.saturating_add(nullable_size(record.value.as_deref()));
        size = size.saturating_add(length_size(record.headers.len()));
        size.saturating_add(headers_size(&record.headers))
    }

    /// The batch: base offset 0, leader epoch -1, ready to be appended.
    ///
    /// # Errors
    /// [`BuildError`] where there are no records, where the producer is none, or where the codec
    /// is not in this build.
    pub fn finish(mut self) -> Result<Bytes, BuildError> {
        self.check()?;
        if self.codec != Codec::None {
            let mut compressed = vec![0; HEADER_BYTES];
            compress(self.codec, &self.encoded[HEADER_BYTES..], &mut compressed)
                .map_err(BuildError::Compression)?;
            self.encoded = compressed;
        }
        let size_bytes = self.encoded.len();
        if size_bytes > MAX_BATCH_BYTES {
            return Err(BuildError::TooLarge(TooLarge::batch(size_bytes, MAX_BATCH_BYTES)));
        }
        let mut header = BatchHeader {
            base_offset: 0,
            size_bytes,
            leader_epoch: NO_LEADER_EPOCH,
            crc: 0,
            attributes: self.attributes,
            last_offset_delta: self.record_count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        };
        self.encoded[..HEADER_BYTES].copy_from_slice(&header.encode());
        header.crc = crc32c::crc32c(&self.encoded[CRC_START..]);
        self.encoded[..HEADER_BYTES].copy_from_slice(&header.encode());
        Ok(self.encoded.into())
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.record_count == 0 {
            return Err(BuildError::Empty);
        }
        let (producer_id, producer_epoch) = (self.producer_id, self.producer_epoch);
        let base_sequence = self.base_sequence;
        let no_producer =
            (producer_id, producer_epoch, base_sequence) == (NO_PRODUCER_ID, -1, NO_SEQUENCE);
        if no_producer && self.attributes.is_transactional() {
            return Err(BuildError::TransactionalWithoutProducer);
        }
        let no_sequence = base_sequence < 0 && !self.attributes.is_control();
        if !no_producer && (producer_id < 0 || producer_epoch < 0 || no_sequence) {
            return Err(BuildError::BadProducer { producer_id, producer_epoch, base_sequence });
        }
        Ok(())
    }
}

fn length_size(length: usize) -> usize {
    i32::try_from(length).map_or(5, size_i32)
}

fn nullable_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| length_size(bytes.len()).saturating_add(bytes.len()))
}

fn headers_size(headers: &Headers) -> usize {
    match headers.encoded() {
        Ok(encoded) => encoded.len(),
        Err(made) => made.iter().fold(0usize, |size, header| {
            let name = length_size(header.name.len()).saturating_add(header.name.len());
            size.saturating_add(name).saturating_add(nullable_size(header.value.as_deref()))
        }),
    }
}

fn put_headers(out: &mut Vec<u8>, headers: &Headers) {
    match headers.encoded() {
        Ok(encoded) => out.extend_from_slice(encoded),
        Err(made) => {
            for header in made {
                put_length(out, header.name.len());
                out.extend_from_slice(&header.name);
                put_nullable(out, header.value.as_deref());
            }
        }
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    put_i32(out, i32::try_from(length).expect("a batch below 2 GiB has no longer part"));
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_i32(out, -1),
        Some(bytes) => {
            put_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a batch must have a record"),
            Self::TooLarge(error) => error.fmt(f),
            Self::TransactionalWithoutProducer => {
                f.write_str("a transactional batch must have a producer")
            }
            Self::BadProducer { producer_id, producer_epoch, base_sequence } => write!(
                f,
                "a producer must have an id, an epoch and a sequence: producer_id={producer_id} \
                 producer_epoch={producer_epoch} base_sequence={base_sequence}"
            ),
            Self::Compression(error) => {
                write!(f, "the records of a batch could not be compressed: {error}")
            }
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Compression(error) => error.source(),
            _ => None,
        }
    }
}
