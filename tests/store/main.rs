//! The index store: what both stores do alike, what is assumed of RocksDB, and the engine over each.

#[path = "../common/mod.rs"]
mod common;
#[path = "../temporary/mod.rs"]
mod temporary;

mod conformance;
mod engine;
mod many_partitions;
mod rocksdb_assumptions;
