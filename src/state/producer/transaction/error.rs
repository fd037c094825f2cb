//! Why a request of a transactional producer is refused, with the codes that Kafka has for each.

use std::fmt;

use super::{MAX_TRANSACTION_GROUPS, MAX_TRANSACTION_PARTITIONS};
use crate::base::types::{PartitionId, ProducerEpoch, ProducerId, ProducerIdentity};
use crate::index::keyspace::{MAX_TRANSACTIONAL_ID_BYTES, ProducerTransactionState};
use crate::record::MarkerKind;

/// What is said of every request of a producer whose transactional id was taken over.
const TAKEN_OVER: &str = "another instance of the producer holds the transactional id";

/// A request of a transactional producer is refused. Nothing is to be written for it, but where a
/// [`super::Step`] carries the error as its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProducerTransactionError {
    /// The transactional id is empty: INVALID_REQUEST (42).
    EmptyTransactionalId,
    /// The transactional id is too long: INVALID_REQUEST (42).
    TransactionalIdTooLong {
        /// Its length.
        length_bytes: usize,
    },
    /// The timeout is not positive, or longer than the server allows:
    /// INVALID_TRANSACTION_TIMEOUT (50).
    InvalidTransactionTimeout {
        /// The timeout that was asked for.
        timeout_ms: i32,
        /// The longest that is allowed.
        limit_ms: i32,
    },
    /// The transactional id is unknown or held by another producer id:
    /// INVALID_PRODUCER_ID_MAPPING (49).
    InvalidProducerIdMapping {
        /// The producer id of the request.
        producer_id: ProducerId,
        /// Who holds the transactional id; `None` for an unknown one.
        held_by: Option<ProducerId>,
    },
    /// Another instance holds the transactional id by now, in a request to the coordinator:
    /// PRODUCER_FENCED (90); INVALID_PRODUCER_EPOCH (47) for InitProducerId up to version 3, and
    /// for AddPartitionsToTxn, AddOffsetsToTxn and EndTxn up to version 1.
    ProducerFenced {
        /// Who the request says it is.
        given: ProducerIdentity,
        /// Who holds the transactional id.
        current: ProducerIdentity,
    },
    /// The epoch of a record batch or of a group's offsets is not the producer's:
    /// INVALID_PRODUCER_EPOCH (47) in every version.
    InvalidProducerEpoch {
        /// The epoch of the request.
        producer_epoch: ProducerEpoch,
        /// Who holds the transactional id.
        current: ProducerIdentity,
    },
    /// There is no transaction that could end so: INVALID_TXN_STATE (48).
    InvalidTxnState {
        /// How it was to end.
        kind: MarkerKind,
        /// Where the transactional id stands.
        state: ProducerTransactionState,
    },
    /// The transaction was open for longer than its timeout and was aborted. Nobody else holds the
    /// transactional id. Kafka has no code for it: its clients are told `refusal`.
    TimedOut {
        /// How long the transaction was allowed to be open.
        timeout_ms: i32,
        /// What the request is refused with in Kafka's terms.
        refusal: Box<ProducerTransactionError>,
    },
    /// A partition is not in the transaction: INVALID_TXN_STATE (48) for Produce up to version
    /// 10, TRANSACTION_ABORTABLE (120) for version 11. Later versions add it.
    PartitionNotAdded {
        /// The partition.
        partition: PartitionId,
    },
    /// A group is not in the transaction: INVALID_TXN_STATE (48) for TxnOffsetCommit up to version
    /// 3, TRANSACTION_ABORTABLE (120) for version 4. Later versions add it.
    GroupNotAdded {
        /// The group.
        group: String,
    },
    /// A transaction was open and is aborted; the request may be sent again:
    /// CONCURRENT_TRANSACTIONS (51).
    ConcurrentTransactions,
    /// A transaction would have too many partitions: INVALID_REQUEST (42).
    TooManyPartitions {
        /// How many it would have.
        count: usize,
    },
    /// A transaction would have too many groups: INVALID_REQUEST (42).
    TooManyGroups {
        /// How many it would have.
        count: usize,
    },
}

impl ProducerTransactionError {
    /// Whether another instance of the producer holds the transactional id by now. This one must
    /// end.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        match self {
            Self::ProducerFenced { .. } | Self::InvalidProducerEpoch { .. } => true,
            Self::InvalidProducerIdMapping { held_by, .. } => held_by.is_some(),
            _ => false,
        }
    }

    /// Whether the transaction was open for longer than its timeout and was aborted. The producer
    /// can begin another.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// The same in Kafka's terms, which know no timeout.
    #[must_use]
    pub fn as_kafka(&self) -> &Self {
        match self {
            Self::TimedOut { refusal, .. } => refusal,
            other => other,
        }
    }

    /// Whether the same request can succeed when it is sent again.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::ConcurrentTransactions)
    }
}

impl fmt::Display for ProducerTransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyTransactionalId => f.write_str("a transactional id must not be empty"),
            Self::TransactionalIdTooLong { length_bytes } => write!(
                f,
                "the transactional id is too long: length_bytes={length_bytes} \
                 limit={MAX_TRANSACTIONAL_ID_BYTES}"
            ),
            Self::InvalidTransactionTimeout { timeout_ms, limit_ms } => write!(
                f,
                "the timeout of a transaction must be positive and within the server's limit: \
                 timeout_ms={timeout_ms} limit={limit_ms}"
            ),
            Self::InvalidProducerIdMapping { producer_id, held_by: Some(held_by) } => {
                write!(f, "{TAKEN_OVER}: producer_id={producer_id} held_by={held_by}")
            }
            Self::InvalidProducerIdMapping { producer_id, held_by: None } => {
                write!(f, "the transactional id is not known: producer_id={producer_id}")
            }
            Self::ProducerFenced { given, current } => {
                write!(f, "{TAKEN_OVER}: epoch={} current={current}", given.producer_epoch)
            }
            Self::InvalidProducerEpoch { producer_epoch, current } => {
                write!(f, "{TAKEN_OVER}: epoch={producer_epoch} current={current}")
            }
            Self::InvalidTxnState { kind, state } => {
                let wanted = match kind {
                    MarkerKind::Commit => "commit",
                    MarkerKind::Abort => "abort",
                };
                write!(f, "no transaction can end so now: wanted={wanted} state={}", state.name())
            }
            Self::TimedOut { timeout_ms, .. } => write!(
                f,
                "the transaction was open for longer than its timeout of {timeout_ms} ms and was \
                 aborted; what was in it can be sent again in a new transaction"
            ),
            Self::PartitionNotAdded { partition } => {
                write!(f, "the partition is not in the transaction: partition_id={partition}")
            }
            Self::GroupNotAdded { group } => {
                write!(f, "the group is not in the transaction: group={group:?}")
            }
            Self::ConcurrentTransactions => {
                f.write_str("a transaction was open and is aborted: send the request again")
            }
            Self::TooManyPartitions { count } => write!(
                f,
                "a transaction would have too many partitions: count={count} \
                 limit={MAX_TRANSACTION_PARTITIONS}"
            ),
            Self::TooManyGroups { count } => write!(
                f,
                "a transaction would have too many groups: count={count} \
                 limit={MAX_TRANSACTION_GROUPS}"
            ),
        }
    }
}

impl std::error::Error for ProducerTransactionError {}
