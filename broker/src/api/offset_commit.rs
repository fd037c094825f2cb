//! OffsetCommit, versions 2 to 9: by a member of the present generation, or without one by a
//! client that assigns partitions itself, while the group has no members. Any offset is stored,
//! metadata of up to 4,096 bytes with it; each partition stands by itself.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{ApiKey, OffsetCommitRequest, OffsetCommitResponse};
use tidelog::{GroupOffset, Partition};

use super::group_parts::granted;
use super::offset_fetch::unavailable;
use super::request::{Api, Asked, Closing, Reply, reply};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::groups::Committer;
use crate::security::Action;
use crate::wire::fields::{I32, I64, TEXT, TEXT_OR_NULL, between, field, list, plain, since};
use crate::wire::shape::{Body, Struct};

pub(super) struct OffsetCommit;

impl Api for OffsetCommit {
    type Request = OffsetCommitRequest;
    const KEY: ApiKey = ApiKey::OffsetCommit;
    const VERSIONS: (i16, i16) = (2, 9);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: OffsetCommitRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 8,
    body: plain(&[
        field(TEXT),
        field(I32),
        field(TEXT),
        since(7, TEXT_OR_NULL),
        between(2, 4, I64),
        field(list(&OFFSET_COMMIT_TOPIC)),
    ]),
};
const OFFSET_COMMIT_TOPIC: Struct = plain(&[field(TEXT), field(list(&OFFSET_COMMIT_PARTITION))]);
const OFFSET_COMMIT_PARTITION: Struct =
    plain(&[field(I32), field(I64), since(6, I32), field(TEXT_OR_NULL)]);

/// The longest metadata that is stored with an offset, as Kafka's `offset.metadata.max.bytes`.
const MAX_METADATA_BYTES: usize = 4096;
/// The first version that knows GROUP_ID_NOT_FOUND.
const WITH_GROUP_ID_NOT_FOUND: i16 = 9;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let locks = context.groups.lock_offsets(std::iter::once(request.group_id.as_str())).await;
    let session = session.clone();
    let work = move |context: &Context| {
        let _locks = locks;
        commit(context, &session, version, &request)
    };
    off_the_loop(context, work).await
}

fn commit(
    context: &Context,
    session: &Session,
    version: i16,
    request: &OffsetCommitRequest,
) -> OffsetCommitResponse {
    let granted = granted(session, Action::GroupRead, &request.group_id);
    let granted =
        granted.map_err(|error| Fault::new(error, "the user has no grant for this group"));
    // Who commits is looked at once, and only if there is anything to commit.
    let mut member = None;
    let mut offsets = Vec::new();
    let mut topics = Vec::new();
    for topic in &request.topics {
        let mut partitions = Vec::new();
        for asked in &topic.partitions {
            let found = granted.clone().and_then(|()| find(context, session, &topic.name, asked));
            let checked = found.and_then(|partition| {
                member.get_or_insert_with(|| check_member(context, version, request)).clone()?;
                Ok((partition, offset_of(asked)?))
            });
            let code = match checked {
                Ok(offset) => {
                    offsets.push(offset);
                    0
                }
                Err(fault) => fault.code,
            };
            partitions.push(
                OffsetCommitResponsePartition::default()
                    .with_partition_index(asked.partition_index)
                    .with_error_code(code),
            );
        }
        topics.push(
            OffsetCommitResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions),
        );
    }
    if !offsets.is_empty()
        && let Err(error) = context.engine.group(&request.group_id).commit_as_sent(offsets)
    {
        let Fault { code, message, .. } = unavailable(error);
        tracing::warn!(reason = %message, "offsets of a group could not be stored");
        for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if partition.error_code == 0 {
                partition.error_code = code;
            }
        }
    }
    OffsetCommitResponse::default().with_topics(topics)
}

fn check_member(
    context: &Context,
    version: i16,
    request: &OffsetCommitRequest,
) -> Result<(), Fault> {
    let committer = Committer {
        member_id: &request.member_id,
        instance: request.group_instance_id.as_deref(),
        generation: request.generation_id_or_member_epoch,
    };
    let unknown_group = if version >= WITH_GROUP_ID_NOT_FOUND {
        ResponseError::GroupIdNotFound
    } else {
        ResponseError::IllegalGeneration
    };
    let checked = context.groups.check_commit(&request.group_id, committer, unknown_group);
    checked.map_err(|error| Fault::new(error, "it is no member of the present generation"))
}

fn find(
    context: &Context,
    session: &Session,
    topic: &str,
    asked: &OffsetCommitRequestPartition,
) -> Result<Partition, Fault> {
    let topic = context.topic(&session.access, Action::KafkaRead, topic)?;
    topic.partition(asked.partition_index).map_err(|_| Fault::unknown())
}

fn offset_of(asked: &OffsetCommitRequestPartition) -> Result<GroupOffset, Fault> {
    let metadata = asked.committed_metadata.as_deref();
    group_offset(asked.committed_offset, asked.committed_leader_epoch, metadata)
}

/// An offset with its metadata, which may be too long.
pub(super) fn group_offset(
    offset: i64,
    leader_epoch: i32,
    metadata: Option<&str>,
) -> Result<GroupOffset, Fault> {
    let metadata = metadata.unwrap_or_default();
    if metadata.len() > MAX_METADATA_BYTES {
        let message = format!(
            "the metadata of an offset is too long: length_bytes={} limit={MAX_METADATA_BYTES}",
            metadata.len()
        );
        return Err(Fault::new(ResponseError::OffsetMetadataTooLarge, message));
    }
    Ok(GroupOffset { offset, leader_epoch, metadata: metadata.to_owned() })
}
