//! The codes of the Kafka protocol that the engine's errors stand for: the one home of their numbers.

use std::fmt;

/// A code of the Kafka protocol, with its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i16)]
pub enum ErrorCode {
    /// CORRUPT_MESSAGE: framing, checksum or compressed stream are broken.
    CorruptMessage = 2,
    /// UNKNOWN_TOPIC_OR_PARTITION: the topic is gone.
    UnknownTopicOrPartition = 3,
    /// MESSAGE_TOO_LARGE: the batch is larger than its topic takes.
    MessageTooLarge = 10,
    /// RECORD_LIST_TOO_LARGE: a transaction would have too many bytes or batches.
    RecordListTooLarge = 18,
    /// INVALID_TIMESTAMP: a record's timestamp is not one that its topic takes.
    InvalidTimestamp = 32,
    /// INVALID_REQUEST: the request breaks a rule of its own.
    InvalidRequest = 42,
    /// POLICY_VIOLATION: a limit of the engine is reached.
    PolicyViolation = 44,
    /// OUT_OF_ORDER_SEQUENCE_NUMBER: the batch is not the next one of its producer.
    OutOfOrderSequenceNumber = 45,
    /// INVALID_PRODUCER_EPOCH: the producer's epoch is none, or another's by now.
    InvalidProducerEpoch = 47,
    /// INVALID_TXN_STATE: the producer's transaction does not allow it.
    InvalidTxnState = 48,
    /// INVALID_PRODUCER_ID_MAPPING: the transactional id is another producer's.
    InvalidProducerIdMapping = 49,
    /// CONCURRENT_TRANSACTIONS: a transaction is being ended; the request may be sent again.
    ConcurrentTransactions = 51,
    /// TRANSACTIONAL_ID_AUTHORIZATION_FAILED: a transactional batch without a transactional id.
    TransactionalIdAuthorizationFailed = 53,
    /// KAFKA_STORAGE_ERROR: the partition cannot take it.
    KafkaStorageError = 56,
    /// UNSUPPORTED_COMPRESSION_TYPE: this build has no such codec.
    UnsupportedCompressionType = 76,
    /// INVALID_RECORD: the batch or a record breaks a rule.
    InvalidRecord = 87,
}

impl ErrorCode {
    /// The number in the protocol.
    #[must_use]
    pub const fn number(self) -> i16 {
        self as i16
    }

    /// The name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CorruptMessage => "CORRUPT_MESSAGE",
            Self::UnknownTopicOrPartition => "UNKNOWN_TOPIC_OR_PARTITION",
            Self::MessageTooLarge => "MESSAGE_TOO_LARGE",
            Self::RecordListTooLarge => "RECORD_LIST_TOO_LARGE",
            Self::InvalidTimestamp => "INVALID_TIMESTAMP",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::PolicyViolation => "POLICY_VIOLATION",
            Self::OutOfOrderSequenceNumber => "OUT_OF_ORDER_SEQUENCE_NUMBER",
            Self::InvalidProducerEpoch => "INVALID_PRODUCER_EPOCH",
            Self::InvalidTxnState => "INVALID_TXN_STATE",
            Self::InvalidProducerIdMapping => "INVALID_PRODUCER_ID_MAPPING",
            Self::ConcurrentTransactions => "CONCURRENT_TRANSACTIONS",
            Self::TransactionalIdAuthorizationFailed => "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            Self::KafkaStorageError => "KAFKA_STORAGE_ERROR",
            Self::UnsupportedCompressionType => "UNSUPPORTED_COMPRESSION_TYPE",
            Self::InvalidRecord => "INVALID_RECORD",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
