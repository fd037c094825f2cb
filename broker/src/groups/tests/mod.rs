//! Sentences about groups: what each of several members is told, and when.

mod commits;
mod members;
mod model;
mod rebalances;
mod static_members;

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError::{
    self, FencedInstanceId, GroupMaxSizeReached, IllegalGeneration, InconsistentGroupProtocol,
    MemberIdRequired, RebalanceInProgress, UnknownMemberId,
};

use super::{
    Answer, Effects, Group, Join, Joined, Leaving, Protocol, Refused, Settings, State, Sync,
    Synced, Ticket,
};

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

/// A group, the time, and what was answered so far.
struct World {
    group: Group,
    now: Duration,
    settings: Settings,
    tickets: u64,
    answers: HashMap<Ticket, Answer>,
    effects: Effects,
}

/// The request of a dynamic member that knows `range` only.
fn member(id: &str) -> Join {
    Join {
        member_id: id.to_owned(),
        new_id: String::new(),
        instance: None,
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session: SESSION,
        rebalance: REBALANCE,
        protocol_type: "consumer".to_owned(),
        protocols: protocols(&["range"]),
        can_come_back: true,
        can_skip_assignment: false,
    }
}

/// The request of a static member without its id, which gets this one.
fn instance(name: &str, new_id: &str) -> Join {
    Join { instance: Some(name.to_owned()), new_id: new_id.to_owned(), ..member("") }
}

fn protocols(names: &[&str]) -> Vec<Protocol> {
    let one = |name: &&str| Protocol { name: (*name).to_owned(), metadata: Bytes::new() };
    names.iter().map(one).collect()
}

impl World {
    /// Without an initial delay.
    fn new() -> Self {
        Self::with(Settings { initial_delay: Duration::ZERO, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        Self {
            group: Group::default(),
            now: Duration::from_secs(1000),
            settings,
            tickets: 0,
            answers: HashMap::new(),
            effects: Effects::default(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn settle(&mut self) {
        for (ticket, answer) in self.effects.answers.drain(..) {
            assert!(self.answers.insert(ticket, answer).is_none(), "{ticket:?} is answered twice");
        }
    }

    fn join(&mut self, join: &Join) -> Ticket {
        let ticket = self.ticket();
        self.group.join(self.now, ticket, join, &self.settings, &mut self.effects);
        self.settle();
        ticket
    }

    /// A member that is new joins with the id that it is given.
    fn come(&mut self, id: &str) -> Ticket {
        let first = self.join(&Join { new_id: id.to_owned(), ..member("") });
        assert_eq!(self.refused(first), (MemberIdRequired, id.to_owned()));
        self.join(&member(id))
    }

    fn sync(&mut self, id: &str, generation: i32, assignments: &[(&str, &str)]) -> Ticket {
        let ticket = self.ticket();
        let assignments = assignments
            .iter()
            .map(|(id, text)| ((*id).to_owned(), Bytes::copy_from_slice(text.as_bytes())));
        let sync = Sync {
            member_id: id.to_owned(),
            instance: None,
            generation,
            protocol_type: None,
            protocol: None,
            assignments: assignments.collect(),
        };
        self.group.sync(self.now, ticket, sync, &self.settings, &mut self.effects);
        self.settle();
        ticket
    }

    fn heartbeat(&mut self, id: &str, generation: i32) -> Result<(), ResponseError> {
        self.group.heartbeat(self.now, id, None, generation)
    }

    fn leave(&mut self, id: &str, instance: Option<&str>) -> Result<(), ResponseError> {
        let leaving =
            Leaving { member_id: id.to_owned(), instance: instance.map(ToOwned::to_owned) };
        let left = self.group.leave(self.now, &[leaving], &self.settings, &mut self.effects);
        self.settle();
        left[0]
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.group.elapse(self.now, &self.settings, &mut self.effects);
        self.settle();
    }

    fn joined(&self, ticket: Ticket) -> &Joined {
        match self.answers.get(&ticket) {
            Some(Answer::Join(Ok(joined))) => joined,
            other => panic!("{ticket:?} did not join: {other:?}"),
        }
    }

    fn refused(&self, ticket: Ticket) -> (ResponseError, String) {
        match self.answers.get(&ticket) {
            Some(Answer::Join(Err(Refused { error, member_id }))) => (*error, member_id.clone()),
            other => panic!("{ticket:?} was not refused: {other:?}"),
        }
    }

    fn synced(&self, ticket: Ticket) -> Result<&[u8], ResponseError> {
        match self.answers.get(&ticket) {
            Some(Answer::Sync(Ok(Synced { assignment, .. }))) => Ok(assignment),
            Some(Answer::Sync(Err(error))) => Err(*error),
            other => panic!("{ticket:?} did not sync: {other:?}"),
        }
    }

    fn waits(&self, ticket: Ticket) -> bool {
        !self.answers.contains_key(&ticket)
    }

    fn members(&self, ticket: Ticket) -> Vec<&str> {
        self.joined(ticket).members.iter().map(|member| member.id.as_str()).collect()
    }

    /// `a` leads and `b` follows, in the second generation.
    fn two(settings: Settings) -> Self {
        let mut world = Self::with(Settings { initial_delay: Duration::ZERO, ..settings });
        world.come("a");
        world.sync("a", 1, &[("a", "all")]);
        world.come("b");
        world.join(&member("a"));
        world.sync("a", 2, &[("a", "1"), ("b", "2")]);
        world.sync("b", 2, &[]);
        assert_eq!(world.group.state(), State::Stable);
        world
    }
}
