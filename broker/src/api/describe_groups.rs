//! DescribeGroups, versions 0 to 6: state and members. A group that does not exist is Dead; from 6
//! on it is GROUP_ID_NOT_FOUND as well. A group that is asked for twice is answered once: it may
//! have very many members.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{ApiKey, DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, off_the_loop};
use crate::groups::{Description, MemberDescription};
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
        Ok(reply(asked.start, &answer(asked.context, asked.start.version, request).await))
    }
}

const BODY: Body = Body { flexible_since: 5, body: plain(&[field(values(&TEXT)), since(3, BOOL)]) };

/// The first version with a code for groups that do not exist.
const WITH_NOT_FOUND: i16 = 6;
/// Reading, deleting, describing a group, and its configuration: the bits of Kafka's operations.
const ALL_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

async fn answer(
    context: &Arc<Context>,
    version: i16,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let work = move |context: &Context| {
        let with_operations = request.include_authorized_operations;
        let mut seen = HashSet::new();
        let groups = request.groups.into_iter().filter(|group| seen.insert(group.clone()));
        groups.map(|group| describe(context, version, group, with_operations)).collect()
    };
    DescribeGroupsResponse::default().with_groups(off_the_loop(context, work).await)
}

fn describe(
    context: &Context,
    version: i16,
    group: GroupId,
    with_operations: bool,
) -> DescribedGroup {
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
    if with_operations { answer.with_authorized_operations(ALL_OPERATIONS) } else { answer }
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
