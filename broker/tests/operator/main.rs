//! What an operator meets: options and where they come from, signals, files, limits, the audit log.
#![cfg(feature = "rocksdb")]
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

#[path = "../common/mod.rs"]
mod common;

mod audit;
mod health;
mod options;
mod process;
mod reload;
mod starting;
