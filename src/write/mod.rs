//! The operations that change something: appends, topics, offsets of groups, producer transactions.

pub mod append;
pub mod groups;
pub mod producer_transaction;
pub mod topics;
