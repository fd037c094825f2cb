//! DescribeGroups, versions 0 to 6: state and members. A group that does not exist is Dead; from 6
//! on it is GROUP_ID_NOT_FOUND as well. A group that is asked for twice is answered once: it may
//! have very many members.

use std::collections::HashSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{ApiKey, DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::group_parts::granted;
use super::memory::Growing;
use super::request::{Api, Asked, Closing, Reply, reply_with, text};
use crate::context::{Context, Session, off_the_loop};
use crate::groups::{Description, MemberDescription};
use crate::security::Action;
use crate::wire::fields::{BOOL, TEXT, field, plain, since, values};
use crate::wire::shape::Body;

pub(super) struct DescribeGroups;

impl Api for DescribeGroups {
    type Request = DescribeGroupsRequest;
    const KEY: ApiKey = ApiKey::DescribeGroups;
    const VERSIONS: (i16, i16) = (0, 6);
    const SHAPE: &'static Body = &BODY;
    const IS_LIST: bool = true;

    async fn reply(asked: Asked<'_>, request: DescribeGroupsRequest) -> Result<Reply, Closing> {
        let start = asked.start;
        let (session, mut memory) =
            (asked.peer.session.clone(), Growing::new(asked.context, start));
        let work = move |context: &Context| {
            let answer = describe_all(context, &session, &mut memory, start.version, request)?;
            Ok(reply_with(start, &answer, memory.into_held()))
        };
        off_the_loop(asked.context, work).await
    }
}

const BODY: Body = Body { flexible_since: 5, body: plain(&[field(values(&TEXT)), since(3, BOOL)]) };

/// What a group costs in memory beside what it holds, about.
const GROUP_BYTES: usize = 400;
/// The first version with a code for groups that do not exist.
const WITH_NOT_FOUND: i16 = 6;

fn describe_all(
    context: &Context,
    session: &Session,
    memory: &mut Growing,
    version: i16,
    request: DescribeGroupsRequest,
) -> Result<DescribeGroupsResponse, Closing> {
    let with_operations = request.include_authorized_operations;
    let mut seen = HashSet::new();
    let mut described = Vec::new();
    for group in request.groups {
        if seen.insert(group.clone()) {
            memory.add(GROUP_BYTES + context.groups.bytes_of(&group))?;
            described.push(describe(context, session, version, group, with_operations));
        }
    }
    Ok(DescribeGroupsResponse::default().with_groups(described))
}

fn describe(
    context: &Context,
    session: &Session,
    version: i16,
    group: GroupId,
    with_operations: bool,
) -> DescribedGroup {
    if let Err(error) = granted(session, Action::GroupDescribe, &group) {
        return DescribedGroup::default().with_group_id(group).with_error_code(error.code());
    }
    let operations = session.access.group_operations(&group);
    let described = context.groups.describe(&group);
    let answer = DescribedGroup::default().with_group_id(group);
    let answer = match described {
        Ok(Some(description)) => fill(answer, description),
        Ok(None) if version >= WITH_NOT_FOUND => {
            return answer
                .with_group_state(text("Dead"))
                .with_error_code(ResponseError::GroupIdNotFound.code())
                .with_error_message(Some(text("there is no such group")));
        }
        Ok(None) => answer.with_group_state(text("Dead")),
        Err(error) => return answer.with_error_code(error.code()),
    };
    if with_operations { answer.with_authorized_operations(operations) } else { answer }
}

fn fill(answer: DescribedGroup, description: Description) -> DescribedGroup {
    answer
        .with_group_state(text(description.state.to_string()))
        .with_protocol_type(text(description.protocol_type))
        .with_protocol_data(text(description.protocol))
        .with_members(description.members.into_iter().map(member).collect())
}

fn member(member: MemberDescription) -> DescribedGroupMember {
    DescribedGroupMember::default()
        .with_member_id(text(member.id))
        .with_group_instance_id(member.instance.map(text))
        .with_client_id(text(member.client_id))
        .with_client_host(text(member.client_host))
        .with_member_metadata(member.metadata)
        .with_member_assignment(member.assignment)
}
