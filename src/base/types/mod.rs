//! The words of the engine as values: names, ids, offsets, places in the log, and what a caller asks for.
//!
//! Nothing here does I/O or knows another module. Offsets and timestamps are plain `i64`, as in
//! Kafka, because both have legal negative values there (`-1` for "none").

mod ids;
mod names;
mod places;
mod producer;
mod watermarks;

pub use ids::{EngineId, ParseTopicIdError, PartitionId, TopicId};
pub use names::{MAX_TOPIC_NAME_BYTES, TopicName, TopicNameError};
pub use places::{AppliedCommit, CommitSequence, PayloadLocation, SegmentId};
pub use producer::{
    MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, ProducerEpoch, ProducerId,
    ProducerIdentity, Sequence,
};
pub use watermarks::{Durability, Isolation, Visibility, Watermarks};

/// The place of a record in its partition, from 0; `-1` where the protocol says "none".
pub type Offset = i64;

/// Milliseconds since the Unix epoch; `-1` where a record has none.
pub type TimestampMs = i64;

/// Kafka's leader epoch: raised for every partition when the engine opens after anything but a
/// clean close, and stamped into each batch that is served.
pub type LeaderEpoch = i32;

/// "No timestamp", as Kafka writes it.
pub const NO_TIMESTAMP: TimestampMs = -1;
