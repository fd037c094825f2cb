//! What the members of a group read, where they are consumers.

use std::collections::BTreeSet;

use super::group::Group;
use super::subscription::{CONSUMER, MAX_NAMES, Subscribed, read};

impl Group {
    /// Whether its members are consumers.
    #[must_use]
    pub fn is_of_consumers(&self) -> bool {
        self.protocol_type() == Some(CONSUMER)
    }

    /// What its members read.
    #[must_use]
    pub fn subscribed(&self) -> &Subscribed {
        &self.subscribed
    }

    /// Whether a member reads this topic, or may, for all that is known.
    #[must_use]
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Subscribed::Unknown => self.is_of_consumers(),
            Subscribed::Topics(topics) => {
                topics.binary_search_by(|one| one.as_str().cmp(topic)).is_ok()
            }
        }
    }

    /// Finds out what the members of a new generation read.
    pub(super) fn read_subscriptions(&mut self) {
        let topics = self.topics_of_members();
        self.subscribe(topics.map_or(Subscribed::Unknown, |topics| {
            Subscribed::Topics(topics.into_iter().collect())
        }));
    }

    fn topics_of_members(&self) -> Option<BTreeSet<String>> {
        let protocol = self.protocol.as_deref().filter(|_| self.is_of_consumers())?;
        let mut topics = BTreeSet::new();
        let mut left = MAX_NAMES;
        for member in self.members.values() {
            read(&member.metadata(protocol), &mut left, &mut topics)?;
        }
        Some(topics)
    }
}
