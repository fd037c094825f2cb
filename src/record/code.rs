//! The codes of the Kafka protocol that record batches can be refused with.

use std::fmt;

/// A code of the Kafka protocol, with its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i16)]
pub enum ErrorCode {
    /// CORRUPT_MESSAGE: framing, checksum or compressed stream are broken.
    CorruptMessage = 2,
    /// MESSAGE_TOO_LARGE: the batch is larger than its topic takes.
    MessageTooLarge = 10,
    /// INVALID_TIMESTAMP: a record's timestamp is not one that its topic takes.
    InvalidTimestamp = 32,
    /// INVALID_PRODUCER_EPOCH: the producer's epoch is none.
    InvalidProducerEpoch = 47,
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
            Self::MessageTooLarge => "MESSAGE_TOO_LARGE",
            Self::InvalidTimestamp => "INVALID_TIMESTAMP",
            Self::InvalidProducerEpoch => "INVALID_PRODUCER_EPOCH",
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
