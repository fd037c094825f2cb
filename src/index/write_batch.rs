//! The set of index changes that one commit makes, in the one encoding that log and store share.
//!
//! Operations stand in their order, because a later one overrules an earlier one: a range delete
//! and a put behind it keep the put. Values are absolute, never deltas, so replay may start early.
//!
//! ```text
//! write batch  := version u8 (1) | operation*
//! operation    := put          0x01 | family u8 | key length | value length | key | value
//!               | delete       0x02 | family u8 | key length | key
//!               | delete range 0x03 | family u8 | begin length | end length | begin | end
//! length       := unsigned LEB128 of a u32, shortest form
//! ```
//!
//! INVARIANT: a `WriteBatch` holds only what [`WriteBatch::decode`] accepts: known families,
//! non-empty keys of at most [`MAX_KEY_BYTES`], values of at most [`MAX_VALUE_BYTES`], begin < end.

use std::fmt;

/// The longest key that any family has; topic names and group ids bound it.
pub const MAX_KEY_BYTES: usize = 64 * 1024;

/// The longest value; a topic's configuration with all its partitions is the largest.
pub const MAX_VALUE_BYTES: usize = 16 * 1024 * 1024;

const VERSION: u8 = 1;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// A column family of the index store. The number is on disk: it never changes, and a retired one
/// is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// Format version, engine id, epochs, the applied commit, counters of ids.
    Meta = 1,
    /// Topics by name.
    Topics = 2,
    /// Partitions by id.
    Partitions = 3,
    /// Record batches by partition and last offset.
    Batches = 4,
    /// Sparse sums over a partition, for lookups by time and size.
    Index = 5,
    /// Commit log segments.
    Segments = 6,
    /// Producers by partition and producer id.
    Producers = 7,
    /// Aborted producer transactions by partition and offset.
    Aborted = 8,
    /// Producer transactions by transactional id.
    ProducerTransactions = 9,
    /// Consumer group offsets.
    Groups = 10,
}

impl Family {
    /// All families, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Meta,
        Self::Topics,
        Self::Partitions,
        Self::Batches,
        Self::Index,
        Self::Segments,
        Self::Producers,
        Self::Aborted,
        Self::ProducerTransactions,
        Self::Groups,
    ];

    /// The family's name in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Topics => "topics",
            Self::Partitions => "partitions",
            Self::Batches => "batches",
            Self::Index => "index",
            Self::Segments => "segments",
            Self::Producers => "producers",
            Self::Aborted => "aborted",
            Self::ProducerTransactions => "producer_transactions",
            Self::Groups => "groups",
        }
    }
}

impl TryFrom<u8> for Family {
    type Error = WriteBatchError;

    fn try_from(byte: u8) -> Result<Self, WriteBatchError> {
        let known = Self::ALL.iter().find(|&&family| family as u8 == byte);
        known.copied().ok_or(WriteBatchError::UnknownFamily { byte })
    }
}

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
        /// The first key behind them that stays.
        end: &'a [u8],
    },
}

/// Why bytes are no write batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteBatchError {
    /// The bytes end inside an operation, or there are none.
    Truncated,
    /// The encoding's version is not known here.
    UnknownVersion {
        /// The version byte.
        byte: u8,
    },
    /// The kind of an operation is not known here.
    UnknownOperation {
        /// The kind byte.
        byte: u8,
    },
    /// A family is not known here.
    UnknownFamily {
        /// The family byte.
        byte: u8,
    },
    /// A length is not in its shortest form, or no u32.
    BadLength,
    /// A key is empty or longer than [`MAX_KEY_BYTES`].
    KeyLength {
        /// The key's length.
        length_bytes: usize,
    },
    /// A value is longer than [`MAX_VALUE_BYTES`].
    ValueLength {
        /// The value's length.
        length_bytes: usize,
    },
    /// A range ends where it begins, or before.
    InvertedRange,
}

/// Where the value of a put lies in the encoding, for [`WriteBatch::patch`].
#[derive(Debug, Clone, Copy)]
pub struct ValueAt(usize);

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
        let at = self.encoded.len();
        self.encoded.extend_from_slice(value);
        self.operation_count += 1;
        ValueAt(at)
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
    }

    /// Overwrites bytes of a value that was put before, from its byte `offset` on: places in the
    /// log are known only once the batch has its final length.
    ///
    /// # Panics
    /// If the bytes reach behind the end of the batch.
    pub fn patch(&mut self, value: ValueAt, offset: usize, bytes: &[u8]) {
        let from = value.0 + offset;
        self.encoded[from..from + bytes.len()].copy_from_slice(bytes);
    }

    /// The encoding, as it stands in a frame.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
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
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operation_count == 0
    }

    /// The operations in their order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
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
        Ok(Self { encoded: encoded.to_vec(), operation_count, range_delete_count })
    }
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.operations()).finish()
    }
}

fn check_key(key: &[u8]) -> Result<(), WriteBatchError> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(WriteBatchError::KeyLength { length_bytes: key.len() });
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<(), WriteBatchError> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(WriteBatchError::ValueLength { length_bytes: value.len() });
    }
    Ok(())
}

fn push_length(out: &mut Vec<u8>, length: usize) {
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
    let (taken, behind) = rest.split_at_checked(length).ok_or(WriteBatchError::Truncated)?;
    *rest = behind;
    Ok(taken)
}

fn take_operation<'a>(rest: &mut &'a [u8]) -> Result<Operation<'a>, WriteBatchError> {
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

impl fmt::Display for WriteBatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a write batch ends inside an operation"),
            Self::UnknownVersion { byte } => {
                write!(f, "a write batch has an unknown version: version={byte} known={VERSION}")
            }
            Self::UnknownOperation { byte } => {
                write!(f, "a write batch holds an unknown operation: kind={byte}")
            }
            Self::UnknownFamily { byte } => {
                write!(f, "a write batch names an unknown family: family={byte}")
            }
            Self::BadLength => f.write_str("a write batch holds a malformed length"),
            Self::KeyLength { length_bytes } => write!(
                f,
                "a write batch holds a key of a forbidden length: length_bytes={length_bytes} \
                 limit={MAX_KEY_BYTES}"
            ),
            Self::ValueLength { length_bytes } => write!(
                f,
                "a write batch holds a value that is too long: length_bytes={length_bytes} \
                 limit={MAX_VALUE_BYTES}"
            ),
            Self::InvertedRange => {
                f.write_str("a write batch deletes a range that ends before it begins")
            }
        }
    }
}

impl std::error::Error for WriteBatchError {}

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
    fn a_cut_at_any_byte_gives_an_error_or_a_prefix_of_the_operations() {
        let batch = sample();
        let whole: Vec<_> = batch.operations().collect();
        for length in 0..batch.encoded().len() {
            match WriteBatch::decode(&batch.encoded()[..length]) {
                Ok(cut) => {
                    let operations: Vec<_> = cut.operations().collect();
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
