//! Heartbeat, versions 0 to 4: a member is alive, and hears whether it must join again.

use kafka_protocol::messages::{ApiKey, HeartbeatRequest, HeartbeatResponse};

use super::group_parts::{code, readable};
use super::request::{Api, Asked, Closing, Reply, reply};
use crate::context::{Context, Session};
use crate::groups::Committer;
use crate::wire::fields::{I32, TEXT, TEXT_OR_NULL, field, plain, since};
use crate::wire::shape::Body;

pub(super) struct Heartbeat;

impl Api for Heartbeat {
    type Request = HeartbeatRequest;
    const KEY: ApiKey = ApiKey::Heartbeat;
    const VERSIONS: (i16, i16) = (0, 4);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: HeartbeatRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, &request)))
    }
}

const BODY: Body = Body {
    flexible_since: 4,
    body: plain(&[field(TEXT), field(I32), field(TEXT), since(3, TEXT_OR_NULL)]),
};

fn answer(context: &Context, session: &Session, request: &HeartbeatRequest) -> HeartbeatResponse {
    let member = Committer {
        member_id: &request.member_id,
        instance: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    };
    let heard = readable(session, &request.group_id);
    let heard = heard.and_then(|group| context.groups.heartbeat(group, member));
    HeartbeatResponse::default().with_error_code(code(heard))
}
