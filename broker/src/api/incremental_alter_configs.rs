//! IncrementalAlterConfigs, versions 0 and 1: single entries of topics are set (0), deleted (1),
//! added to (2) or taken from (3). One wrong entry leaves its topic as it was. A resource or an
//! entry twice, a null value to set and an operation that does not exist are INVALID_REQUEST. What
//! there is not can be deleted, as in Kafka.

use std::sync::Arc;

use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    ApiKey, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use tidelog::config::{ConfigChange, ConfigKey, ConfigOperation};

use super::alter_configs;
use super::configs;
use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, code_of};
use crate::wire::fields::{BOOL, I8, TEXT, TEXT_OR_NULL, field, list, plain};
use crate::wire::shape::{Body, Struct};

pub(super) struct IncrementalAlterConfigs;

impl Api for IncrementalAlterConfigs {
    type Request = IncrementalAlterConfigsRequest;
    const KEY: ApiKey = ApiKey::IncrementalAlterConfigs;
    const VERSIONS: (i16, i16) = (0, 1);
    const SHAPE: &'static Body = &BODY;

    async fn reply(
        asked: Asked<'_>,
        request: IncrementalAlterConfigsRequest,
    ) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, request).await))
    }
}

const BODY: Body =
    Body { flexible_since: 1, body: plain(&[field(list(&INCREMENTAL_RESOURCE)), field(BOOL)]) };
const INCREMENTAL_RESOURCE: Struct =
    plain(&[field(I8), field(TEXT), field(list(&INCREMENTAL_ENTRY))]);
const INCREMENTAL_ENTRY: Struct = plain(&[field(TEXT), field(I8), field(TEXT_OR_NULL)]);

/// The operation that gives an entry back its default.
const DELETE: i8 = 1;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let session = session.clone();
    off_the_loop(context, move |context| alter(context, &session, &request)).await
}

fn alter(
    context: &Context,
    session: &Session,
    request: &IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
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
    IncrementalAlterConfigsResponse::default().with_responses(answers.collect())
}

fn one(
    context: &Context,
    session: &Session,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Fault> {
    let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
    let topic = alter_configs::topic(context, session, kind, name)?;
    configs::check_named_once(resource.configs.iter().map(|entry| entry.name.as_str()))?;
    let mut changes = Vec::new();
    for entry in &resource.configs {
        let name = entry.name.as_str();
        if entry.config_operation == DELETE && ConfigKey::find(name).is_none() {
            continue;
        }
        let operation = match (entry.config_operation, entry.value.as_deref()) {
            (DELETE, _) => ConfigOperation::Delete,
            (0, Some(value)) => ConfigOperation::Set(value.to_owned()),
            (2, Some(value)) => ConfigOperation::Append(value.to_owned()),
            (3, Some(value)) => ConfigOperation::Subtract(value.to_owned()),
            (0 | 2 | 3, None) => return Err(configs::null_value(name)),
            (unknown, _) => {
                let message = format!("there is no such operation: operation={unknown}");
                return Err(Fault::invalid_request(message));
            }
        };
        changes.push(ConfigChange { name: name.to_owned(), operation });
    }
    if validate_only {
        let altered = topic.settings().alter(&changes);
        return altered.map(|_| ()).map_err(|error| configs::fault(&error));
    }
    let altered = context.engine.topics().alter(topic.name(), &changes);
    altered.map_err(|error| alter_configs::fault_of(&error))
}
