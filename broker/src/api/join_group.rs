//! JoinGroup, versions 0 to 9: answered when the next generation begins. From 4 on a member
//! without id is given one to come back with (MEMBER_ID_REQUIRED); a static member joins at once.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{ApiKey, JoinGroupRequest, JoinGroupResponse};

use super::group_parts::{optional, readable, wait};
use super::request::{Api, Asked, Closing, Peer, Reply, reply, text};
use crate::context::Context;
use crate::groups::{Answer, Join, Joined, Protocol, Refused};
use crate::wire::budget::Held;
use crate::wire::fields::{I32, NEVER, TEXT, TEXT_OR_NULL, field, list, plain, since};
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct JoinGroup;

impl Api for JoinGroup {
    type Request = JoinGroupRequest;
    const KEY: ApiKey = ApiKey::JoinGroup;
    const VERSIONS: (i16, i16) = (0, 9);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: JoinGroupRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, asked.peer, asked.start.version, request, asked.held).await,
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 6,
    body: plain(&[
        field(TEXT),
        field(I32),
        since(1, I32),
        field(TEXT),
        since(5, TEXT_OR_NULL),
        field(TEXT),
        field(list(&JOIN_GROUP_PROTOCOL)),
        since(8, TEXT_OR_NULL),
    ]),
};
const JOIN_GROUP_PROTOCOL: Struct = plain(&[field(TEXT), field(Shape::Blob(NEVER))]);

/// The first version that says how long a rebalance may take.
const WITH_REBALANCE_TIMEOUT: i16 = 1;
/// The first version whose clients come back with the id that they are given.
const WITH_ID_REQUIRED: i16 = 4;
/// The first version whose protocol may be null.
const WITH_NULL_PROTOCOL: i16 = 7;
/// The first version whose leader can be told to assign nothing.
const WITH_SKIP_ASSIGNMENT: i16 = 9;

async fn answer(
    context: &Context,
    peer: &Peer,
    version: i16,
    request: JoinGroupRequest,
    held: Held,
) -> JoinGroupResponse {
    let asked = request.member_id.clone();
    let joined = match checked(context, peer, version, &request) {
        Ok(join) => {
            let waiting = context.groups.join(&request.group_id, &join);
            // While it waits it holds next to nothing.
            drop((join, request, held));
            match wait(context, peer, waiting).await {
                Some(Answer::Join(joined)) => joined,
                _ => Err(Refused {
                    error: ResponseError::CoordinatorNotAvailable,
                    member_id: asked.as_str().to_owned(),
                }),
            }
        }
        // Who may not know of the group is told nothing of the member either.
        Err(error @ ResponseError::GroupAuthorizationFailed) => {
            Err(Refused { error, member_id: String::new() })
        }
        Err(error) => Err(Refused { error, member_id: asked.as_str().to_owned() }),
    };
    respond(version, joined)
}

/// The request in the group's words.
fn checked(
    context: &Context,
    peer: &Peer,
    version: i16,
    request: &JoinGroupRequest,
) -> Result<Join, ResponseError> {
    readable(&peer.session, &request.group_id)?;
    let settings = context.groups.settings();
    let session = milliseconds(request.session_timeout_ms)
        .filter(|session| (settings.min_session..=settings.max_session).contains(session))
        .ok_or(ResponseError::InvalidSessionTimeout)?;
    let rebalance = if version >= WITH_REBALANCE_TIMEOUT {
        milliseconds(request.rebalance_timeout_ms).unwrap_or_default()
    } else {
        session
    };
    // Of one name twice the first is what the member prefers.
    let mut known = HashSet::new();
    let protocols = request.protocols.iter().filter(|protocol| known.insert(&protocol.name));
    let protocols = protocols.map(|protocol| Protocol {
        name: protocol.name.as_str().to_owned(),
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    });
    let protocols = protocols.collect();
    let instance = optional(request.group_instance_id.as_ref());
    Ok(Join {
        member_id: request.member_id.as_str().to_owned(),
        new_id: context.groups.new_member_id(instance.as_ref().unwrap_or(&peer.client_id)),
        instance,
        client_id: peer.client_id.clone(),
        client_host: peer.host.clone(),
        session,
        rebalance,
        protocol_type: request.protocol_type.as_str().to_owned(),
        protocols,
        can_come_back: version >= WITH_ID_REQUIRED,
        can_skip_assignment: version >= WITH_SKIP_ASSIGNMENT,
    })
}

fn milliseconds(ms: i32) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

fn respond(version: i16, joined: Result<Joined, Refused>) -> JoinGroupResponse {
    let response = JoinGroupResponse::default();
    let joined = match joined {
        Ok(joined) => joined,
        Err(Refused { error, member_id }) => {
            let no_protocol = (version < WITH_NULL_PROTOCOL).then(|| text(""));
            return response
                .with_error_code(error.code())
                .with_generation_id(-1)
                .with_protocol_name(no_protocol)
                .with_member_id(text(member_id));
        }
    };
    let members = joined.members.into_iter().map(|member| {
        JoinGroupResponseMember::default()
            .with_member_id(text(member.id))
            .with_group_instance_id(member.instance.map(text))
            .with_metadata(member.metadata)
    });
    response
        .with_generation_id(joined.generation)
        .with_protocol_type(Some(text(joined.protocol_type)))
        .with_protocol_name(Some(text(joined.protocol)))
        .with_leader(text(joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(text(joined.member_id))
        .with_members(members.collect())
}
