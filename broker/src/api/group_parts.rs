//! What the requests of group members have in common: the group's name, and waiting for an answer.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::GroupId;
use kafka_protocol::protocol::StrBytes;

use super::request::Peer;
use crate::context::Context;
use crate::groups::{Answer, Waiting};

/// Of how many groups the offsets are locked at a time, where a request has very many.
pub(super) const GROUPS_AT_A_TIME: usize = 16;

/// The name of a group that may have members.
///
/// # Errors
/// The empty name is no such group's: it may have offsets only.
pub(super) fn named(group: &GroupId) -> Result<&str, ResponseError> {
    if group.is_empty() { Err(ResponseError::InvalidGroupId) } else { Ok(group.as_str()) }
}

/// The text of a field that may be null.
pub(super) fn optional(text: Option<&StrBytes>) -> Option<String> {
    text.map(|text| text.as_str().to_owned())
}

/// The code of an outcome.
pub(super) fn code(outcome: Result<(), ResponseError>) -> i16 {
    outcome.err().map_or(0, |error| error.code())
}

/// Waits for an answer of a group. `None` where the client has gone away, which its member
/// outlives, or where the broker is to stop.
pub(super) async fn wait(context: &Context, peer: &Peer, waiting: Waiting) -> Option<Answer> {
    let mut draining = context.draining.clone();
    tokio::select! {
        biased;
        answer = waiting => answer.ok(),
        () = peer.gone.notified() => None,
        _ = draining.wait_for(|&draining| draining) => None,
    }
}
