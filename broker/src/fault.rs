//! A fault that a client is told: Kafka's code and a sentence.

use std::error::Error;

use kafka_protocol::error::ResponseError;

use crate::wire::text::cut;

/// Why a request, or a part of it, was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Kafka's error code.
    pub code: i16,
    /// What happened, for a person.
    pub message: String,
    /// Where single records are to blame: their indices in the batch, each with its reason.
    pub records: Vec<(i32, String)>,
}

/// The longest message that a client is told: the name or the value to blame may be far longer, and
/// many partitions may be told the same.
const MAX_MESSAGE_BYTES: usize = 1024;

impl Fault {
    /// A fault with this code. Of a very long message the end is left out.
    pub fn new(error: ResponseError, message: impl Into<String>) -> Self {
        let message = cut(message.into(), MAX_MESSAGE_BYTES);
        Self { code: error.code(), message, records: Vec::new() }
    }

    /// The topic may not be touched by this user, and is not even said to exist.
    #[must_use]
    pub fn not_allowed() -> Self {
        Self::new(ResponseError::TopicAuthorizationFailed, "the user has no grant for this topic")
    }

    /// There is no topic, or no partition, of this name.
    #[must_use]
    pub fn unknown() -> Self {
        Self::new(ResponseError::UnknownTopicOrPartition, "there is no such topic or partition")
    }

    /// There is no topic of this id.
    #[must_use]
    pub fn unknown_id() -> Self {
        Self::new(ResponseError::UnknownTopicId, "there is no topic of this id")
    }

    /// A name that no topic may have.
    pub fn invalid_name(reason: impl ToString) -> Self {
        Self::new(ResponseError::InvalidTopicException, reason.to_string())
    }

    /// The request contradicts itself, or asks for what does not exist.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ResponseError::InvalidRequest, message)
    }

    /// A configuration entry that cannot be.
    pub fn invalid_config(message: impl Into<String>) -> Self {
        Self::new(ResponseError::InvalidConfig, message)
    }

    /// The storage below failed; nothing was written.
    pub fn storage(error: &dyn Error) -> Self {
        Self::new(ResponseError::KafkaStorageError, sentence(error))
    }

    /// Nobody knows whether it was written. Clients read this code as "possibly written", and try
    /// again.
    pub fn unknown_outcome(error: &dyn Error) -> Self {
        Self::new(ResponseError::RequestTimedOut, sentence(error))
    }
}

/// Kafka's code of an outcome: 0 is success.
pub fn code_of<T>(outcome: &Result<T, Fault>) -> i16 {
    outcome.as_ref().map_or_else(|fault| fault.code, |_| 0)
}

/// An error and its causes in one sentence.
pub fn sentence(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        sentence.push_str(": ");
        sentence.push_str(&error.to_string());
        cause = error.source();
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_with_the_first_cause() {
        let cause = std::io::Error::other("no such device");
        let error = tidelog::StorageError::io("sync", std::path::Path::new("log/1"), cause);
        assert_eq!(sentence(&error), "could not sync log/1: no such device");
    }
}
