//! SaslAuthenticate, versions 0 to 2: the token of the login. A wrong one is
//! SASL_AUTHENTICATION_FAILED and closes the connection; without a handshake before it the
//! connection is closed, behind a login or where nobody logs in it is ILLEGAL_SASL_STATE.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse};

use super::request::{Answer, Api, Asked, Closing, Peer, Reply, encode, text};
use crate::audit::Event;
use crate::context::Context;
use crate::security::Access;
use crate::security::sasl::{SaslState, plain_token};
use crate::wire::budget::Held;
use crate::wire::fields::{NEVER, field, plain};
use crate::wire::head::Start;
use crate::wire::shape::{Body, Shape};

pub(super) struct SaslAuthenticate;

impl Api for SaslAuthenticate {
    type Request = SaslAuthenticateRequest;
    const KEY: ApiKey = ApiKey::SaslAuthenticate;
    const VERSIONS: (i16, i16) = (0, 2);
    const SHAPE: &'static Body = &BODY;
    const BEFORE_LOGIN: bool = true;

    async fn reply(asked: Asked<'_>, request: SaslAuthenticateRequest) -> Result<Reply, Closing> {
        reply(asked.context, asked.peer, asked.start, request).await
    }
}

const BODY: Body = Body { flexible_since: 2, body: plain(&[field(Shape::Blob(NEVER))]) };

async fn reply(
    context: &Context,
    peer: &mut Peer,
    start: Start,
    request: SaslAuthenticateRequest,
) -> Result<Reply, Closing> {
    let refused = |error: ResponseError, message: &str, then_close| {
        let response = SaslAuthenticateResponse::default()
            .with_error_code(error.code())
            .with_error_message(Some(text(message)));
        Ok(answer(start, &response, then_close))
    };
    match peer.sasl {
        SaslState::Start | SaslState::ShakenForBareToken => {
            return Err(Closing::NotLoggedIn(start));
        }
        SaslState::Off | SaslState::Done => {
            let message = "a login has no place here";
            return refused(ResponseError::IllegalSaslState, message, false);
        }
        SaslState::Shaken => {}
    }
    if let Err(message) = log_in(context, peer, &request.auth_bytes).await {
        return refused(ResponseError::SaslAuthenticationFailed, message, true);
    }
    Ok(answer(start, &SaslAuthenticateResponse::default(), false))
}

/// Answers a token that comes by itself, after a handshake of version 0: with nothing, or not.
pub(super) async fn reply_bare(
    context: &Context,
    peer: &mut Peer,
    token: &[u8],
) -> Result<Reply, Closing> {
    log_in(context, peer, token).await.map_err(|_| Closing::LoginFailed)?;
    let bytes = Bytes::from_static(&[0; 4]);
    Ok(Reply::Answer(Answer { bytes, then_close: false, held: Held::default() }))
}

/// Logs the peer in, or says why not.
async fn log_in(context: &Context, peer: &mut Peer, token: &[u8]) -> Result<(), &'static str> {
    let access = access_of(context, peer, token).await;
    match access {
        Ok(access) => {
            peer.session.access = access.noted(&context.audit, peer.address);
            note_login(context, peer, peer.session.access.user(), 0);
            peer.sasl = SaslState::Done;
            Ok(())
        }
        Err(message) => {
            context.metrics.failed_logins.up();
            let name = plain_token(token).map(|token| token.user);
            let known = name.filter(|name| {
                context.security.users.as_ref().is_some_and(|users| users.knows(name))
            });
            note_login(context, peer, known, ResponseError::SaslAuthenticationFailed.code());
            Err(message)
        }
    }
}

fn note_login(context: &Context, peer: &Peer, user: Option<&str>, code: i16) {
    let address = peer.address.to_canonical();
    let (kind, action, resource) = ("login", "SaslAuthenticate", None);
    context.audit.note(&Event { kind, user, address, action, resource, code });
}

async fn access_of(context: &Context, peer: &Peer, token: &[u8]) -> Result<Access, &'static str> {
    let wrong = "the name or the password is wrong";
    let token = plain_token(token).ok_or(wrong)?;
    let security = &context.security;
    let users = security.users.as_ref().ok_or(wrong)?;
    let access = || Access::of(token.user, security.grants.as_ref());
    // What was right before costs nothing, and is not refused because others fail.
    match users.recall(token.user, token.password) {
        Some(true) => return Ok(access()),
        Some(false) => return Err(wrong),
        None => {}
    }
    // Asked again when its turn has come: others from there may have failed meanwhile.
    let may_try = || security.attempts.may_try(peer.address, context.clock.monotonic());
    let verified = match may_try() {
        true => users.verify(token.user, token.password, may_try).await,
        false => None,
    };
    match verified {
        Some(true) => Ok(access()),
        Some(false) => {
            security.attempts.failed(peer.address, context.clock.monotonic());
            Err(wrong)
        }
        None => {
            context.metrics.refused_logins.up();
            Err("too many logins from this address have failed; try again later")
        }
    }
}

fn answer(start: Start, response: &SaslAuthenticateResponse, then_close: bool) -> Reply {
    Reply::Answer(Answer { bytes: encode(start, response), then_close, held: Held::default() })
}
