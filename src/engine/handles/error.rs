//! How an append through a producer's handle fails.

use std::fmt;

use crate::write::append::{AppendError, CommitError};
use crate::write::producer_transaction::ProducerError;

/// Records were not appended, or nobody knows. The same records may be given again: where they were
/// stored after all, they are not stored twice.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProduceError {
    /// The records cannot be taken; nothing was appended, and no sequence was used.
    Append(AppendError),
    /// They were not committed.
    Commit(CommitError),
    /// The producer may not append: another instance has taken its place, or its transaction has
    /// timed out.
    Producer(ProducerError),
}

impl ProduceError {
    /// Whether another instance of the producer has taken its place. This one must end.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        match self {
            Self::Append(_) => false,
            Self::Commit(error) => error.is_fenced(),
            Self::Producer(error) => error.is_fenced(),
        }
    }

    /// Whether the transaction was open for longer than its timeout and was aborted. The producer
    /// can begin another.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        match self {
            Self::Append(_) => false,
            Self::Commit(error) => error.is_timed_out(),
            Self::Producer(error) => error.is_timed_out(),
        }
    }

    /// Whether the commit queue had no room.
    #[must_use]
    pub fn is_queue_full(&self) -> bool {
        matches!(self, Self::Commit(error) if error.is_queue_full())
    }

    /// Whether the same records can be appended later, without reopening the engine.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Append(_) => false,
            Self::Commit(error) => error.is_retriable(),
            Self::Producer(error) => error.is_retriable(),
        }
    }

    /// Whether nobody knows if the records exist: reopening the engine decides.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Append(_) => false,
            Self::Commit(error) => error.is_outcome_unknown(),
            Self::Producer(error) => error.is_outcome_unknown(),
        }
    }
}

impl From<AppendError> for ProduceError {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

impl From<CommitError> for ProduceError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<ProducerError> for ProduceError {
    fn from(error: ProducerError) -> Self {
        Self::Producer(error)
    }
}

impl fmt::Display for ProduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(error) => error.fmt(f),
            Self::Commit(error) => error.fmt(f),
            Self::Producer(error) => write!(f, "the producer may not append: {error}"),
        }
    }
}

impl std::error::Error for ProduceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Append(error) => error.source(),
            Self::Commit(error) => error.source(),
            Self::Producer(error) => error.source(),
        }
    }
}
