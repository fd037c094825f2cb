//! A batch that passed the validator, and the bytes of it that go into the log.

use bytes::Bytes;

use crate::base::types::TimestampMs;

use super::attributes::{Codec, TimestampType};
use super::crc::exchange;
use super::header::{BatchHeader, CRC_START, HEADER_BYTES};

/// A batch that its topic takes.
///
/// INVARIANT: the bytes are one whole batch whose checksum was compared.
#[derive(Debug, Clone)]
pub struct ValidatedBatch {
    header: BatchHeader,
    codec: Codec,
    bytes: Bytes,
    timestamp_type: TimestampType,
    max_timestamp: TimestampMs,
}

/// The bytes of a batch as they go into the log: the client's own, or a new header before them.
///
/// Base offset and leader epoch lie outside the checksum; they are those of the client here, and
/// [`stamp`](super::stamp) writes them when the batch is served.
#[derive(Debug, Clone)]
pub struct StoredBatch {
    /// The new header, where it is not the client's.
    pub head: Option<[u8; HEADER_BYTES]>,
    /// What follows the new header; where there is none, the whole batch of the client.
    pub body: Bytes,
    /// The checksum in the header: CRC-32C over byte 21 to the end.
    pub crc: u32,
    /// The maximum timestamp in the header.
    pub max_timestamp: TimestampMs,
}

impl ValidatedBatch {
    pub(super) fn new(
        header: BatchHeader,
        codec: Codec,
        bytes: Bytes,
        timestamp_type: TimestampType,
        max_timestamp: TimestampMs,
    ) -> Self {
        Self { header, codec, bytes, timestamp_type, max_timestamp }
    }

    /// The header as the client sent it.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch as the client sent it.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The size of the batch, which storing does not change.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The codec.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The number of records, one at least; each has an offset.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        self.header.record_count().unsigned_abs()
    }

    /// Whose timestamps the batch is stored with.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        self.timestamp_type
    }

    /// The greatest timestamp of a record as the producer gave it, -1 at least.
    #[must_use]
    pub fn max_timestamp(&self) -> TimestampMs {
        self.max_timestamp
    }

    /// Whether the batch belongs to a producer transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.header.is_transactional()
    }

    /// Whether the batch names a producer, by id, epoch and sequence.
    #[must_use]
    pub fn has_producer_id(&self) -> bool {
        self.header.has_producer_id()
    }

    /// The form in which the batch is stored. Cheap: where the header changes, its checksum is
    /// combined and no record is read.
    ///
    /// `append_time_ms` counts on topics that keep the log's time; elsewhere the header changes
    /// only if the client's maximum timestamp was wrong, or if it claimed the log's time.
    #[must_use]
    pub fn stored(&self, append_time_ms: TimestampMs) -> StoredBatch {
        let mut header = self.header;
        header.attributes = header.attributes.with_timestamp_type(self.timestamp_type);
        header.max_timestamp = match self.timestamp_type {
            TimestampType::CreateTime => self.max_timestamp,
            TimestampType::LogAppendTime => append_time_ms,
        };
        let max_timestamp = header.max_timestamp;
        if header == self.header {
            return StoredBatch {
                head: None,
                body: self.bytes.clone(),
                crc: header.crc,
                max_timestamp,
            };
        }
        let body = self.bytes.slice(HEADER_BYTES..);
        let old_head = crc32c::crc32c(&self.bytes[CRC_START..HEADER_BYTES]);
        let new_head = crc32c::crc32c(&header.encode()[CRC_START..]);
        header.crc = exchange(old_head, new_head, self.header.crc, body.len() as u64);
        StoredBatch { head: Some(header.encode()), body, crc: header.crc, max_timestamp }
    }
}

impl StoredBatch {
    /// The size of the batch.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.head.map_or(0, |head| head.len()) + self.body.len()
    }

    /// The bytes in their order, for one vectored write; the first part may be empty.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        [self.head.as_ref().map_or(&[], <[u8; HEADER_BYTES]>::as_slice), &self.body]
    }

    /// A copy of the bytes in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}
