//! Heartbeat, versions 0 to 4: a member is alive, and hears whether it must join again.

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::group_parts::{code, named};
use crate::context::Context;
use crate::groups::Committer;

pub(super) const VERSIONS: (i16, i16) = (0, 4);

pub(super) fn answer(context: &Context, request: &HeartbeatRequest) -> HeartbeatResponse {
    let member = Committer {
        member_id: &request.member_id,
        instance: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    };
    let heard = named(&request.group_id).and_then(|group| context.groups.heartbeat(group, member));
    HeartbeatResponse::default().with_error_code(code(heard))
}
