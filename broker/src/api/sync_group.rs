//! SyncGroup, versions 0 to 5: the leader brings the assignment of a generation, and everybody is
//! answered with its own; who asks before waits for the leader.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::group_parts::{named, optional, wait};
use super::{Peer, text};
use crate::context::Context;
use crate::groups::{Answer, Sync};

pub(super) const VERSIONS: (i16, i16) = (0, 5);

pub(super) async fn answer(
    context: &Context,
    peer: &Peer,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let response = SyncGroupResponse::default();
    let synced = match named(&request.group_id) {
        Ok(group) => {
            let waiting = context.groups.sync(group, sync(&request));
            drop(request);
            match wait(context, peer, waiting).await {
                Some(Answer::Sync(synced)) => synced,
                _ => Err(ResponseError::CoordinatorNotAvailable),
            }
        }
        Err(error) => Err(error),
    };
    match synced {
        Ok(synced) => response
            .with_protocol_type(Some(text(synced.protocol_type)))
            .with_protocol_name(Some(text(synced.protocol)))
            .with_assignment(synced.assignment),
        Err(error) => response.with_error_code(error.code()),
    }
}

/// The request in the group's words.
fn sync(request: &SyncGroupRequest) -> Sync {
    let assignments = request
        .assignments
        .iter()
        .map(|one| (one.member_id.as_str().to_owned(), Bytes::copy_from_slice(&one.assignment)));
    Sync {
        member_id: request.member_id.as_str().to_owned(),
        instance: optional(request.group_instance_id.as_ref()),
        generation: request.generation_id,
        protocol_type: optional(request.protocol_type.as_ref()),
        protocol: optional(request.protocol_name.as_ref()),
        assignments: assignments.collect(),
    }
}
