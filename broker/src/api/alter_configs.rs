//! AlterConfigs, versions 0 to 2: all entries of a topic are replaced; what is not named goes back
//! to its default. A resource or an entry twice and a null value are INVALID_REQUEST, as are
//! resources that are no topics.

use std::sync::Arc;

use kafka_protocol::messages::alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse, ApiKey};
use tidelog::types::TopicName;
use tidelog::{AlterTopicError, Topic, TopicSettings};

use super::configs;
use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, code_of};
use crate::security::Action;
use crate::wire::fields::{BOOL, CONFIG_ENTRY, I8, TEXT, field, list, plain};
use crate::wire::shape::{Body, Struct};

pub(super) struct AlterConfigs;

impl Api for AlterConfigs {
    type Request = AlterConfigsRequest;
    const KEY: ApiKey = ApiKey::AlterConfigs;
    const VERSIONS: (i16, i16) = (0, 2);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: AlterConfigsRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, request).await))
    }
}

const BODY: Body =
    Body { flexible_since: 2, body: plain(&[field(list(&ALTER_RESOURCE)), field(BOOL)]) };
const ALTER_RESOURCE: Struct = plain(&[field(I8), field(TEXT), field(list(&CONFIG_ENTRY))]);

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let session = session.clone();
    off_the_loop(context, move |context| alter(context, &session, &request)).await
}

fn alter(
    context: &Context,
    session: &Session,
    request: &AlterConfigsRequest,
) -> AlterConfigsResponse {
    let answers = configs::alter_each(
        &request.resources,
        |resource| (resource.resource_type, &*resource.resource_name),
        |resource| one(context, session, resource, request.validate_only),
    );
    let answers = answers.map(|(resource, outcome)| {
        if !request.validate_only {
            let name = &resource.resource_name;
            session.access.note_change("AlterConfigs", name, code_of(&outcome));
        }
        let answer = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match outcome {
            Ok(()) => answer.with_error_message(None),
            Err(fault) => {
                answer.with_error_code(fault.code).with_error_message(Some(text(fault.message)))
            }
        }
    });
    AlterConfigsResponse::default().with_responses(answers.collect())
}

fn one(
    context: &Context,
    session: &Session,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Fault> {
    let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
    let topic = topic(context, session, kind, name)?;
    configs::check_named_once(resource.configs.iter().map(|entry| entry.name.as_str()))?;
    let mut entries = Vec::new();
    for entry in &resource.configs {
        let name = entry.name.as_str();
        let value = entry.value.as_deref().ok_or_else(|| configs::null_value(name))?;
        entries.push((name, value));
    }
    let settings = TopicSettings::from_values(entries).map_err(|error| configs::fault(&error))?;
    if validate_only {
        return Ok(());
    }
    let altered = context.engine.topics().replace_settings(topic.name(), settings);
    altered.map_err(|error| fault_of(&error))
}

/// The topic that a resource names, where the connection may alter it.
pub(super) fn topic(
    context: &Context,
    session: &Session,
    kind: i8,
    name: &str,
) -> Result<Topic, Fault> {
    if kind != configs::TOPIC {
        let message = format!("only topics have a configuration here: resource_type={kind}");
        return Err(Fault::invalid_request(message));
    }
    if name.is_empty() {
        return Err(Fault::invalid_request("a topic has a name"));
    }
    if session.access.allows(Action::AlterConfigs, name) {
        TopicName::new(name).map_err(Fault::invalid_name)?;
    }
    context.topic(&session.access, Action::AlterConfigs, name)
}

/// What a client is told of a configuration that was not changed.
pub(super) fn fault_of(error: &AlterTopicError) -> Fault {
    match error {
        AlterTopicError::UnknownTopic { .. } => Fault::unknown(),
        AlterTopicError::Config(error) => configs::fault(error),
        AlterTopicError::OutcomeUnknown(_) => Fault::unknown_outcome(error),
        _ => Fault::storage(error),
    }
}
