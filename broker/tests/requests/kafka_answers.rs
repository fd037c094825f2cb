//! Answers that Kafka's clients and tools rest on: configuration carried over, isolation levels, ends that come late.

use crate::common;

use common::client::{batch, name, produce};
use common::{Client, TestBroker};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tidelog::config::{Domain, TOPIC_CONFIG_KEYS};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn text(of: &str) -> StrBytes {
    StrBytes::from_string(of.to_owned())
}

/// The code of a change of one topic's configuration.
fn alter(client: &mut Client, topic: &str, changes: &[(&str, i8, Option<&str>)]) -> i16 {
    let configs = changes.iter().map(|&(name, operation, value)| {
        AlterableConfig::default()
            .with_name(text(name))
            .with_config_operation(operation)
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(1, &request).responses[0].error_code
}

fn describe(client: &mut Client, topic: &str, key: &str) -> DescribeConfigsResourceResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true);
    client.ask(4, &request).results[0].configs[0].clone()
}

#[test]
fn every_setting_of_kafkas_is_taken_at_its_default_and_deleted_beside_others() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    let defaults = TOPIC_CONFIG_KEYS.iter().map(|key| (key.name, SET, Some(key.default)));
    assert_eq!(alter(&mut client, "t", &defaults.collect::<Vec<_>>()), 0);
    let mut deleted: Vec<_> =
        TOPIC_CONFIG_KEYS.iter().map(|key| (key.name, DELETE, None)).collect();
    deleted.retain(|&(name, ..)| name != "retention.ms");
    deleted.extend([("nonsense.x", DELETE, None), ("retention.ms", SET, Some("7000"))]);
    assert_eq!(alter(&mut client, "t", &deleted), 0, "as MirrorMaker 2 sends it");
    assert_eq!(describe(&mut client, "t", "retention.ms").value, Some(text("7000")));
    for operation in [SET, APPEND, SUBTRACT] {
        assert_eq!(alter(&mut client, "t", &[("nonsense.x", operation, Some("1"))]), 40);
    }
    for key in TOPIC_CONFIG_KEYS {
        if matches!(key.domain, Domain::Only { .. }) {
            assert_eq!(alter(&mut client, "t", &[(key.name, SET, Some("9"))]), 40, "{}", key.name);
        }
    }
}

#[test]
fn any_codec_of_kafkas_can_be_set_is_shown_and_changes_nothing_that_is_stored() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    let sent = batch("as it is");
    for (at, codec) in
        ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"].iter().enumerate()
    {
        assert_eq!(alter(&mut client, "t", &[("compression.type", SET, Some(codec))]), 0);
        let shown = describe(&mut client, "t", "compression.type");
        assert_eq!((shown.value, shown.config_source), (Some(text(codec)), 1));
        client.ask(9, &produce(1, &[("t", &[(0, sent.clone())])]));
        let offset = i64::try_from(at).unwrap();
        let stored = fetch(&mut client, 11, 0, offset).responses[0].partitions[0].records.clone();
        assert_eq!(stored.unwrap()[21..], sent[21..], "{codec}");
    }
}

#[test]
fn an_entry_is_described_with_its_type_and_all_that_could_give_its_value() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    let sources = |entry: &DescribeConfigsResourceResult| -> Vec<_> {
        let synonyms = entry.synonyms.iter();
        synonyms.map(|of| (of.name.to_string(), of.value.clone().unwrap(), of.source)).collect()
    };
    let named = |name: &str, value: &str, source| (name.to_owned(), text(value), source);
    let entry = describe(&mut client, "t", "max.message.bytes");
    assert_eq!((entry.config_source, entry.config_type), (5, 3));
    assert_eq!(sources(&entry), [named("message.max.bytes", "1048588", 5)]);
    assert_eq!(alter(&mut client, "t", &[("max.message.bytes", SET, Some("2000"))]), 0);
    let entry = describe(&mut client, "t", "max.message.bytes");
    assert_eq!(entry.config_source, 1);
    let both = [named("max.message.bytes", "2000", 1), named("message.max.bytes", "1048588", 5)];
    assert_eq!(sources(&entry), both);
    let entry = describe(&mut client, "t", "retention.ms");
    assert_eq!((sources(&entry), entry.config_type), (Vec::new(), 5));
    for (name, kind) in [
        ("remote.storage.enable", 1),
        ("compression.type", 2),
        ("compression.zstd.level", 3),
        ("local.retention.ms", 5),
        ("min.cleanable.dirty.ratio", 6),
        ("leader.replication.throttled.replicas", 7),
    ] {
        assert_eq!(describe(&mut client, "t", name).config_type, kind, "{name}");
    }
}

fn fetch(client: &mut Client, version: i16, isolation: i8, offset: i64) -> FetchResponse {
    let topic = |topic: &str, partitions: &[i32]| {
        let partitions = partitions.iter().map(|&partition| {
            FetchPartition::default()
                .with_partition(partition)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(1000)
        });
        FetchTopic::default().with_topic(name(topic)).with_partitions(partitions.collect())
    };
    let request = FetchRequest::default()
        .with_max_bytes(1000)
        .with_isolation_level(isolation)
        .with_topics(vec![topic("t", &[0, 1]), topic("none", &[0])]);
    client.ask(version, &request)
}

#[test]
fn an_isolation_level_that_there_is_not_is_told_for_every_partition() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    for version in [4, 6, 7, 11, 12] {
        for isolation in [2, 7, -1] {
            let answer = fetch(&mut client, version, isolation, 0);
            assert_eq!(answer.error_code, if version < 7 { 0 } else { -1 });
            let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
            let told: Vec<_> = parts.map(|part| (part.error_code, part.high_watermark)).collect();
            assert_eq!(told, [(-1, -1); 3], "version {version}, level {isolation}");
        }
    }
}
