//! How a change of topics fails; nothing exists then, unless the storage says that nobody knows.

use std::fmt;

use crate::config::TopicConfigError;
use crate::error::StorageError;
use crate::types::{TopicName, TopicNameError};

/// A topic was not made.
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
    /// The storage failed.
    Storage(StorageError),
}

/// A topic was not deleted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DeleteTopicError {
    /// There is no such topic.
    UnknownTopic {
        /// The name that was asked for.
        name: String,
    },
    /// The storage failed.
    Storage(StorageError),
}

/// Partitions were not added.
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
    /// The storage failed.
    Storage(StorageError),
}

/// A topic's configuration was not changed.
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
    /// The storage failed.
    Storage(StorageError),
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
        }
    }
}

impl fmt::Display for DeleteTopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTopic { name } => write!(f, "there is no such topic: topic={name}"),
            Self::Storage(error) => error.fmt(f),
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
        }
    }
}

impl fmt::Display for AlterTopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTopic { name } => write!(f, "there is no such topic: topic={name}"),
            Self::Config(error) => error.fmt(f),
            Self::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CreateTopicError {}
impl std::error::Error for DeleteTopicError {}
impl std::error::Error for AddPartitionsError {}
impl std::error::Error for AlterTopicError {}
