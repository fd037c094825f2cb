//! JoinGroup: who may join, who has to come back with an id, and when joining starts a rebalance.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::group::{Effects, Group, Refused, State, Ticket};
use super::member::Protocol;
use super::settings::Settings;

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

impl Group {
    /// Somebody wants to join. The answer comes by the effects, now or later.
    pub fn join(
        &mut self,
        now: Duration,
        ticket: Ticket,
        join: &Join,
        settings: &Settings,
        effects: &mut Effects,
    ) {
        if let Err(refused) = self.try_join(now, ticket, join, settings, effects) {
            effects.refuse_join(ticket, refused.error, &refused.member_id);
        }
        self.complete_if_all_joined(now, effects);
        self.elapse(now, settings, effects);
    }

    fn try_join(
        &mut self,
        now: Duration,
        ticket: Ticket,
        join: &Join,
        settings: &Settings,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        if !self.has_room_for(&join.member_id, settings.max_members) {
            self.remove(&join.member_id, effects);
            return Err(refused(ResponseError::GroupMaxSizeReached, ""));
        }
        if !self.supports(join) {
            return Err(refused(ResponseError::InconsistentGroupProtocol, &join.member_id));
        }
        if join.member_id.is_empty() {
            self.join_first(now, ticket, join, settings, effects)
        } else if self.pending.contains_key(&join.member_id) {
            if join.instance.is_some() {
                // Static members are never told to come back: Kafka did not foresee it either.
                return Err(refused(ResponseError::UnknownServerError, ""));
            }
            self.add_and_rebalance(now, join.member_id.clone(), ticket, join, settings, effects);
            Ok(())
        } else {
            self.join_again(now, ticket, join, settings, effects)
        }
    }

    /// Whether one more may join. A group of full size takes back its own members.
    fn has_room_for(&self, id: &str, max_members: usize) -> bool {
        match self.state {
            State::Empty => true,
            State::PreparingRebalance => {
                self.members.get(id).is_some_and(|member| member.joining.is_some())
                    || self.joining < max_members
            }
            State::CompletingRebalance | State::Stable => {
                self.members.contains_key(id) || self.members.len() < max_members
            }
        }
    }

    /// Whether the group and the member have something in common.
    fn supports(&self, join: &Join) -> bool {
        if self.state == State::Empty {
            return !join.protocol_type.is_empty() && !join.protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(&join.protocol_type)
            && join.protocols.iter().any(|protocol| self.all_support(&protocol.name))
    }

    fn join_first(
        &mut self,
        now: Duration,
        ticket: Ticket,
        join: &Join,
        settings: &Settings,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        if let Some(instance) = &join.instance {
            match self.statics.get(instance).cloned() {
                Some(old) => self.replace(now, &old, ticket, join, settings, effects),
                None => {
                    let id = join.new_id.clone();
                    self.add_and_rebalance(now, id, ticket, join, settings, effects);
                }
            }
            return Ok(());
        }
        if join.can_come_back {
            if self.pending.len() >= settings.max_members {
                return Err(refused(ResponseError::GroupMaxSizeReached, ""));
            }
            self.add_pending(&join.new_id, now + join.session);
            return Err(refused(ResponseError::MemberIdRequired, &join.new_id));
        }
        self.add_and_rebalance(now, join.new_id.clone(), ticket, join, settings, effects);
        Ok(())
    }

    fn join_again(
        &mut self,
        now: Duration,
        ticket: Ticket,
        join: &Join,
        settings: &Settings,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        let id = &join.member_id;
        let member =
            self.check_member(id, join.instance.as_deref()).map_err(|error| refused(error, id))?;
        let says_the_same = member.protocols == join.protocols;
        let present = match self.state {
            State::PreparingRebalance => false,
            // Its answer was lost.
            State::CompletingRebalance => says_the_same,
            // A leader that joins again wants to assign anew.
            State::Stable => says_the_same && !self.is_leader(id),
            State::Empty => return Err(refused(ResponseError::UnknownMemberId, id)),
        };
        if present {
            let joined = self.joined(id);
            effects.answers.push((ticket, super::group::Answer::Join(Ok(joined))));
        } else {
            self.update(id, ticket, join, effects);
            self.rebalance(now, settings, effects);
        }
        Ok(())
    }

    fn add_and_rebalance(
        &mut self,
        now: Duration,
        id: String,
        ticket: Ticket,
        join: &Join,
        settings: &Settings,
        effects: &mut Effects,
    ) {
        if self.state == State::PreparingRebalance && self.is_initial {
            self.has_newcomer = true;
        }
        self.add(id, ticket, join, now + settings.new_member_wait);
        self.rebalance(now, settings, effects);
    }

    /// A static member has come back without its id: it gets a new one, and its assignment with
    /// it where the group's choice of protocol stays the same.
    fn replace(
        &mut self,
        now: Duration,
        old: &str,
        ticket: Ticket,
        join: &Join,
        settings: &Settings,
        effects: &mut Effects,
    ) {
        let old_leader = self.leader.clone().unwrap_or_default();
        let id = &join.new_id;
        self.rename(old, id, effects);
        self.renew(id, now);
        self.update(id, ticket, join, effects);
        match self.state {
            State::Stable if self.protocol == self.choose_protocol() => {
                let mut joined = self.joined(id);
                if join.can_skip_assignment {
                    joined.skip_assignment = self.is_leader(id);
                } else {
                    // It would assign again if it knew that it leads.
                    joined.leader = old_leader;
                    joined.members = Vec::new();
                }
                self.answer_join(id, Ok(joined), effects);
            }
            // What the leader assigns to the old id would never reach it.
            State::Stable | State::CompletingRebalance => self.rebalance(now, settings, effects),
            State::PreparingRebalance | State::Empty => {}
        }
    }

    /// What a member is told of the present generation.
    pub(super) fn joined(&self, id: &str) -> Joined {
        let protocol = self.protocol.clone().unwrap_or_default();
        let members = if self.is_leader(id) {
            let members = self.members.values().map(|member| JoinedMember {
                id: member.id.clone(),
                instance: member.instance.clone(),
                metadata: member.metadata(&protocol),
            });
            members.collect()
        } else {
            Vec::new()
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol,
            leader: self.leader.clone().unwrap_or_default(),
            member_id: id.to_owned(),
            skip_assignment: false,
            members,
        }
    }
}

fn refused(error: ResponseError, member_id: &str) -> Refused {
    Refused { error, member_id: member_id.to_owned() }
}
