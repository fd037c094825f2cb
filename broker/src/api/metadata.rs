//! Metadata, versions 1 to 13: the one broker, and topics with their partitions. Null lists all
//! topics, an empty list none. Topics are never created by asking. A topic asked for twice is
//! answered once.

use std::collections::HashSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{ApiKey, BrokerId, MetadataRequest, MetadataResponse, TopicName};
use tidelog::Topic;
use tidelog::types::{self, TopicId};
use uuid::Uuid;

use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, NODE_ID, Session};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{BOOL, UUID, between, field, plain, since};
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct Metadata;

impl Api for Metadata {
    type Request = MetadataRequest;
    const KEY: ApiKey = ApiKey::Metadata;
    const VERSIONS: (i16, i16) = (1, 13);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: MetadataRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, &request),
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 9,
    body: plain(&[
        field(Shape::Structs(Some(1), &METADATA_TOPIC)),
        since(4, BOOL),
        between(8, 10, BOOL),
        since(8, BOOL),
    ]),
};
const METADATA_TOPIC: Struct = plain(&[since(10, UUID), field(Shape::Text(Some(10)))]);

/// What a cluster of one broker offers: create, describe, alter configurations.
pub(super) const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 8 | 1 << 10 | 1 << 11;
/// The first version in which a topic's name may be null.
const NAME_MAY_BE_NULL: i16 = 12;

fn answer(
    context: &Context,
    session: &Session,
    version: i16,
    request: &MetadataRequest,
) -> MetadataResponse {
    let view = View { context, session, version, request };
    let topics = match &request.topics {
        None => view.all(),
        Some(asked) => view.asked(asked),
    };
    let broker = MetadataResponseBroker::default()
        .with_node_id(BrokerId(NODE_ID))
        .with_host(text(context.node.host.as_str()))
        .with_port(i32::from(context.node.port));
    let response = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_controller_id(BrokerId(NODE_ID))
        .with_cluster_id(Some(text(context.node.cluster_id.as_str())))
        .with_topics(topics);
    if request.include_cluster_authorized_operations {
        return response.with_cluster_authorized_operations(CLUSTER_OPERATIONS);
    }
    response
}

struct View<'a> {
    context: &'a Context,
    session: &'a Session,
    version: i16,
    request: &'a MetadataRequest,
}

impl View<'_> {
    fn all(&self) -> Vec<MetadataResponseTopic> {
        let access = &self.session.access;
        let mut topics = self.context.engine.topics();
        topics.retain(|topic| access.allows(Action::Describe, topic.name().as_str()));
        topics.iter().map(|topic| self.known(topic)).collect()
    }

    fn asked(&self, asked: &[MetadataRequestTopic]) -> Vec<MetadataResponseTopic> {
        let mut seen = HashSet::new();
        let mut answers = Vec::new();
        for topic in asked {
            if seen.insert((topic.topic_id, topic.name.as_ref().map(|name| name.as_str()))) {
                answers.push(self.one(topic));
            }
        }
        answers
    }

    fn one(&self, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
        let access = &self.session.access;
        if !asked.topic_id.is_nil() {
            let id = TopicId::from_bytes(asked.topic_id.into_bytes());
            return match self.context.topic_by_id(access, Action::Describe, id) {
                Ok(topic) => self.known(&topic),
                Err(fault) => self.refused(None, asked.topic_id, &fault),
            };
        }
        let Some(name) = &asked.name else {
            let fault = Fault::invalid_request("a topic needs a name or an id");
            return self.refused(None, Uuid::nil(), &fault);
        };
        let found = match self.context.topic(access, Action::Describe, name) {
            Err(fault) if fault.code == ResponseError::UnknownTopicOrPartition.code() => {
                Err(types::TopicName::new(name.as_str()).err().map_or(fault, Fault::invalid_name))
            }
            found => found,
        };
        match found {
            Ok(topic) => self.known(&topic),
            Err(fault) => self.refused(Some(name), Uuid::nil(), &fault),
        }
    }

    fn refused(&self, name: Option<&TopicName>, id: Uuid, fault: &Fault) -> MetadataResponseTopic {
        let name = match name {
            None if self.version < NAME_MAY_BE_NULL => Some(TopicName::default()),
            name => name.cloned(),
        };
        MetadataResponseTopic::default()
            .with_error_code(fault.code)
            .with_name(name)
            .with_topic_id(id)
    }

    fn known(&self, topic: &Topic) -> MetadataResponseTopic {
        let name = topic.name().as_str();
        let count = i32::try_from(topic.partition_count()).unwrap_or(i32::MAX);
        let node = vec![BrokerId(NODE_ID)];
        let epoch = self.context.engine.leader_epoch();
        let partitions = (0..count).map(|index| {
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(BrokerId(NODE_ID))
                .with_leader_epoch(epoch)
                .with_replica_nodes(node.clone())
                .with_isr_nodes(node.clone())
        });
        let answer = MetadataResponseTopic::default()
            .with_name(Some(TopicName(text(name))))
            .with_topic_id(Uuid::from_bytes(*topic.id().as_bytes()))
            .with_partitions(partitions.collect());
        if self.request.include_topic_authorized_operations {
            let operations = self.session.access.topic_operations(name);
            return answer.with_topic_authorized_operations(operations);
        }
        answer
    }
}
