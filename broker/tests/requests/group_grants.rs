//! Groups want a grant: every API that names one, with Kafka's codes.

use crate::common;

use common::client::name;
use common::{TestBroker, direct};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tidelog_broker::context::Session;

/// GROUP_AUTHORIZATION_FAILED.
const REFUSED: i16 = 30;

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("g"))
}

fn topic() -> OffsetCommitRequestTopic {
    let partitions = vec![OffsetCommitRequestPartition::default()];
    OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(partitions)
}

/// Whether each API that names the group refuses somebody with this session for want of a grant.
fn refusals(broker: &TestBroker, who: &Session) -> Vec<(&'static str, bool)> {
    let cx = &broker.context;
    let join = JoinGroupRequest::default().with_group_id(group()).with_session_timeout_ms(10_000);
    let sync = SyncGroupRequest::default().with_group_id(group());
    let beat = HeartbeatRequest::default().with_group_id(group());
    let leave = LeaveGroupRequest::default().with_group_id(group());
    let commit = OffsetCommitRequest::default().with_group_id(group()).with_topics(vec![topic()]);
    let committed = |answer: OffsetCommitResponse| answer.topics[0].partitions[0].error_code;
    let asked = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(None);
    let fetch = OffsetFetchRequest::default().with_groups(vec![asked]);
    let one =
        OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let first = OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![one]));
    let staged = TxnOffsetCommitRequestTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![TxnOffsetCommitRequestPartition::default()]);
    let id = TransactionalId(StrBytes::from_static_str("x"));
    let stage = TxnOffsetCommitRequest::default()
        .with_transactional_id(id.clone())
        .with_group_id(group())
        .with_topics(vec![staged]);
    let add = AddOffsetsToTxnRequest::default().with_transactional_id(id).with_group_id(group());
    let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![group().0]);
    let describe = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    let remove = OffsetDeleteRequest::default().with_group_id(group());
    let old = direct::ask(cx, who, 1, &first).topics[0].partitions[0].error_code;
    [
        ("JoinGroup", direct::ask(cx, who, 5, &join).error_code),
        ("SyncGroup", direct::ask(cx, who, 5, &sync).error_code),
        ("Heartbeat", direct::ask(cx, who, 4, &beat).error_code),
        ("LeaveGroup", direct::ask(cx, who, 5, &leave).error_code),
        ("OffsetCommit", committed(direct::ask(cx, who, 8, &commit))),
        ("OffsetFetch 1", old),
        ("OffsetFetch 9", direct::ask(cx, who, 9, &fetch).groups[0].error_code),
        ("TxnOffsetCommit", direct::ask(cx, who, 3, &stage).topics[0].partitions[0].error_code),
        ("AddOffsetsToTxn", direct::ask(cx, who, 3, &add).error_code),
        ("FindCoordinator", direct::ask(cx, who, 6, &find).coordinators[0].error_code),
        ("DescribeGroups", direct::ask(cx, who, 5, &describe).groups[0].error_code),
        ("DeleteGroups", direct::ask(cx, who, 2, &delete).results[0].error_code),
        ("OffsetDelete", direct::ask(cx, who, 0, &remove).error_code),
    ]
    .map(|(api, code)| (api, code == REFUSED))
    .to_vec()
}

fn refused(broker: &TestBroker, who: &Session) -> Vec<&'static str> {
    refusals(broker, who).into_iter().filter(|&(_, is)| is).map(|(api, _)| api).collect()
}

#[test]
fn every_api_that_names_a_group_wants_a_grant_for_it() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let topics = "u KafkaRead t\nu TransactionalIdWrite x\n";
    let with = |line: &str| direct::user("u", &format!("{topics}{line}"));
    let all = refusals(&broker, &Session::default());
    let every: Vec<_> = all.iter().map(|&(api, _)| api).collect();
    assert_eq!(refused(&broker, &Session::default()), [""; 0], "nobody logs in");
    assert_eq!(refused(&broker, &with("")), every);
    assert_eq!(refused(&broker, &with("u GroupRead g2")), every, "another group");
    assert_eq!(refused(&broker, &with("u All g")), [""; 0]);
    let only_read = ["DeleteGroups", "OffsetDelete"];
    assert_eq!(refused(&broker, &with("u GroupRead g*")), only_read);
    let seeing = ["OffsetFetch 1", "OffsetFetch 9", "FindCoordinator", "DescribeGroups"];
    let but_seeing: Vec<_> = every.iter().copied().filter(|api| !seeing.contains(api)).collect();
    assert_eq!(refused(&broker, &with("u GroupDescribe g")), but_seeing);
    let but_deleting: Vec<_> =
        but_seeing.iter().copied().filter(|api| !only_read.contains(api)).collect();
    assert_eq!(refused(&broker, &with("u GroupDelete g")), but_deleting);
}

#[test]
fn groups_that_a_user_may_not_see_are_not_listed_and_what_it_may_do_is_told() {
    let broker = TestBroker::new();
    broker.context.groups.touch("g");
    broker.context.groups.touch("other");
    let who = direct::user("u", "u GroupRead g");
    let listed = direct::ask(&broker.context, &who, 4, &ListGroupsRequest::default());
    let names: Vec<_> = listed.groups.iter().map(|group| group.group_id.as_str()).collect();
    assert_eq!(names, ["g"]);
    let request = DescribeGroupsRequest::default()
        .with_groups(vec![group()])
        .with_include_authorized_operations(true);
    let told = |who| direct::ask(&broker.context, who, 5, &request).groups[0].authorized_operations;
    assert_eq!(told(&who), 1 << 3 | 1 << 8 | 1 << 10);
    assert_eq!(told(&Session::default()), 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11);
}
