//! The append validator: the verdict on a client's batch, as a function of the batch and the rules.
//!
//! The steps in their order; the first fault decides:
//!
//! 1. Framing: one whole batch of version 2, nothing behind it.
//! 2. Base offset 0; size within `max_message_bytes`; checksum.
//! 3. A codec that exists.
//! 4. As many records as offsets, one at least; no control bit, no delete horizon; a producer id
//!    where the transactional bit is set, a sequence where a producer id is.
//! 5. The payload is exactly one complete stream of the codec, under the cap.
//! 6. The form of every record, and nothing behind the last.
//! 7. The topic's rules: keys where it is compacted, timestamps.
//! 8. An epoch where a producer id is.
//!
//! # Refused, although Kafka stores it
//!
//! - An offset delta that is not the record's index. Readers would see repeated or unordered
//!   offsets.
//! - A varint that is longer than its value needs, or has bits that its value has no room for.
//! - A length of key, value or header value below -1. Only -1 is null.
//! - A record in a compressed batch whose length is not its own.
//! - The bit of a delete horizon from a client, who could so hasten the end of tombstones.
//! - The transactional bit without a producer id: no producer could ever end the transaction.
//! - Bytes behind the batch, behind its compressed stream, behind its last record.
//! - A wrong checksum in a compressed stream (Kafka never looks at lz4's of the content), or a
//!   reserved flag of gzip.
//! - A second gzip member, snappy header or zstd frame, and zstd's skippable frames: a payload is
//!   one stream.
//! - A timestamp so old that `now - timestamp` overflows 64 bits: the window is exact here.
//! - A batch that decompresses to more than the cap.
//!
//! # Kept as it is, although odd
//!
//! - Empty, repeated and non-UTF-8 header names: they are bytes.
//! - Record attributes, which have no meaning.
//! - Undefined attribute bits 7 to 15 of a batch, also where its header is rewritten.
//! - A timestamp whose delta wraps around 64 bits, if the window takes what comes out.
//! - A base sequence without a producer id, and any negative producer id as none.

use bytes::Bytes;

use crate::base::types::{NO_TIMESTAMP, TimestampMs};

use super::attributes::{Codec, TimestampType};
use super::compression::{MAX_DECOMPRESSED_BYTES, decompress};
use super::fault::{RecordError, RecordFault};
use super::framing::{batch_size, is_whole_batch};
use super::header::{BatchHeader, CRC_START, HEADER_BYTES};
use super::raw::{RawRecord, take_record};
use super::refusal::{
    BatchRefusal, MAX_REPORTED_RECORDS, RecordRefusal, RefusedRecord, RefusedRecords,
};
use super::stored::ValidatedBatch;
use super::too_large::TooLarge;

/// What a topic takes, and the time at which it is asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AppendRules {
    /// The greatest size of a batch, its first 12 bytes included; as large passes.
    pub max_message_bytes: u32,
    /// Whether the topic is compacted, so that keys must not be null.
    pub compacted: bool,
    /// Whose timestamps the topic keeps.
    pub timestamp_type: TimestampType,
    /// How much older than now a producer's timestamp may be.
    pub before_max_ms: i64,
    /// How much newer than now a producer's timestamp may be.
    pub after_max_ms: i64,
    /// The most that the records of a compressed batch may decompress to.
    pub max_decompressed_bytes: usize,
    /// The most that one record of a compressed batch may decompress to, if that is limited.
    pub max_decompressed_record_bytes: Option<u32>,
    /// The time now.
    pub now_ms: TimestampMs,
}

impl AppendRules {
    /// The rules of a topic with Kafka's defaults, at this time.
    #[must_use]
    pub const fn new(now_ms: TimestampMs) -> Self {
        Self {
            max_message_bytes: 1_048_588,
            compacted: false,
            timestamp_type: TimestampType::CreateTime,
            before_max_ms: i64::MAX,
            after_max_ms: 3_600_000,
            max_decompressed_bytes: MAX_DECOMPRESSED_BYTES,
            max_decompressed_record_bytes: None,
            now_ms,
        }
    }

    /// The oldest and the newest timestamp that pass, both included.
    fn window(&self) -> (TimestampMs, TimestampMs) {
        // In 128 bits nothing wraps; no timestamp lies outside of 64, so clamping changes nothing.
        let clamp = |ms: i128| ms.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        let now = i128::from(self.now_ms);
        let oldest = clamp(now - i128::from(self.before_max_ms));
        (oldest, clamp(now + i128::from(self.after_max_ms)))
    }
}

/// The verdict on a batch that a client wants to append. The payload is read once for its checksum
/// and, uncompressed, once for its records; it is never copied.
///
/// ```
/// use tidelog::record::{AppendRules, BatchBuilder, Record, stamp, validate_append};
///
/// let now_ms = 1_700_000_000_000;
/// let mut builder = BatchBuilder::new();
/// builder.push(&Record::new("key", "value").timestamp(now_ms))?;
/// let batch = validate_append(builder.finish()?, &AppendRules::new(now_ms))?;
/// let stored = batch.stored(now_ms);
/// let mut served = stored.to_vec();
/// stamp(&mut served, 1000, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`BatchRefusal`] with the first fault in the order of this module's steps.
pub fn validate_append(batch: Bytes, rules: &AppendRules) -> Result<ValidatedBatch, BatchRefusal> {
    let header = check_framing(&batch)?;
    check_batch(&batch, &header, rules)?;
    let codec =
        header.codec().ok_or(RecordError::UnknownCodec { id: header.attributes().codec_id() })?;
    check_header(&header)?;

    let payload = &batch[HEADER_BYTES..];
    let max_timestamp = match codec {
        Codec::None => check_records(payload, u32::MAX, &header, rules)?,
        codec => {
            let records = decompress(codec, payload, rules.max_decompressed_bytes)?;
            let max_length = rules.max_decompressed_record_bytes.unwrap_or(u32::MAX);
            check_records(&records, max_length, &header, rules)?
        }
    };
    if header.has_producer_id() && header.producer_epoch() < -1 {
        return Err(BatchRefusal::ProducerEpoch { producer_epoch: header.producer_epoch() });
    }
    Ok(ValidatedBatch::new(header, codec, batch, rules.timestamp_type, max_timestamp))
}

fn check_framing(batch: &[u8]) -> Result<BatchHeader, BatchRefusal> {
    let size_bytes =
        batch_size(batch)?.ok_or(RecordError::Incomplete { present_bytes: batch.len() })?;
    let behind = &batch[size_bytes..];
    if is_whole_batch(behind) {
        return Err(BatchRefusal::SecondBatch);
    }
    if !behind.is_empty() {
        return Err(RecordError::BytesBehindBatch { count_bytes: behind.len() }.into());
    }
    let head = batch.first_chunk::<HEADER_BYTES>().expect("framing leaves room for the header");
    Ok(BatchHeader::read(head))
}

fn check_batch(
    batch: &[u8],
    header: &BatchHeader,
    rules: &AppendRules,
) -> Result<(), BatchRefusal> {
    if header.base_offset() != 0 {
        return Err(BatchRefusal::BaseOffset { base_offset: header.base_offset() });
    }
    if batch.len() > rules.max_message_bytes as usize {
        let limit_bytes = rules.max_message_bytes as usize;
        return Err(BatchRefusal::TooLarge(TooLarge::batch(batch.len(), limit_bytes)));
    }
    let computed = crc32c::crc32c(&batch[CRC_START..]);
    if computed != header.crc() {
        return Err(RecordError::Crc { stored: header.crc(), computed }.into());
    }
    Ok(())
}

fn check_header(header: &BatchHeader) -> Result<(), BatchRefusal> {
    let (record_count, last_offset_delta) = (header.record_count(), header.last_offset_delta());
    if record_count <= 0 || i64::from(last_offset_delta) + 1 != i64::from(record_count) {
        return Err(BatchRefusal::Counts { record_count, last_offset_delta });
    }
    if header.is_control() {
        return Err(BatchRefusal::Control);
    }
    if header.attributes().has_delete_horizon() {
        return Err(BatchRefusal::DeleteHorizon);
    }
    if header.is_transactional() && !header.has_producer_id() {
        return Err(BatchRefusal::TransactionalWithoutProducer);
    }
    if header.has_producer_id() && header.base_sequence() < 0 {
        return Err(BatchRefusal::ProducerWithoutSequence {
            producer_id: header.producer_id(),
            base_sequence: header.base_sequence(),
        });
    }
    Ok(())
}

/// Walks over all records; gives their greatest timestamp, -1 at least, as Kafka.
fn check_records(
    records: &[u8],
    max_length: u32,
    header: &BatchHeader,
    rules: &AppendRules,
) -> Result<TimestampMs, BatchRefusal> {
    let mut topic_rules = TopicRules::new(header, rules);
    let mut max_timestamp = NO_TIMESTAMP;
    let mut at = 0;
    for index in 0..header.record_count().unsigned_abs() {
        let fault = |fault| RecordError::Record { index, fault };
        let record = take_record(records, &mut at, max_length).map_err(fault)?;
        if record.offset_delta as u32 != index {
            let offset_delta = record.offset_delta;
            return Err(fault(RecordFault::OffsetDelta { offset_delta }).into());
        }
        max_timestamp = max_timestamp.max(topic_rules.look_at(index, &record));
    }
    if at != records.len() {
        return Err(RecordError::BytesBehindRecords { count_bytes: records.len() - at }.into());
    }
    match topic_rules.refused {
        Some(refused) => Err(BatchRefusal::Records(*refused)),
        None => Ok(max_timestamp),
    }
}

/// The topic's rules for single records, and the records that broke them.
struct TopicRules {
    keys_needed: bool,
    create_time: bool,
    append_time_claimed: Option<TimestampMs>,
    base_timestamp: TimestampMs,
    window: (TimestampMs, TimestampMs),
    refused: Option<Box<RefusedRecords>>,
}

impl TopicRules {
    fn new(header: &BatchHeader, rules: &AppendRules) -> Self {
        let append_time_claimed = match header.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp()),
        };
        Self {
            keys_needed: rules.compacted,
            create_time: rules.timestamp_type == TimestampType::CreateTime,
            append_time_claimed,
            base_timestamp: header.base_timestamp(),
            window: rules.window(),
            refused: None,
        }
    }

    /// Judges one record and gives its timestamp. The key comes first, as in Kafka: a record
    /// without one is not asked for its timestamp.
    #[inline(always)]
    fn look_at(&mut self, index: u32, record: &RawRecord) -> TimestampMs {
        let own = self.base_timestamp.wrapping_add(record.timestamp_delta);
        let timestamp = self.append_time_claimed.unwrap_or(own);
        if self.keys_needed && record.key.is_none() {
            self.refuse(index, RecordRefusal::NullKey);
        } else if self.create_time && timestamp != NO_TIMESTAMP {
            if timestamp < self.window.0 || timestamp > self.window.1 {
                self.refuse(index, RecordRefusal::TimestampOutOfWindow { timestamp });
            }
        } else if self.append_time_claimed.is_some() {
            self.refuse(index, RecordRefusal::AppendTimeFromClient);
        }
        timestamp
    }

    #[cold]
    fn refuse(&mut self, index: u32, reason: RecordRefusal) {
        let window = self.window;
        let refused = self.refused.get_or_insert_with(|| {
            let (records, total_count, any_timestamp) = (Vec::new(), 0, false);
            Box::new(RefusedRecords { records, total_count, any_timestamp, window })
        });
        refused.total_count += 1;
        refused.any_timestamp |= reason != RecordRefusal::NullKey;
        if refused.records.len() < MAX_REPORTED_RECORDS {
            refused.records.push(RefusedRecord { index, reason });
        }
    }
}
