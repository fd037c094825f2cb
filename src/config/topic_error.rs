//! What is wrong with a topic's configuration: all problems of one request at once.

use std::fmt;

use super::keys::ConfigKey;
use super::topic::MAX_CONFIG_VALUE_BYTES;

/// A topic's configuration that is not taken, with every reason.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfigError {
    problems: Vec<ConfigProblem>,
}

/// One reason why a topic's configuration is not taken.
///
/// For Kafka's clients [`ConfigProblem::NamedTwice`] is INVALID_REQUEST (42),
/// [`ConfigProblem::PartitionCount`] INVALID_PARTITIONS (37), every other INVALID_CONFIG (40).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// There is no such setting.
    UnknownName {
        /// The name that was given, cut if it is long.
        name: String,
    },
    /// The value is outside of the setting's domain.
    IllegalValue {
        /// The setting.
        key: &'static ConfigKey,
        /// The value that was given.
        value: String,
    },
    /// The value is longer than [`MAX_CONFIG_VALUE_BYTES`].
    ValueTooLong {
        /// The setting.
        key: &'static ConfigKey,
        /// The length of the value.
        length_bytes: usize,
    },
    /// A word was to be added to or taken from what is no list.
    NotAList {
        /// The setting.
        key: &'static ConfigKey,
    },
    /// One request changes the same setting twice.
    NamedTwice {
        /// The setting.
        key: &'static ConfigKey,
    },
    /// A record would have to be cleaned before it may be.
    LagsContradict {
        /// The value of `min.compaction.lag.ms`.
        min_ms: i64,
        /// The value of `max.compaction.lag.ms`.
        max_ms: i64,
    },
    /// A topic has one partition at least, and no more than the engine's limit.
    PartitionCount {
        /// How many there were to be.
        count: u32,
        /// The engine's `max_partitions_per_topic`.
        limit: u32,
    },
}

/// Bytes of an unknown name that an error repeats.
const NAME_SHOWN_BYTES: usize = 100;

impl TopicConfigError {
    /// The error of these problems.
    pub(super) fn check(problems: Vec<ConfigProblem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }

    /// What is wrong; never empty.
    #[must_use]
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }
}

impl From<ConfigProblem> for TopicConfigError {
    fn from(problem: ConfigProblem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl ConfigProblem {
    /// The problem of a name that is not in the table.
    pub(super) fn unknown(name: &str) -> Self {
        let mut end = name.len().min(NAME_SHOWN_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        Self::UnknownName { name: name[..end].to_owned() }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name } => write!(f, "a topic has no such setting: name={name:?}"),
            Self::IllegalValue { key, value } => {
                write!(f, "{} takes {}: value={value:?}", key.name, key.domain)
            }
            Self::ValueTooLong { key, length_bytes } => write!(
                f,
                "the value of {} is too long: length_bytes={length_bytes} \
                 limit={MAX_CONFIG_VALUE_BYTES}",
                key.name
            ),
            Self::NotAList { key } => {
                write!(f, "{} is no list, to which words are added or from which they go", key.name)
            }
            Self::NamedTwice { key } => {
                write!(f, "one request changes {} twice", key.name)
            }
            Self::LagsContradict { min_ms, max_ms } => write!(
                f,
                "max.compaction.lag.ms must not be below min.compaction.lag.ms: \
                 max_ms={max_ms} min_ms={min_ms}"
            ),
            Self::PartitionCount { count, limit } => write!(
                f,
                "a topic has from 1 to max_partitions_per_topic partitions: \
                 count={count} limit={limit}"
            ),
        }
    }
}

impl fmt::Display for TopicConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TopicConfigError {}
