//! Produce: one request is one append transaction, or stands partition by partition when told so.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

use crate::common;

use bytes::Bytes;
use common::client::{batch, batch_of, name, produce};
use common::{TestBroker, config};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use tidelog::{Record, TopicConfig};
use tidelog_broker::profile::{Profile, Rules};

/// Topic, partition, code and base offset of each answer.
fn outcomes(response: &ProduceResponse) -> Vec<(String, i32, i16, i64)> {
    let topics = response.responses.iter();
    topics
        .flat_map(|topic| {
            topic.partition_responses.iter().map(|partition| {
                let name = topic.name.as_str().to_owned();
                (name, partition.index, partition.error_code, partition.base_offset)
            })
        })
        .collect()
}

fn codes(response: &ProduceResponse) -> Vec<i16> {
    outcomes(response).iter().map(|outcome| outcome.2).collect()
}

fn broken() -> Bytes {
    let mut bytes = batch("broken").to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    Bytes::from(bytes)
}

#[test]
fn a_request_over_three_partitions_is_stored_whole() {
    let broker = TestBroker::new();
    broker.topic("orders", 3);
    let mut client = broker.client();
    let parts = [(0, batch("a")), (1, batch("b")), (2, batch("c"))];
    for round in 0..3 {
        let answer = client.ask(9, &produce(-1, &[("orders", &parts)]));
        let expected: Vec<_> = (0..3).map(|at| ("orders".to_owned(), at, 0, round)).collect();
        assert_eq!(outcomes(&answer), expected);
    }
    assert_eq!(broker.ends("orders"), [3, 3, 3]);
}

#[test]
fn one_batch_refused_refuses_all_and_names_the_culprit() {
    let broker = TestBroker::new();
    broker.topic("orders", 3);
    let mut client = broker.client();
    let parts = [(0, batch("a")), (1, broken()), (2, batch("c"))];
    let answer = client.ask(9, &produce(-1, &[("orders", &parts)]));
    assert_eq!(codes(&answer), [2, 2, 2]);
    for partition in &answer.responses[0].partition_responses {
        let message = partition.error_message.as_ref().unwrap();
        assert!(message.contains("orders-1"), "{message}");
        assert_eq!(partition.base_offset, -1);
    }
    assert_eq!(broker.ends("orders"), [0, 0, 0]);
    let unknown = client.ask(9, &produce(-1, &[("orders", &parts[..1]), ("none", &parts[..1])]));
    assert_eq!(codes(&unknown), [3, 3]);
    assert_eq!(broker.ends("orders"), [0, 0, 0]);
}

#[test]
fn with_independent_partitions_the_others_are_stored() {
    let rules = Rules::new(Profile::Kafka, true, None);
    let broker = TestBroker::start(tidelog_broker::server::Config { rules, ..config() });
    broker.topic("orders", 3);
    let mut client = broker.client();
    let parts = [(0, batch("a")), (1, broken()), (2, batch("c"))];
    let answer = client.ask(9, &produce(-1, &[("orders", &parts), ("none", &parts[..1])]));
    assert_eq!(codes(&answer), [0, 2, 0, 3]);
    assert_eq!(broker.ends("orders"), [1, 0, 1]);
}

#[test]
fn a_request_over_a_hundred_partitions_costs_one_frame() {
    let broker = TestBroker::new();
    broker.topic("wide", 100);
    let mut client = broker.client();
    let parts: Vec<(i32, Bytes)> = (0..100).map(|at| (at, batch("x"))).collect();
    let before = broker.engine.metrics().commits;
    let answer = client.ask(9, &produce(1, &[("wide", &parts)]));
    assert_eq!(codes(&answer), [0; 100]);
    assert_eq!(broker.engine.metrics().commits, before + 1);
}

#[test]
fn acknowledgements_of_0_have_no_answer_and_a_refusal_closes_the_connection() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    client.send(9, &produce(0, &[("t", &[(0, batch("silent"))])]));
    let answer = client.ask(9, &produce(1, &[("t", &[(0, batch("loud"))])]));
    assert_eq!(outcomes(&answer), [("t".to_owned(), 0, 0, 1)]);
    client.send(9, &produce(0, &[("t", &[(0, broken())])]));
    assert!(client.is_closed());
    assert_eq!(broker.ends("t"), [2]);
}

#[test]
fn other_acknowledgements_are_refused_for_every_partition() {
    let broker = TestBroker::new();
    broker.topic("t", 2);
    let mut client = broker.client();
    let parts = [(0, batch("a")), (1, broken())];
    assert_eq!(codes(&client.ask(9, &produce(2, &[("t", &parts)]))), [21, 21]);
    assert_eq!(codes(&client.ask(9, &produce(-2, &[("none", &parts)]))), [21, 21]);
    assert_eq!(broker.ends("t"), [0, 0]);
}

#[test]
fn every_version_tells_of_success_and_of_failure() {
    let broker = TestBroker::new();
    let settings = TopicConfig::new(1).set("cleanup.policy", "compact").unwrap();
    let topic = broker.engine.create_topic("keyed", settings).unwrap();
    let id = uuid::Uuid::from_bytes(*topic.id().as_bytes());
    let mut client = broker.client();
    let keyless = batch_of(&[Record::new("k", "v"), Record::keyless("v")]);
    let request = |version: i16, records: Bytes| {
        let mut request = produce(-1, &[("keyed", &[(0, records)])]);
        if version >= 13 {
            request.topic_data[0].name = name("");
            request.topic_data[0].topic_id = id;
        }
        request
    };
    for version in 3..=13 {
        let answer: ProduceResponse = client.ask(version, &request(version, batch("v")));
        assert_eq!(codes(&answer), [0], "version={version}");
        let refused: ProduceResponse = client.ask(version, &request(version, keyless.clone()));
        assert_eq!(codes(&refused), [87], "version={version}");
        let partition = &refused.responses[0].partition_responses[0];
        let records: Vec<i32> =
            partition.record_errors.iter().map(|record| record.batch_index).collect();
        assert_eq!(records, if version >= 8 { vec![1] } else { vec![] }, "version={version}");
    }
    assert_eq!(broker.ends("keyed"), [11]);
}

#[test]
fn a_key_or_value_above_its_limit_is_too_large_for_the_event_broker() {
    let rules = Rules::new(Profile::EventBroker, false, None);
    let broker = TestBroker::start(tidelog_broker::server::Config { rules, ..config() });
    broker.topic("events", 1);
    let mut client = broker.client();
    let mut code = |key: usize, value: usize| {
        let record = Record::new("k".repeat(key), "v".repeat(value));
        let request: ProduceRequest = produce(1, &[("events", &[(0, batch_of(&[record]))])]);
        codes(&client.ask(9, &request))[0]
    };
    assert_eq!(code(129_024, 129_024), 0);
    assert_eq!(code(129_025, 0), 10);
    assert_eq!(code(0, 129_025), 10);
    assert_eq!(broker.ends("events"), [1]);
}
