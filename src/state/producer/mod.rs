//! Producers as pure values: which batch of one may come next, and what a partition knows of all of them.

mod aborted;
mod sequences;
mod set;
pub mod transaction;

pub use aborted::{AbortedSet, AbortedTransaction};
pub use sequences::{NewBatch, ProducerState, SequenceCheck, SequenceError};
pub use set::Producers;
