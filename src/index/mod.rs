//! The index: the write batch, the layouts of keys and values, and the store that holds them.

pub mod keyspace;
pub mod store;
pub mod write_batch;
