//! ListGroups, versions 0 to 5: every group that the user may see, also those that have offsets only. From 4 on by
//! state, from 5 on by type, without regard to case; all groups are of the type classic.

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{ApiKey, GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::memory::Growing;
use super::request::{Api, Asked, Closing, Reply, reply_with, text};
use crate::context::{Context, Session, off_the_loop};
use crate::groups::State;
use crate::security::Action;
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
        let start = asked.start;
        let (session, mut memory) =
            (asked.peer.session.clone(), Growing::new(asked.context, start));
        let work = move |context: &Context| {
            let answer = list(context, &session, &mut memory, &request)?;
            Ok(reply_with(start, &answer, memory.into_held()))
        };
        off_the_loop(asked.context, work).await
    }
}

const BODY: Body =
    Body { flexible_since: 3, body: plain(&[since(4, values(&TEXT)), since(5, values(&TEXT))]) };

/// What a group costs in memory beside its texts, about.
const GROUP_BYTES: usize = 400;
/// What every group here is.
const TYPE: &str = "classic";
/// Where a group can be in its life.
const STATES: [State; 4] =
    [State::Empty, State::PreparingRebalance, State::CompletingRebalance, State::Stable];

fn list(
    context: &Context,
    session: &Session,
    memory: &mut Growing,
    request: &ListGroupsRequest,
) -> Result<ListGroupsResponse, Closing> {
    let response = ListGroupsResponse::default();
    if !passes(&request.types_filter, TYPE) {
        return Ok(response);
    }
    // Groups may be many, and so may the words of the filter: there are few states.
    let asked = &request.states_filter;
    let states: Vec<State> =
        STATES.into_iter().filter(|state| passes(asked, &state.to_string())).collect();
    let listed = match context.groups.list() {
        Ok(listed) => listed,
        Err(error) => return Ok(response.with_error_code(error.code())),
    };
    let mut groups = Vec::new();
    for (name, state, protocol_type) in listed {
        if !states.contains(&state) || !session.access.allows(Action::GroupDescribe, &name) {
            continue;
        }
        memory.add(GROUP_BYTES + name.len() + protocol_type.len())?;
        let group = ListedGroup::default()
            .with_group_id(GroupId(text(name)))
            .with_protocol_type(text(protocol_type))
            .with_group_state(text(state.to_string()))
            .with_group_type(text(TYPE));
        groups.push(group);
    }
    Ok(response.with_groups(groups))
}

/// Whether a filter lets this through; without words it lets everything through.
fn passes(filter: &[StrBytes], word: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(word))
}
