//! Producers and consumers for callers who link the engine: they keep ids, sequences and offsets.

mod consumer;
mod error;
mod idempotent;
mod sequences;
mod transactional;

pub use consumer::{Consumer, ConsumerError, ConsumerRecord, OffsetReset};
pub use error::ProduceError;
pub use idempotent::IdempotentProducer;
pub use transactional::{ProducerTransaction, TransactionalProducer};
