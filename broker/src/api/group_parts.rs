//! What the requests of group members have in common: the group's name, and waiting for an answer.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::GroupId;
use kafka_protocol::protocol::StrBytes;

use super::request::Peer;
use crate::context::{Context, Session};
use crate::groups::{Answer, Waiting};
use crate::security::Action;

/// Of how many groups the offsets are locked at a time, where a request has very many.
pub(super) const GROUPS_AT_A_TIME: usize = 16;

/// The name of a group that may have members.
///
/// # Errors
/// The empty name is no such group's: it may have offsets only.
pub(super) fn named(group: &GroupId) -> Result<&str, ResponseError> {
    if group.is_empty() { Err(ResponseError::InvalidGroupId) } else { Ok(group.as_str()) }
}

/// Whether a session may do this with a group.
///
/// # Errors
/// [`ResponseError::GroupAuthorizationFailed`] where it may not.
pub(super) fn granted(session: &Session, action: Action, group: &str) -> Result<(), ResponseError> {
    if session.access.allows(action, group) {
        Ok(())
    } else {
        session.access.note_refusal(action, group);
        Err(ResponseError::GroupAuthorizationFailed)
    }
}

/// The name of a group that may have members, where the session may be one of them.
///
/// # Errors
/// The missing grant, and then as [`named`].
pub(super) fn readable<'a>(
    session: &Session,
    group: &'a GroupId,
) -> Result<&'a str, ResponseError> {
    granted(session, Action::GroupRead, group)?;
    named(group)
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
        () = peer.presence.gone() => None,
        _ = draining.wait_for(|&draining| draining) => None,
    }
}
