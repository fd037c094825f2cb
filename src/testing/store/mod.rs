//! The index store in memory, and what every kind of index store must do.

pub mod conformance;
pub mod differential;
mod memory;

pub use memory::{FailedFlush, MemoryDisk, MemoryStore};
