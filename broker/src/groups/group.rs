//! The state of a group, and what keeps its parts in step: members come, change and go here only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use kafka_protocol::error::ResponseError;

use super::member::{Member, MemberDescription};
use super::messages::{Answer, Effects, Join, Joined, Protocol, Refused, Ticket};
use super::subscription::Subscribed;
use super::timer::JoinTimer;

/// Where a group is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has no members.
    Empty,
    /// It waits for its members to join again.
    PreparingRebalance,
    /// It waits for what its leader assigns.
    CompletingRebalance,
    /// Every member can have its assignment.
    Stable,
}

/// What others are told of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Where it is in its life.
    pub state: State,
    /// What its members are, such as `consumer`; empty where it never had any.
    pub protocol_type: String,
    /// How partitions are assigned; empty unless it is stable.
    pub protocol: String,
    /// Its members.
    pub members: Vec<MemberDescription>,
}

/// A group.
///
/// INVARIANT: `leader` is a member wherever there is one. INVARIANT: `supported` counts for each
/// protocol the members that have it, `joining` those whose JoinGroup waits. INVARIANT: a ticket is
/// kept until its one answer has gone to the effects.
#[derive(Debug)]
pub struct Group {
    pub(super) state: State,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Ids of static members by the names that their operator gave them.
    pub(super) statics: HashMap<String, String>,
    /// Ids that were given out and have not joined, and until when they may.
    pub(super) pending: BTreeMap<String, Duration>,
    pub(super) supported: HashMap<String, usize>,
    pub(super) joining: usize,
    /// Members that have not asked for the assignment of this generation.
    pub(super) owing_sync: BTreeSet<String>,
    pub(super) subscribed: Subscribed,
    pub(super) join_timer: Option<JoinTimer>,
    pub(super) sync_by: Option<Duration>,
    /// Whether the rebalance under way is the first since the group was empty.
    pub(super) is_initial: bool,
    /// Whether somebody came since the initial delay began.
    pub(super) has_newcomer: bool,
    /// No deadline is earlier than this.
    pub(super) earliest: Option<Duration>,
    bytes: usize,
}

/// What a group costs in memory beside its members, about.
const COST_BYTES: usize = 512;
/// What an id that was given out costs, about.
const PENDING_BYTES: usize = 160;

impl Default for Group {
    fn default() -> Self {
        Self {
            state: State::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            pending: BTreeMap::new(),
            supported: HashMap::new(),
            joining: 0,
            owing_sync: BTreeSet::new(),
            subscribed: Subscribed::Unknown,
            join_timer: None,
            sync_by: None,
            is_initial: false,
            has_newcomer: false,
            earliest: None,
            bytes: COST_BYTES,
        }
    }
}

impl Group {
    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it has no members, and nobody was told to come back.
    #[must_use]
    pub fn is_forgettable(&self) -> bool {
        self.state == State::Empty && self.pending.is_empty()
    }

    /// What its members are; `None` where it never had any.
    #[must_use]
    pub fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    /// How many members it has.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// What it costs in memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What others are told of it.
    #[must_use]
    pub fn describe(&self) -> Description {
        let protocol = self.protocol.as_deref().filter(|_| self.state == State::Stable);
        Description {
            state: self.state,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: self.members.values().map(|member| member.describe(protocol)).collect(),
        }
    }

    /// Whether every member has this protocol.
    pub(super) fn all_support(&self, protocol: &str) -> bool {
        self.supported.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    pub(super) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    /// Whether nobody is awaited to join.
    pub(super) fn all_joined(&self) -> bool {
        self.joining == self.members.len() && self.pending.is_empty()
    }

    /// The longest time that a member wants to have for joining again.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance).max().unwrap_or_default()
    }

    /// Notes a deadline.
    pub(super) fn due(&mut self, at: Duration) {
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }

    /// Gives a member a session that begins now.
    pub(super) fn renew(&mut self, id: &str, now: Duration) {
        if let Some(member) = self.members.get_mut(id) {
            let expires = member.renew(now);
            self.due(expires);
        }
    }

    /// The member of an id, where the instance id, if any, is its own.
    ///
    /// # Errors
    /// [`ResponseError::UnknownMemberId`], and [`ResponseError::FencedInstanceId`] where another
    /// member has the instance id.
    pub(super) fn check_member(
        &self,
        id: &str,
        instance: Option<&str>,
    ) -> Result<&Member, ResponseError> {
        if let Some(instance) = instance {
            let known = self.statics.get(instance).ok_or(ResponseError::UnknownMemberId)?;
            if known != id {
                return Err(ResponseError::FencedInstanceId);
            }
        }
        self.members.get(id).ok_or(ResponseError::UnknownMemberId)
    }

    /// Keeps an id until its member joins.
    pub(super) fn add_pending(&mut self, id: &str, until: Duration) {
        if self.pending.insert(id.to_owned(), until).is_none() {
            self.bytes += PENDING_BYTES + id.len();
        }
        self.due(until);
    }

    pub(super) fn remove_pending(&mut self, id: &str) -> bool {
        let was_there = self.pending.remove(id).is_some();
        if was_there {
            self.bytes -= PENDING_BYTES + id.len();
        }
        was_there
    }

    /// Takes in a member that waits for its first generation.
    pub(super) fn add(&mut self, id: String, ticket: Ticket, join: &Join, until: Duration) {
        self.remove_pending(&id);
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        if let Some(instance) = &join.instance {
            self.statics.insert(instance.clone(), id.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(id.clone());
        }
        let member = Member {
            id,
            instance: join.instance.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            session: join.session,
            rebalance: join.rebalance,
            protocols: join.protocols.clone(),
            assignment: bytes::Bytes::new(),
            joining: Some(ticket),
            syncing: None,
            is_new: true,
            expires: Some(until),
        };
        self.joining += 1;
        self.due(until);
        self.put(member);
    }

    /// What a member says when it joins again. The JoinGroup that waited for it until now will
    /// never be looked at: its client has sent another.
    pub(super) fn update(&mut self, id: &str, ticket: Ticket, join: &Join, effects: &mut Effects) {
        let Some(mut member) = self.take(id) else { return };
        match member.joining.replace(ticket) {
            Some(old) => effects.refuse_join(old, ResponseError::RebalanceInProgress, id),
            None => self.joining += 1,
        }
        member.session = join.session;
        member.rebalance = join.rebalance;
        member.protocols.clone_from(&join.protocols);
        self.put(member);
    }

    /// Gives a static member a new id: whoever has the old one is fenced.
    pub(super) fn rename(&mut self, old: &str, new: &str, effects: &mut Effects) {
        let Some(mut member) = self.take(old) else { return };
        if let Some(ticket) = member.joining.take() {
            self.joining -= 1;
            effects.refuse_join(ticket, ResponseError::FencedInstanceId, old);
        }
        if let Some(ticket) = member.syncing.take() {
            effects.refuse_sync(ticket, ResponseError::FencedInstanceId);
        }
        if let Some(instance) = &member.instance {
            self.statics.insert(instance.clone(), new.to_owned());
        }
        if self.is_leader(old) {
            self.leader = Some(new.to_owned());
        }
        if self.owing_sync.remove(old) {
            self.owing_sync.insert(new.to_owned());
        }
        new.clone_into(&mut member.id);
        self.put(member);
    }

    /// Takes a member, or an id that has not joined, out of the group. What waits for it is told
    /// that it is unknown.
    pub(super) fn remove(&mut self, id: &str, effects: &mut Effects) {
        self.remove_pending(id);
        self.owing_sync.remove(id);
        let Some(member) = self.take(id) else { return };
        if let Some(ticket) = member.joining {
            self.joining -= 1;
            effects.refuse_join(ticket, ResponseError::UnknownMemberId, "");
        }
        if let Some(ticket) = member.syncing {
            effects.refuse_sync(ticket, ResponseError::UnknownMemberId);
        }
        if let Some(instance) = &member.instance {
            self.statics.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Notes what the members read.
    pub(super) fn subscribe(&mut self, subscribed: Subscribed) {
        self.bytes -= self.subscribed.bytes();
        self.bytes += subscribed.bytes();
        self.subscribed = subscribed;
    }

    /// Assigns partitions to a member.
    pub(super) fn assign(&mut self, id: &str, assignment: bytes::Bytes) {
        let Some(member) = self.members.get_mut(id) else { return };
        self.bytes -= member.assignment.len();
        self.bytes += assignment.len();
        member.assignment = assignment;
    }

    /// Answers a JoinGroup that waits, if one does.
    pub(super) fn answer_join(
        &mut self,
        id: &str,
        answer: Result<Joined, Refused>,
        effects: &mut Effects,
    ) {
        let ticket = self.members.get_mut(id).and_then(|member| member.joining.take());
        if let Some(ticket) = ticket {
            self.joining -= 1;
            effects.answers.push((ticket, Answer::Join(answer)));
        }
    }

    fn put(&mut self, member: Member) {
        for Protocol { name, .. } in &member.protocols {
            *self.supported.entry(name.clone()).or_default() += 1;
        }
        self.bytes += member.bytes();
        self.members.insert(member.id.clone(), member);
    }

    fn take(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        for Protocol { name, .. } in &member.protocols {
            let count = self.supported.get_mut(name).expect("every protocol of a member counts");
            *count -= 1;
            if *count == 0 {
                self.supported.remove(name);
            }
        }
        self.bytes -= member.bytes();
        Some(member)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        })
    }
}
