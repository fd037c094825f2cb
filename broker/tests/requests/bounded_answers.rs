//! A few bytes that ask for very much: what is asked for twice costs once, nothing is built that
//! there is no memory for, who waits holds next to nothing, and nobody works for who has gone.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

use crate::common;

use common::client::name;
use common::{TestBroker, config, direct};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTransaction;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};
use tidelog::GroupOffset;
use tidelog_broker::api::{Closing, Reply};
use tidelog_broker::context::{LOOKUPS_AT_A_TIME, Session};
use uuid::Uuid;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Why a request of somebody who has gone, or is there, closes the connection.
fn closing<R: Request>(
    broker: &TestBroker,
    is_gone: bool,
    version: i16,
    request: &R,
) -> Option<Closing> {
    let session = Session::default();
    match direct::reply(&broker.context, &session, is_gone, version, request) {
        Reply::Close(closing) => Some(closing),
        Reply::Answer(_) | Reply::Nothing => None,
    }
}

#[test]
fn a_topic_is_told_once_by_its_id_whatever_names_stand_beside_it() {
    let broker = TestBroker::new();
    broker.topic("t", 100);
    let id = Uuid::from_bytes(*broker.engine.topic("t").unwrap().id().as_bytes());
    let one = MetadataRequestTopic::default().with_topic_id(id);
    let mut topics: Vec<_> =
        (0..2000).map(|at| one.clone().with_name(Some(name(&format!("name-{at}"))))).collect();
    topics.push(one.with_name(None));
    topics.push(MetadataRequestTopic::default().with_name(Some(name("t"))));
    let unknown = MetadataRequestTopic::default().with_topic_id(Uuid::from_u128(7));
    topics.extend((0..50).map(|at| unknown.clone().with_name(Some(name(&format!("n-{at}"))))));
    let request = MetadataRequest::default().with_topics(Some(topics));
    let told = broker.client().ask(12, &request).topics;
    let told: Vec<_> =
        told.iter().map(|topic| (topic.error_code, topic.partitions.len())).collect();
    assert_eq!(told, [(0, 100), (100, 0)]);
}

/// Commits offsets with metadata of 4 KiB for partitions of the topic `t`.
fn commit(broker: &TestBroker, group: &str, partitions: usize) {
    let topic = broker.engine.topic("t").unwrap();
    let offset = GroupOffset { offset: 1, leader_epoch: -1, metadata: "m".repeat(4096) };
    let some = topic.partitions().into_iter().take(partitions);
    let offsets = some.map(|partition| (partition, offset.clone()));
    broker.engine.group(group).commit_as_sent(offsets).unwrap();
}

#[test]
fn offsets_that_there_is_no_memory_for_are_not_gathered_and_few_are_answered() {
    let mut config = config();
    config.limits.max_memory_bytes = 8 << 20;
    let broker = TestBroker::start(config);
    broker.topic("t", 400);
    let groups: Vec<_> = (0..6).map(|at| format!("g{at}")).collect();
    groups.iter().for_each(|group| commit(&broker, group, 400));
    commit(&broker, "few", 5);
    let budget = &broker.context.budget;
    let total = budget.total_bytes();
    let asked = |group: &str| {
        OffsetFetchRequestGroup::default().with_group_id(GroupId(text(group))).with_topics(None)
    };
    let request = OffsetFetchRequest::default()
        .with_groups(groups.iter().map(|group| asked(group)).collect());
    let refused = closing(&broker, false, 9, &request);
    assert!(matches!(refused, Some(Closing::TooLarge(_))), "{refused:?}");
    assert_eq!(budget.free_bytes(), total);
    let request = OffsetFetchRequest::default().with_groups(vec![asked("few"), asked("few")]);
    let answered = broker.client().ask(9, &request);
    assert_eq!(answered.groups.len(), 1);
    assert_eq!(answered.groups[0].topics[0].partitions.len(), 5);
}

#[test]
fn all_topics_are_not_told_where_that_would_be_more_than_half_of_the_memory() {
    let mut config = config();
    config.limits.max_memory_bytes = 1 << 20;
    let broker = TestBroker::start(config);
    broker.topic("t", 3000);
    let all = MetadataRequest::default().with_topics(None);
    let refused = closing(&broker, false, 12, &all);
    assert!(matches!(refused, Some(Closing::TooLarge(_))), "{refused:?}");
    assert_eq!(broker.context.budget.free_bytes(), 1 << 20);
}

#[test]
fn a_fetch_that_waits_holds_nothing_of_a_request_that_names_a_partition_very_often() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let partition = FetchPartition::default().with_partition_max_bytes(1000);
    let topic = FetchTopic::default().with_topic(name("t"));
    let request = FetchRequest::default()
        .with_min_bytes(1)
        .with_max_bytes(1000)
        .with_max_wait_ms(60_000)
        .with_topics(vec![topic.with_partitions(vec![partition; 100_000])]);
    let mut client = broker.client();
    client.send(12, &request);
    while broker.context.metrics.waiting_fetches.get() == 0 {
        std::thread::yield_now();
    }
    let budget = &broker.context.budget;
    let held = budget.total_bytes() - budget.free_bytes();
    assert!(held < 64 * 1024, "held_bytes={held}");
}

#[test]
fn nobody_looks_for_records_by_time_or_checks_transactions_for_who_has_gone() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let turns = LOOKUPS_AT_A_TIME.try_into().unwrap();
    let taken = broker.context.lookups.try_acquire_many(turns).unwrap();
    let partition = ListOffsetsPartition::default().with_timestamp(0);
    let topic = ListOffsetsTopic::default().with_name(name("t"));
    let by_time =
        ListOffsetsRequest::default().with_topics(vec![topic.with_partitions(vec![partition])]);
    assert_eq!(closing(&broker, true, 7, &by_time), Some(Closing::Gone));
    drop(taken);
    assert_eq!(closing(&broker, false, 7, &by_time), None);
    let transaction = AddPartitionsToTxnTransaction::default().with_verify_only(true);
    let verify = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction; 20_000]);
    assert_eq!(closing(&broker, true, 4, &verify), Some(Closing::Gone));
    assert_eq!(closing(&broker, false, 4, &verify), None);
}
