//! An ordered set of operations in the encoding of the log: how it is built, read and patched.

use std::fmt;

use super::error::WriteBatchError;
use super::family::Family;
use super::limits::VERSION;
use super::operation::{
    DELETE, DELETE_RANGE, Operation, PUT, check_key, check_value, push_length, take_operation,
};

/// Where the value of a put lies in the encoding, for [`WriteBatch::patch`].
#[derive(Debug, Clone, Copy)]
pub struct ValueAt {
    begin: usize,
    end: usize,
}

/// An ordered set of changes to the index, applied as one.
#[derive(Clone, PartialEq, Eq)]
pub struct WriteBatch {
    encoded: Vec<u8>,
    operation_count: usize,
    range_delete_count: usize,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// A batch without changes.
    #[must_use]
    pub fn new() -> Self {
        Self { encoded: vec![VERSION], operation_count: 0, range_delete_count: 0 }
    }

    /// Sets a key's value.
    ///
    /// # Panics
    /// If key or value breaks the limits above: keys are built by `keyspace`, which keeps them.
    pub fn put(&mut self, family: Family, key: &[u8], value: &[u8]) -> ValueAt {
        check_key(key).expect("keyspace builds legal keys");
        check_value(value).expect("keyspace builds legal values");
        self.encoded.extend_from_slice(&[PUT, family as u8]);
        push_length(&mut self.encoded, key.len());
        push_length(&mut self.encoded, value.len());
        self.encoded.extend_from_slice(key);
        let begin = self.encoded.len();
        self.encoded.extend_from_slice(value);
        self.operation_count += 1;
        ValueAt { begin, end: self.encoded.len() }
    }

    /// Removes a key.
    ///
    /// # Panics
    /// If the key breaks the limits above.
    pub fn delete(&mut self, family: Family, key: &[u8]) {
        check_key(key).expect("keyspace builds legal keys");
        self.encoded.extend_from_slice(&[DELETE, family as u8]);
        push_length(&mut self.encoded, key.len());
        self.encoded.extend_from_slice(key);
        self.operation_count += 1;
    }

    /// Removes the keys from `begin` up to, not including, `end`; nothing if there can be none.
    ///
    /// # Panics
    /// If a key breaks the limits above.
    pub fn delete_range(&mut self, family: Family, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        check_key(begin).expect("keyspace builds legal keys");
        check_key(end).expect("keyspace builds legal keys");
        self.encoded.extend_from_slice(&[DELETE_RANGE, family as u8]);
        push_length(&mut self.encoded, begin.len());
        push_length(&mut self.encoded, end.len());
        self.encoded.extend_from_slice(begin);
        self.encoded.extend_from_slice(end);
        self.operation_count += 1;
        self.range_delete_count += 1;
        assert!(self.range_delete_count <= self.operation_count, "all are counted");
    }

    /// Overwrites bytes of a value that was put before, from its byte `offset` on: places in the
    /// log are known only once the batch has its final length.
    ///
    /// # Panics
    /// If the bytes reach beyond the end of the value.
    pub fn patch(&mut self, value: ValueAt, offset: usize, bytes: &[u8]) {
        let from = value.begin + offset;
        let end = from + bytes.len();
        assert!(end <= value.end, "a patch stays in its value");
        self.encoded[from..end].copy_from_slice(bytes);
    }

    /// The encoding, as it stands in a frame.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        debug_assert!(self.range_delete_count <= self.operation_count, "operations are counted");
        &self.encoded
    }

    /// How many operations there are.
    #[must_use]
    pub fn operation_count(&self) -> usize {
        self.operation_count
    }

    /// How many of them delete a range.
    #[must_use]
    pub fn range_delete_count(&self) -> usize {
        self.range_delete_count
    }

    /// Whether there are no operations.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operation_count == 0
    }

    /// The operations in their order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        debug_assert_eq!(self.encoded[0], VERSION, "a write batch begins with its version");
        let mut rest = &self.encoded[1..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            Some(take_operation(&mut rest).expect("a write batch holds only what decode accepts"))
        })
    }

    /// Takes an encoding after checking all of it.
    ///
    /// # Errors
    /// [`WriteBatchError`] says what is wrong.
    pub fn decode(encoded: &[u8]) -> Result<Self, WriteBatchError> {
        let (&version, mut rest) = encoded.split_first().ok_or(WriteBatchError::Truncated)?;
        if version != VERSION {
            return Err(WriteBatchError::UnknownVersion { byte: version });
        }
        let (mut operation_count, mut range_delete_count) = (0, 0);
        while !rest.is_empty() {
            let operation = take_operation(&mut rest)?;
            operation_count += 1;
            range_delete_count += usize::from(matches!(operation, Operation::DeleteRange { .. }));
        }
        assert!(range_delete_count <= operation_count, "a range delete is an operation");
        let decoded = Self { encoded: encoded.to_vec(), operation_count, range_delete_count };
        debug_assert_eq!(decoded.operations().count(), operation_count, "all are counted");
        Ok(decoded)
    }
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.operations()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.put(Family::Meta, b"k", &[7; 200]);
        batch.delete(Family::Topics, b"gone");
        batch.delete_range(Family::Batches, b"a", b"b");
        batch
    }

    #[test]
    fn what_was_encoded_is_decoded_in_its_order() {
        let batch = sample();
        let decoded = WriteBatch::decode(batch.encoded()).unwrap();
        assert_eq!(decoded, batch);
        let operations: Vec<_> = decoded.operations().collect();
        assert_eq!(
            operations,
            [
                Operation::Put { family: Family::Meta, key: b"k", value: &[7; 200] },
                Operation::Delete { family: Family::Topics, key: b"gone" },
                Operation::DeleteRange { family: Family::Batches, begin: b"a", end: b"b" },
            ]
        );
        assert_eq!((decoded.operation_count(), decoded.range_delete_count()), (3, 1));
    }

    #[test]
    fn the_encoding_is_the_one_on_disk() {
        let mut batch = WriteBatch::new();
        batch.put(Family::Batches, b"key", b"v");
        batch.delete(Family::Meta, b"k");
        batch.delete_range(Family::Index, b"a", b"bc");
        let expected = b"\x01\x01\x04\x03\x01keyv\x02\x01\x01k\x03\x05\x01\x02abc";
        assert_eq!(batch.encoded(), expected);
    }

    #[test]
    fn a_truncation_at_any_byte_gives_an_error_or_a_prefix_of_the_operations() {
        let batch = sample();
        let whole: Vec<_> = batch.operations().collect();
        for length in 0..batch.encoded().len() {
            match WriteBatch::decode(&batch.encoded()[..length]) {
                Ok(shorter) => {
                    let operations: Vec<_> = shorter.operations().collect();
                    assert!(operations.len() < whole.len());
                    assert_eq!(operations, whole[..operations.len()]);
                }
                Err(error) => assert_eq!(error, WriteBatchError::Truncated, "length {length}"),
            }
        }
    }

    #[test]
    fn a_range_that_is_empty_or_inverted_is_dropped_when_built_and_refused_when_read() {
        let mut batch = WriteBatch::new();
        batch.delete_range(Family::Batches, b"b", b"b");
        batch.delete_range(Family::Batches, b"b", b"a");
        assert!(batch.is_empty());
        let inverted = b"\x01\x03\x04\x01\x01ba";
        assert_eq!(WriteBatch::decode(inverted), Err(WriteBatchError::InvertedRange));
    }

    #[test]
    fn unknown_versions_kinds_and_families_are_refused() {
        assert_eq!(WriteBatch::decode(b""), Err(WriteBatchError::Truncated));
        assert_eq!(WriteBatch::decode(b"\x02"), Err(WriteBatchError::UnknownVersion { byte: 2 }));
        let kind = WriteBatch::decode(b"\x01\x04\x01");
        assert_eq!(kind, Err(WriteBatchError::UnknownOperation { byte: 4 }));
        let family = WriteBatch::decode(b"\x01\x02\x0b\x01k");
        assert_eq!(family, Err(WriteBatchError::UnknownFamily { byte: 11 }));
        let longer = WriteBatch::decode(b"\x01\x02\x01\x81\x00k");
        assert_eq!(longer, Err(WriteBatchError::BadLength));
        let empty_key = WriteBatch::decode(b"\x01\x02\x01\x00");
        assert_eq!(empty_key, Err(WriteBatchError::KeyLength { length_bytes: 0 }));
    }

    #[test]
    fn a_patch_changes_the_value_and_nothing_else() {
        let mut batch = WriteBatch::new();
        let at = batch.put(Family::Batches, b"key", b"0123");
        batch.put(Family::Meta, b"k", b"v");
        batch.patch(at, 1, b"xy");
        let values: Vec<_> = batch
            .operations()
            .map(|operation| match operation {
                Operation::Put { value, .. } => value.to_vec(),
                _ => panic!("only puts were made"),
            })
            .collect();
        assert_eq!(values, [b"0xy3".to_vec(), b"v".to_vec()]);
    }
}
