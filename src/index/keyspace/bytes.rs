//! Reading fixed-width big-endian fields of keys and values, with an error for whatever does not fit.

use crate::base::error::Corruption;
use crate::base::types::PartitionId;
use crate::index::write_batch::Family;

/// Takes fields off the front of a value; remembers whose value it is for the error.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    family: Family,
    key: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields after a version byte.
    pub(super) fn new(
        family: Family,
        key: &'a [u8],
        value: &'a [u8],
        version: u8,
    ) -> Result<Self, Corruption> {
        let mut fields = Self { rest: value, family, key };
        if fields.u8()? != version {
            return Err(fields.corruption("its version is not known"));
        }
        Ok(fields)
    }

    pub(super) fn corruption(&self, what: &'static str) -> Corruption {
        Corruption::in_store(self.family.name(), self.key, what)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corruption> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.corruption("it is too short"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Corruption> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Corruption> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, Corruption> {
        self.take().map(i16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Corruption> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Corruption> {
        self.take().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Corruption> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Corruption> {
        self.take().map(i64::from_be_bytes)
    }

    /// A number in seven bits a byte, the lowest first, in the one shortest form.
    pub(super) fn varint(&mut self) -> Result<u64, Corruption> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            let is_last = byte & 0x80 == 0;
            if (is_last && byte == 0 && shift > 0) || (bits << shift) >> shift != bits {
                break;
            }
            value |= bits << shift;
            if is_last {
                return Ok(value);
            }
        }
        Err(self.corruption("a number of it is malformed"))
    }

    /// So many bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Corruption> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(self.corruption("it is too short"));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// How many bytes are left: what bounds a count before anything is allocated for it.
    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// All that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn end(self) -> Result<(), Corruption> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.corruption("it is too long")) }
    }
}

/// Writes a number as [`Fields::varint`] reads it.
pub(super) fn put_varint(value: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        value.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    value.push(number as u8);
}

/// The least key of a partition in a family keyed by partition id, and the first key after it.
///
/// # Panics
/// If the id is `u32::MAX`, which is never given.
#[must_use]
pub fn partition_range(partition: PartitionId) -> ([u8; 4], [u8; 4]) {
    let end = partition.0.checked_add(1).expect("the greatest partition id is never given");
    let (begin, end) = (partition.0.to_be_bytes(), end.to_be_bytes());
    debug_assert!(begin < end, "keys sort as the ids do");
    (begin, end)
}
