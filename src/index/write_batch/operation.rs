//! One operation of a write batch: what it changes, and the bytes that say so.

use super::error::WriteBatchError;
use super::family::Family;
use super::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

pub(super) const PUT: u8 = 1;
pub(super) const DELETE: u8 = 2;
pub(super) const DELETE_RANGE: u8 = 3;

/// One change of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Sets a key's value.
    Put {
        /// The family of the key.
        family: Family,
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Removes a key, if it is there.
    Delete {
        /// The family of the key.
        family: Family,
        /// The key.
        key: &'a [u8],
    },
    /// Removes every key from `begin` up to, not including, `end`.
    DeleteRange {
        /// The family of the keys.
        family: Family,
        /// The first key that goes.
        begin: &'a [u8],
        /// The first key after them that stays.
        end: &'a [u8],
    },
}

pub(super) fn check_key(key: &[u8]) -> Result<(), WriteBatchError> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(WriteBatchError::KeyLength { length_bytes: key.len() });
    }
    Ok(())
}

pub(super) fn check_value(value: &[u8]) -> Result<(), WriteBatchError> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(WriteBatchError::ValueLength { length_bytes: value.len() });
    }
    Ok(())
}

pub(super) fn push_length(out: &mut Vec<u8>, length: usize) {
    debug_assert!(length <= MAX_VALUE_BYTES, "lengths are bounded");
    let mut rest = u32::try_from(length).expect("lengths were checked against smaller limits");
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn take_length(rest: &mut &[u8]) -> Result<usize, WriteBatchError> {
    let mut value = 0u64;
    for index in 0..5 {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let shortest = index == 0 || byte != 0;
            let length = u32::try_from(value).ok().filter(|_| shortest);
            return length.map(|length| length as usize).ok_or(WriteBatchError::BadLength);
        }
    }
    Err(WriteBatchError::BadLength)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], WriteBatchError> {
    let (taken, after) = rest.split_at_checked(length).ok_or(WriteBatchError::Truncated)?;
    *rest = after;
    Ok(taken)
}

pub(super) fn take_operation<'a>(rest: &mut &'a [u8]) -> Result<Operation<'a>, WriteBatchError> {
    let head = take(rest, 2)?;
    let kind = head[0];
    if !matches!(kind, PUT | DELETE | DELETE_RANGE) {
        return Err(WriteBatchError::UnknownOperation { byte: kind });
    }
    let family = Family::try_from(head[1])?;
    let first_length = take_length(rest)?;
    let second_length = if kind == DELETE { 0 } else { take_length(rest)? };
    let first = take(rest, first_length)?;
    check_key(first)?;
    let second = take(rest, second_length)?;
    match kind {
        PUT => {
            check_value(second)?;
            Ok(Operation::Put { family, key: first, value: second })
        }
        DELETE => Ok(Operation::Delete { family, key: first }),
        _ => {
            check_key(second)?;
            if first >= second {
                return Err(WriteBatchError::InvertedRange);
            }
            Ok(Operation::DeleteRange { family, begin: first, end: second })
        }
    }
}
