//! Key and value layouts of the index store: big-endian keys, versioned values, each drawn where it is made.
//!
//! Only this module knows them. A value begins with a version byte (topics are JSON and name their
//! version); an unknown one is corruption, never guessed at.

mod batches;
mod bytes;
mod groups;
mod meta;
mod partitions;
mod producer_transactions;
mod producers;
mod topics;

pub use batches::{BatchEntry, IndexEntry, batch_key, batch_key_offset, decode_batch_key};
pub use bytes::partition_range;
pub use groups::{
    GroupRow, MAX_GROUP_BYTES, decode_group_key, group_key, group_of_key, group_prefix,
};
pub use meta::{Identity, MetaKey, Session, decode_applied, encode_applied};
pub use meta::{decode_counter, encode_counter};
pub use partitions::{EpochStart, PartitionRow, decode_partition_key, partition_key};
pub use producer_transactions::{
    MAX_TRANSACTIONAL_ID_BYTES, PendingOffsetKey, ProducerTransactionRow, ProducerTransactionState,
    decode_producer_transaction_key, pending_offsets_range, producer_transaction_key,
    producer_transactions_range,
};
pub use producers::{
    AbortedRow, ProducerRow, SequencedBatch, decode_aborted_key, decode_producer_key, producer_key,
};
pub use topics::{TopicRow, topic_key};

/// The version of the stored format. A store with another one is refused, never changed.
pub const FORMAT_VERSION: u32 = 3;
