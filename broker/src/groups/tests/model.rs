//! Any sequence of events keeps what holds of a group: one leader that is a member, each waiting
//! request answered once, sums that are right, and rest when nobody says anything any more.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use crate::groups::timer::JoinTimer;
use crate::groups::{
    Answer, Effects, Group, Join, Leaving, Protocol, Settings, State, Sync, Ticket,
};

/// What a client does.
#[derive(Debug, Clone)]
enum Event {
    /// It joins, with its id if it has one and wants to, in one of several ways.
    Join {
        client: usize,
        with_id: bool,
        way: usize,
    },
    Sync {
        client: usize,
        generation_off: i32,
    },
    Heartbeat {
        client: usize,
    },
    Commit {
        client: usize,
    },
    Leave {
        client: usize,
    },
    /// So many milliseconds pass.
    Pass(u64),
}

const CLIENTS: usize = 5;
const WAYS: [&[&str]; 4] = [&["a", "b"], &["b", "a"], &["a"], &["c"]];
/// Longer than any session, rebalance and wait of these tests together.
const LONG: Duration = Duration::from_secs(3600);

fn event() -> impl Strategy<Value = Event> {
    let client = 0..CLIENTS;
    prop_oneof![
        6 => (client.clone(), any::<bool>(), 0..WAYS.len())
            .prop_map(|(client, with_id, way)| Event::Join { client, with_id, way }),
        5 => (client.clone(), prop_oneof![6 => Just(0), 1 => -1..2])
            .prop_map(|(client, generation_off)| Event::Sync { client, generation_off }),
        3 => client.clone().prop_map(|client| Event::Heartbeat { client }),
        1 => client.clone().prop_map(|client| Event::Commit { client }),
        1 => client.prop_map(|client| Event::Leave { client }),
        4 => prop_oneof![0..50u64, 0..3_000u64, 0..20_000u64].prop_map(Event::Pass),
    ]
}

struct World {
    group: Group,
    settings: Settings,
    now: Duration,
    tickets: u64,
    /// What waits, and for whom.
    waiting: HashMap<Ticket, usize>,
    /// What each client believes to be its id.
    ids: [String; CLIENTS],
    given: u64,
    generation: i32,
    /// Who was told to lead, by generation.
    leaders: HashMap<i32, BTreeSet<String>>,
}

impl World {
    fn new(initial_delay: Duration) -> Self {
        Self {
            group: Group::default(),
            settings: Settings { initial_delay, max_members: 4, ..Settings::default() },
            now: Duration::from_secs(1),
            tickets: 0,
            waiting: HashMap::new(),
            ids: Default::default(),
            given: 0,
            generation: 0,
            leaders: HashMap::new(),
        }
    }

    /// Clients with odd numbers are static members, the last cannot come back with an id.
    fn join(&mut self, client: usize, with_id: bool, way: usize) -> Join {
        self.given += 1;
        let protocols = WAYS[way].iter().map(|name| Protocol {
            name: (*name).to_owned(),
            metadata: Bytes::copy_from_slice(format!("{client} {name}").as_bytes()),
        });
        Join {
            member_id: if with_id { self.ids[client].clone() } else { String::new() },
            new_id: format!("{client}-{}", self.given),
            instance: (client % 2 == 1).then(|| format!("i{client}")),
            client_id: client.to_string(),
            client_host: "/host".to_owned(),
            session: Duration::from_secs(6 + client as u64),
            rebalance: Duration::from_secs(10 * client as u64),
            protocol_type: "consumer".to_owned(),
            protocols: protocols.collect(),
            can_come_back: client != CLIENTS - 1,
            can_skip_assignment: client == 1,
        }
    }

    fn ticket(&mut self, client: usize) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.insert(ticket, client);
        ticket
    }

    fn step(&mut self, event: &Event) {
        let mut effects = Effects::default();
        match *event {
            Event::Join { client, with_id, way } => {
                let (join, ticket) = (self.join(client, with_id, way), self.ticket(client));
                self.group.join(self.now, ticket, &join, &self.settings, &mut effects);
            }
            Event::Sync { client, generation_off } => {
                let ids = self.group.members.keys().cloned();
                let sync = Sync {
                    member_id: self.ids[client].clone(),
                    instance: None,
                    generation: self.group.generation + generation_off,
                    protocol_type: None,
                    protocol: None,
                    assignments: ids.map(|id| (id, Bytes::from_static(b"part"))).collect(),
                };
                let ticket = self.ticket(client);
                self.group.sync(self.now, ticket, sync, &self.settings, &mut effects);
            }
            Event::Heartbeat { client } => {
                let generation = self.group.generation;
                let _ = self.group.heartbeat(self.now, &self.ids[client], None, generation);
            }
            Event::Commit { client } => {
                let generation = self.group.generation;
                let id = &self.ids[client];
                let _ = self.group.check_commit(self.now, id, None, generation, false);
            }
            Event::Leave { client } => {
                let leaving = Leaving { member_id: self.ids[client].clone(), instance: None };
                self.group.leave(self.now, &[leaving], &self.settings, &mut effects);
            }
            Event::Pass(ms) => self.pass(Duration::from_millis(ms), &mut effects),
        }
        self.take_in(effects);
    }

    fn pass(&mut self, time: Duration, effects: &mut Effects) {
        self.now += time;
        self.group.elapse(self.now, &self.settings, effects);
        assert!(self.group.next_deadline().is_none_or(|at| at > self.now), "it is not at rest");
    }

    fn take_in(&mut self, effects: Effects) {
        for (ticket, answer) in effects.answers {
            let client =
                self.waiting.remove(&ticket).expect("it waits, so it was not answered yet");
            match answer {
                Answer::Join(Ok(joined)) => {
                    if !joined.members.is_empty() {
                        assert_eq!(joined.leader, joined.member_id, "only the leader sees all");
                        let leaders = self.leaders.entry(joined.generation).or_default();
                        leaders.insert(joined.member_id.split('-').next().unwrap().to_owned());
                    }
                    self.ids[client] = joined.member_id;
                }
                Answer::Join(Err(refused)) if !refused.member_id.is_empty() => {
                    self.ids[client] = refused.member_id;
                }
                Answer::Join(Err(_)) | Answer::Sync(_) => {}
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let group = &self.group;
        assert!(group.generation >= self.generation, "generations go up");
        self.generation = group.generation;
        assert!(
            self.leaders.values().all(|leaders| leaders.len() == 1),
            "a generation has a leader"
        );
        match &group.leader {
            Some(leader) => assert!(group.members.contains_key(leader), "the leader is a member"),
            None => assert!(group.members.is_empty(), "members have a leader"),
        }
        match group.state {
            State::Empty => assert!(group.members.is_empty()),
            State::CompletingRebalance | State::Stable => assert!(!group.members.is_empty()),
            State::PreparingRebalance => assert!(group.join_timer.is_some(), "it will end"),
        }
        let joining = group.members.values().filter_map(|member| member.joining);
        let syncing = group.members.values().filter_map(|member| member.syncing);
        assert_eq!(joining.clone().count(), group.joining);
        assert!(group.joining == 0 || group.state == State::PreparingRebalance);
        assert!(syncing.clone().count() == 0 || group.state == State::CompletingRebalance);
        let held: BTreeSet<Ticket> = joining.chain(syncing).collect();
        let asked: BTreeSet<Ticket> = self.waiting.keys().copied().collect();
        assert_eq!(held, asked, "what waits is in the group's hands");
        self.check_sums();
    }

    fn check_sums(&self) {
        let group = &self.group;
        let mut supported: HashMap<String, usize> = HashMap::new();
        for member in group.members.values() {
            for protocol in &member.protocols {
                *supported.entry(protocol.name.clone()).or_default() += 1;
            }
            if let Some(instance) = &member.instance {
                assert_eq!(group.statics.get(instance), Some(&member.id));
            }
            assert!(group.earliest.is_some(), "somebody will look after it");
        }
        assert_eq!(group.supported, supported);
        let statics = group.members.values().filter(|member| member.instance.is_some()).count();
        assert_eq!(group.statics.len(), statics);
        assert!(group.owing_sync.iter().all(|id| group.members.contains_key(id)));
        let members: usize = group.members.values().map(|member| member.bytes()).sum();
        let pending: usize = group.pending.keys().map(|id| 160 + id.len()).sum();
        assert_eq!(group.bytes(), 512 + members + pending + group.subscribed().bytes());
        let deadlines = group.members.values().filter_map(|member| member.expires);
        let deadlines = deadlines
            .chain(group.pending.values().copied())
            .chain(group.join_timer.map(JoinTimer::at))
            .chain(group.sync_by);
        if let Some(first) = deadlines.min() {
            assert!(group.earliest.is_some_and(|earliest| earliest <= first));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_one_leads_and_everybody_is_answered_once(
        events in proptest::collection::vec(event(), 1..120),
        initial_delay_ms in prop_oneof![Just(0), Just(3_000u64)],
    ) {
        let mut world = World::new(Duration::from_millis(initial_delay_ms));
        for event in &events {
            world.step(event);
        }
        // Nobody says anything any more: in the end the group is empty, and nobody waits.
        for _ in 0..8 {
            let mut effects = Effects::default();
            world.pass(LONG, &mut effects);
            world.take_in(effects);
        }
        prop_assert!(world.waiting.is_empty());
        prop_assert!(world.group.is_forgettable());
        prop_assert_eq!(world.group.next_deadline(), None);
        prop_assert_eq!(world.group.bytes(), Group::default().bytes());
    }
}
