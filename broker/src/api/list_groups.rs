//! ListGroups, versions 0 to 5: every group, also those that have offsets only. From 4 on by
//! state, from 5 on by type, without regard to case; all groups are of the type classic.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{ApiKey, GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, off_the_loop};
use crate::groups::State;
use crate::wire::fields::{TEXT, plain, since, values};
use crate::wire::shape::Body;

pub(super) struct ListGroups;

impl Api for ListGroups {
    type Request = ListGroupsRequest;
    const KEY: ApiKey = ApiKey::ListGroups;
    const VERSIONS: (i16, i16) = (0, 5);
    const SHAPE: &'static Body = &BODY;
    const IS_LIST: bool = true;

    async fn reply(asked: Asked<'_>, request: ListGroupsRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, request).await))
    }
}

const BODY: Body =
    Body { flexible_since: 3, body: plain(&[since(4, values(&TEXT)), since(5, values(&TEXT))]) };

/// What every group here is.
const TYPE: &str = "classic";
/// Where a group can be in its life.
const STATES: [State; 4] =
    [State::Empty, State::PreparingRebalance, State::CompletingRebalance, State::Stable];

async fn answer(context: &Arc<Context>, request: ListGroupsRequest) -> ListGroupsResponse {
    let response = ListGroupsResponse::default();
    if !passes(&request.types_filter, TYPE) {
        return response;
    }
    let work = move |context: &Context| list(context, &request.states_filter);
    match off_the_loop(context, work).await {
        Ok(groups) => response.with_groups(groups),
        Err(error) => response.with_error_code(error.code()),
    }
}

fn list(context: &Context, states: &[StrBytes]) -> Result<Vec<ListedGroup>, ResponseError> {
    // Groups may be many, and so may the words of the filter: there are few states.
    let states: Vec<State> =
        STATES.into_iter().filter(|state| passes(states, &state.to_string())).collect();
    let listed = context.groups.list()?.into_iter();
    let groups = listed.filter(|(_, state, _)| states.contains(state));
    let groups = groups.map(|(name, state, protocol_type)| {
        ListedGroup::default()
            .with_group_id(GroupId(text(name)))
            .with_protocol_type(text(protocol_type))
            .with_group_state(text(state.to_string()))
            .with_group_type(text(TYPE))
    });
    Ok(groups.collect())
}

/// Whether a filter lets this through; without words it lets everything through.
fn passes(filter: &[StrBytes], word: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(word))
}
