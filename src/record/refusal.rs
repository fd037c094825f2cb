//! Why a batch is refused for appending: typed reasons, their codes, the records at fault.

use std::fmt;

use crate::base::types::{Offset, TimestampMs};

use super::code::ErrorCode;
use super::fault::{RecordError, RecordFault};
use super::too_large::TooLarge;

/// How many records of a refused batch are named, so that a refusal stays small.
pub const MAX_REPORTED_RECORDS: usize = 10_000;

/// Why a batch is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchRefusal {
    /// The bytes are no good batch.
    Malformed(RecordError),
    /// A second batch stands behind the first.
    SecondBatch,
    /// A client's batch does not start at offset 0.
    BaseOffset {
        /// Where it starts.
        base_offset: Offset,
    },
    /// The batch is larger than its topic takes.
    TooLarge(TooLarge),
    /// There are no records, or not as many as offsets.
    Counts {
        /// The number of records.
        record_count: i32,
        /// The last offset delta.
        last_offset_delta: i32,
    },
    /// A client's batch has the control bit.
    Control,
    /// A client's batch has the bit of a delete horizon.
    DeleteHorizon,
    /// The transactional bit without a producer id.
    TransactionalWithoutProducer,
    /// A producer id without a sequence.
    ProducerWithoutSequence {
        /// The producer id.
        producer_id: i64,
        /// The base sequence.
        base_sequence: i32,
    },
    /// Records that their topic does not take.
    Records(RefusedRecords),
    /// A producer id with an epoch that is none.
    ProducerEpoch {
        /// The epoch.
        producer_epoch: i16,
    },
}

/// The records of a batch that its topic does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecords {
    pub(super) records: Vec<RefusedRecord>,
    pub(super) total_count: u32,
    pub(super) any_timestamp: bool,
    pub(super) window: (TimestampMs, TimestampMs),
}

/// A record that its topic does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Its index in the batch.
    pub index: u32,
    /// Why.
    pub reason: RecordRefusal,
}

/// Why a topic does not take a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordRefusal {
    /// The topic is compacted and the key is null.
    NullKey,
    /// The timestamp is older or newer than the topic takes.
    TimestampOutOfWindow {
        /// The timestamp.
        timestamp: TimestampMs,
    },
    /// The batch claims timestamps of the log, which a client cannot give.
    AppendTimeFromClient,
}

impl BatchRefusal {
    /// The code of the protocol for it.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(error) => error.code(),
            Self::TooLarge(_) => ErrorCode::MessageTooLarge,
            Self::Records(refused) if refused.any_timestamp => ErrorCode::InvalidTimestamp,
            Self::ProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            Self::SecondBatch
            | Self::BaseOffset { .. }
            | Self::Counts { .. }
            | Self::Control
            | Self::DeleteHorizon
            | Self::TransactionalWithoutProducer
            | Self::ProducerWithoutSequence { .. }
            | Self::Records(_) => ErrorCode::InvalidRecord,
        }
    }

    /// What is too large, where that is why: the batch, or a record of it once unpacked.
    #[must_use]
    pub fn too_large(&self) -> Option<TooLarge> {
        match self {
            Self::TooLarge(error) => Some(*error),
            Self::Malformed(RecordError::Record {
                index,
                fault: RecordFault::TooLong { length_bytes, limit_bytes },
            }) => Some(TooLarge {
                record_index: Some(*index as usize),
                size_bytes: u64::from(*length_bytes),
                limit_bytes: u64::from(*limit_bytes),
            }),
            _ => None,
        }
    }

    /// The same about a batch whose first record is not the first of those that were given.
    #[must_use]
    pub(crate) fn shifted(mut self, by: u32) -> Self {
        match &mut self {
            Self::Records(refused) => {
                refused.records.iter_mut().for_each(|record| record.index += by);
            }
            Self::Malformed(RecordError::Record { index, .. }) => *index += by,
            _ => {}
        }
        self
    }

    /// The records at fault, in order, where single records are: the first
    /// [`MAX_REPORTED_RECORDS`] of them.
    #[must_use]
    pub fn record_errors(&self) -> &[RefusedRecord] {
        match self {
            Self::Records(refused) => &refused.records,
            _ => &[],
        }
    }
}

impl RefusedRecords {
    /// The records, in order: the first [`MAX_REPORTED_RECORDS`] of them.
    #[must_use]
    pub fn records(&self) -> &[RefusedRecord] {
        &self.records
    }

    /// How many there are in all.
    #[must_use]
    pub fn total_count(&self) -> u32 {
        self.total_count
    }
}

impl From<RecordError> for BatchRefusal {
    fn from(error: RecordError) -> Self {
        Self::Malformed(error)
    }
}

impl fmt::Display for BatchRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::SecondBatch => f.write_str("there is a second batch where one is taken"),
            Self::BaseOffset { base_offset } => {
                write!(f, "a client's batch must start at offset 0: base_offset={base_offset}")
            }
            Self::TooLarge(error) => error.fmt(f),
            Self::Counts { record_count, last_offset_delta } => write!(
                f,
                "a batch must have a record for each of its offsets, and one at least: \
                 record_count={record_count} last_offset_delta={last_offset_delta}"
            ),
            Self::Control => f.write_str("a client must not append control batches"),
            Self::DeleteHorizon => f.write_str("a client must not set a delete horizon"),
            Self::TransactionalWithoutProducer => {
                f.write_str("a transactional batch must have a producer id")
            }
            Self::ProducerWithoutSequence { producer_id, base_sequence } => write!(
                f,
                "a batch with a producer id must have a sequence: producer_id={producer_id} \
                 base_sequence={base_sequence}"
            ),
            Self::Records(refused) => refused.fmt(f),
            Self::ProducerEpoch { producer_epoch } => write!(
                f,
                "a batch with a producer id must have an epoch: producer_epoch={producer_epoch} \
                 limit=-1"
            ),
        }
    }
}

impl std::error::Error for BatchRefusal {}

impl fmt::Display for RefusedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.records.first() else { return Ok(()) };
        write!(f, "{}: record_index={}", first.reason, first.index)?;
        if let RecordRefusal::TimestampOutOfWindow { timestamp } = first.reason {
            let (oldest, newest) = self.window;
            write!(f, " timestamp={timestamp} oldest={oldest} newest={newest}")?;
        }
        write!(f, " refused_count={}", self.total_count)
    }
}

impl fmt::Display for RecordRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NullKey => "a record of a compacted topic must have a key",
            Self::TimestampOutOfWindow { .. } => {
                "the timestamp of a record is not one that its topic takes"
            }
            Self::AppendTimeFromClient => {
                "a client must not give timestamps of the log to its records"
            }
        })
    }
}
