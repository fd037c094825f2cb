//! Where one batch ends in a run of bytes, by its length and magic alone.

use super::fault::RecordError;
use super::header::{HEADER_BYTES, LENGTH_END, MAGIC_AT};

/// The least length field of any version: what an empty message set of version 0 has.
const MIN_BATCH_LENGTH: i32 = 14;

/// The size of the batch at the start of `bytes`; nothing where only a part of one is there.
///
/// The order of the checks is Kafka's: a bad length or magic is a fault even of a part.
pub(super) fn batch_size(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(length) = bytes.get(8..LENGTH_END) else { return Ok(None) };
    let length = i32::from_be_bytes(length.try_into().expect("the range has four bytes"));
    if length < MIN_BATCH_LENGTH {
        return Err(RecordError::BatchLength { length });
    }
    if length.checked_add(LENGTH_END as i32).is_none() {
        return Err(RecordError::BatchLengthOverflow { length });
    }
    let Some(&magic) = bytes.get(MAGIC_AT) else { return Ok(None) };
    let magic = magic as i8;
    if !(0..=2).contains(&magic) {
        return Err(RecordError::UnknownMagic { magic });
    }
    let size_bytes = LENGTH_END + length as usize;
    if bytes.len() < size_bytes {
        return Ok(None);
    }
    if magic < 2 {
        return Err(RecordError::OldMagic { magic });
    }
    if size_bytes < HEADER_BYTES {
        return Err(RecordError::ShorterThanHeader { size_bytes });
    }
    Ok(Some(size_bytes))
}

/// Whether a whole batch of any version stands at the start of `bytes`, readable or not.
pub(super) fn is_whole_batch(bytes: &[u8]) -> bool {
    matches!(
        batch_size(bytes),
        Ok(Some(_)) | Err(RecordError::OldMagic { .. } | RecordError::ShorterThanHeader { .. })
    )
}
