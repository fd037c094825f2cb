//! CreateTopics, versions 2 to 7: each topic is made or refused by itself. One name twice is
//! INVALID_REQUEST. Then, in this order: a name that no topic may have, one that exists, one that
//! differs from another only in dots and underscores; the replication factor (there is one broker),
//! the number of partitions, the configuration.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{ApiKey, CreateTopicsRequest, CreateTopicsResponse, TopicName};
use tidelog::types::TopicId;
use tidelog::{CreateTopicError, TopicConfig, TopicSettings};
use uuid::Uuid;

use super::configs;
use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, NODE_ID, Session, off_the_loop};
use crate::fault::{Fault, code_of};
use crate::security::Action;
use crate::wire::fields::{BOOL, CONFIG_ENTRY, I16, I32, TEXT, field, list, plain, values};
use crate::wire::shape::{Body, Struct};

pub(super) struct CreateTopics;

impl Api for CreateTopics {
    type Request = CreateTopicsRequest;
    const KEY: ApiKey = ApiKey::CreateTopics;
    const VERSIONS: (i16, i16) = (2, 7);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: CreateTopicsRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body =
    Body { flexible_since: 5, body: plain(&[field(list(&CREATE_TOPIC)), field(I32), field(BOOL)]) };
const CREATE_TOPIC: Struct = plain(&[
    field(TEXT),
    field(I32),
    field(I16),
    field(list(&CREATE_TOPIC_ASSIGNMENT)),
    field(list(&CONFIG_ENTRY)),
]);
const CREATE_TOPIC_ASSIGNMENT: Struct = plain(&[field(I32), field(values(&I32))]);

/// Topics that Kafka keeps for itself; here there are none, and none can be made by these names.
pub(super) const INTERNAL_TOPICS: [&str; 2] = ["__consumer_offsets", "__transaction_state"];
/// The most partitions that one request may make.
pub(super) const MAX_NEW_PARTITIONS: i64 = 10_000;
/// The first version whose answer has the topic's configuration.
const WITH_CONFIG: i16 = 5;
/// The number of partitions where none is asked for.
const DEFAULT_PARTITIONS: u32 = 1;

/// What a topic was, or would have been, made with.
struct Made {
    id: Option<TopicId>,
    config: TopicConfig,
}

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let session = session.clone();
    let work = move |context: &Context| create(context, &session, version, &request);
    off_the_loop(context, work).await
}

fn create(
    context: &Context,
    session: &Session,
    version: i16,
    request: &CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut times: HashMap<&TopicName, usize> = HashMap::new();
    for topic in &request.topics {
        *times.entry(&topic.name).or_default() += 1;
    }
    let mut left = MAX_NEW_PARTITIONS;
    let mut topics = Vec::new();
    for topic in &request.topics {
        let outcome = match times.remove(&topic.name) {
            None => continue,
            Some(1) => one(context, session, topic, request.validate_only, &mut left),
            Some(_) => Err(Fault::invalid_request("the topic is there twice")),
        };
        if !request.validate_only {
            session.access.note_change("CreateTopic", &topic.name, code_of(&outcome));
        }
        topics.push(result(version, topic, outcome));
    }
    CreateTopicsResponse::default().with_topics(topics)
}

fn result(
    version: i16,
    asked: &CreatableTopic,
    outcome: Result<Made, Fault>,
) -> CreatableTopicResult {
    let answer = CreatableTopicResult::default().with_name(asked.name.clone());
    let made = match outcome {
        Ok(made) => made,
        Err(fault) => {
            return answer
                .with_error_code(fault.code)
                .with_error_message(Some(text(fault.message)))
                .with_num_partitions(-1)
                .with_replication_factor(-1)
                .with_configs(Some(Vec::new()));
        }
    };
    let id = made.id.map_or(Uuid::nil(), |id| Uuid::from_bytes(*id.as_bytes()));
    let answer = answer.with_topic_id(id).with_error_message(None);
    if version < WITH_CONFIG {
        return answer;
    }
    let entries = configs::entries(made.config.settings()).map(|entry| {
        CreatableTopicConfigs::default()
            .with_name(text(entry.key.name))
            .with_config_source(entry.source)
            .with_value(Some(text(entry.value)))
    });
    answer
        .with_num_partitions(i32::try_from(made.config.partition_count()).unwrap_or(i32::MAX))
        .with_replication_factor(1)
        .with_configs(Some(entries.collect()))
}

fn one(
    context: &Context,
    session: &Session,
    asked: &CreatableTopic,
    validate_only: bool,
    left: &mut i64,
) -> Result<Made, Fault> {
    let name = asked.name.as_str();
    if !session.access.allows(Action::Create, name) {
        session.access.note_refusal(Action::Create, name);
        return Err(Fault::not_allowed());
    }
    if INTERNAL_TOPICS.contains(&name) {
        return Err(Fault::invalid_name("the name is reserved"));
    }
    // The name's own faults come before those of all else.
    context.engine.topics().validate_create(name, &TopicConfig::new(1)).map_err(fault_of)?;
    let partitions = partitions(asked)?;
    if i64::from(partitions) > *left {
        let message = format!(
            "too many new partitions in one request: count={partitions} limit={MAX_NEW_PARTITIONS}"
        );
        return Err(Fault::new(ResponseError::PolicyViolation, message));
    }
    let config = config(partitions, asked)?;
    *left -= i64::from(partitions);
    let id = if validate_only {
        context.engine.topics().validate_create(name, &config).map_err(fault_of)?;
        None
    } else {
        let topic = context.engine.create_topic(name, config.clone()).map_err(fault_of)?;
        Some(topic.id())
    };
    Ok(Made { id, config })
}

/// The number of partitions that is asked for, by itself or by an assignment to brokers.
fn partitions(asked: &CreatableTopic) -> Result<u32, Fault> {
    let (count, replicas) = (asked.num_partitions, asked.replication_factor);
    if !asked.assignments.is_empty() {
        if count != -1 || replicas != -1 {
            let message = "an assignment and a number of partitions or replicas contradict";
            return Err(Fault::invalid_request(message));
        }
        return assigned(asked);
    }
    if replicas != -1 && replicas != 1 {
        let message = format!("there is one broker: replication_factor={replicas}");
        return Err(Fault::new(ResponseError::InvalidReplicationFactor, message));
    }
    match u32::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ if count == -1 => Ok(DEFAULT_PARTITIONS),
        _ => {
            let message = format!("a topic has at least one partition: count={count}");
            Err(Fault::new(ResponseError::InvalidPartitions, message))
        }
    }
}

fn assigned(asked: &CreatableTopic) -> Result<u32, Fault> {
    let mut indices: Vec<i32> = asked.assignments.iter().map(|to| to.partition_index).collect();
    indices.sort_unstable();
    let dense = indices.iter().zip(0..).all(|(&index, expected)| index == expected);
    let here = asked
        .assignments
        .iter()
        .all(|assigned| assigned.broker_ids.len() == 1 && assigned.broker_ids[0].0 == NODE_ID);
    if !dense || !here {
        let message = "an assignment names every partition once, and only this broker for each";
        return Err(Fault::new(ResponseError::InvalidReplicaAssignment, message));
    }
    Ok(u32::try_from(indices.len()).unwrap_or(u32::MAX))
}

fn config(partitions: u32, asked: &CreatableTopic) -> Result<TopicConfig, Fault> {
    let mut entries = Vec::new();
    for entry in &asked.configs {
        let value = entry.value.as_ref().ok_or_else(|| {
            Fault::invalid_config(format!("a value must not be null: name={}", &*entry.name))
        })?;
        entries.push((&*entry.name, &**value));
    }
    let settings = TopicSettings::from_values(entries).map_err(|error| configs::fault(&error))?;
    Ok(TopicConfig::with_settings(partitions, settings))
}

/// What a client is told of a topic that was not made.
pub(super) fn fault_of(error: CreateTopicError) -> Fault {
    match &error {
        CreateTopicError::Name(error) => Fault::invalid_name(error),
        CreateTopicError::Exists { .. } => {
            Fault::new(ResponseError::TopicAlreadyExists, "a topic of this name exists")
        }
        CreateTopicError::Collides { with, .. } => Fault::invalid_name(format!(
            "the name differs from another topic's only in dots and underscores: other={with}"
        )),
        CreateTopicError::Config(error) => configs::fault(error),
        CreateTopicError::EngineFull { .. } | CreateTopicError::PartitionIdsExhausted => {
            Fault::new(ResponseError::PolicyViolation, error.to_string())
        }
        CreateTopicError::OutcomeUnknown(_) => Fault::unknown_outcome(&error),
        _ => Fault::storage(&error),
    }
}

#[cfg(test)]
mod tests {
    use tidelog::{AddPartitionsError, AlterTopicError, DeleteTopicError, StorageError};

    use super::*;
    use crate::api::{alter_configs, create_partitions, delete_topics};

    #[test]
    fn of_a_change_of_topics_a_client_is_told_whether_nothing_was_written_or_nobody_knows() {
        let halted = || StorageError::Halted { cause: StorageError::Closed.into() };
        let not_written = [
            fault_of(CreateTopicError::Storage(halted())),
            delete_topics::fault_of(&DeleteTopicError::Storage(halted())),
            create_partitions::fault_of(AddPartitionsError::Storage(halted()), 2),
            alter_configs::fault_of(&AlterTopicError::Storage(halted())),
        ];
        let unknown = [
            fault_of(CreateTopicError::OutcomeUnknown(halted())),
            delete_topics::fault_of(&DeleteTopicError::OutcomeUnknown(halted())),
            create_partitions::fault_of(AddPartitionsError::OutcomeUnknown(halted()), 2),
            alter_configs::fault_of(&AlterTopicError::OutcomeUnknown(halted())),
        ];
        let (storage, timed_out) =
            (ResponseError::KafkaStorageError.code(), ResponseError::RequestTimedOut.code());
        assert!(not_written.iter().all(|fault| fault.code == storage), "{not_written:?}");
        assert!(unknown.iter().all(|fault| fault.code == timed_out), "{unknown:?}");
    }
}
