//! DescribeConfigs, versions 1 to 4: the entries of topics, all of them or those whose names are
//! asked for; unknown names are left out. The broker has no entries of its own. Other types of
//! resources are INVALID_REQUEST. A resource that is asked for twice is answered twice, as in
//! Kafka. An answer is far longer than its question, so memory is taken as it grows.

use std::collections::HashSet;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{ApiKey, DescribeConfigsRequest, DescribeConfigsResponse};
use tidelog::types::TopicName;

use super::configs;
use super::memory::Growing;
use super::request::{Answer, Api, Asked, Closing, Reply, Wish, encode, text};
use crate::context::{Context, NODE_ID, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{ALWAYS, BOOL, I8, TEXT, field, list, plain, since};
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct DescribeConfigs;

impl Api for DescribeConfigs {
    type Request = DescribeConfigsRequest;
    const KEY: ApiKey = ApiKey::DescribeConfigs;
    const VERSIONS: (i16, i16) = (1, 4);
    const SHAPE: &'static Body = &BODY;
    async fn reply(asked: Asked<'_>, request: DescribeConfigsRequest) -> Result<Reply, Closing> {
        let start = asked.start;
        let session = asked.peer.session.clone();
        let mut room = Growing::new(asked.context, start);
        let wish = asked.wish();
        let work = move |context: &Context| {
            let response = answer(context, &session, &request, &wish, &mut room)?;
            Ok(Reply::Answer(Answer {
                bytes: encode(start, &response),
                then_close: false,
                held: room.into_held(),
            }))
        };
        off_the_loop(asked.context, work).await
    }
}

const BODY: Body = Body {
    flexible_since: 4,
    body: plain(&[field(list(&DESCRIBE_RESOURCE)), field(BOOL), since(3, BOOL)]),
};
const DESCRIBE_RESOURCE: Struct =
    plain(&[field(I8), field(TEXT), field(Shape::Values(ALWAYS, &TEXT))]);

/// What an entry of an answer costs in memory beside its texts, about.
const ENTRY_BYTES: usize = 256;

fn answer(
    context: &Context,
    session: &Session,
    request: &DescribeConfigsRequest,
    wish: &Wish,
    room: &mut Growing,
) -> Result<DescribeConfigsResponse, Closing> {
    let mut results = Vec::new();
    for resource in &request.resources {
        wish.check()?;
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        let result = match one(context, session, resource, request) {
            Ok(configs) => {
                room.add(configs.iter().map(bytes_of).sum())?;
                result.with_configs(configs)
            }
            Err(fault) => {
                room.add(ENTRY_BYTES + fault.message.len())?;
                result.with_error_code(fault.code).with_error_message(Some(text(fault.message)))
            }
        };
        results.push(result);
    }
    Ok(DescribeConfigsResponse::default().with_results(results))
}

/// What an entry holds, about.
fn bytes_of(entry: &DescribeConfigsResourceResult) -> usize {
    let documentation = entry.documentation.as_ref().map_or(0, |text| text.len());
    let value = entry.value.as_ref().map_or(0, |text| text.len());
    ENTRY_BYTES * (1 + entry.synonyms.len()) + documentation + value * (1 + entry.synonyms.len())
}

fn one(
    context: &Context,
    session: &Session,
    resource: &DescribeConfigsResource,
    request: &DescribeConfigsRequest,
) -> Result<Vec<DescribeConfigsResourceResult>, Fault> {
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        configs::TOPIC => {}
        configs::BROKER if name.is_empty() || name == NODE_ID.to_string() => return Ok(Vec::new()),
        kind => {
            let message = format!("only topics have a configuration here: resource_type={kind}");
            return Err(Fault::invalid_request(message));
        }
    }
    let access = &session.access;
    if access.allows(Action::Describe, name) {
        TopicName::new(name).map_err(Fault::invalid_name)?;
    }
    let settings = context.topic(access, Action::Describe, name)?.settings();
    let keys = resource.configuration_keys.as_deref().unwrap_or_default();
    let keys: HashSet<&str> = keys.iter().map(|key| &**key).collect();
    let wanted = |name: &str| keys.is_empty() || keys.contains(name);
    let entries = configs::entries(&settings).filter(|entry| wanted(entry.key.name)).map(|entry| {
        let answer = DescribeConfigsResourceResult::default()
            .with_name(text(entry.key.name))
            .with_config_source(entry.source)
            .with_config_type(configs::kind(entry.key))
            .with_value(Some(text(entry.value)))
            .with_documentation(request.include_documentation.then(|| text(entry.key.doc)));
        if request.include_synonyms {
            answer.with_synonyms(configs::synonyms(&entry).into_iter().map(synonym).collect())
        } else {
            answer
        }
    });
    Ok(entries.collect())
}

fn synonym((name, value, source): (&str, &str, i8)) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym::default()
        .with_name(text(name))
        .with_value(Some(text(value)))
        .with_source(source)
}
