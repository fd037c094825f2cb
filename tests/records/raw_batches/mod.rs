//! Batches put together by hand, right or wrong, for the tests of the decoder.

use bytes::Bytes;
use tidelog::record::HEADER_BYTES;

/// The time of the records, and of the validator.
pub(crate) const NOW: i64 = 1_700_000_000_000;

/// A batch whose every field can be chosen; its length and checksum come out right.
#[derive(Debug, Clone)]
pub(crate) struct RawBatch {
    pub(crate) base_offset: i64,
    pub(crate) attributes: u16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) record_count: i32,
    pub(crate) payload: Vec<u8>,
}

impl RawBatch {
    /// A batch of these records, counted right.
    pub(crate) fn of(records: &[Vec<u8>]) -> Self {
        Self {
            base_offset: 0,
            attributes: 0,
            last_offset_delta: records.len() as i32 - 1,
            base_timestamp: NOW,
            max_timestamp: NOW,
            record_count: records.len() as i32,
            payload: records.concat(),
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.payload.len());
        bytes.extend(self.base_offset.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend((-1i32).to_be_bytes());
        bytes.push(2);
        bytes.extend([0; 4]);
        bytes.extend(self.attributes.to_be_bytes());
        bytes.extend(self.last_offset_delta.to_be_bytes());
        bytes.extend(self.base_timestamp.to_be_bytes());
        bytes.extend(self.max_timestamp.to_be_bytes());
        bytes.extend((-1i64).to_be_bytes());
        bytes.extend((-1i16).to_be_bytes());
        bytes.extend((-1i32).to_be_bytes());
        bytes.extend(self.record_count.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        repaired(bytes)
    }
}

/// The same bytes with the length and the checksum that they should have.
pub(crate) fn repaired(mut bytes: Vec<u8>) -> Bytes {
    let length = bytes.len() as u32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

/// A zig-zag varint in its shortest form.
pub(crate) fn varint(value: i64) -> Vec<u8> {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    let mut out = Vec::new();
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
    out
}

/// A record `k=v` without headers.
pub(crate) fn record(timestamp_delta: i64, offset_delta: i64) -> Vec<u8> {
    let body = [
        vec![0],
        varint(timestamp_delta),
        varint(offset_delta),
        varint(1),
        b"k".to_vec(),
        varint(1),
        b"v".to_vec(),
        varint(0),
    ];
    with_length(&body.concat())
}

/// A record's body behind its length.
pub(crate) fn with_length(body: &[u8]) -> Vec<u8> {
    [varint(body.len() as i64), body.to_vec()].concat()
}
