//! DeleteGroups, versions 0 to 2: groups without members go, with their offsets. A group that is
//! named twice is answered once.

use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{ApiKey, DeleteGroupsRequest, DeleteGroupsResponse, GroupId};

use super::group_parts::{GROUPS_AT_A_TIME, code, granted};
use super::request::{Api, Asked, Closing, Reply, reply};
use crate::context::{Context, Session, off_the_loop};
use crate::security::Action;
use crate::wire::fields::{TEXT, field, plain, values};
use crate::wire::shape::Body;

pub(super) struct DeleteGroups;

impl Api for DeleteGroups {
    type Request = DeleteGroupsRequest;
    const KEY: ApiKey = ApiKey::DeleteGroups;
    const VERSIONS: (i16, i16) = (0, 2);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: DeleteGroupsRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, request).await))
    }
}

const BODY: Body = Body { flexible_since: 2, body: plain(&[field(values(&TEXT))]) };

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut names: Vec<GroupId> = request.groups_names;
    names.sort();
    names.dedup();
    let mut results = Vec::with_capacity(names.len());
    for some in names.chunks(GROUPS_AT_A_TIME).map(<[GroupId]>::to_vec) {
        let locks = context.groups.lock_offsets(some.iter().map(|name| name.as_str())).await;
        let session = session.clone();
        let work = move |context: &Context| -> Vec<_> {
            let _locks = locks;
            let deleted = some.into_iter().map(|name| {
                let may = granted(&session, Action::GroupDelete, &name);
                let deleted = may.and_then(|()| context.groups.delete(&name));
                session.access.note_change("DeleteGroup", &name, code(deleted));
                DeletableGroupResult::default().with_group_id(name).with_error_code(code(deleted))
            });
            deleted.collect()
        };
        results.extend(off_the_loop(context, work).await);
    }
    DeleteGroupsResponse::default().with_results(results)
}
