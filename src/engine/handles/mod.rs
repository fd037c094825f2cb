//! Producers for callers who link the engine: they keep id, epoch and sequences, and build the batches.

mod error;
mod idempotent;
mod sequences;
mod transactional;

pub use error::ProduceError;
pub use idempotent::IdempotentProducer;
pub use transactional::{ProducerTransaction, TransactionalProducer};
