//! Producers: sequences, epochs, transactions, offsets inside them, and offsets of consumer groups.

#[path = "../common/mod.rs"]
mod common;

mod coordinator;
mod groups;
mod idempotence;
mod lifetimes;
mod offsets;
mod random;
mod readers;
mod submit;
mod transactions;
