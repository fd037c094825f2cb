//! The longest texts that the protocol allows, in versions whose texts can be no longer: whatever
//! is asked is answered, and can be read.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

use crate::common;

use bytes::Bytes;
use common::client::{batch, name, produce};
use common::{Client, TestBroker, config};
use kafka_protocol::messages::alter_configs_request as alter;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::incremental_alter_configs_request as incremental;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};

const LONGEST: usize = 32_767;

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

fn long() -> StrBytes {
    text("n".repeat(LONGEST))
}

/// A request of a client that calls itself like this.
fn called<R: Request>(client: &mut Client, client_id: &[u8], version: i16, request: &R) -> i32 {
    let (id, frame) = client.frame(version, request);
    // Behind the length: key, version, correlation id, and the client id with its length.
    let (head, rest) = (&frame[4..12], &frame[14 + "raw".len()..]);
    let length = u16::try_from(client_id.len()).unwrap().to_be_bytes();
    let body = [head, &length, client_id, rest].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    client.send_bytes(&[&length[..], &body].concat()).unwrap();
    id
}

fn join(protocol: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text(protocol));
    JoinGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol.with_metadata(Bytes::from_static(b"m"))])
}

#[test]
fn members_with_the_longest_client_ids_are_told_to_clients_of_every_version() {
    let mut config = config();
    config.limits.groups.initial_delay = std::time::Duration::ZERO;
    let broker = TestBroker::start(config);
    // The second is longer once it is read: its bytes are no text.
    for client_id in [vec![b'c'; LONGEST], vec![0xff; LONGEST]] {
        for version in [3, 5, 9] {
            let mut member = broker.client();
            let mut request = join("range");
            if version > 3 {
                let id = called(&mut member, &client_id, version, &request);
                let told = member.receive::<JoinGroupRequest>(version, id);
                assert_eq!(told.error_code, 79);
                request.member_id = told.member_id;
            }
            let id = called(&mut member, &client_id, version, &request);
            let joined = member.receive::<JoinGroupRequest>(version, id);
            assert_eq!((joined.error_code, joined.members.len()), (0, 1));
            assert!(joined.member_id.len() <= LONGEST);
            for version in 0..=6 {
                let request =
                    DescribeGroupsRequest::default().with_groups(vec![GroupId(text("g"))]);
                let described = member.ask(version, &request).groups.remove(0);
                assert_eq!(described.members[0].member_id, joined.member_id);
            }
            let leave = LeaveGroupRequest::default().with_group_id(GroupId(text("g")));
            let left = member.ask(0, &leave.with_member_id(joined.member_id));
            assert_eq!(left.error_code, 0);
        }
    }
}

#[test]
fn a_member_id_ends_with_what_makes_it_its_own_however_long_the_name_is() {
    let broker = TestBroker::new();
    let groups = &broker.context.groups;
    let (one, other) = (groups.new_member_id(&long()), groups.new_member_id(&long()));
    assert_eq!((one.len(), other.len()), (LONGEST, LONGEST));
    assert_ne!(one, other);
}

#[test]
fn what_is_wrong_with_the_longest_names_and_values_is_told_in_short() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    let mut told: Vec<(i16, StrBytes)> = Vec::new();
    let parts: Vec<_> = (0..3).map(|at| (at, batch("x"))).collect();
    let produced = client.ask(8, &produce(1, &[(&long(), &parts)]));
    for partition in &produced.responses[0].partition_responses {
        told.push((partition.error_code, partition.error_message.clone().unwrap()));
    }
    let entry = CreatableTopicConfig::default().with_name(long()).with_value(Some(long()));
    let topic = CreatableTopic::default().with_num_partitions(1).with_replication_factor(1);
    let topics = vec![
        topic.clone().with_name(name(&long())),
        topic.with_name(name("u")).with_configs(vec![entry]),
    ];
    let made = client.ask(2, &CreateTopicsRequest::default().with_topics(topics));
    told.extend(made.topics.into_iter().map(|one| (one.error_code, one.error_message.unwrap())));
    let entry = |name| alter::AlterableConfig::default().with_name(name).with_value(Some(long()));
    let resource = alter::AlterConfigsResource::default().with_resource_type(2);
    let resource = resource.with_resource_name(text("t"));
    for entries in [vec![entry(long())], vec![entry(long()); 2], vec![entry(text("retention.ms"))]]
    {
        let resources = vec![resource.clone().with_configs(entries)];
        let altered = client.ask(0, &AlterConfigsRequest::default().with_resources(resources));
        let answer = altered.responses.into_iter().next().unwrap();
        told.push((answer.error_code, answer.error_message.unwrap()));
    }
    let entry = incremental::AlterableConfig::default().with_name(long()).with_value(Some(long()));
    let resource = incremental::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![entry]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.ask(0, &request).responses.remove(0);
    told.push((answer.error_code, answer.error_message.unwrap()));
    let more = CreatePartitionsTopic::default().with_name(name(&long())).with_count(2);
    let answer = client.ask(0, &CreatePartitionsRequest::default().with_topics(vec![more]));
    told.push((answer.results[0].error_code, answer.results[0].error_message.clone().unwrap()));
    let codes: Vec<i16> = told.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [3, 3, 3, 17, 40, 40, 42, 40, 40, 3]);
    for (code, message) in told {
        assert!(message.len() < 1500, "code={code} length_bytes={}", message.len());
    }
}
