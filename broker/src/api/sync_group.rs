//! SyncGroup, versions 0 to 5: the leader brings the assignment of a generation, and everybody is
//! answered with its own; who asks before waits for the leader.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{ApiKey, SyncGroupRequest, SyncGroupResponse};

use super::group_parts::{optional, readable, wait};
use super::request::{Api, Asked, Closing, Peer, Reply, reply, text};
use crate::context::Context;
use crate::groups::{Answer, Sync};
use crate::wire::budget::Held;
use crate::wire::fields::{I32, NEVER, TEXT, TEXT_OR_NULL, field, list, plain, since};
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct SyncGroup;

impl Api for SyncGroup {
    type Request = SyncGroupRequest;
    const KEY: ApiKey = ApiKey::SyncGroup;
    const VERSIONS: (i16, i16) = (0, 5);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: SyncGroupRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, asked.peer, request, asked.held).await))
    }
}

const BODY: Body = Body {
    flexible_since: 4,
    body: plain(&[
        field(TEXT),
        field(I32),
        field(TEXT),
        since(3, TEXT_OR_NULL),
        since(5, TEXT_OR_NULL),
        since(5, TEXT_OR_NULL),
        field(list(&SYNC_GROUP_ASSIGNMENT)),
    ]),
};
const SYNC_GROUP_ASSIGNMENT: Struct = plain(&[field(TEXT), field(Shape::Blob(NEVER))]);

async fn answer(
    context: &Context,
    peer: &Peer,
    request: SyncGroupRequest,
    held: Held,
) -> SyncGroupResponse {
    let response = SyncGroupResponse::default();
    let synced = match readable(&peer.session, &request.group_id) {
        Ok(group) => {
            let waiting = context.groups.sync(group, sync(&request));
            // While it waits it holds next to nothing.
            drop((request, held));
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
