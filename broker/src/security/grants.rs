//! Grants: lines `USER ACTION NAME` that say what a user may do. What no line allows is refused.

use std::collections::HashMap;
use std::fmt;

use parking_lot::RwLock;

/// What can be granted of topics, transactional ids and groups; what the name is of, the word says.
/// Each of a topic includes describing it, each of a group as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
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
    /// Be a member of the group, and commit its offsets.
    GroupRead = 128,
    /// Delete the group, or offsets of it.
    GroupDelete = 256,
    /// See the group and its offsets.
    GroupDescribe = 512,
}

/// Every action.
const ALL: u16 = 1023;

/// The lines of a grants file.
#[derive(Debug, Default)]
pub struct Grants {
    users: RwLock<HashMap<String, UserGrants>>,
}

#[derive(Debug, Default)]
struct UserGrants {
    /// Bits of actions by a whole name.
    names: HashMap<String, u16>,
    /// Bits of actions by a prefix of names.
    prefixes: Vec<(String, u16)>,
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

impl Action {
    /// Kafka's codes for missing grants: of a topic, a group and a transactional id.
    pub const REFUSALS: [i16; 3] = [29, 30, 53];

    /// The word of a file of grants.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Describe => "Describe",
            Self::KafkaRead => "KafkaRead",
            Self::KafkaWrite => "KafkaWrite",
            Self::Create => "Create",
            Self::Delete => "Delete",
            Self::AlterConfigs => "AlterConfigs",
            Self::TransactionalIdWrite => "TransactionalIdWrite",
            Self::GroupRead => "GroupRead",
            Self::GroupDelete => "GroupDelete",
            Self::GroupDescribe => "GroupDescribe",
        }
    }

    /// Kafka's code for a missing grant.
    #[must_use]
    pub fn refusal(self) -> i16 {
        let [topic, group, transactional_id] = Self::REFUSALS;
        match self {
            Self::TransactionalIdWrite => transactional_id,
            Self::GroupRead | Self::GroupDelete | Self::GroupDescribe => group,
            _ => topic,
        }
    }

    /// The bits of this action and of another that it includes.
    const fn with(self, included: Self) -> u16 {
        self as u16 | included as u16
    }
}

impl Grants {
    /// Reads the lines of a file; blank lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// [`GrantsError`] names the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, GrantsError> {
        let mut grants = Self::default();
        // Some editors begin a file with a mark of its encoding.
        let text = text.trim_start_matches('\u{feff}');
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
            "Describe" => Action::Describe.with(Action::Describe),
            "KafkaRead" => Action::KafkaRead.with(Action::Describe),
            "KafkaWrite" => Action::KafkaWrite.with(Action::Describe),
            "Create" => Action::Create.with(Action::Describe),
            "Delete" => Action::Delete.with(Action::Describe),
            "AlterConfigs" => Action::AlterConfigs.with(Action::Describe),
            "TransactionalIdWrite" => Action::TransactionalIdWrite as u16,
            "GroupRead" => Action::GroupRead.with(Action::GroupDescribe),
            "GroupDelete" => Action::GroupDelete.with(Action::GroupDescribe),
            "GroupDescribe" => Action::GroupDescribe as u16,
            "All" => ALL,
            _ => return Err(GrantsError::Action { line, action: word.to_owned() }),
        };
        let user = self.users.get_mut().entry(user.to_owned()).or_default();
        match topic.strip_suffix('*') {
            Some(prefix) if !prefix.contains('*') => {
                user.prefixes.push((prefix.to_owned(), bits));
            }
            None if !topic.contains('*') => {
                *user.names.entry(topic.to_owned()).or_default() |= bits;
            }
            _ => return Err(GrantsError::Topic { line, topic: topic.to_owned() }),
        }
        Ok(())
    }

    /// Whether a line allows this user to do this with what has this name.
    #[must_use]
    pub fn allow(&self, user: &str, action: Action, topic: &str) -> bool {
        let users = self.users.read();
        let Some(grants) = users.get(user) else { return false };
        let by_name = grants.names.get(topic).copied().unwrap_or(0);
        let by_prefix = grants
            .prefixes
            .iter()
            .filter(|(prefix, _)| topic.starts_with(prefix.as_str()))
            .fold(0, |all, (_, bits)| all | bits);
        (by_name | by_prefix) & action as u16 != 0
    }
}

impl Grants {
    /// Takes the lines of another file in place of these, for connections that are there, too.
    pub fn replace(&self, with: Self) {
        *self.users.write() = with.users.into_inner();
    }

    /// How many there are: each name or prefix of a user counts once.
    #[must_use]
    pub fn count(&self) -> usize {
        self.users.read().values().map(|user| user.names.len() + user.prefixes.len()).sum()
    }

    /// The users that the lines name.
    #[must_use]
    pub fn users(&self) -> Vec<String> {
        self.users.read().keys().cloned().collect()
    }

    /// Whether a line allows this user to do this with anything at all.
    #[must_use]
    pub fn allow_any(&self, user: &str, action: Action) -> bool {
        self.users.read().get(user).is_some_and(|grants| {
            let by_prefix = grants.prefixes.iter().map(|(_, bits)| bits);
            grants.names.values().chain(by_prefix).any(|bits| bits & action as u16 != 0)
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
                 TransactionalIdWrite, GroupRead, GroupDelete, GroupDescribe or All: \
                 line={line} action={action}"
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
    use kafka_protocol::error::ResponseError;

    use super::*;

    #[test]
    fn the_codes_of_missing_grants_are_those_of_kafka() {
        let codes = [
            ResponseError::TopicAuthorizationFailed,
            ResponseError::GroupAuthorizationFailed,
            ResponseError::TransactionalIdAuthorizationFailed,
        ];
        assert_eq!(Action::REFUSALS, codes.map(|error| error.code()));
    }

    const ACTIONS: [Action; 10] = [
        Action::Describe,
        Action::KafkaRead,
        Action::KafkaWrite,
        Action::Create,
        Action::Delete,
        Action::AlterConfigs,
        Action::TransactionalIdWrite,
        Action::GroupRead,
        Action::GroupDelete,
        Action::GroupDescribe,
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
    fn a_group_is_granted_by_itself_and_what_is_done_with_it_includes_seeing_it() {
        let text = "ann GroupRead g\nbob GroupDelete g*\ncid GroupDescribe g\ndan KafkaRead g";
        let grants = Grants::parse(text).unwrap();
        assert_eq!(allowed(&grants, "ann", "g"), [Action::GroupRead, Action::GroupDescribe]);
        assert_eq!(allowed(&grants, "bob", "g2"), [Action::GroupDelete, Action::GroupDescribe]);
        assert_eq!(allowed(&grants, "cid", "g"), [Action::GroupDescribe]);
        assert_eq!(allowed(&grants, "dan", "g"), [Action::Describe, Action::KafkaRead]);
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
