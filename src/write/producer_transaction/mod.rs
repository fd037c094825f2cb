//! Producer transactions: who holds a transactional id, what its open transaction holds, and how it ends.
//!
//! What a request makes of a transactional id is decided by
//! [`crate::state::producer::transaction`]. Here each decision becomes one commit: the id's row,
//! and where a transaction ends its markers in all partitions, the offsets that it holds, and its
//! state, all in one frame. A reader that sees the end in one partition sees it in all.

mod change;
mod describe;
mod ending;
mod error;
mod expire;
mod request;

pub use describe::{
    ProducerDescription, ProducerTransactionDescription, StagedOffset, describe_producers,
    describe_transactional_id, describe_transactional_ids,
};
#[cfg(any(test, feature = "test-util"))]
pub(crate) use ending::PlannedEnding;
pub use error::ProducerError;
pub use expire::{ExpireReport, expire};
pub use request::{
    GroupMembership, InitProducer, add_group, add_partitions, add_partitions_of_append,
    end_own_transaction, end_transaction, init_producer, is_staged, new_producer_id, stage_offsets,
};
