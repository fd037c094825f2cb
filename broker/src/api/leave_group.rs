//! LeaveGroup, versions 0 to 5: members go, one up to version 2, from 3 on any number with a code
//! each; an operator takes out static members by their instance id alone.

use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{ApiKey, LeaveGroupRequest, LeaveGroupResponse};

use super::group_parts::{code, optional, readable};
use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, Session};
use crate::groups::Leaving;
use crate::wire::fields::{TEXT, TEXT_OR_NULL, field, list, plain, since, until};
use crate::wire::shape::{Body, Struct};

pub(super) struct LeaveGroup;

impl Api for LeaveGroup {
    type Request = LeaveGroupRequest;
    const KEY: ApiKey = ApiKey::LeaveGroup;
    const VERSIONS: (i16, i16) = (0, 5);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: LeaveGroupRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, &request),
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 4,
    body: plain(&[field(TEXT), until(2, TEXT), since(3, list(&LEAVE_GROUP_MEMBER))]),
};
const LEAVE_GROUP_MEMBER: Struct =
    plain(&[field(TEXT), field(TEXT_OR_NULL), since(5, TEXT_OR_NULL)]);

/// The first version that names several members.
const MANY_MEMBERS: i16 = 3;

fn answer(
    context: &Context,
    session: &Session,
    version: i16,
    request: &LeaveGroupRequest,
) -> LeaveGroupResponse {
    let response = LeaveGroupResponse::default();
    let group = match readable(session, &request.group_id) {
        Ok(group) => group,
        Err(error) => return response.with_error_code(error.code()),
    };
    if version < MANY_MEMBERS {
        let member_id = request.member_id.as_str().to_owned();
        let left = context.groups.leave(group, &[Leaving { member_id, instance: None }]);
        return response.with_error_code(left.into_iter().map(code).next().unwrap_or(0));
    }
    let members = request.members.iter().map(|member| Leaving {
        member_id: member.member_id.as_str().to_owned(),
        instance: optional(member.group_instance_id.as_ref()),
    });
    let leaving: Vec<Leaving> = members.collect();
    let left = context.groups.leave(group, &leaving);
    let members = leaving.into_iter().zip(left).map(|(leaving, left)| {
        MemberResponse::default()
            .with_member_id(text(leaving.member_id))
            .with_group_instance_id(leaving.instance.map(text))
            .with_error_code(code(left))
    });
    response.with_members(members.collect())
}
