//! DescribeConfigs, versions 1 to 4: the entries of topics, all of them or those whose names are
//! asked for; unknown names are left out. The broker has no entries of its own. Other types of
//! resources are INVALID_REQUEST. A resource that is asked for twice is answered once, for the
//! first of its lists of names: an answer is far longer than its question.

use std::collections::HashSet;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::{ApiKey, DescribeConfigsRequest, DescribeConfigsResponse};
use tidelog::types::TopicName;

use super::configs;
use super::request::{Api, Asked, Closing, Reply, reply, text};
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
    /// Each may be a topic with all entries of its configuration.
    const ELEMENT_BYTES: usize = 8 * 1024;

    async fn reply(asked: Asked<'_>, request: DescribeConfigsRequest) -> Result<Reply, Closing> {
        let session = asked.peer.session.clone();
        let work = move |context: &Context| answer(context, &session, &request);
        Ok(reply(asked.start, &off_the_loop(asked.context, work).await))
    }
}

const BODY: Body = Body {
    flexible_since: 4,
    body: plain(&[field(list(&DESCRIBE_RESOURCE)), field(BOOL), since(3, BOOL)]),
};
const DESCRIBE_RESOURCE: Struct =
    plain(&[field(I8), field(TEXT), field(Shape::Values(ALWAYS, &TEXT))]);

fn answer(
    context: &Context,
    session: &Session,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let mut seen = HashSet::new();
    let resources = request.resources.iter();
    let resources =
        resources.filter(|resource| seen.insert((resource.resource_type, &resource.resource_name)));
    let results = resources.map(|resource| {
        let answer = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match one(context, session, resource, request.include_documentation) {
            Ok(configs) => answer.with_configs(configs),
            Err(fault) => {
                answer.with_error_code(fault.code).with_error_message(Some(text(fault.message)))
            }
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn one(
    context: &Context,
    session: &Session,
    resource: &DescribeConfigsResource,
    documented: bool,
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
            .with_documentation(None);
        if documented { answer.with_documentation(Some(text(entry.key.doc))) } else { answer }
    });
    Ok(entries.collect())
}
