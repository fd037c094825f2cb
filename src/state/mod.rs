//! What the engine knows in memory: topics, partitions and producers, without any file.

pub mod catalog;
pub mod partition;
pub mod producer;
