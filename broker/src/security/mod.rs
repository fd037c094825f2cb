//! Who may do what: users and their passwords, grants, the SASL exchange, TLS.

pub mod grants;
pub mod sasl;
pub mod tls;
pub mod users;

use std::sync::Arc;

pub use grants::{Action, Grants};
pub use users::Users;

/// What the listener asks of everybody who connects.
#[derive(Debug, Default)]
pub struct Security {
    /// The users that may log in; without it nobody has to.
    pub users: Option<Users>,
    /// What each of them may do; without it, everything.
    pub grants: Option<Arc<Grants>>,
}

/// What one connection may do.
#[derive(Debug, Clone, Default)]
pub struct Access {
    user: Option<Arc<str>>,
    grants: Option<Arc<Grants>>,
}

impl Access {
    /// Everything: where nobody logs in, or no grants were given.
    #[must_use]
    pub fn open() -> Self {
        Self::default()
    }

    /// What the grants of this user allow.
    #[must_use]
    pub fn of(user: &str, grants: Option<&Arc<Grants>>) -> Self {
        Self { user: Some(Arc::from(user)), grants: grants.cloned() }
    }

    /// The user's name, where somebody has logged in.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether the connection may do this with the topic of this name.
    #[must_use]
    pub fn allows(&self, action: Action, topic: &str) -> bool {
        match (&self.grants, &self.user) {
            (None, _) => true,
            (Some(grants), Some(user)) => grants.allow(user, action, topic),
            (Some(_), None) => false,
        }
    }

    /// Whether the connection may use this transactional id.
    #[must_use]
    pub fn allows_transactional_id(&self, id: &str) -> bool {
        self.allows(Action::TransactionalIdWrite, id)
    }

    /// Whether the connection may write any topic: then it may have a producer id.
    #[must_use]
    pub fn writes_any(&self) -> bool {
        match (&self.grants, &self.user) {
            (None, _) => true,
            (Some(grants), Some(user)) => grants.allow_any(user, Action::KafkaWrite),
            (Some(_), None) => false,
        }
    }

    /// Kafka's bits of what the connection may do with a topic.
    #[must_use]
    pub fn topic_operations(&self, topic: &str) -> i32 {
        [
            (Action::KafkaRead, 1 << 3),
            (Action::KafkaWrite, 1 << 4),
            (Action::Create, 1 << 5),
            (Action::Delete, 1 << 6),
            (Action::AlterConfigs, 1 << 7 | 1 << 11),
            (Action::Describe, 1 << 8 | 1 << 10),
        ]
        .into_iter()
        .filter(|&(action, _)| self.allows(action, topic))
        .fold(0, |bits, (_, bit)| bits | bit)
    }
}
