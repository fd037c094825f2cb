//! Grants: lines `USER ACTION NAME` that say what a user may do. What no line allows is refused.

use std::collections::HashMap;
use std::fmt;

/// What can be granted, of topics but for the last. Each of a topic includes describing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// See the topic, its offsets and its configuration.
    Describe = 1,
    /// Fetch, and commit offsets of a group.
    KafkaRead = 2,
    /// Produce.
    KafkaWrite = 4,
    /// Create topics.
    Create = 8,
    /// Delete topics and records.
    Delete = 16,
    /// Change the configuration, and add partitions.
    AlterConfigs = 32,
    /// Use a transactional id; the name is that of the id, and no topic is meant.
    TransactionalIdWrite = 64,
}

/// Every action.
const ALL: u8 = 127;

/// The lines of a grants file.
#[derive(Debug, Default)]
pub struct Grants {
    users: HashMap<String, UserGrants>,
}

#[derive(Debug, Default)]
struct UserGrants {
    /// Bits of actions by the whole name of a topic.
    topics: HashMap<String, u8>,
    /// Bits of actions by a prefix of names.
    prefixes: Vec<(String, u8)>,
}

/// A line that is no grant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantsError {
    /// The line does not have three words.
    Words {
        /// Its number, from 1.
        line: usize,
        /// How many words it has.
        words: usize,
    },
    /// The second word is no action.
    Action {
        /// The line's number, from 1.
        line: usize,
        /// The word.
        action: String,
    },
    /// A `*` stands elsewhere than behind a prefix.
    Topic {
        /// The line's number, from 1.
        line: usize,
        /// The word.
        topic: String,
    },
}

impl Grants {
    /// Reads the lines of a file; blank lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// [`GrantsError`] names the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, GrantsError> {
        let mut grants = Self::default();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let line = index + 1;
            match words[..] {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [user, action, topic] => grants.add(line, user, action, topic)?,
                _ => return Err(GrantsError::Words { line, words: words.len() }),
            }
        }
        Ok(grants)
    }

    fn add(&mut self, line: usize, user: &str, word: &str, topic: &str) -> Result<(), GrantsError> {
        let bits = match word {
            "Describe" => Action::Describe as u8,
            "KafkaRead" => Action::KafkaRead as u8,
            "KafkaWrite" => Action::KafkaWrite as u8,
            "Create" => Action::Create as u8,
            "Delete" => Action::Delete as u8,
            "AlterConfigs" => Action::AlterConfigs as u8,
            "TransactionalIdWrite" => Action::TransactionalIdWrite as u8,
            "All" => ALL,
            _ => return Err(GrantsError::Action { line, action: word.to_owned() }),
        };
        let of_id_only = bits == Action::TransactionalIdWrite as u8;
        let bits = if of_id_only { bits } else { bits | Action::Describe as u8 };
        let user = self.users.entry(user.to_owned()).or_default();
        match topic.strip_suffix('*') {
            Some(prefix) if !prefix.contains('*') => {
                user.prefixes.push((prefix.to_owned(), bits));
            }
            None if !topic.contains('*') => {
                *user.topics.entry(topic.to_owned()).or_default() |= bits;
            }
            _ => return Err(GrantsError::Topic { line, topic: topic.to_owned() }),
        }
        Ok(())
    }

    /// Whether a line allows this user to do this with the topic of this name.
    #[must_use]
    pub fn allow(&self, user: &str, action: Action, topic: &str) -> bool {
        let Some(grants) = self.users.get(user) else { return false };
        let by_name = grants.topics.get(topic).copied().unwrap_or(0);
        let by_prefix = grants
            .prefixes
            .iter()
            .filter(|(prefix, _)| topic.starts_with(prefix.as_str()))
            .fold(0, |all, (_, bits)| all | bits);
        (by_name | by_prefix) & action as u8 != 0
    }
}

impl Grants {
    /// Whether a line allows this user to do this with anything at all.
    #[must_use]
    pub fn allow_any(&self, user: &str, action: Action) -> bool {
        self.users.get(user).is_some_and(|grants| {
            let by_prefix = grants.prefixes.iter().map(|(_, bits)| bits);
            grants.topics.values().chain(by_prefix).any(|bits| bits & action as u8 != 0)
        })
    }
}

impl fmt::Display for GrantsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words { line, words } => {
                write!(f, "a grant is `USER ACTION NAME`: line={line} words={words}")
            }
            Self::Action { line, action } => write!(
                f,
                "an action is KafkaRead, KafkaWrite, Create, Delete, Describe, AlterConfigs, \
                 TransactionalIdWrite or All: line={line} action={action}"
            ),
            Self::Topic { line, topic } => write!(
                f,
                "a topic is a name, or a prefix with `*` behind it: line={line} topic={topic}"
            ),
        }
    }
}

impl std::error::Error for GrantsError {}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIONS: [Action; 7] = [
        Action::Describe,
        Action::KafkaRead,
        Action::KafkaWrite,
        Action::Create,
        Action::Delete,
        Action::AlterConfigs,
        Action::TransactionalIdWrite,
    ];

    fn allowed(grants: &Grants, user: &str, topic: &str) -> Vec<Action> {
        ACTIONS.into_iter().filter(|&action| grants.allow(user, action, topic)).collect()
    }

    #[test]
    fn an_action_includes_describing_and_nothing_else() {
        let grants = Grants::parse("ann KafkaWrite orders\nann All audit-*\n").unwrap();
        assert_eq!(allowed(&grants, "ann", "orders"), [Action::Describe, Action::KafkaWrite]);
        assert_eq!(allowed(&grants, "ann", "audit-1"), ACTIONS);
        assert_eq!(allowed(&grants, "ann", "audit-"), ACTIONS);
        assert_eq!(allowed(&grants, "ann", "audit"), []);
        assert_eq!(allowed(&grants, "ann", "orders2"), []);
        assert_eq!(allowed(&grants, "bob", "orders"), []);
    }

    #[test]
    fn a_transactional_id_is_granted_by_itself() {
        let text = "ann TransactionalIdWrite pay-*\nann KafkaWrite orders\nbob Describe t";
        let grants = Grants::parse(text).unwrap();
        assert_eq!(allowed(&grants, "ann", "pay-1"), [Action::TransactionalIdWrite]);
        assert_eq!(allowed(&grants, "ann", "orders"), [Action::Describe, Action::KafkaWrite]);
        assert!(grants.allow_any("ann", Action::KafkaWrite));
        assert!(!grants.allow_any("bob", Action::KafkaWrite));
        assert!(!grants.allow_any("cid", Action::Describe));
    }

    #[test]
    fn lines_of_one_topic_add_up_and_a_lone_star_is_every_topic() {
        let text = "# who\n\nann KafkaRead t\nann Delete t\nroot All *\nann Create t*";
        let grants = Grants::parse(text).unwrap();
        let expected = [Action::Describe, Action::KafkaRead, Action::Create, Action::Delete];
        assert_eq!(allowed(&grants, "ann", "t"), expected);
        assert_eq!(allowed(&grants, "root", ""), ACTIONS);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let words = GrantsError::Words { line: 2, words: 2 };
        assert_eq!(Grants::parse("a All x\na All").unwrap_err(), words);
        let action = GrantsError::Action { line: 1, action: "Write".to_owned() };
        assert_eq!(Grants::parse("a Write x").unwrap_err(), action);
        for topic in ["*x", "a*b", "**", "a**"] {
            let wrong = GrantsError::Topic { line: 1, topic: topic.to_owned() };
            assert_eq!(Grants::parse(&format!("a All {topic}")).unwrap_err(), wrong);
        }
    }
}
