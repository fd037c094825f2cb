//! How an append transaction fails: a batch is not taken; or the commit is refused, not written, or unknown.

use std::fmt;

use super::AppendTransaction;
use crate::base::error::StorageError;
use crate::base::types::ProducerId;
use crate::core::TooManyProducers;
use crate::record::{BatchRefusal, BuildError, ErrorCode, RefusedRecord, TooLarge};
use crate::state::catalog::Partition;
use crate::state::partition::OffsetsExhausted;
use crate::state::producer::SequenceError;
use crate::state::producer::transaction::ProducerTransactionError;

/// A batch was not taken into the transaction, which is as it was before.
#[derive(Debug, Clone)]
pub struct AppendError {
    /// The partition that it was for.
    pub partition: Partition,
    /// Why.
    pub kind: AppendErrorKind,
}

/// Why a batch was not taken.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AppendErrorKind {
    /// A record, or a batch, is larger than its topic takes.
    TooLarge(TooLarge),
    /// The batch breaks another rule of the format or of its topic.
    Refused(BatchRefusal),
    /// The records make no batch.
    Build(BuildError),
    /// The batch belongs to a producer transaction, and the append names no transactional id.
    NoTransactionalId {
        /// The producer of the batch.
        producer_id: ProducerId,
    },
    /// The topic was deleted since the handle was made, or the handle is of another engine.
    UnknownPartition,
    /// The transaction would hold more bytes than one may.
    TransactionTooLarge {
        /// The bytes it would hold.
        bytes: u64,
        /// The limit, `max_transaction_bytes`.
        limit_bytes: u64,
    },
    /// The transaction would hold more batches than one may.
    TooManyBatches {
        /// The limit, `max_batches_per_transaction`.
        limit: u32,
    },
}

/// Why the committer refused a transaction; nothing of it exists.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CommitRefusal {
    /// A topic was deleted after its batch was added.
    UnknownPartition {
        /// The partition.
        partition: Partition,
    },
    /// A partition has no offsets left.
    OffsetsExhausted {
        /// The partition.
        partition: Partition,
        /// How far it is.
        source: OffsetsExhausted,
    },
    /// A producer may not append its batch now.
    Sequence {
        /// The partition.
        partition: Partition,
        /// Why.
        source: SequenceError,
    },
    /// The append belongs to no open transaction of its producer.
    ProducerTransaction {
        /// The partition that is not in the transaction, where it is about one.
        partition: Option<Partition>,
        /// Why.
        source: ProducerTransactionError,
    },
    /// The partitions would have to remember more producers than they may.
    TooManyProducers(TooManyProducers),
}

/// Why nothing was written.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NotWritten {
    /// The commit queue has no room now.
    QueueFull {
        /// Bytes that wait in it.
        queued_bytes: u64,
        /// The limit, `commit_queue_bytes`.
        limit_bytes: u64,
    },
    /// The storage cannot take it: the disk is full, or the engine is halted or closed.
    Storage(StorageError),
}

/// A transaction was not committed, or nobody knows.
///
/// Where nothing was written the transaction comes back, to be tried again or looked at.
#[derive(Debug)]
pub enum CommitError {
    /// It cannot be committed as it is. Nothing of it exists, and it used no offset.
    Refused {
        /// Why.
        reason: CommitRefusal,
        /// The transaction.
        transaction: Box<AppendTransaction>,
    },
    /// It could not be written. Nothing of it exists, and it used no offset.
    NotWritten {
        /// Why.
        reason: NotWritten,
        /// The transaction.
        transaction: Box<AppendTransaction>,
    },
    /// It may exist or not: the engine has halted, and reopening it decides.
    OutcomeUnknown(StorageError),
}

impl AppendError {
    /// The code of the Kafka protocol that says the same.
    #[must_use]
    pub fn code(&self) -> i16 {
        let code = match &self.kind {
            AppendErrorKind::TooLarge(_) => ErrorCode::MessageTooLarge,
            AppendErrorKind::Refused(refusal) => refusal.code(),
            AppendErrorKind::Build(_) => ErrorCode::InvalidRecord,
            AppendErrorKind::NoTransactionalId { .. } => {
                ErrorCode::TransactionalIdAuthorizationFailed
            }
            AppendErrorKind::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            AppendErrorKind::TransactionTooLarge { .. }
            | AppendErrorKind::TooManyBatches { .. } => ErrorCode::RecordListTooLarge,
        };
        code.number()
    }

    /// What is too large, where that is why: a record, by its place among those that were given,
    /// or a batch.
    #[must_use]
    pub fn too_large(&self) -> Option<TooLarge> {
        match &self.kind {
            AppendErrorKind::TooLarge(error) => Some(*error),
            AppendErrorKind::Refused(refusal) => refusal.too_large(),
            _ => None,
        }
    }

    /// The records that broke a rule of the topic, where it was records.
    #[must_use]
    pub fn record_errors(&self) -> &[RefusedRecord] {
        match &self.kind {
            AppendErrorKind::Refused(refusal) => refusal.record_errors(),
            _ => &[],
        }
    }
}

impl From<BatchRefusal> for AppendErrorKind {
    fn from(refusal: BatchRefusal) -> Self {
        match refusal {
            BatchRefusal::TooLarge(error) => Self::TooLarge(error),
            other => Self::Refused(other),
        }
    }
}

impl From<BuildError> for AppendErrorKind {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::TooLarge(error) => Self::TooLarge(error),
            other => Self::Build(other),
        }
    }
}

impl CommitRefusal {
    /// The code of the Kafka protocol that says the same.
    #[must_use]
    pub fn code(&self) -> i16 {
        let code = match self {
            Self::UnknownPartition { .. } => ErrorCode::UnknownTopicOrPartition,
            Self::OffsetsExhausted { .. } => ErrorCode::KafkaStorageError,
            Self::Sequence { source, .. } => return source.code(),
            Self::ProducerTransaction { source, .. } => match source.as_kafka() {
                ProducerTransactionError::InvalidProducerIdMapping { .. } => {
                    ErrorCode::InvalidProducerIdMapping
                }
                ProducerTransactionError::PartitionNotAdded { .. } => ErrorCode::InvalidTxnState,
                ProducerTransactionError::ConcurrentTransactions => {
                    ErrorCode::ConcurrentTransactions
                }
                ProducerTransactionError::EmptyTransactionalId
                | ProducerTransactionError::TransactionalIdTooLong { .. } => {
                    ErrorCode::InvalidRequest
                }
                _ => ErrorCode::InvalidProducerEpoch,
            },
            Self::TooManyProducers(_) => ErrorCode::PolicyViolation,
        };
        code.number()
    }

    /// Whether another instance of the producer has taken its place.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        match self {
            Self::Sequence { source, .. } => source.is_fenced(),
            Self::ProducerTransaction { source, .. } => source.is_fenced(),
            _ => false,
        }
    }

    /// Whether the producer's transaction was open for longer than its timeout and was aborted.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::ProducerTransaction { source, .. } if source.is_timed_out())
    }

    /// The partition that it is about, if it is about one.
    #[must_use]
    pub fn partition(&self) -> Option<&Partition> {
        match self {
            Self::UnknownPartition { partition }
            | Self::OffsetsExhausted { partition, .. }
            | Self::Sequence { partition, .. } => Some(partition),
            Self::ProducerTransaction { partition, .. } => partition.as_ref(),
            Self::TooManyProducers(_) => None,
        }
    }
}

impl CommitError {
    /// The transaction, where nothing of it was written.
    #[must_use]
    pub fn into_transaction(self) -> Option<AppendTransaction> {
        match self {
            Self::Refused { transaction, .. } | Self::NotWritten { transaction, .. } => {
                Some(*transaction)
            }
            Self::OutcomeUnknown(_) => None,
        }
    }

    /// Whether the commit queue had no room. [`CommitError::into_transaction`] gives the
    /// transaction back, to be tried again.
    #[must_use]
    pub fn is_queue_full(&self) -> bool {
        matches!(self, Self::NotWritten { reason: NotWritten::QueueFull { .. }, .. })
    }

    /// Whether the disk has no room.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::NotWritten { reason: NotWritten::Storage(error), .. }
            if error.is_disk_full())
    }

    /// Whether another instance of the producer has taken its place.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason.is_fenced())
    }

    /// Whether the producer's transaction was open for longer than its timeout and was aborted.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason.is_timed_out())
    }

    /// Whether nobody knows if the transaction exists: reopening the engine decides.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown(_))
    }

    /// Whether the same transaction can be committed later without reopening the engine.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::NotWritten { reason: NotWritten::QueueFull { .. }, .. } => true,
            Self::NotWritten { reason: NotWritten::Storage(error), .. } => error.is_retriable(),
            Self::Refused { .. } | Self::OutcomeUnknown(_) => false,
        }
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a batch for {} was not taken", self.partition)?;
        match &self.kind {
            AppendErrorKind::TooLarge(error) => {
                write!(f, ": {error}, which is the topic's max.message.bytes")
            }
            AppendErrorKind::Refused(error) => write!(f, ": {error}"),
            AppendErrorKind::Build(error) => write!(f, ": {error}"),
            AppendErrorKind::NoTransactionalId { producer_id } => write!(
                f,
                ": it belongs to a producer transaction, and the append names no transactional id: \
                 producer_id={producer_id}"
            ),
            AppendErrorKind::UnknownPartition => f.write_str(": the topic is gone"),
            AppendErrorKind::TransactionTooLarge { bytes, limit_bytes } => {
                write!(f, ": the transaction would be too large: bytes={bytes} limit={limit_bytes}")
            }
            AppendErrorKind::TooManyBatches { limit } => {
                write!(f, ": the transaction has as many batches as it may: limit={limit}")
            }
        }
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            AppendErrorKind::TooLarge(error) => error.source(),
            AppendErrorKind::Refused(error) => error.source(),
            AppendErrorKind::Build(error) => error.source(),
            _ => None,
        }
    }
}

impl fmt::Display for CommitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPartition { partition } => {
                write!(f, "the topic of a batch is gone: partition={partition}")
            }
            Self::OffsetsExhausted { partition, source } => {
                write!(f, "a batch gets no offsets: partition={partition}: {source}")
            }
            Self::Sequence { partition, source } => {
                write!(f, "a producer may not append its batch: partition={partition}: {source}")
            }
            Self::ProducerTransaction { source, .. } => {
                write!(f, "the append belongs to no open transaction of its producer: {source}")
            }
            Self::TooManyProducers(source) => {
                write!(f, "a producer cannot be remembered: {source}")
            }
        }
    }
}

impl std::error::Error for CommitRefusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::UnknownPartition { .. } => None,
            Self::OffsetsExhausted { source, .. } => source.source(),
            Self::Sequence { source, .. } => source.source(),
            Self::ProducerTransaction { source, .. } => source.source(),
            Self::TooManyProducers(source) => source.source(),
        }
    }
}

impl fmt::Display for NotWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { queued_bytes, limit_bytes } => write!(
                f,
                "the commit queue is full: queued_bytes={queued_bytes} limit={limit_bytes}"
            ),
            Self::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotWritten {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::QueueFull { .. } => None,
            Self::Storage(error) => error.source(),
        }
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { reason, .. } => {
                write!(f, "the transaction was refused; nothing was written: {reason}")
            }
            Self::NotWritten { reason, .. } => {
                write!(f, "the transaction was not written: {reason}")
            }
            Self::OutcomeUnknown(error) => write!(
                f,
                "the transaction may have been written; reopening the engine decides: {error}"
            ),
        }
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { reason, .. } => reason.source(),
            Self::NotWritten { reason, .. } => reason.source(),
            Self::OutcomeUnknown(error) => error.source(),
        }
    }
}
