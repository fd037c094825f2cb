//! What members ask and are answered: joining, syncing, and what follows from an event of a group.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

/// A request that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A way of assigning partitions that a member knows, with what it wants to say there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    /// Its name, such as `range`.
    pub name: String,
    /// For the leader's eyes.
    pub metadata: Bytes,
}

/// A request to join.
#[derive(Debug, Clone)]
pub struct Join {
    /// The id that it was given; empty the first time.
    pub member_id: String,
    /// The id that it gets if it is new.
    pub new_id: String,
    /// The name that its operator gave it, where it is a static member.
    pub instance: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// Where it is.
    pub client_host: String,
    /// How long it may be silent.
    pub session: Duration,
    /// How long it may take to join again in a rebalance.
    pub rebalance: Duration,
    /// What it is, such as `consumer`.
    pub protocol_type: String,
    /// What it knows; what it prefers stands first.
    pub protocols: Vec<Protocol>,
    /// Whether its client can come back with an id that it is given.
    pub can_come_back: bool,
    /// Whether its client can be told that it leads and need not assign anything.
    pub can_skip_assignment: bool,
}

impl Join {
    /// What the member says of itself.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let protocols = self.protocols.iter().map(|one| one.name.len() + one.metadata.len());
        self.member_id.len()
            + self.instance.as_ref().map_or(0, String::len)
            + self.client_id.len()
            + self.protocol_type.len()
            + protocols.sum::<usize>()
    }
}

/// What a member is told of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its number.
    pub generation: i32,
    /// What the members are.
    pub protocol_type: String,
    /// How partitions are assigned.
    pub protocol: String,
    /// Who leads.
    pub leader: String,
    /// Who is told this.
    pub member_id: String,
    /// Whether the leader need not assign anything: what was assigned still holds.
    pub skip_assignment: bool,
    /// All members, for the leader only.
    pub members: Vec<JoinedMember>,
}

/// A member, as the leader is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub id: String,
    /// The name that its operator gave it.
    pub instance: Option<String>,
    /// What it said for the protocol.
    pub metadata: Bytes,
}

/// A request for the assignment of a generation; the leader's has it for all.
#[derive(Debug, Clone)]
pub struct Sync {
    /// Who asks.
    pub member_id: String,
    /// The name that its operator gave it.
    pub instance: Option<String>,
    /// Of which generation.
    pub generation: i32,
    /// What it believes the members to be, if it says so.
    pub protocol_type: Option<String>,
    /// How it believes partitions to be assigned, if it says so.
    pub protocol: Option<String>,
    /// By member id; of one id twice the last counts.
    pub assignments: Vec<(String, Bytes)>,
}

/// What a member is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// What the members are.
    pub protocol_type: String,
    /// How partitions are assigned.
    pub protocol: String,
    /// What it gets.
    pub assignment: Bytes,
}

/// Who commits offsets.
#[derive(Debug, Clone, Copy)]
pub struct Committer<'a> {
    /// Its member id, empty if it has none.
    pub member_id: &'a str,
    /// The name that its operator gave it.
    pub instance: Option<&'a str>,
    /// Of which generation it is; -1 if it assigns partitions itself.
    pub generation: i32,
}

/// A JoinGroup that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub error: ResponseError,
    /// The member id in the answer: the one to come back with, or the one of the request.
    pub member_id: String,
}

/// What a waiting request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A JoinGroup.
    Join(Result<Joined, Refused>),
    /// A SyncGroup.
    Sync(Result<Synced, ResponseError>),
}

/// What follows from an event.
#[derive(Debug, Default)]
pub struct Effects {
    /// Answers that are due.
    pub answers: Vec<(Ticket, Answer)>,
    /// Generations that were begun.
    pub rebalances: u64,
    /// Members whose session ended, or that were too late in a rebalance.
    pub expired: u64,
}

impl Effects {
    pub(super) fn refuse_join(&mut self, ticket: Ticket, error: ResponseError, member_id: &str) {
        let refused = Refused { error, member_id: member_id.to_owned() };
        self.answers.push((ticket, Answer::Join(Err(refused))));
    }

    pub(super) fn refuse_sync(&mut self, ticket: Ticket, error: ResponseError) {
        self.answers.push((ticket, Answer::Sync(Err(error))));
    }
}
