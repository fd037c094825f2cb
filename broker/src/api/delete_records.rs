//! DeleteRecords, versions 0 to 2: the log start moves up to an offset, or to the high watermark
//! (-1). Wants the grant to delete. A topic that is only compacted is POLICY_VIOLATION; an offset
//! that is negative otherwise or above the high watermark OFFSET_OUT_OF_RANGE; one below the log
//! start changes nothing. Each partition stands by itself; of one partition twice the last counts.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{ApiKey, DeleteRecordsRequest, DeleteRecordsResponse};
use tidelog::{DeleteRecordsError, Offset, OffsetTarget};

use super::request::{Api, Asked, Closing, Reply, reply};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, code_of};
use crate::security::Action;
use crate::wire::fields::{I32, I64, TEXT, field, list, plain};
use crate::wire::shape::{Body, Struct};

pub(super) struct DeleteRecords;

impl Api for DeleteRecords {
    type Request = DeleteRecordsRequest;
    const KEY: ApiKey = ApiKey::DeleteRecords;
    const VERSIONS: (i16, i16) = (0, 2);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: DeleteRecordsRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, request).await))
    }
}

const BODY: Body =
    Body { flexible_since: 2, body: plain(&[field(list(&DELETE_RECORDS_TOPIC)), field(I32)]) };
const DELETE_RECORDS_TOPIC: Struct = plain(&[field(TEXT), field(list(&DELETE_RECORDS_PARTITION))]);
const DELETE_RECORDS_PARTITION: Struct = plain(&[field(I32), field(I64)]);

/// The offset that means the high watermark.
const TO_THE_END: i64 = -1;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let session = session.clone();
    off_the_loop(context, move |context| delete(context, &session, &request)).await
}

fn delete(
    context: &Context,
    session: &Session,
    request: &DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut last: HashMap<(&str, i32), i64> = HashMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            last.insert((topic.name.as_str(), partition.partition_index), partition.offset);
        }
    }
    let topics = request.topics.iter().map(|topic| {
        let mut partitions = Vec::new();
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let Some(offset) = last.remove(&(topic.name.as_str(), index)) else { continue };
            let answer = DeleteRecordsPartitionResult::default().with_partition_index(index);
            let outcome = one(context, session, &topic.name, index, offset);
            let resource = format!("{}-{index}", &*topic.name);
            session.access.note_change("DeleteRecords", &resource, code_of(&outcome));
            partitions.push(match outcome {
                Ok(log_start) => answer.with_low_watermark(log_start),
                Err(fault) => answer.with_low_watermark(-1).with_error_code(fault.code),
            });
        }
        DeleteRecordsTopicResult::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

fn one(
    context: &Context,
    session: &Session,
    topic: &str,
    index: i32,
    offset: i64,
) -> Result<Offset, Fault> {
    let topic = context.topic(&session.access, Action::Delete, topic)?;
    let partition = topic.partition(index).map_err(|_| Fault::unknown())?;
    let policy = topic.settings().effective().cleanup_policy;
    if policy.compact && !policy.delete {
        let message = "records of a topic that is only compacted are not deleted by offset";
        return Err(Fault::new(ResponseError::PolicyViolation, message));
    }
    let target = match offset {
        TO_THE_END => OffsetTarget::HighWatermark,
        offset => OffsetTarget::from(offset),
    };
    context.engine.delete_records(&partition, target).map_err(|error| match error {
        DeleteRecordsError::UnknownPartition { .. } => Fault::unknown(),
        DeleteRecordsError::OffsetOutOfRange { .. } => {
            Fault::new(ResponseError::OffsetOutOfRange, error.to_string())
        }
        _ => Fault::storage(&error),
    })
}
