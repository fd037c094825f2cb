//! How a request of a producer fails: refused, not written, or unknown.

use std::fmt;

use crate::base::error::StorageError;
use crate::core::{NegativeOffset, ProducerIdError, TooLong};
use crate::state::catalog::Partition;
use crate::state::producer::transaction::ProducerTransactionError;

/// A request of a producer was not carried out, or nobody knows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ProducerError {
    /// The transactional id does not allow it.
    Refused(ProducerTransactionError),
    /// A topic was deleted since the handle was made; nothing was added or staged.
    UnknownPartition {
        /// The partition.
        partition: Partition,
    },
    /// A name or the metadata of an offset is too long; nothing was staged.
    TooLong(TooLong),
    /// An offset of a group is negative; nothing was staged.
    NegativeOffset(NegativeOffset),
    /// There are as many transactional ids as there may be.
    TooManyTransactionalIds {
        /// The limit, `max_transactional_ids`.
        limit: u32,
    },
    /// No producer id could be given.
    ProducerId(ProducerIdError),
    /// An append that was submitted in the transaction was not committed: the transaction can only
    /// be aborted.
    AppendFailed,
    /// The storage could not take it; nothing has changed.
    NotWritten(StorageError),
    /// It may be done: the engine has halted, and reopening it decides.
    OutcomeUnknown(StorageError),
}

impl ProducerError {
    /// Whether another instance of the producer has taken its place. This one must end.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Refused(error) if error.is_fenced())
    }

    /// Whether the transaction was open for longer than its timeout and was aborted. The producer
    /// can begin another.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::Refused(error) if error.is_timed_out())
    }

    /// Whether nobody knows if it is done: reopening the engine decides.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown(_))
    }

    /// Whether the same request can succeed later, without reopening the engine.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_retriable(),
            Self::NotWritten(error) | Self::ProducerId(ProducerIdError::Storage(error)) => {
                error.is_retriable()
            }
            _ => false,
        }
    }
}

impl From<ProducerTransactionError> for ProducerError {
    fn from(error: ProducerTransactionError) -> Self {
        Self::Refused(error)
    }
}

impl From<ProducerIdError> for ProducerError {
    fn from(error: ProducerIdError) -> Self {
        Self::ProducerId(error)
    }
}

impl fmt::Display for ProducerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::UnknownPartition { partition } => {
                write!(f, "the topic is gone: partition={partition}")
            }
            Self::NegativeOffset(error) => write!(f, "an offset of a group is none: {error}"),
            Self::TooLong(error) => write!(f, "an offset of a group cannot be kept: {error}"),
            Self::TooManyTransactionalIds { limit } => {
                write!(f, "there are as many transactional ids as there may be: limit={limit}")
            }
            Self::AppendFailed => {
                f.write_str("an append that was submitted in the transaction was not committed")
            }
            Self::ProducerId(error) => write!(f, "no producer id could be given: {error}"),
            Self::NotWritten(error) => {
                write!(f, "it was not written, and nothing has changed: {error}")
            }
            Self::OutcomeUnknown(error) => {
                write!(f, "it may have been written; reopening the engine decides: {error}")
            }
        }
    }
}

impl std::error::Error for ProducerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => error.source(),
            Self::TooLong(error) => error.source(),
            Self::NegativeOffset(error) => error.source(),
            Self::ProducerId(error) => error.source(),
            Self::NotWritten(error) | Self::OutcomeUnknown(error) => error.source(),
            Self::UnknownPartition { .. }
            | Self::TooManyTransactionalIds { .. }
            | Self::AppendFailed => None,
        }
    }
}
