//! OffsetCommit, versions 2 to 9: offsets of consumers that assign partitions themselves. A group
//! has no members here, so a generation is ILLEGAL_GENERATION (from 9 GROUP_ID_NOT_FOUND). Any
//! offset is stored, metadata of up to 4,096 bytes with it; each partition stands by itself.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use tidelog::{GroupOffset, Partition};

use super::offset_fetch::unavailable;
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;

pub(super) const VERSIONS: (i16, i16) = (2, 9);
/// The longest metadata that is stored with an offset, as Kafka's `offset.metadata.max.bytes`.
const MAX_METADATA_BYTES: usize = 4096;
/// The first version that knows GROUP_ID_NOT_FOUND.
const WITH_GROUP_ID_NOT_FOUND: i16 = 9;

pub(super) async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let session = session.clone();
    let work = move |context: &Context| commit(context, &session, version, &request);
    off_the_loop(context, work).await
}

fn commit(
    context: &Context,
    session: &Session,
    version: i16,
    request: &OffsetCommitRequest,
) -> OffsetCommitResponse {
    let member = (request.generation_id_or_member_epoch >= 0).then(|| no_members(version));
    let mut offsets = Vec::new();
    let mut topics = Vec::new();
    for topic in &request.topics {
        let mut partitions = Vec::new();
        for partition in &topic.partitions {
            let checked = match &member {
                Some(fault) => Err(fault.clone()),
                None => one(context, session, &topic.name, partition),
            };
            let code = match checked {
                Ok(offset) => {
                    offsets.push(offset);
                    0
                }
                Err(fault) => fault.code,
            };
            partitions.push(
                OffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition_index)
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
        && let Err(error) = context.engine.commit_group_offsets(&request.group_id, offsets)
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

fn no_members(version: i16) -> Fault {
    let message = "the group has no members, so there is no generation";
    if version >= WITH_GROUP_ID_NOT_FOUND {
        Fault::new(ResponseError::GroupIdNotFound, message)
    } else {
        Fault::new(ResponseError::IllegalGeneration, message)
    }
}

fn one(
    context: &Context,
    session: &Session,
    topic: &str,
    asked: &OffsetCommitRequestPartition,
) -> Result<(Partition, GroupOffset), Fault> {
    let topic = context.topic(&session.access, Action::KafkaRead, topic)?;
    let partition = topic.partition(asked.partition_index).map_err(|_| Fault::unknown())?;
    let metadata = asked.committed_metadata.as_deref().unwrap_or_default();
    if metadata.len() > MAX_METADATA_BYTES {
        let message = format!(
            "the metadata of an offset is too long: length_bytes={} limit={MAX_METADATA_BYTES}",
            metadata.len()
        );
        return Err(Fault::new(ResponseError::OffsetMetadataTooLarge, message));
    }
    let offset = GroupOffset {
        offset: asked.committed_offset,
        leader_epoch: asked.committed_leader_epoch,
        metadata: metadata.to_owned(),
    };
    Ok((partition, offset))
}
