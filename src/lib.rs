//! tidelog is an embedded storage engine for transactional partition logs.

pub mod clock;
pub mod config;
pub mod error;
pub mod io;
pub mod keyspace;
pub mod log;
pub mod partitioner;
pub mod record;
pub mod rules;
pub mod store;
pub mod types;
pub mod write_batch;
