//! How a change of topics fails: refused, not written, or unknown.

use std::fmt;

use crate::base::error::StorageError;
use crate::base::types::{TopicName, TopicNameError};
use crate::config::TopicConfigError;

/// An error that can be the storage's.
pub(super) trait Settled: Send + 'static {
    /// Nothing has changed.
    fn not_written(error: StorageError) -> Self;

    /// Nobody knows.
    fn unknown(error: StorageError) -> Self;
}

/// A topic was not made, or nobody knows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CreateTopicError {
    /// The name is no topic name.
    Name(TopicNameError),
    /// A topic of this name exists.
    Exists {
        /// The name.
        name: TopicName,
    },
    /// A topic exists whose name differs from this one in `.` and `_` only.
    Collides {
        /// The name.
        name: TopicName,
        /// The topic that exists.
        with: TopicName,
    },
    /// The configuration is not valid.
    Config(TopicConfigError),
    /// All partition ids that there can ever be were given out.
    PartitionIdsExhausted,
    /// The engine would have more topics, or more partitions in all, than it may.
    EngineFull {
        /// Topics that there would be.
        topic_count: u64,
        /// Partitions that there would be.
        partition_count: u64,
        /// The limit of topics, `max_topics`.
        topic_limit: u64,
        /// The limit of partitions, `max_partitions`.
        partition_limit: u64,
    },
    /// The storage could not take it, or not be read; nothing has changed.
    Storage(StorageError),
    /// It may be done: the engine has halted, and reopening it decides.
    OutcomeUnknown(StorageError),
}

/// A topic was not deleted, or nobody knows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DeleteTopicError {
    /// There is no such topic.
    UnknownTopic {
        /// The name that was asked for, or the id.
        name: String,
    },
    /// The storage could not take it, or not be read; nothing has changed.
    Storage(StorageError),
    /// It may be done: the engine has halted, and reopening it decides.
    OutcomeUnknown(StorageError),
}

/// Partitions were not added, or nobody knows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AddPartitionsError {
    /// There is no such topic.
    UnknownTopic {
        /// The name that was asked for.
        name: String,
    },
    /// The topic has as many partitions already, or more; it cannot shrink.
    NotMore {
        /// The partitions it has.
        partition_count: u32,
        /// The partitions asked for.
        total_count: u32,
    },
    /// A limit of the topic or the engine.
    Limit(CreateTopicError),
    /// The storage could not take it, or not be read; nothing has changed.
    Storage(StorageError),
    /// It may be done: the engine has halted, and reopening it decides.
    OutcomeUnknown(StorageError),
}

/// A topic's configuration was not changed, or nobody knows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AlterTopicError {
    /// There is no such topic.
    UnknownTopic {
        /// The name that was asked for.
        name: String,
    },
    /// The configuration is not valid.
    Config(TopicConfigError),
    /// The storage could not take it, or not be read; nothing has changed.
    Storage(StorageError),
    /// It may be done: the engine has halted, and reopening it decides.
    OutcomeUnknown(StorageError),
}

impl CreateTopicError {
    pub(super) fn taken(name: &TopicName, by: TopicName) -> Self {
        if *name == by {
            Self::Exists { name: by }
        } else {
            Self::Collides { name: name.clone(), with: by }
        }
    }
}

impl From<TopicNameError> for CreateTopicError {
    fn from(error: TopicNameError) -> Self {
        Self::Name(error)
    }
}

impl fmt::Display for CreateTopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::Exists { name } => write!(f, "a topic of this name exists: topic={name}"),
            Self::Collides { name, with } => write!(
                f,
                "a topic exists whose name differs in '.' and '_' only: topic={name} exists={with}"
            ),
            Self::Config(error) => error.fmt(f),
            Self::PartitionIdsExhausted => {
                write!(f, "all partition ids were given out: limit={}", u32::MAX - 1)
            }
            Self::EngineFull { topic_count, partition_count, topic_limit, partition_limit } => {
                write!(
                    f,
                    "the engine may not have so many topics or partitions: \
                     topic_count={topic_count} limit={topic_limit} \
                     partition_count={partition_count} limit={partition_limit}"
                )
            }
            Self::Storage(error) => error.fmt(f),
            Self::OutcomeUnknown(error) => write!(f, "{UNKNOWN}: {error}"),
        }
    }
}

impl fmt::Display for DeleteTopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTopic { name } => write!(f, "there is no such topic: topic={name}"),
            Self::Storage(error) => error.fmt(f),
            Self::OutcomeUnknown(error) => write!(f, "{UNKNOWN}: {error}"),
        }
    }
}

impl fmt::Display for AddPartitionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTopic { name } => write!(f, "there is no such topic: topic={name}"),
            Self::NotMore { partition_count, total_count } => write!(
                f,
                "a topic can only grow: partition_count={partition_count} asked={total_count}"
            ),
            Self::Limit(error) => error.fmt(f),
            Self::Storage(error) => error.fmt(f),
            Self::OutcomeUnknown(error) => write!(f, "{UNKNOWN}: {error}"),
        }
    }
}

impl fmt::Display for AlterTopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTopic { name } => write!(f, "there is no such topic: topic={name}"),
            Self::Config(error) => error.fmt(f),
            Self::Storage(error) => error.fmt(f),
            Self::OutcomeUnknown(error) => write!(f, "{UNKNOWN}: {error}"),
        }
    }
}

const UNKNOWN: &str = "it may have been written; reopening the engine decides";

macro_rules! outcomes {
    ($($error:ident),*) => {
        $(
            impl std::error::Error for $error {
                fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                    match self {
                        Self::Storage(error) | Self::OutcomeUnknown(error) => error.source(),
                        _ => None,
                    }
                }
            }

            impl Settled for $error {
                fn not_written(error: StorageError) -> Self {
                    Self::Storage(error)
                }

                fn unknown(error: StorageError) -> Self {
                    Self::OutcomeUnknown(error)
                }
            }

            impl $error {
                /// Whether the same change can succeed later, without reopening the engine.
                #[must_use]
                pub fn is_retriable(&self) -> bool {
                    matches!(self, Self::Storage(error) if error.is_retriable())
                }
            }
        )*
    };
}

outcomes!(CreateTopicError, DeleteTopicError, AddPartitionsError, AlterTopicError);
