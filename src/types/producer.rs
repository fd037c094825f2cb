//! The numbers that name a producer and order its batches, as Kafka's protocol has them (KIP-98).

/// A producer's id, given out once; `-1` where there is none.
pub type ProducerId = i64;

/// The generation of a producer id: a higher one fences all lower ones. `-1` where there is none.
pub type ProducerEpoch = i16;

/// The number of a record among those that a producer sent to a partition, from 0; behind
/// `i32::MAX` comes 0 again. `-1` where there is none.
pub type Sequence = i32;

/// "No producer", as Kafka writes it.
pub const NO_PRODUCER_ID: ProducerId = -1;

/// "No epoch", as Kafka writes it.
pub const NO_PRODUCER_EPOCH: ProducerEpoch = -1;

/// "No sequence", as Kafka writes it.
pub const NO_SEQUENCE: Sequence = -1;
