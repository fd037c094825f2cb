//! The groups in memory: found by name, queued by deadline, weighed, and who waits for what.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::group::{Group, State};
use super::messages::{Answer, Effects, Ticket};
use crate::metrics::{family, line};

/// What a group's name costs beside its bytes: it stands in the map and among the deadlines.
const NAME_COST_BYTES: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) by_name: HashMap<Arc<str>, Known>,
    deadlines: BTreeSet<(Duration, Arc<str>)>,
    waiting: HashMap<Ticket, oneshot::Sender<Answer>>,
    last_ticket: u64,
    pub(super) bytes: usize,
    members: usize,
    rebalances: u64,
    expired: u64,
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) group: Group,
    /// The deadline that it is queued for; never later than its next one.
    queued: Option<Duration>,
    /// Since when it has been empty, if it is.
    pub(super) empty_since: Duration,
}

impl Registry {
    /// Makes a group if it is not there.
    pub(super) fn touch(&mut self, name: &str, now: Duration) {
        if let Entry::Vacant(vacant) = self.by_name.entry(Arc::from(name)) {
            let group = Group::default();
            self.bytes += group.bytes() + NAME_COST_BYTES + name.len();
            vacant.insert(Known { group, queued: None, empty_since: now });
        }
    }

    /// Forgets a group without members, if `also` agrees.
    pub(super) fn forget(&mut self, name: &str, also: impl FnOnce(&Group) -> bool) -> bool {
        let Some(known) = self.by_name.get(name) else { return false };
        if known.group.state() != State::Empty || !also(&known.group) {
            return false;
        }
        let Some((name, known)) = self.by_name.remove_entry(name) else { return false };
        self.bytes -= known.group.bytes() + NAME_COST_BYTES + name.len();
        if let Some(at) = known.queued {
            self.deadlines.remove(&(at, name));
        }
        true
    }

    /// The first deadline of all.
    pub(super) fn first_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// The groups for which something is due.
    pub(super) fn due(&self, now: Duration) -> Vec<Arc<str>> {
        let due = self.deadlines.iter().take_while(|&&(at, _)| at <= now);
        due.map(|(_, name)| Arc::clone(name)).collect()
    }

    /// A request that may have to wait.
    pub(super) fn new_ticket(&mut self, answer: oneshot::Sender<Answer>) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.waiting.insert(ticket, answer);
        ticket
    }

    /// Answers whom the effects say.
    pub(super) fn answer(&mut self, effects: Effects) {
        self.rebalances += effects.rebalances;
        self.expired += effects.expired;
        for (ticket, answer) in effects.answers {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // Whoever waited may have gone away; its member lives until its session ends.
                let _ = waiting.send(answer);
            }
        }
    }

    /// An event of a group.
    pub(super) fn with<T>(
        &mut self,
        name: &str,
        now: Duration,
        effects: &mut Effects,
        event: impl FnOnce(&mut Group, Duration, &mut Effects) -> T,
    ) -> Option<T> {
        let known = self.by_name.get_mut(name)?;
        let group = &mut known.group;
        let (bytes, members, state) = (group.bytes(), group.member_count(), group.state());
        let done = event(group, now, effects);
        self.bytes = self.bytes + group.bytes() - bytes;
        self.members = self.members + group.member_count() - members;
        if group.state() == State::Empty && state != State::Empty {
            known.empty_since = now;
        }
        Some(done)
    }

    /// Queues a group for its next deadline; whether that is the first of all.
    pub(super) fn queue(&mut self, name: &str, now: Duration) -> bool {
        let Some((name, known)) = self.by_name.get_key_value(name) else { return false };
        let (name, next, queued) = (Arc::clone(name), known.group.next_deadline(), known.queued);
        // Heartbeats move deadlines back: a group that is woken too early is queued again.
        if let (Some(queued), Some(next)) = (queued, next)
            && queued > now
            && queued <= next
        {
            return false;
        }
        if let Some(queued) = queued {
            self.deadlines.remove(&(queued, Arc::clone(&name)));
        }
        if let Some(known) = self.by_name.get_mut(&name) {
            known.queued = next;
        }
        let Some(next) = next else { return false };
        let place = (next, name);
        self.deadlines.insert(place.clone());
        self.deadlines.first() == Some(&place)
    }

    /// The figures for `/metrics`.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let figures = [
            ("groups", "gauge", "Consumer groups in memory.", self.by_name.len() as u64),
            ("group_members", "gauge", "Members of consumer groups.", self.members as u64),
            (
                "group_waiting_requests",
                "gauge",
                "JoinGroup and SyncGroup requests that wait.",
                self.waiting.len() as u64,
            ),
            ("group_memory_bytes", "gauge", "What groups hold in memory.", self.bytes as u64),
            (
                "group_rebalances_total",
                "counter",
                "Generations of groups that were begun.",
                self.rebalances,
            ),
            (
                "group_members_expired_total",
                "counter",
                "Members thrown out because they were silent or late.",
                self.expired,
            ),
        ];
        for (name, kind, help, value) in figures {
            family(&mut out, name, kind, help);
            line(&mut out, name, "", value);
        }
        out
    }
}
