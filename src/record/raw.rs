//! One record read out of the bytes of a batch: where its parts lie, and every rule of its form.
//!
//! Positions count from the start of the records, so that a caller can slice its own buffer. No
//! part is read before its end was checked; nothing is allocated.

use std::ops::Range;

use super::fault::{Field, RecordError, RecordFault};
use super::varint::{take_i32, take_i64};

/// Where the parts of one record lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawRecord {
    pub(super) attributes: u8,
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<Range<usize>>,
    pub(super) value: Option<Range<usize>>,
    /// All headers together.
    pub(super) headers: Range<usize>,
    pub(super) header_count: u32,
}

/// Where the parts of one header lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawHeader {
    pub(super) name: Range<usize>,
    pub(super) value: Option<Range<usize>>,
}

/// What stands in a record before its value.
struct Head {
    end: usize,
    attributes: u8,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<Range<usize>>,
}

/// Reads the record at `at` up to its value, and moves `at` there.
#[inline(always)]
fn take_head(records: &[u8], at: &mut usize, max_length: u32) -> Result<Head, RecordFault> {
    let length = varint(records, at, Field::RecordLength)?;
    let length = u32::try_from(length)
        .map_err(|_| RecordFault::Negative { field: Field::RecordLength, value: length })?;
    if length > max_length {
        return Err(RecordFault::TooLong { length_bytes: length, limit_bytes: max_length });
    }
    let end = at.checked_add(length as usize).filter(|&end| end <= records.len());
    let end = end.ok_or(RecordFault::PastEnd { field: Field::RecordLength })?;
    let record = &records[..end];

    let attributes = *record.get(*at).ok_or(RecordFault::PastEnd { field: Field::Attributes })?;
    *at += 1;
    let timestamp_delta = take_i64(record, at)
        .map_err(|fault| RecordFault::of_varint(Field::TimestampDelta, fault))?;
    let offset_delta = varint(record, at, Field::OffsetDelta)?;
    let key = take_nullable(record, at, Field::Key)?;
    Ok(Head { end, attributes, timestamp_delta, offset_delta, key })
}

/// The key of one record, and as much more as is known without its value.
pub(super) struct RawKey {
    pub(super) offset_delta: i32,
    pub(super) key: Option<Range<usize>>,
    pub(super) has_value: bool,
}

/// Reads the record at `at` as far as the length of its value, and moves `at` behind the record.
/// What its value and its headers are is not looked at.
#[inline]
pub(super) fn take_key(records: &[u8], at: &mut usize) -> Result<RawKey, RecordFault> {
    let Head { end, offset_delta, key, .. } = take_head(records, at, u32::MAX)?;
    let value_length = varint(&records[..end], at, Field::Value)?;
    if value_length < -1 {
        return Err(RecordFault::Negative { field: Field::Value, value: value_length });
    }
    *at = end;
    Ok(RawKey { offset_delta, key, has_value: value_length >= 0 })
}

/// Reads the record at `at`, headers included, and moves `at` behind it.
#[inline]
pub(super) fn take_record(
    records: &[u8],
    at: &mut usize,
    max_length: u32,
) -> Result<RawRecord, RecordFault> {
    let Head { end, attributes, timestamp_delta, offset_delta, key } =
        take_head(records, at, max_length)?;
    let record = &records[..end];
    let value = take_nullable(record, at, Field::Value)?;
    let header_count = varint(record, at, Field::HeaderCount)?;
    let headers = *at..end;
    if header_count != 0 {
        take_headers(record, at, header_count)?;
    }
    if *at != end {
        return Err(RecordFault::LengthMismatch { left_bytes: end - *at });
    }
    let header_count = header_count.unsigned_abs();
    Ok(RawRecord { attributes, timestamp_delta, offset_delta, key, value, headers, header_count })
}

fn take_headers(record: &[u8], at: &mut usize, header_count: i32) -> Result<(), RecordFault> {
    if header_count < 0 {
        return Err(RecordFault::Negative { field: Field::HeaderCount, value: header_count });
    }
    // A header has two bytes at least, so what is left of the record bounds the loop.
    if header_count as usize > (record.len() - *at) / 2 {
        return Err(RecordFault::PastEnd { field: Field::HeaderCount });
    }
    for _ in 0..header_count {
        take_header(record, at)?;
    }
    Ok(())
}

/// Reads the header at `at` and moves `at` behind it.
#[inline]
pub(super) fn take_header(record: &[u8], at: &mut usize) -> Result<RawHeader, RecordFault> {
    let length = varint(record, at, Field::HeaderName)?;
    if length < 0 {
        return Err(RecordFault::Negative { field: Field::HeaderName, value: length });
    }
    let name = take_range(record, at, length as usize, Field::HeaderName)?;
    let value = take_nullable(record, at, Field::HeaderValue)?;
    Ok(RawHeader { name, value })
}

#[inline(always)]
fn varint(bytes: &[u8], at: &mut usize, field: Field) -> Result<i32, RecordFault> {
    take_i32(bytes, at).map_err(|fault| RecordFault::of_varint(field, fault))
}

#[inline(always)]
fn take_nullable(
    record: &[u8],
    at: &mut usize,
    field: Field,
) -> Result<Option<Range<usize>>, RecordFault> {
    match varint(record, at, field)? {
        -1 => Ok(None),
        value if value < 0 => Err(RecordFault::Negative { field, value }),
        length => take_range(record, at, length as usize, field).map(Some),
    }
}

#[inline(always)]
fn take_range(
    record: &[u8],
    at: &mut usize,
    length: usize,
    field: Field,
) -> Result<Range<usize>, RecordFault> {
    if length > record.len() - *at {
        return Err(RecordFault::PastEnd { field });
    }
    let start = *at;
    *at += length;
    Ok(start..*at)
}

/// The fault of bytes that follow the last record, told once: `at` is their end then.
#[inline(always)]
pub(super) fn bytes_behind(at: &mut usize, end: usize) -> Option<RecordError> {
    let count_bytes = end - std::mem::replace(at, end);
    (count_bytes > 0).then_some(RecordError::BytesBehindRecords { count_bytes })
}
