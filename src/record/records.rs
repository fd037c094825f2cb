//! The records of one batch, one after the other, without copying them.

use std::iter::FusedIterator;

use bytes::Bytes;

use crate::base::types::{Offset, TimestampMs};

use super::attributes::{Codec, TimestampType};
use super::compression::decompress;
use super::data::Record;
use super::fault::RecordError;
use super::header::BatchHeader;
use super::headers::Headers;
use super::raw::{bytes_behind, take_record};

/// The records of one batch. A fault is the last item: what came before it is good, and nothing
/// behind it is made up.
#[derive(Debug, Clone)]
pub struct Records {
    payload: Bytes,
    at: usize,
    index: u32,
    left: u32,
    fault: Option<RecordError>,
    base_offset: Offset,
    base_timestamp: TimestampMs,
    append_time: Option<TimestampMs>,
}

impl Records {
    pub(super) fn new(header: &BatchHeader, payload: Bytes, max_decompressed_bytes: usize) -> Self {
        let append_time = match header.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp()),
        };
        let (payload, left, fault) = match open(header, payload, max_decompressed_bytes) {
            Ok((payload, left)) => (payload, left, None),
            Err(fault) => (Bytes::new(), 0, Some(fault)),
        };
        Self {
            payload,
            at: 0,
            index: 0,
            left,
            fault,
            base_offset: header.base_offset(),
            base_timestamp: header.base_timestamp(),
            append_time,
        }
    }

    fn read(&mut self) -> Result<Record, RecordError> {
        let payload = &self.payload;
        let raw = take_record(payload, &mut self.at, u32::MAX)
            .map_err(|fault| RecordError::Record { index: self.index, fault })?;
        let headers = match raw.header_count {
            0 => Headers::new(),
            count => Headers::read(payload.slice(raw.headers), count),
        };
        let timestamp = self.base_timestamp.wrapping_add(raw.timestamp_delta);
        Ok(Record {
            offset: self.base_offset.wrapping_add(i64::from(raw.offset_delta)),
            timestamp: self.append_time.unwrap_or(timestamp),
            attributes: raw.attributes,
            key: raw.key.map(|range| payload.slice(range)),
            value: raw.value.map(|range| payload.slice(range)),
            headers,
        })
    }
}

/// The decompressed records and how many they are.
fn open(
    header: &BatchHeader,
    payload: Bytes,
    max_decompressed_bytes: usize,
) -> Result<(Bytes, u32), RecordError> {
    let codec =
        header.codec().ok_or(RecordError::UnknownCodec { id: header.attributes().codec_id() })?;
    let payload = match codec {
        Codec::None => payload,
        codec => decompress(codec, &payload, max_decompressed_bytes)?.into(),
    };
    let record_count = header.record_count();
    let left =
        u32::try_from(record_count).map_err(|_| RecordError::NegativeCount { record_count })?;
    Ok((payload, left))
}

impl Iterator for Records {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(fault) = self.fault.take() {
            return Some(Err(fault));
        }
        if self.left == 0 {
            return bytes_behind(&mut self.at, self.payload.len()).map(Err);
        }
        let record = self.read();
        self.left -= 1;
        self.index += 1;
        if record.is_err() {
            self.left = 0;
            self.at = self.payload.len();
        }
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The count comes from the header: true at most, and no reason to allocate. One more item
        // may be a fault.
        (0, Some(self.left as usize + 1))
    }
}

impl FusedIterator for Records {}
