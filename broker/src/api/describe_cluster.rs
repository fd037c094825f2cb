//! DescribeCluster, versions 0 to 2: the one broker, which is its own controller. Only brokers can
//! be asked for: endpoints of controllers are MISMATCHED_ENDPOINT_TYPE, other types
//! UNSUPPORTED_ENDPOINT_TYPE.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};

use super::metadata::CLUSTER_OPERATIONS;
use super::text;
use crate::context::{Context, NODE_ID};

pub(super) const VERSIONS: (i16, i16) = (0, 2);

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) fn answer(
    context: &Context,
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
        return response.with_cluster_authorized_operations(CLUSTER_OPERATIONS);
    }
    response
}
