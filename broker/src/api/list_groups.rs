//! ListGroups, versions 0 to 5: every group, also those that have offsets only. From 4 on by
//! state, from 5 on by type, without regard to case; all groups are of the type classic.

use std::sync::Arc;

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::text;
use crate::context::{Context, off_the_loop};

pub(super) const VERSIONS: (i16, i16) = (0, 5);
/// What every group here is.
const TYPE: &str = "classic";

pub(super) async fn answer(
    context: &Arc<Context>,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let response = ListGroupsResponse::default();
    if !passes(&request.types_filter, TYPE) {
        return response;
    }
    let listed = match off_the_loop(context, |context| context.groups.list()).await {
        Ok(listed) => listed,
        Err(error) => return response.with_error_code(error.code()),
    };
    let groups = listed.into_iter().map(|(name, state, protocol_type)| {
        ListedGroup::default()
            .with_group_id(GroupId(text(name)))
            .with_protocol_type(text(protocol_type))
            .with_group_state(text(state.to_string()))
            .with_group_type(text(TYPE))
    });
    let groups = groups.filter(|group| passes(&request.states_filter, &group.group_state));
    response.with_groups(groups.collect())
}

/// Whether a filter lets this through; without words it lets everything through.
fn passes(filter: &[StrBytes], word: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(word))
}
