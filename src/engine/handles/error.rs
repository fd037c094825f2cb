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
    /// The producer may not append: it is fenced, or its transaction was aborted.
    Producer(ProducerError),
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
            Self::Append(_) => f.write_str("the records cannot be taken"),
            Self::Commit(_) => f.write_str("the records were not committed"),
            Self::Producer(_) => f.write_str("the producer may not append"),
        }
    }
}

impl std::error::Error for ProduceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Append(source) => Some(source),
            Self::Commit(source) => Some(source),
            Self::Producer(source) => Some(source),
        }
    }
}
