//! What bounds a write batch: the version of its encoding, and the lengths of keys and values.

/// The longest key that any family has; topic names and group ids bound it.
pub const MAX_KEY_BYTES: usize = 64 * 1024;

/// The longest value; a topic's configuration with all its partitions is the largest.
pub const MAX_VALUE_BYTES: usize = 16 * 1024 * 1024;

/// The version of the encoding that is written and read here.
pub(super) const VERSION: u8 = 1;
