//! Consumer groups over loopback: what raw requests are answered, and when. Time stands still until
//! a test moves it.

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::client::name;
use common::paused::PausedBroker;
use common::{Client, config};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tidelog_broker::security::{Grants, Security, Users, users::hash_password};
use tidelog_broker::server::Config;

const SESSION: Duration = Duration::from_secs(10);
const DELAY: Duration = Duration::from_secs(3);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn join(id: &StrBytes) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"says"));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(id.clone())
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

fn heartbeat(id: &StrBytes, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(id.clone())
}

fn sync(id: &StrBytes, generation: i32, assignments: &[(&StrBytes, &str)]) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(id, partitions)| {
        SyncGroupRequestAssignment::default()
            .with_member_id((*id).clone())
            .with_assignment(Bytes::copy_from_slice(partitions.as_bytes()))
    });
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(id.clone())
        .with_assignments(assignments.collect())
}

fn commit(id: &str, generation: i32, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
    let topic =
        OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(id))
        .with_topics(vec![topic])
}

fn committed(client: &mut Client) -> i64 {
    let topic =
        OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let request =
        OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![topic]));
    client.ask(7, &request).topics[0].partitions[0].committed_offset
}

fn commit_code(client: &mut Client, id: &str, generation: i32, offset: i64) -> i16 {
    client.ask(9, &commit(id, generation, offset)).topics[0].partitions[0].error_code
}

/// The state of the group, and how many members it has.
fn state(client: &mut Client) -> (String, usize) {
    let request = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let described = client.ask(5, &request).groups.remove(0);
    (described.group_state.to_string(), described.members.len())
}

/// A figure of `/metrics`.
fn figure(broker: &PausedBroker, name: &str) -> u64 {
    let text = broker.context.groups.text();
    let name = format!("tidelog_broker_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("the figure");
    line.parse().expect("a whole number")
}

/// A member that has its id, and waits for a generation.
fn ask_to_join(broker: &PausedBroker, client: &mut Client) -> (StrBytes, i32) {
    let told = client.ask(7, &join(&text("")));
    assert_eq!(told.error_code, 79);
    let members = figure(broker, "group_members");
    let request = client.send(7, &join(&told.member_id));
    while figure(broker, "group_members") == members {
        std::thread::yield_now();
    }
    (told.member_id, request)
}

/// A group of one stable member.
fn one_member(broker: &PausedBroker, client: &mut Client) -> StrBytes {
    let (id, request) = ask_to_join(broker, client);
    broker.advance(DELAY);
    let joined = client.receive::<JoinGroupRequest>(7, request);
    assert_eq!((joined.error_code, &joined.leader), (0, &id));
    let synced = client.ask(5, &sync(&id, joined.generation_id, &[(&id, "all")]));
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
    id
}

#[test]
fn three_members_wait_for_the_initial_delay_and_get_what_the_leader_assigns() {
    let broker = PausedBroker::new();
    let mut clients = [broker.client(), broker.client(), broker.client()];
    let joins: Vec<_> = clients.iter_mut().map(|client| ask_to_join(&broker, client)).collect();
    let mut other = broker.client();
    assert_eq!(state(&mut other), ("PreparingRebalance".to_owned(), 3));
    // Two came behind the first, so the delay is taken twice.
    broker.advance(DELAY);
    assert_eq!(state(&mut other), ("PreparingRebalance".to_owned(), 3));
    broker.advance(DELAY);
    let joined: Vec<_> = clients
        .iter_mut()
        .zip(&joins)
        .map(|(client, (_, request))| client.receive::<JoinGroupRequest>(7, *request))
        .collect();
    let leader = joins.iter().position(|(id, _)| *id == joined[0].leader).unwrap();
    for (at, joined) in joined.iter().enumerate() {
        assert_eq!((joined.error_code, joined.generation_id), (0, 1));
        assert_eq!(joined.members.len(), if at == leader { 3 } else { 0 });
    }
    let follower = (leader + 1) % 3;
    let waiting = clients[follower].send(5, &sync(&joins[follower].0, 1, &[]));
    let assignments: Vec<_> = joins.iter().map(|(id, _)| id).zip(["0", "1", "2"]).collect();
    let synced = clients[leader].ask(5, &sync(&joins[leader].0, 1, &assignments));
    assert_eq!(synced.assignment, leader.to_string().as_bytes());
    let synced = clients[follower].receive::<SyncGroupRequest>(5, waiting);
    assert_eq!(synced.assignment, follower.to_string().as_bytes());
    assert_eq!(state(&mut other), ("Stable".to_owned(), 3));
}

#[test]
fn a_member_outlives_its_connection_until_its_session_ends() {
    let broker = PausedBroker::new();
    let mut client = broker.client();
    let id = one_member(&broker, &mut client);
    drop(client);
    let mut client = broker.client();
    assert_eq!(state(&mut client), ("Stable".to_owned(), 1));
    broker.advance(SESSION - Duration::from_millis(1));
    assert_eq!(client.ask(4, &heartbeat(&id, 1)).error_code, 0);
    broker.advance(SESSION - Duration::from_millis(1));
    assert_eq!(state(&mut client), ("Stable".to_owned(), 1));
    broker.advance(Duration::from_millis(1));
    assert_eq!(state(&mut client), ("Empty".to_owned(), 0));
    assert_eq!(client.ask(4, &heartbeat(&id, 1)).error_code, 25);
}

#[test]
fn a_client_that_went_away_while_it_waited_joins_again_on_a_new_connection() {
    let broker = PausedBroker::new();
    let mut client = broker.client();
    let (id, _) = ask_to_join(&broker, &mut client);
    drop(client);
    let mut client = broker.client();
    let bytes = figure(&broker, "group_memory_bytes");
    let mut again = join(&id);
    again.protocols[0].metadata = Bytes::from_static(b"says more");
    let request = client.send(7, &again);
    while figure(&broker, "group_memory_bytes") == bytes {
        std::thread::yield_now();
    }
    broker.advance(DELAY);
    let joined = client.receive::<JoinGroupRequest>(7, request);
    assert_eq!((joined.error_code, joined.members.len()), (0, 1));
}

#[test]
fn requests_behind_one_that_waits_are_answered_after_it_and_other_connections_at_once() {
    let broker = PausedBroker::new();
    let mut client = broker.client();
    let (id, request) = ask_to_join(&broker, &mut client);
    let behind = client.send(4, &heartbeat(&id, 1));
    let mut other = broker.client();
    assert_eq!(other.ask(4, &heartbeat(&id, 0)).error_code, 27);
    broker.advance(DELAY);
    assert_eq!(client.receive::<JoinGroupRequest>(7, request).error_code, 0);
    assert_eq!(client.receive::<HeartbeatRequest>(4, behind).error_code, 0);
}

#[test]
fn a_broker_that_stops_tells_those_who_wait_to_look_for_another_coordinator() {
    let mut broker = PausedBroker::new();
    let mut client = broker.client();
    let (_, request) = ask_to_join(&broker, &mut client);
    broker.stop();
    assert_eq!(client.receive::<JoinGroupRequest>(7, request).error_code, 15);
    assert!(client.is_closed());
}

#[test]
fn after_a_restart_members_are_unknown_and_join_again_and_their_offsets_are_there() {
    let mut broker = PausedBroker::new();
    broker.engine.create_topic("t", tidelog::TopicConfig::new(1)).unwrap();
    let mut client = broker.client();
    let id = one_member(&broker, &mut client);
    broker.restart();
    let mut client = broker.client();
    // Nothing is known of the group, not even by its offsets.
    assert_eq!(client.ask(4, &heartbeat(&id, 1)).error_code, 25);
    assert_eq!(client.ask(7, &join(&id)).error_code, 25);
    assert_eq!(commit_code(&mut client, &id, 1, 3), 25);
    // An id that no broker gave out is another matter.
    assert_eq!(commit_code(&mut client, "made-up", 1, 3), 69);
    let id = one_member(&broker, &mut client);
    assert_eq!(commit_code(&mut client, &id, 1, 5), 0);
    broker.restart();
    let mut client = broker.client();
    assert_eq!(state(&mut client), ("Empty".to_owned(), 0));
    assert_eq!(committed(&mut client), 5);
    assert_eq!(commit_code(&mut client, &id, 1, 6), 25);
    assert_eq!(commit_code(&mut client, "made-up", 1, 6), 25);
    one_member(&broker, &mut client);
    assert_eq!(committed(&mut client), 5);
}

#[test]
fn offsets_of_a_group_expire_an_hour_after_it_became_empty_and_not_before() {
    let hour = Duration::from_secs(3600);
    let mut config = config();
    config.limits.groups.offsets_retention = hour;
    let broker = PausedBroker::start(config);
    broker.engine.create_topic("t", tidelog::TopicConfig::new(1)).unwrap();
    let mut client = broker.client();
    let id = one_member(&broker, &mut client);
    assert_eq!(commit_code(&mut client, &id, 1, 5), 0);
    // While it has a member nothing expires, however old.
    for _ in 0..2 * 3600 / 9 {
        broker.advance(Duration::from_secs(9));
        assert_eq!(client.ask(4, &heartbeat(&id, 1)).error_code, 0);
    }
    let groups = Arc::clone(&broker.context.groups);
    assert_eq!(groups.expire_offsets().unwrap(), 0);
    let leaving = LeaveGroupRequest::default().with_group_id(group()).with_member_id(id);
    assert_eq!(client.ask(2, &leaving).error_code, 0);
    broker.advance_quietly(hour - Duration::from_millis(1));
    assert_eq!(groups.expire_offsets().unwrap(), 0);
    let mut client = broker.client();
    assert_eq!(committed(&mut client), 5);
    broker.advance_quietly(Duration::from_millis(1));
    assert_eq!(groups.expire_offsets().unwrap(), 1);
    assert_eq!(committed(&mut client), -1);
    assert_eq!(state(&mut client), ("Dead".to_owned(), 0));
}

#[test]
fn offsets_of_a_group_without_members_expire_an_hour_after_each_was_committed() {
    let hour = Duration::from_secs(3600);
    let mut config = config();
    config.limits.groups.offsets_retention = hour;
    let mut broker = PausedBroker::start(config);
    let topic = broker.engine.create_topic("t", tidelog::TopicConfig::new(2)).unwrap();
    let mut client = broker.client();
    assert_eq!(commit_code(&mut client, "", -1, 5), 0);
    broker.advance_quietly(hour * 5 / 6);
    let mut client = broker.client();
    assert_eq!(commit_code(&mut client, "", -1, 6), 0);
    broker.advance_quietly(hour / 6);
    assert_eq!(broker.context.groups.expire_offsets().unwrap(), 0);
    // After a restart nobody can know whether the group had members: they may come back.
    broker.restart();
    broker.advance_quietly(hour - Duration::from_millis(1));
    assert_eq!(broker.context.groups.expire_offsets().unwrap(), 0);
    assert!(broker.engine.group("g").offset(&topic.partition(0).unwrap()).unwrap().is_some());
    broker.advance_quietly(Duration::from_millis(1));
    assert_eq!(broker.context.groups.expire_offsets().unwrap(), 1);
    assert_eq!(broker.engine.groups().unwrap(), [""; 0]);
}

#[test]
fn expiry_comes_round_by_itself() {
    let mut config = config();
    config.limits.groups.offsets_retention = Duration::from_secs(60);
    let interval = config.limits.groups.expiry_interval;
    let broker = PausedBroker::start(config);
    broker.engine.create_topic("t", tidelog::TopicConfig::new(1)).unwrap();
    assert_eq!(commit_code(&mut broker.client(), "", -1, 5), 0);
    broker.advance(interval - Duration::from_millis(1));
    assert_eq!(committed(&mut broker.client()), 5);
    broker.advance(Duration::from_millis(1));
    while committed(&mut broker.client()) != -1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_member_that_says_too_much_and_one_that_memory_has_no_room_for_are_refused() {
    let mut config = config();
    config.limits.groups.initial_delay = Duration::ZERO;
    config.limits.groups.max_metadata_bytes = 200;
    config.limits.groups.max_total_bytes = 4096;
    let broker = PausedBroker::start(config);
    let mut client = broker.client();
    let says = |bytes: usize| {
        let mut request = join(&text(""));
        request.protocols[0].metadata = vec![b'x'; bytes].into();
        request
    };
    assert_eq!(client.ask(3, &says(201)).error_code, 42);
    let mut codes = Vec::new();
    for number in 0..8 {
        let request = says(100).with_group_id(GroupId(text(&number.to_string())));
        codes.push(client.ask(3, &request).error_code);
    }
    assert_eq!(codes[0], 0);
    assert_eq!(codes[7], 15);
    assert!(codes.is_sorted(), "{codes:?}");
    // What leaves makes room.
    let leave = |number: &str, id: &StrBytes| {
        LeaveGroupRequest::default().with_group_id(GroupId(text(number))).with_member_id(id.clone())
    };
    let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("0"))]);
    let id = client.ask(5, &request).groups[0].members[0].member_id.clone();
    assert_eq!(client.ask(2, &leave("0", &id)).error_code, 0);
    let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("0"))]);
    assert_eq!(client.ask(2, &request).results[0].error_code, 0);
    let request = says(100).with_group_id(GroupId(text("7")));
    assert_eq!(client.ask(3, &request).error_code, 0);
}

#[test]
fn the_longest_text_names_a_group_and_an_empty_one_does_not() {
    let broker = PausedBroker::new();
    let mut client = broker.client();
    let named = |bytes: usize| join(&text("")).with_group_id(GroupId(text(&"g".repeat(bytes))));
    assert_eq!(client.ask(7, &named(32_767)).error_code, 79);
    assert_eq!(client.ask(7, &named(0)).error_code, 24);
}

#[test]
fn offsets_want_the_grant_for_their_group_and_the_grant_to_read_their_topic() {
    let line = format!("ann:{}\n", hash_password(b"secret").unwrap());
    let users = Users::parse(&line).unwrap();
    let grants = Grants::parse("ann KafkaRead t\nann KafkaWrite hidden\nann All g").unwrap();
    let security =
        Security { users: Some(users), grants: Some(Arc::new(grants)), ..Security::default() };
    let broker = PausedBroker::start(Config { security, ..config() });
    for topic in ["t", "hidden"] {
        broker.engine.create_topic(topic, tidelog::TopicConfig::new(1)).unwrap();
    }
    let mut client = broker.client();
    let plain = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    assert_eq!(client.ask(1, &plain).error_code, 0);
    let token = Bytes::from_static(b"\0ann\0secret");
    let login = SaslAuthenticateRequest::default().with_auth_bytes(token);
    assert_eq!(client.ask(2, &login).error_code, 0);
    let id = one_member(&broker, &mut client);
    assert_eq!(commit_code(&mut client, &id, 1, 5), 0);
    let leaving = LeaveGroupRequest::default().with_group_id(group()).with_member_id(id);
    assert_eq!(client.ask(2, &leaving).error_code, 0);
    let topics = ["hidden", "none", "t"].map(|topic| {
        OffsetDeleteRequestTopic::default()
            .with_name(name(topic))
            .with_partitions(vec![OffsetDeleteRequestPartition::default()])
    });
    let request =
        OffsetDeleteRequest::default().with_group_id(group()).with_topics(topics.to_vec());
    let deleted = client.ask(0, &request);
    let codes = deleted.topics.iter().map(|topic| topic.partitions[0].error_code);
    assert_eq!((deleted.error_code, codes.collect::<Vec<_>>()), (0, vec![29, 29, 0]));
    assert_eq!(committed(&mut client), -1);
    assert_eq!(state(&mut client), ("Empty".to_owned(), 0));
}

#[test]
fn offsets_of_what_members_read_are_not_deleted_and_their_group_neither() {
    let broker = PausedBroker::new();
    broker.engine.create_topic("t", tidelog::TopicConfig::new(1)).unwrap();
    let mut client = broker.client();
    one_member(&broker, &mut client);
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
    let request = OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topic]);
    // What this member says is no subscription, so it may read everything.
    assert_eq!(client.ask(0, &request).topics[0].partitions[0].error_code, 86);
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    assert_eq!(client.ask(2, &request).results[0].error_code, 68);
}

#[test]
fn figures_count_groups_members_and_rebalances() {
    let broker = PausedBroker::new();
    let mut client = broker.client();
    one_member(&broker, &mut client);
    ask_to_join(&broker, &mut client);
    assert_eq!(state(&mut broker.client()).1, 2);
    assert_eq!(figure(&broker, "groups"), 1);
    assert_eq!(figure(&broker, "group_members"), 2);
    assert_eq!(figure(&broker, "group_waiting_requests"), 1);
    assert_eq!(figure(&broker, "group_rebalances_total"), 1);
    broker.advance(SESSION);
    assert_eq!(figure(&broker, "group_members_expired_total"), 1);
    assert_eq!(figure(&broker, "group_rebalances_total"), 2);
}
