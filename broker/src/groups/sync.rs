//! SyncGroup: the leader says who gets what, and everybody is told.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::group::{Group, State};
use super::messages::{Answer, Effects, Sync, Synced, Ticket};
use super::settings::Settings;

impl Group {
    /// A member asks for its assignment. The answer comes by the effects, now or later.
    pub fn sync(
        &mut self,
        now: Duration,
        ticket: Ticket,
        sync: Sync,
        settings: &Settings,
        effects: &mut Effects,
    ) {
        if let Err(error) = self.try_sync(now, ticket, sync, effects) {
            effects.refuse_sync(ticket, error);
        }
        self.elapse(now, settings, effects);
    }

    fn try_sync(
        &mut self,
        now: Duration,
        ticket: Ticket,
        sync: Sync,
        effects: &mut Effects,
    ) -> Result<(), ResponseError> {
        let id = sync.member_id;
        self.check_member(&id, sync.instance.as_deref())?;
        if sync.generation != self.generation {
            return Err(ResponseError::IllegalGeneration);
        }
        let differs = |said: &Option<String>, is: &Option<String>| said.is_some() && said != is;
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol, &self.protocol)
        {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        match self.state {
            State::Empty => return Err(ResponseError::UnknownMemberId),
            State::PreparingRebalance => return Err(ResponseError::RebalanceInProgress),
            State::CompletingRebalance => {
                self.has_synced(&id);
                self.wait_for_leader(&id, ticket, effects);
                if self.is_leader(&id) {
                    self.assign_all(now, sync.assignments, effects);
                }
            }
            State::Stable => {
                self.has_synced(&id);
                self.renew(&id, now);
                let synced = self.synced(&id);
                effects.answers.push((ticket, Answer::Sync(Ok(synced))));
            }
        }
        Ok(())
    }

    fn has_synced(&mut self, id: &str) {
        self.owing_sync.remove(id);
        if self.owing_sync.is_empty() {
            self.sync_by = None;
        }
    }

    /// The request that waited for this member until now will never be looked at: its client has
    /// sent another.
    fn wait_for_leader(&mut self, id: &str, ticket: Ticket, effects: &mut Effects) {
        let Some(member) = self.members.get_mut(id) else { return };
        if let Some(old) = member.syncing.replace(ticket) {
            effects.refuse_sync(old, ResponseError::RebalanceInProgress);
        }
    }

    /// The leader has spoken: whoever it left out gets nothing.
    fn assign_all(
        &mut self,
        now: Duration,
        assignments: Vec<(String, Bytes)>,
        effects: &mut Effects,
    ) {
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            self.assign(&id, Bytes::new());
        }
        for (id, assignment) in assignments {
            self.assign(&id, assignment);
        }
        self.state = State::Stable;
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            let synced = self.synced(&id);
            let ticket = self.members.get_mut(&id).and_then(|member| member.syncing.take());
            if let Some(ticket) = ticket {
                effects.answers.push((ticket, Answer::Sync(Ok(synced))));
                self.renew(&id, now);
            }
        }
    }

    /// Nothing will be assigned in this generation; those who wait are told why.
    pub(super) fn cancel_syncs(
        &mut self,
        now: Duration,
        error: ResponseError,
        effects: &mut Effects,
    ) {
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            self.assign(&id, Bytes::new());
            let ticket = self.members.get_mut(&id).and_then(|member| member.syncing.take());
            if let Some(ticket) = ticket {
                effects.refuse_sync(ticket, error);
                self.renew(&id, now);
            }
        }
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol.clone().unwrap_or_default(),
            assignment: self.members.get(id).map(|one| one.assignment.clone()).unwrap_or_default(),
        }
    }
}
