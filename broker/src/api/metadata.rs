//! Metadata, versions 1 to 13: the one broker, and topics with their partitions. Null lists all
//! topics, an empty list none. Topics are never created by asking. A topic asked for twice is
//! answered once, also by its id and by names that are not its own.

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

use super::memory;
use super::request::{Answer, Api, Asked, Closing, Reply, encode, text};
use crate::context::{Context, NODE_ID, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::budget::FREE_BYTES;
use crate::wire::fields::{BOOL, UUID, between, field, plain, since};
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct Metadata;

impl Api for Metadata {
    type Request = MetadataRequest;
    const KEY: ApiKey = ApiKey::Metadata;
    const VERSIONS: (i16, i16) = (1, 13);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: MetadataRequest) -> Result<Reply, Closing> {
        answer(asked, request).await
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

/// What whoever has logged in may do with the cluster: create, describe, alter configurations.
const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 8 | 1 << 10 | 1 << 11;
/// As well where nobody is refused anything: alter, act as a broker, write idempotently.
const OPEN_CLUSTER_OPERATIONS: i32 = CLUSTER_OPERATIONS | 1 << 7 | 1 << 9 | 1 << 12;
/// What a partition costs in memory, decoded and encoded, about.
const PARTITION_BYTES: usize = 400;
/// What a topic costs beside its partitions, about.
const TOPIC_BYTES: usize = 800;
/// The first version in which a topic's name may be null.
const NAME_MAY_BE_NULL: i16 = 12;

async fn answer(asked: Asked<'_>, request: MetadataRequest) -> Result<Reply, Closing> {
    let Asked { context, peer, start, .. } = asked;
    let session = peer.session.clone();
    let view = View { session, version: start.version, request };
    let topics = view.topics(context);
    let partitions: usize = topics.iter().map(Listed::partition_count).sum();
    let bytes = partitions * PARTITION_BYTES + topics.len() * TOPIC_BYTES;
    let held = memory::take(context, start, bytes).await?;
    let work = move |context: &Context| encode(start, &view.respond(context, topics));
    let bytes = if bytes > FREE_BYTES { off_the_loop(context, work).await } else { work(context) };
    Ok(Reply::Answer(Answer { bytes, then_close: false, held }))
}

/// Kafka's bits of what the session may do with the cluster.
pub(super) fn cluster_operations(session: &Session) -> i32 {
    if session.access.is_open() { OPEN_CLUSTER_OPERATIONS } else { CLUSTER_OPERATIONS }
}

/// What a request asks, and who asks.
struct View {
    session: Session,
    version: i16,
    request: MetadataRequest,
}

/// A topic of the answer.
enum Listed {
    Known(Topic),
    Refused { name: Option<TopicName>, id: Uuid, fault: Fault },
}

impl Listed {
    fn partition_count(&self) -> usize {
        match self {
            Self::Known(topic) => topic.partition_count() as usize,
            Self::Refused { .. } => 0,
        }
    }
}

impl View {
    /// The topics of the answer, each once, however it is named.
    fn topics(&self, context: &Context) -> Vec<Listed> {
        let Some(asked) = &self.request.topics else {
            let mut topics = context.engine.topics().list();
            let access = &self.session.access;
            topics.retain(|topic| access.allows(Action::Describe, topic.name().as_str()));
            return topics.into_iter().map(Listed::Known).collect();
        };
        let (mut known, mut refused) = (HashSet::new(), HashSet::new());
        let mut listed = Vec::new();
        for one in asked {
            let found = self.one(context, one);
            let is_first = match &found {
                Listed::Known(topic) => known.insert(topic.id()),
                Listed::Refused { name, id, .. } => refused.insert((*id, name.clone())),
            };
            if is_first {
                listed.push(found);
            }
        }
        listed
    }

    fn respond(&self, context: &Context, topics: Vec<Listed>) -> MetadataResponse {
        let topics = topics.into_iter().map(|topic| match topic {
            Listed::Known(topic) => self.known(context, &topic),
            Listed::Refused { name, id, fault } => self.refused(name, id, &fault),
        });
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(NODE_ID))
            .with_host(text(context.node.host.as_str()))
            .with_port(i32::from(context.node.port));
        let response = MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_controller_id(BrokerId(NODE_ID))
            .with_cluster_id(Some(text(context.node.cluster_id.as_str())))
            .with_topics(topics.collect());
        if self.request.include_cluster_authorized_operations {
            return response.with_cluster_authorized_operations(cluster_operations(&self.session));
        }
        response
    }

    fn one(&self, context: &Context, asked: &MetadataRequestTopic) -> Listed {
        let access = &self.session.access;
        if !asked.topic_id.is_nil() {
            let id = TopicId::from_bytes(asked.topic_id.into_bytes());
            return match context.topic_by_id(access, Action::Describe, id) {
                Ok(topic) => Listed::Known(topic),
                Err(fault) => Listed::Refused { name: None, id: asked.topic_id, fault },
            };
        }
        let Some(name) = &asked.name else {
            let fault = Fault::invalid_request("a topic needs a name or an id");
            return Listed::Refused { name: None, id: Uuid::nil(), fault };
        };
        let found = match context.topic(access, Action::Describe, name) {
            Err(fault) if fault.code == ResponseError::UnknownTopicOrPartition.code() => {
                Err(types::TopicName::new(name.as_str()).err().map_or(fault, Fault::invalid_name))
            }
            found => found,
        };
        match found {
            Ok(topic) => Listed::Known(topic),
            Err(fault) => Listed::Refused { name: Some(name.clone()), id: Uuid::nil(), fault },
        }
    }

    fn refused(&self, name: Option<TopicName>, id: Uuid, fault: &Fault) -> MetadataResponseTopic {
        let name = match name {
            None if self.version < NAME_MAY_BE_NULL => Some(TopicName::default()),
            name => name,
        };
        MetadataResponseTopic::default()
            .with_error_code(fault.code)
            .with_name(name)
            .with_topic_id(id)
    }

    fn known(&self, context: &Context, topic: &Topic) -> MetadataResponseTopic {
        let name = topic.name().as_str();
        let count = i32::try_from(topic.partition_count()).unwrap_or(i32::MAX);
        let node = vec![BrokerId(NODE_ID)];
        let epoch = context.engine.leader_epoch();
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
