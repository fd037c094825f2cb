//! A member of a group: what it said when it joined, what it was assigned, what it waits for.

use std::time::Duration;

use bytes::Bytes;

use super::messages::{Protocol, Ticket};

/// What others are told of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberDescription {
    /// Its id.
    pub id: String,
    /// The name that its operator gave it, where it is a static member.
    pub instance: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// Where it is.
    pub client_host: String,
    /// What it said for the group's protocol; empty while there is none.
    pub metadata: Bytes,
    /// What it was assigned last.
    pub assignment: Bytes,
}

/// A member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) instance: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session: Duration,
    pub(super) rebalance: Duration,
    /// What it prefers stands first; no name twice.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    /// Its JoinGroup that waits for the next generation.
    pub(super) joining: Option<Ticket>,
    /// Its SyncGroup that waits for the leader's.
    pub(super) syncing: Option<Ticket>,
    /// Whether it has never been told a generation: it cannot send heartbeats yet.
    pub(super) is_new: bool,
    /// When its session ends.
    pub(super) expires: Option<Duration>,
}

/// What a member costs in memory beside its texts and bytes, about.
const COST_BYTES: usize = 512;
/// What a protocol costs beside its name and metadata, about; the group counts those that have it.
pub(super) const PROTOCOL_BYTES: usize = 160;

impl Member {
    /// What it costs in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let protocols =
            self.protocols.iter().map(|one| PROTOCOL_BYTES + one.name.len() + one.metadata.len());
        COST_BYTES
            + 2 * self.id.len()
            + 2 * self.instance.as_ref().map_or(0, String::len)
            + self.client_id.len()
            + self.client_host.len()
            + self.assignment.len()
            + protocols.sum::<usize>()
    }

    /// What it said for a protocol.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|one| one.name == protocol);
        found.map(|one| one.metadata.clone()).unwrap_or_default()
    }

    /// A session that begins now.
    pub(super) fn renew(&mut self, now: Duration) -> Duration {
        let expires = now + self.session;
        self.expires = Some(expires);
        expires
    }

    /// Whether the end of its session does not count: it waits for an answer of ours.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_new && (self.joining.is_some() || self.syncing.is_some())
    }

    pub(super) fn describe(&self, protocol: Option<&str>) -> MemberDescription {
        MemberDescription {
            id: self.id.clone(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            metadata: protocol.map(|name| self.metadata(name)).unwrap_or_default(),
            assignment: self.assignment.clone(),
        }
    }
}
