//! DescribeCluster, versions 0 to 2: the one broker, which is its own controller. Only brokers can
//! be asked for: endpoints of controllers are MISMATCHED_ENDPOINT_TYPE, other types
//! UNSUPPORTED_ENDPOINT_TYPE.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{ApiKey, BrokerId, DescribeClusterRequest, DescribeClusterResponse};

use super::metadata::cluster_operations;
use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, NODE_ID, Session};
use crate::wire::fields::{BOOL, I8, field, plain, since};
use crate::wire::shape::Body;

pub(super) struct DescribeCluster;

impl Api for DescribeCluster {
    type Request = DescribeClusterRequest;
    const KEY: ApiKey = ApiKey::DescribeCluster;
    const VERSIONS: (i16, i16) = (0, 2);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: DescribeClusterRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, &request),
        ))
    }
}

const BODY: Body =
    Body { flexible_since: 0, body: plain(&[field(BOOL), since(1, I8), since(2, BOOL)]) };

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

fn answer(
    context: &Context,
    session: &Session,
    version: i16,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let response = DescribeClusterResponse::default();
    if version >= 1 && request.endpoint_type != BROKERS {
        let error = match request.endpoint_type {
            CONTROLLERS => ResponseError::MismatchedEndpointType,
            _ => ResponseError::UnsupportedEndpointType,
        };
        let message = format!("only brokers answer here: endpoint_type={}", request.endpoint_type);
        return response.with_error_code(error.code()).with_error_message(Some(text(message)));
    }
    let broker = DescribeClusterBroker::default()
        .with_broker_id(BrokerId(NODE_ID))
        .with_host(text(context.node.host.as_str()))
        .with_port(i32::from(context.node.port));
    let response = response
        .with_cluster_id(text(context.node.cluster_id.as_str()))
        .with_controller_id(BrokerId(NODE_ID))
        .with_brokers(vec![broker]);
    if request.include_cluster_authorized_operations {
        return response.with_cluster_authorized_operations(cluster_operations(session));
    }
    response
}
