//! Topic names, by Kafka's rules (class `org.apache.kafka.common.internals.Topic`).

use std::fmt;
use std::sync::Arc;

/// The longest legal topic name, in bytes: Kafka's limit, which leaves room for a suffix in a
/// file name.
pub const MAX_TOPIC_NAME_BYTES: usize = 249;

/// A legal topic name: 1 to 249 of ASCII letters, digits, `.`, `_` and `-`; not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Why a string is no topic name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicNameError {
    /// The name has no characters.
    Empty,
    /// The name is `.` or `..`.
    Dots,
    /// The name is longer than [`MAX_TOPIC_NAME_BYTES`].
    TooLong {
        /// The length of the name.
        length_bytes: usize,
    },
    /// A character other than an ASCII letter or digit, `.`, `_` and `-`.
    IllegalCharacter {
        /// The first such character.
        character: char,
        /// The byte at which it stands.
        at_byte: usize,
    },
}

impl TopicName {
    /// Takes a name if Kafka would.
    ///
    /// # Errors
    /// [`TopicNameError`] says which rule the name breaks.
    pub fn new(name: impl AsRef<str>) -> Result<Self, TopicNameError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if name == "." || name == ".." {
            return Err(TopicNameError::Dots);
        }
        if name.len() > MAX_TOPIC_NAME_BYTES {
            return Err(TopicNameError::TooLong { length_bytes: name.len() });
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if let Some((at_byte, character)) = name.char_indices().find(|&(_, c)| !legal(c)) {
            return Err(TopicNameError::IllegalCharacter { character, at_byte });
        }
        Ok(Self(Arc::from(name)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with every `.` as `_`: two topics whose names agree in it cannot exist beside each
    /// other in Kafka, since their metrics would collide.
    #[must_use]
    pub fn collision_key(&self) -> String {
        self.0.replace('.', "_")
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl AsRef<str> for TopicName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a topic name must not be empty"),
            Self::Dots => f.write_str("a topic name must not be '.' or '..'"),
            Self::TooLong { length_bytes } => write!(
                f,
                "a topic name is longer than Kafka allows: length_bytes={length_bytes} \
                 limit={MAX_TOPIC_NAME_BYTES}"
            ),
            Self::IllegalCharacter { character, at_byte } => write!(
                f,
                "a topic name may hold ASCII letters, digits, '.', '_' and '-' only: \
                 character={character:?} at_byte={at_byte}"
            ),
        }
    }
}

impl std::error::Error for TopicNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_249_bytes_passes_and_one_of_250_does_not() {
        assert!(TopicName::new("a".repeat(249)).is_ok());
        let refused = TopicName::new("a".repeat(250)).unwrap_err();
        assert_eq!(refused, TopicNameError::TooLong { length_bytes: 250 });
    }

    #[test]
    fn names_of_dots_alone_are_refused_but_three_dots_pass() {
        assert_eq!(TopicName::new(""), Err(TopicNameError::Empty));
        assert_eq!(TopicName::new("."), Err(TopicNameError::Dots));
        assert_eq!(TopicName::new(".."), Err(TopicNameError::Dots));
        assert!(TopicName::new("...").is_ok());
    }

    #[test]
    fn the_first_illegal_character_is_named_with_its_place() {
        let refused = TopicName::new("caf\u{e9}/x").unwrap_err();
        assert_eq!(refused, TopicNameError::IllegalCharacter { character: '\u{e9}', at_byte: 3 });
    }

    #[test]
    fn names_that_differ_in_dot_and_underscore_share_their_collision_key() {
        let key = |name| TopicName::new(name).unwrap().collision_key();
        assert_eq!(key("a.b_c"), key("a_b.c"));
        assert_ne!(key("a.b"), key("a-b"));
    }
}
