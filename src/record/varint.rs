//! Zig-zag varints, read in their one shortest form and written so.
//!
//! Kafka's readers take longer forms and drop stray bits of the last byte. Here both are faults:
//! what two readers may understand differently is not stored.

/// The most bytes of a varint of 32 bits.
const MAX_I32_BYTES: usize = 5;

/// The most bytes of a varint of 64 bits.
const MAX_I64_BYTES: usize = 10;

/// Why no varint stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VarintFault {
    /// The bytes end before it does.
    PastEnd,
    /// It goes on behind the most bytes that it may have.
    Unterminated,
    /// It is longer than its value needs, or has bits that its value has no room for.
    NotShortest,
}

/// Reads a value of 32 bits and moves `at` behind it.
#[inline(always)]
pub(super) fn take_i32(bytes: &[u8], at: &mut usize) -> Result<i32, VarintFault> {
    match take_short(bytes, at) {
        Some(raw) => Ok(unzigzag_i32(raw)),
        None => take_longer(bytes, at, MAX_I32_BYTES, 0x0f).map(|raw| unzigzag_i32(raw as u32)),
    }
}

/// Reads a value of 64 bits and moves `at` behind it.
#[inline(always)]
pub(super) fn take_i64(bytes: &[u8], at: &mut usize) -> Result<i64, VarintFault> {
    match take_short(bytes, at) {
        Some(raw) => Ok(unzigzag_i64(u64::from(raw))),
        None => take_longer(bytes, at, MAX_I64_BYTES, 0x01).map(unzigzag_i64),
    }
}

/// Reads a good varint of one or two bytes, as nearly all are.
#[inline(always)]
fn take_short(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u32::from(first));
    }
    let second = *bytes.get(*at + 1)?;
    if !(1..0x80).contains(&second) {
        return None;
    }
    *at += 2;
    Some(u32::from(first & 0x7f) | u32::from(second) << 7)
}

#[cold]
#[inline(never)]
fn take_longer(
    bytes: &[u8],
    at: &mut usize,
    max_bytes: usize,
    last_byte_limit: u8,
) -> Result<u64, VarintFault> {
    let mut value = 0u64;
    for index in 0..max_bytes {
        let byte = *bytes.get(*at + index).ok_or(VarintFault::PastEnd)?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            let padded = byte == 0 && index > 0;
            let stray_bits = index == max_bytes - 1 && byte > last_byte_limit;
            if padded || stray_bits {
                return Err(VarintFault::NotShortest);
            }
            *at += index + 1;
            return Ok(value);
        }
    }
    Err(VarintFault::Unterminated)
}

/// Writes a value of 32 bits.
pub(super) fn put_i32(out: &mut Vec<u8>, value: i32) {
    put_raw(out, u64::from(zigzag_i32(value)));
}

/// Writes a value of 64 bits.
pub(super) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_raw(out, zigzag_i64(value));
}

/// How many bytes [`put_i32`] writes.
pub(super) fn size_i32(value: i32) -> usize {
    size_raw(u64::from(zigzag_i32(value)))
}

/// How many bytes [`put_i64`] writes.
pub(super) fn size_i64(value: i64) -> usize {
    size_raw(zigzag_i64(value))
}

fn put_raw(out: &mut Vec<u8>, mut raw: u64) {
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn size_raw(raw: u64) -> usize {
    (64 - (raw | 1).leading_zeros() as usize).div_ceil(7)
}

const fn zigzag_i32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

const fn zigzag_i64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag_i32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

const fn unzigzag_i64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES_I64: [i64; 15] =
        [0, -1, 1, -64, 63, 64, -65, 8191, 8192, -8193, 1 << 40, -(1 << 40), i64::MAX, i64::MIN, 5];

    #[test]
    fn every_value_comes_back_and_has_the_size_that_was_told() {
        for value in EDGES_I64 {
            let mut out = Vec::new();
            put_i64(&mut out, value);
            assert_eq!(out.len(), size_i64(value), "{value}");
            let mut at = 0;
            assert_eq!((take_i64(&out, &mut at), at), (Ok(value), out.len()));
        }
        for value in [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 1 << 27, i32::MAX, i32::MIN] {
            let mut out = Vec::new();
            put_i32(&mut out, value);
            assert_eq!(out.len(), size_i32(value), "{value}");
            let mut at = 0;
            assert_eq!((take_i32(&out, &mut at), at), (Ok(value), out.len()));
        }
    }

    #[test]
    fn a_padded_varint_and_stray_bits_in_its_last_byte_are_faults() {
        let read = |bytes: &[u8]| take_i32(bytes, &mut 0);
        assert_eq!(read(&[0x80, 0x00]), Err(VarintFault::NotShortest));
        assert_eq!(read(&[0x82, 0x80, 0x00]), Err(VarintFault::NotShortest));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MIN));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(VarintFault::NotShortest));
        let read = |bytes: &[u8]| take_i64(bytes, &mut 0);
        let mut longest = [0xff; 10];
        longest[9] = 0x01;
        assert_eq!(read(&longest), Ok(i64::MIN));
        longest[9] = 0x03;
        assert_eq!(read(&longest), Err(VarintFault::NotShortest));
    }

    #[test]
    fn a_varint_that_does_not_end_is_told_from_bytes_that_do() {
        assert_eq!(take_i32(&[0x80; 4], &mut 0), Err(VarintFault::PastEnd));
        assert_eq!(take_i32(&[0x80; 5], &mut 0), Err(VarintFault::Unterminated));
        assert_eq!(take_i64(&[0x80; 9], &mut 0), Err(VarintFault::PastEnd));
        assert_eq!(take_i64(&[0x80; 10], &mut 0), Err(VarintFault::Unterminated));
        assert_eq!(take_i32(&[], &mut 0), Err(VarintFault::PastEnd));
    }

    #[test]
    fn a_fault_leaves_the_place_where_it_was() {
        let mut at = 1;
        assert!(take_i32(&[0, 0x80, 0x00], &mut at).is_err());
        assert_eq!(at, 1);
    }
}
