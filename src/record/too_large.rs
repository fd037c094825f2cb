//! One error for whatever is too large: a record, or a batch of them.

use std::fmt;

/// A record, or a batch, is larger than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// The record's place among those that were given, from 0; `None` where it is about a batch as
    /// a whole.
    pub record_index: Option<usize>,
    /// How large it is: for a record what a batch of this record alone would take, without a codec.
    pub size_bytes: u64,
    /// How large it may be.
    pub limit_bytes: u64,
}

impl TooLarge {
    /// A batch as a whole is too large.
    #[must_use]
    pub fn batch(size_bytes: usize, limit_bytes: usize) -> Self {
        let (size_bytes, limit_bytes) = (size_bytes as u64, limit_bytes as u64);
        Self { record_index: None, size_bytes, limit_bytes }
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size_bytes, limit_bytes, .. } = self;
        match self.record_index {
            Some(index) => write!(
                f,
                "a record is larger than its limit: record_index={index} \
                 size_bytes={size_bytes} limit={limit_bytes}"
            ),
            None => write!(
                f,
                "a batch is larger than its limit: size_bytes={size_bytes} limit={limit_bytes}"
            ),
        }
    }
}

impl std::error::Error for TooLarge {}
