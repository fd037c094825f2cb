//! FindCoordinator, versions 0 to 6: this broker coordinates every group and every transactional
//! id that the user may see. A key type that is neither is INVALID_REQUEST.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{ApiKey, BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};

use super::group_parts::granted;
use super::request::{Api, Asked, Closing, Reply, reply, text};
use super::transactions::allowed;
use crate::context::{Context, NODE_ID, Session};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{I8, TEXT, plain, since, until, values};
use crate::wire::shape::Body;

pub(super) struct FindCoordinator;

impl Api for FindCoordinator {
    type Request = FindCoordinatorRequest;
    const KEY: ApiKey = ApiKey::FindCoordinator;
    const VERSIONS: (i16, i16) = (0, 6);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: FindCoordinatorRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, &request),
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 3,
    body: plain(&[until(3, TEXT), since(1, I8), since(4, values(&TEXT))]),
};

/// The first version that asks for several keys.
const MANY_KEYS: i16 = 4;
const GROUP: i8 = 0;
const TRANSACTIONAL_ID: i8 = 1;

fn answer(
    context: &Context,
    session: &Session,
    version: i16,
    request: &FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let response = FindCoordinatorResponse::default();
    if version >= MANY_KEYS {
        let coordinators = request.coordinator_keys.iter().map(|key| {
            let coordinator = Coordinator::default().with_key(key.clone());
            match find(session, request.key_type, key) {
                Ok(()) => coordinator
                    .with_node_id(BrokerId(NODE_ID))
                    .with_host(text(context.node.host.as_str()))
                    .with_port(i32::from(context.node.port)),
                Err(fault) => coordinator
                    .with_node_id(BrokerId(-1))
                    .with_port(-1)
                    .with_error_code(fault.code)
                    .with_error_message(Some(text(fault.message))),
            }
        });
        return response.with_coordinators(coordinators.collect());
    }
    match find(session, request.key_type, &request.key) {
        Ok(()) => response
            .with_node_id(BrokerId(NODE_ID))
            .with_host(text(context.node.host.as_str()))
            .with_port(i32::from(context.node.port)),
        Err(fault) => response
            .with_error_code(fault.code)
            .with_error_message(Some(text(fault.message)))
            .with_node_id(BrokerId(-1))
            .with_port(-1),
    }
}

/// Whether this key has a coordinator that the session may know.
fn find(session: &Session, key_type: i8, key: &str) -> Result<(), Fault> {
    match key_type {
        GROUP => granted(session, Action::GroupDescribe, key)
            .map_err(|error| Fault::new(error, "the user has no grant for this group")),
        TRANSACTIONAL_ID => allowed(session, key),
        _ => {
            let message = format!("there is no coordinator for this type: key_type={key_type}");
            Err(Fault::invalid_request(message))
        }
    }
}
