//! FindCoordinator, versions 0 to 6: this broker coordinates every group and every transactional
//! id. Every user may use any group. A key type that is neither is INVALID_REQUEST.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{ApiKey, BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};

use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, NODE_ID};
use crate::wire::fields::{I8, TEXT, plain, since, until, values};
use crate::wire::shape::Body;

pub(super) struct FindCoordinator;

impl Api for FindCoordinator {
    type Request = FindCoordinatorRequest;
    const KEY: ApiKey = ApiKey::FindCoordinator;
    const VERSIONS: (i16, i16) = (0, 6);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: FindCoordinatorRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, asked.start.version, &request)))
    }
}

const BODY: Body = Body {
    flexible_since: 3,
    body: plain(&[until(3, TEXT), since(1, I8), since(4, values(&TEXT))]),
};

/// The first version that asks for several keys.
const MANY_KEYS: i16 = 4;
/// Groups, and transactional ids.
const KEY_TYPES: [i8; 2] = [0, 1];

fn answer(
    context: &Context,
    version: i16,
    request: &FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let node = &context.node;
    let known = KEY_TYPES.contains(&request.key_type);
    let message = format!("there is no coordinator for this type: key_type={}", request.key_type);
    let response = FindCoordinatorResponse::default();
    if version >= MANY_KEYS {
        let coordinators = request.coordinator_keys.iter().map(|key| {
            let coordinator = Coordinator::default().with_key(key.clone());
            if known {
                coordinator
                    .with_node_id(BrokerId(NODE_ID))
                    .with_host(text(node.host.as_str()))
                    .with_port(i32::from(node.port))
            } else {
                coordinator
                    .with_node_id(BrokerId(-1))
                    .with_port(-1)
                    .with_error_code(ResponseError::InvalidRequest.code())
                    .with_error_message(Some(text(message.as_str())))
            }
        });
        return response.with_coordinators(coordinators.collect());
    }
    if known {
        return response
            .with_node_id(BrokerId(NODE_ID))
            .with_host(text(node.host.as_str()))
            .with_port(i32::from(node.port));
    }
    response
        .with_error_code(ResponseError::InvalidRequest.code())
        .with_error_message(Some(text(message)))
        .with_node_id(BrokerId(-1))
        .with_port(-1)
}
