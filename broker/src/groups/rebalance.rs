//! A rebalance: it is prepared until all members have joined or are too late, and completed by a
//! new generation. And what happens when a time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::error::ResponseError;

use super::group::{Group, State};
use super::messages::Effects;
use super::settings::Settings;
use super::subscription::Subscribed;
use super::timer::JoinTimer;

/// The least time until a rebalance that nobody has joined is looked at again.
const LEAST_WAIT: Duration = Duration::from_secs(1);

impl Group {
    /// When [`Group::elapse`] wants to be called; too early does no harm.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.earliest
    }

    /// It is `now`: what was to happen until then happens.
    pub fn elapse(&mut self, now: Duration, settings: &Settings, effects: &mut Effects) {
        while self.earliest.is_some_and(|at| at <= now) {
            self.expire_sessions(now, settings, effects);
            self.expire_sync(now, settings, effects);
            self.expire_join(now, settings, effects);
            let sessions = self.members.values().filter_map(|member| member.expires);
            let all = sessions
                .chain(self.pending.values().copied())
                .chain(self.join_timer.map(JoinTimer::at))
                .chain(self.sync_by);
            self.earliest = all.min();
        }
    }

    fn expire_sessions(&mut self, now: Duration, settings: &Settings, effects: &mut Effects) {
        let late = |at: &Duration| *at <= now;
        let pending = self.pending.iter().filter(|(_, at)| late(at)).map(|(id, _)| id.clone());
        for id in pending.collect::<Vec<_>>() {
            self.remove_pending(&id);
        }
        let members =
            self.members.values().filter(|member| member.expires.as_ref().is_some_and(late));
        for id in members.map(|member| member.id.clone()).collect::<Vec<_>>() {
            // One that ended before it may have renewed it.
            let Some(member) = self.members.get_mut(&id) else { continue };
            if member.expires.is_none_or(|at| at > now) {
                continue;
            }
            // The answer that it waits for renews its session.
            member.expires = None;
            if member.is_waiting() {
                continue;
            }
            effects.expired += 1;
            self.remove(&id, effects);
            if matches!(self.state, State::Stable | State::CompletingRebalance) {
                self.rebalance(now, settings, effects);
            }
        }
        self.complete_if_all_joined(now, effects);
    }

    fn expire_sync(&mut self, now: Duration, settings: &Settings, effects: &mut Effects) {
        if self.sync_by.is_none_or(|at| at > now) {
            return;
        }
        self.sync_by = None;
        if self.owing_sync.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.owing_sync) {
            effects.expired += 1;
            self.remove(&id, effects);
        }
        self.rebalance(now, settings, effects);
    }

    fn expire_join(&mut self, now: Duration, settings: &Settings, effects: &mut Effects) {
        let Some(timer) = self.join_timer.filter(|timer| timer.at() <= now) else { return };
        if let JoinTimer::Initial { at, delay, remaining } = timer
            && self.has_newcomer
            && !remaining.is_zero()
        {
            self.has_newcomer = false;
            let next = settings.initial_delay.min(remaining);
            let remaining = remaining.saturating_sub(delay);
            self.wait_for_joins(JoinTimer::Initial { at: at + next, delay: next, remaining });
            return;
        }
        self.complete(now, effects);
    }

    fn wait_for_joins(&mut self, timer: JoinTimer) {
        self.due(timer.at());
        self.join_timer = Some(timer);
    }

    /// Starts a rebalance, or lets the one that is under way end if nobody is missing.
    pub(super) fn rebalance(&mut self, now: Duration, settings: &Settings, effects: &mut Effects) {
        if self.state == State::PreparingRebalance {
            self.complete_if_all_joined(now, effects);
            return;
        }
        if self.state == State::CompletingRebalance {
            self.cancel_syncs(now, ResponseError::RebalanceInProgress, effects);
        }
        self.sync_by = None;
        self.owing_sync.clear();
        self.is_initial = self.state == State::Empty;
        self.state = State::PreparingRebalance;
        let timeout = self.rebalance_timeout();
        if self.is_initial {
            let delay = settings.initial_delay;
            let remaining = timeout.saturating_sub(delay);
            self.wait_for_joins(JoinTimer::Initial { at: now + delay, delay, remaining });
        } else if self.all_joined() {
            self.complete(now, effects);
        } else {
            self.wait_for_joins(JoinTimer::Last { at: now + timeout });
        }
    }

    /// Completes a rebalance that waits for nobody, unless it is an initial one, which waits for
    /// those who may come.
    pub(super) fn complete_if_all_joined(&mut self, now: Duration, effects: &mut Effects) {
        if self.state == State::PreparingRebalance && !self.is_initial && self.all_joined() {
            self.complete(now, effects);
        }
    }

    /// Ends a rebalance. Members that did not join are thrown out, but for static ones: those keep
    /// their place until they are too late with SyncGroup.
    fn complete(&mut self, now: Duration, effects: &mut Effects) {
        self.join_timer = None;
        self.has_newcomer = false;
        let late = self
            .members
            .values()
            .filter(|member| member.joining.is_none() && member.instance.is_none());
        for id in late.map(|member| member.id.clone()).collect::<Vec<_>>() {
            effects.expired += 1;
            self.remove(&id, effects);
        }
        if !self.members.is_empty() && !self.elect() {
            let wait = self.rebalance_timeout().max(LEAST_WAIT);
            self.wait_for_joins(JoinTimer::Last { at: now + wait });
            return;
        }
        self.is_initial = false;
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        effects.rebalances += 1;
        self.owing_sync.clear();
        if self.members.is_empty() {
            self.state = State::Empty;
            self.protocol = None;
            self.subscribe(Subscribed::Topics(Vec::new()));
            return;
        }
        self.state = State::CompletingRebalance;
        self.protocol = self.choose_protocol();
        self.read_subscriptions();
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            let joined = self.joined(&id);
            self.answer_join(&id, Ok(joined), effects);
            self.renew(&id, now);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
            }
            self.owing_sync.insert(id);
        }
        let at = now + self.rebalance_timeout();
        self.sync_by = Some(at);
        self.due(at);
    }

    /// Makes sure that the leader has joined; `false` if nobody has.
    fn elect(&mut self) -> bool {
        let has_joined =
            |id: &String| self.members.get(id).is_some_and(|one| one.joining.is_some());
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let next = self.members.keys().find(|id| has_joined(id)).cloned();
        let found = next.is_some();
        if found {
            self.leader = next;
        }
        found
    }

    /// The protocol that most members put first, of those that all have; of several the first by
    /// name.
    pub(super) fn choose_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().find(|protocol| self.all_support(&protocol.name));
            if let Some(vote) = vote {
                *votes.entry(&vote.name).or_default() += 1;
            }
        }
        // The last of several is taken, so they are looked at backwards.
        votes.into_iter().rev().max_by_key(|&(_, count)| count).map(|(name, _)| name.to_owned())
    }
}
