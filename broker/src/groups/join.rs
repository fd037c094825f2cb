//! JoinGroup: who may join, who has to come back with an id, and when joining starts a rebalance.

use std::time::Duration;

use kafka_protocol::error::ResponseError;

use super::group::{Group, State};
use super::messages::{Effects, Join, Joined, JoinedMember, Refused, Ticket};
use super::settings::Settings;

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
            effects.answers.push((ticket, super::messages::Answer::Join(Ok(joined))));
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
