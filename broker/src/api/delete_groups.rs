//! DeleteGroups, versions 0 to 2: groups without members go, with their offsets. A group that is
//! named twice is answered once.

use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};

use super::group_parts::{GROUPS_AT_A_TIME, code};
use crate::context::{Context, off_the_loop};

pub(super) const VERSIONS: (i16, i16) = (0, 2);

pub(super) async fn answer(
    context: &Arc<Context>,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut names: Vec<GroupId> = request.groups_names;
    names.sort();
    names.dedup();
    let mut results = Vec::with_capacity(names.len());
    for some in names.chunks(GROUPS_AT_A_TIME).map(<[GroupId]>::to_vec) {
        let locks = context.groups.lock_offsets(some.iter().map(|name| name.as_str())).await;
        let work = move |context: &Context| -> Vec<_> {
            let _locks = locks;
            let deleted = some.into_iter().map(|name| {
                let deleted = context.groups.delete(&name);
                DeletableGroupResult::default().with_group_id(name).with_error_code(code(deleted))
            });
            deleted.collect()
        };
        results.extend(off_the_loop(context, work).await);
    }
    DeleteGroupsResponse::default().with_results(results)
}
