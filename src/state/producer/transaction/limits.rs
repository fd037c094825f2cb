//! How many parts a producer transaction may have.

/// The most partitions that a transaction may have: as many as an engine may well have, and a row
/// of 4 MiB, a quarter of the longest value.
pub const MAX_TRANSACTION_PARTITIONS: usize = 1 << 20;

/// The most groups that a transaction may have. With the longest names they make a row of 8 MiB,
/// half of the longest value; a client has one.
pub const MAX_TRANSACTION_GROUPS: usize = 256;
