//! OffsetDelete, version 0: committed offsets of a group, but for topics that its members read.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{ApiKey, OffsetDeleteRequest, OffsetDeleteResponse, TopicName};
use tidelog::{Partition, Topic};

use super::group_parts::{granted, named};
use super::offset_fetch::unavailable;
use super::request::{Api, Asked, Closing, Reply, reply};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, code_of};
use crate::security::Action;
use crate::wire::fields::{I32, LAST, TEXT, field, list, plain};
use crate::wire::shape::{Body, Struct};

pub(super) struct OffsetDelete;

impl Api for OffsetDelete {
    type Request = OffsetDeleteRequest;
    const KEY: ApiKey = ApiKey::OffsetDelete;
    const VERSIONS: (i16, i16) = (0, 0);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: OffsetDeleteRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, request).await))
    }
}

const BODY: Body =
    Body { flexible_since: LAST, body: plain(&[field(TEXT), field(list(&OFFSET_DELETE_TOPIC))]) };
const OFFSET_DELETE_TOPIC: Struct = plain(&[field(TEXT), field(list(&OFFSET_DELETE_PARTITION))]);
const OFFSET_DELETE_PARTITION: Struct = plain(&[field(I32)]);

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let locks = context.groups.lock_offsets(std::iter::once(request.group_id.as_str())).await;
    let (session, access) = (session.clone(), session.access.clone());
    let group = request.group_id.clone();
    let work = move |context: &Context| {
        let _locks = locks;
        delete(context, &session, &request)
    };
    let response = OffsetDeleteResponse::default();
    let deleted = off_the_loop(context, work).await;
    access.note_change("OffsetDelete", &group, code_of(&deleted));
    match deleted {
        Ok(topics) => response.with_topics(topics),
        Err(fault) => response.with_error_code(fault.code),
    }
}

fn delete(
    context: &Context,
    session: &Session,
    request: &OffsetDeleteRequest,
) -> Result<Vec<OffsetDeleteResponseTopic>, Fault> {
    let refused = |error| Fault::new(error, "the offsets of this group cannot be deleted");
    granted(session, Action::GroupDelete, &request.group_id).map_err(refused)?;
    let group = named(&request.group_id).map_err(refused)?;
    context.groups.check_offset_delete(group).map_err(refused)?;
    let mut removed = Vec::new();
    // A topic that is named twice is answered once.
    let mut topics: BTreeMap<TopicName, Vec<OffsetDeleteResponsePartition>> = BTreeMap::new();
    for topic in &request.topics {
        let found = find(context, session, group, &topic.name);
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let checked = found.clone().and_then(|topic| partition_of(&topic, index));
            let code = match checked {
                Ok(partition) => {
                    removed.push(partition);
                    0
                }
                Err(fault) => fault.code,
            };
            topics.entry(topic.name.clone()).or_default().push(
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(code),
            );
        }
    }
    if !removed.is_empty() {
        context.engine.group(group).remove_offsets(removed).map_err(unavailable)?;
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        OffsetDeleteResponseTopic::default().with_name(name).with_partitions(partitions)
    });
    Ok(topics.collect())
}

fn find(context: &Context, session: &Session, group: &str, name: &str) -> Result<Topic, Fault> {
    let topic = context.topic(&session.access, Action::KafkaRead, name)?;
    if context.groups.is_subscribed_to(group, name) {
        let message = "members of the group read this topic";
        return Err(Fault::new(ResponseError::GroupSubscribedToTopic, message));
    }
    Ok(topic)
}

fn partition_of(topic: &Topic, index: i32) -> Result<Partition, Fault> {
    topic.partition(index).map_err(|_| Fault::unknown())
}
