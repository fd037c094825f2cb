//! CreatePartitions, versions 0 to 3: more partitions for a topic, never fewer. Wants the grant to
//! alter its configuration. A topic twice is INVALID_REQUEST, the same number or fewer
//! INVALID_PARTITIONS, an assignment that is not this broker for each new partition
//! INVALID_REPLICA_ASSIGNMENT.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{
    ApiKey, CreatePartitionsRequest, CreatePartitionsResponse, TopicName,
};
use tidelog::AddPartitionsError;

use super::create_topics;
use super::create_topics::MAX_NEW_PARTITIONS;
use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, NODE_ID, Session, off_the_loop};
use crate::fault::{Fault, code_of};
use crate::security::Action;
use crate::wire::fields::{ALWAYS, BOOL, I32, TEXT, field, list, plain, values};
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct CreatePartitions;

impl Api for CreatePartitions {
    type Request = CreatePartitionsRequest;
    const KEY: ApiKey = ApiKey::CreatePartitions;
    const VERSIONS: (i16, i16) = (0, 3);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: CreatePartitionsRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, request).await))
    }
}

const BODY: Body = Body {
    flexible_since: 2,
    body: plain(&[field(list(&MORE_PARTITIONS)), field(I32), field(BOOL)]),
};
const MORE_PARTITIONS: Struct =
    plain(&[field(TEXT), field(I32), field(Shape::Structs(ALWAYS, &MORE_ASSIGNMENT))]);
const MORE_ASSIGNMENT: Struct = plain(&[field(values(&I32))]);

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let session = session.clone();
    off_the_loop(context, move |context| create(context, &session, &request)).await
}

fn create(
    context: &Context,
    session: &Session,
    request: &CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut times: HashMap<&TopicName, usize> = HashMap::new();
    for topic in &request.topics {
        *times.entry(&topic.name).or_default() += 1;
    }
    let mut left = MAX_NEW_PARTITIONS;
    let mut results = Vec::new();
    for topic in &request.topics {
        let outcome = match times.remove(&topic.name) {
            None => continue,
            Some(1) => one(context, session, topic, request.validate_only, &mut left),
            Some(_) => Err(Fault::invalid_request("the topic is there twice")),
        };
        if !request.validate_only {
            session.access.note_change("CreatePartitions", &topic.name, code_of(&outcome));
        }
        let result = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
        results.push(match outcome {
            Ok(()) => result,
            Err(fault) => {
                result.with_error_code(fault.code).with_error_message(Some(text(fault.message)))
            }
        });
    }
    CreatePartitionsResponse::default().with_results(results)
}

fn one(
    context: &Context,
    session: &Session,
    asked: &CreatePartitionsTopic,
    validate_only: bool,
    left: &mut i64,
) -> Result<(), Fault> {
    let topic = context.topic(&session.access, Action::AlterConfigs, &asked.name)?;
    let have = i64::from(topic.partition_count());
    let total = u32::try_from(asked.count).ok().filter(|&total| i64::from(total) > have);
    let Some(total) = total else { return Err(not_more(have, asked.count)) };
    let more = i64::from(total) - have;
    if let Some(assignments) = &asked.assignments {
        let here = assignments
            .iter()
            .all(|assigned| assigned.broker_ids.len() == 1 && assigned.broker_ids[0].0 == NODE_ID);
        if i64::try_from(assignments.len()) != Ok(more) || !here {
            let message = "each new partition is assigned to this broker, and only to it";
            return Err(Fault::new(ResponseError::InvalidReplicaAssignment, message));
        }
    }
    if more > *left {
        let message = format!(
            "too many new partitions in one request: count={more} limit={MAX_NEW_PARTITIONS}"
        );
        return Err(Fault::new(ResponseError::PolicyViolation, message));
    }
    *left -= more;
    let name = asked.name.as_str();
    let outcome = if validate_only {
        context.engine.topics().validate_add_partitions(name, total)
    } else {
        context.engine.topics().add_partitions(name, total).map(|_| ())
    };
    outcome.map_err(|error| fault_of(error, asked.count))
}

/// What a client is told of partitions that were not added.
pub(super) fn fault_of(error: AddPartitionsError, asked: i32) -> Fault {
    match error {
        AddPartitionsError::UnknownTopic { .. } => Fault::unknown(),
        AddPartitionsError::NotMore { partition_count, .. } => {
            not_more(i64::from(partition_count), asked)
        }
        AddPartitionsError::Limit(error) => create_topics::fault_of(error),
        AddPartitionsError::OutcomeUnknown(_) => Fault::unknown_outcome(&error),
        _ => Fault::storage(&error),
    }
}

fn not_more(have: i64, asked: i32) -> Fault {
    let message = format!("a topic can only get more partitions: count={have} asked={asked}");
    Fault::new(ResponseError::InvalidPartitions, message)
}
