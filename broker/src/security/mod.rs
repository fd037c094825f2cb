//! Who may do what: users and their passwords, grants, the SASL exchange, TLS.

pub mod attempts;
pub mod files;
pub mod grants;
pub mod sasl;
pub mod tls;
pub mod users;

use std::net::IpAddr;
use std::sync::Arc;

pub use attempts::Attempts;
pub use files::{FileError, Loaded, SecurityFiles};
pub use grants::{Action, Grants};
pub use users::Users;

use crate::audit::{Audit, Event};

/// What the listener asks of everybody who connects.
#[derive(Debug, Default)]
pub struct Security {
    /// The users that may log in; without it nobody has to.
    pub users: Option<Users>,
    /// What each of them may do; without it, everything.
    pub grants: Option<Arc<Grants>>,
    /// Logins that failed, by address.
    pub attempts: Attempts,
}

/// What one connection may do.
#[derive(Debug, Clone, Default)]
pub struct Access {
    user: Option<Arc<str>>,
    grants: Option<Arc<Grants>>,
    trail: Option<Trail>,
}

/// Where what a connection does is noted.
#[derive(Debug, Clone)]
struct Trail {
    audit: Audit,
    address: IpAddr,
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
        Self { user: Some(Arc::from(user)), grants: grants.cloned(), trail: None }
    }

    /// The same, where what it does is noted as done from this address.
    #[must_use]
    pub fn noted(mut self, audit: &Audit, address: IpAddr) -> Self {
        self.trail = Some(Trail { audit: audit.clone(), address: address.to_canonical() });
        self
    }

    /// Notes a change that the connection has made, or that failed with this code.
    pub fn note_change(&self, action: &'static str, resource: &str, code: i16) {
        // What no grant allows was noted as that.
        if !Action::REFUSALS.contains(&code) {
            self.note("change", action, resource, code);
        }
    }

    /// Notes that the connection wanted to do what no grant allows.
    pub fn note_refusal(&self, action: Action, resource: &str) {
        self.note("refusal", action.word(), resource, action.refusal());
    }

    fn note(&self, kind: &'static str, action: &'static str, resource: &str, code: i16) {
        let Some(trail) = &self.trail else { return };
        let (user, address, resource) = (self.user(), trail.address, Some(resource));
        trail.audit.note(&Event { kind, user, address, action, resource, code });
    }

    /// The user's name, where somebody has logged in.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether the connection may do this with what has this name.
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

    /// Whether everything is allowed: nobody logs in, or no grants were given.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.grants.is_none()
    }

    /// Kafka's bits of what the connection may do with a group: those of its configuration go with
    /// seeing it, and with all the others.
    #[must_use]
    pub fn group_operations(&self, group: &str) -> i32 {
        let read = self.allows(Action::GroupRead, group);
        let delete = self.allows(Action::GroupDelete, group);
        let describe = self.allows(Action::GroupDescribe, group);
        let bits = [
            (read, 1 << 3),
            (delete, 1 << 6),
            (describe, 1 << 8 | 1 << 10),
            (read && delete && describe, 1 << 11),
        ];
        bits.into_iter().filter(|(is, _)| *is).fold(0, |bits, (_, bit)| bits | bit)
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
