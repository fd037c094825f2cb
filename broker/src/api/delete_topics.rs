//! DeleteTopics, versions 1 to 6: by name, from 6 also by id. One topic twice, or a name together
//! with an id, is INVALID_REQUEST. Each topic is deleted or refused by itself; committed offsets of
//! groups go with it.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{ApiKey, DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use tidelog::types::TopicId;
use tidelog::{DeleteTopicError, Topic};
use uuid::Uuid;

use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, code_of};
use crate::security::Action;
use crate::wire::fields::{
    I32, TEXT, TEXT_OR_NULL, UUID, field, list, plain, since, until, values,
};
use crate::wire::shape::{Body, Struct};

pub(super) struct DeleteTopics;

impl Api for DeleteTopics {
    type Request = DeleteTopicsRequest;
    const KEY: ApiKey = ApiKey::DeleteTopics;
    const VERSIONS: (i16, i16) = (1, 6);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: DeleteTopicsRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 4,
    body: plain(&[since(6, list(&DELETE_TOPIC)), until(5, values(&TEXT)), field(I32)]),
};
const DELETE_TOPIC: Struct = plain(&[field(TEXT_OR_NULL), field(UUID)]);

/// The first version that names topics by id as well.
const BY_ID: i16 = 6;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let session = session.clone();
    let work = move |context: &Context| delete(context, &session, version, request);
    off_the_loop(context, work).await
}

fn delete(
    context: &Context,
    session: &Session,
    version: i16,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let asked = if version >= BY_ID {
        request.topics
    } else {
        let by_name = |name| DeleteTopicState::default().with_name(Some(name));
        request.topic_names.into_iter().map(by_name).collect()
    };
    let mut times: HashMap<(Option<TopicName>, Uuid), usize> = HashMap::new();
    let mut named: HashMap<Uuid, usize> = HashMap::new();
    for topic in &asked {
        *times.entry((topic.name.clone(), topic.topic_id)).or_default() += 1;
        if let Some(id) = id_of(context, topic) {
            *named.entry(id).or_default() += 1;
        }
    }
    let mut responses = Vec::new();
    for topic in asked {
        let Some(times) = times.remove(&(topic.name.clone(), topic.topic_id)) else { continue };
        // By its name and by its id is twice as well.
        let id = id_of(context, &topic);
        let times = id.and_then(|id| named.get(&id)).map_or(times, |&named| times.max(named));
        let outcome = one(context, session, &topic, times);
        let name = outcome.as_ref().ok().map(|topic| topic.name().as_str());
        let name = name.or(topic.name.as_ref().map(|name| name.as_str())).unwrap_or_default();
        session.access.note_change("DeleteTopic", name, code_of(&outcome));
        responses.push(result(context, session, version, topic, outcome));
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

/// The id of the topic that is asked for, where there is one.
fn id_of(context: &Context, asked: &DeleteTopicState) -> Option<Uuid> {
    match &asked.name {
        _ if !asked.topic_id.is_nil() => Some(asked.topic_id),
        Some(name) => {
            let topic = context.engine.topic(name.as_str())?;
            Some(Uuid::from_bytes(*topic.id().as_bytes()))
        }
        None => None,
    }
}

fn one(
    context: &Context,
    session: &Session,
    asked: &DeleteTopicState,
    times: usize,
) -> Result<Topic, Fault> {
    if times > 1 {
        return Err(Fault::invalid_request("the topic is there twice"));
    }
    let access = &session.access;
    let topic = match (&asked.name, asked.topic_id.is_nil()) {
        (Some(name), true) => context.topic(access, Action::Delete, name)?,
        (None, false) => {
            let id = TopicId::from_bytes(asked.topic_id.into_bytes());
            context.topic_by_id(access, Action::Delete, id)?
        }
        _ => return Err(Fault::invalid_request("a topic has a name or an id, and not both")),
    };
    // By its id: another may have been made under the name since.
    let deleted = context.engine.topics().delete_by_id(topic.id());
    deleted.map(|()| topic).map_err(|error| fault_of(&error))
}

/// What a client is told of a topic that was not deleted.
pub(super) fn fault_of(error: &DeleteTopicError) -> Fault {
    match error {
        DeleteTopicError::UnknownTopic { .. } => Fault::unknown(),
        DeleteTopicError::OutcomeUnknown(_) => Fault::unknown_outcome(error),
        _ => Fault::storage(error),
    }
}

fn result(
    context: &Context,
    session: &Session,
    version: i16,
    asked: DeleteTopicState,
    outcome: Result<Topic, Fault>,
) -> DeletableTopicResult {
    let id = asked.topic_id;
    let answer = DeletableTopicResult::default().with_name(asked.name).with_topic_id(id);
    match outcome {
        Ok(topic) => answer
            .with_name(Some(TopicName(text(topic.name().as_str()))))
            .with_topic_id(Uuid::from_bytes(*topic.id().as_bytes())),
        Err(fault) => {
            let answer = answer.with_error_code(fault.code);
            // Who may see a topic but not delete it is told its name.
            let id = TopicId::from_bytes(id.into_bytes());
            let seen = context.topic_by_id(&session.access, Action::Describe, id).ok();
            let answer = match seen {
                Some(topic) => answer.with_name(Some(TopicName(text(topic.name().as_str())))),
                None => answer,
            };
            if version >= 5 {
                return answer.with_error_message(Some(text(fault.message)));
            }
            answer
        }
    }
}
