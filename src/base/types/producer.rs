//! The numbers that name a producer and order its batches, as Kafka's protocol has them (KIP-98).

/// A producer's id, given out once; `-1` where there is none.
pub type ProducerId = i64;

/// The generation of a producer id: a higher one fences all lower ones. `-1` where there is none.
pub type ProducerEpoch = i16;

/// The number of a record among those that a producer sent to a partition, from 0; after
/// `i32::MAX` comes 0 again. `-1` where there is none.
pub type Sequence = i32;

/// "No producer", as Kafka writes it.
pub const NO_PRODUCER_ID: ProducerId = -1;

/// "No epoch", as Kafka writes it.
pub const NO_PRODUCER_EPOCH: ProducerEpoch = -1;

/// "No sequence", as Kafka writes it.
pub const NO_SEQUENCE: Sequence = -1;

/// The greatest epoch that a producer is given. The one after it fences: only markers have it.
pub const MAX_PRODUCER_EPOCH: ProducerEpoch = ProducerEpoch::MAX - 1;

/// A producer and its epoch: what its batches and requests carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProducerIdentity {
    /// Its id.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
}

impl ProducerIdentity {
    /// No producer.
    pub const NONE: Self = Self { producer_id: NO_PRODUCER_ID, producer_epoch: NO_PRODUCER_EPOCH };
}

impl std::fmt::Display for ProducerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.producer_id, self.producer_epoch)
    }
}
