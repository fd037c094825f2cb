//! Why bytes are no write batch.

use std::fmt;

use super::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES, VERSION};

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
