//! SaslAuthenticate, versions 0 to 2: the token of the login. A wrong one is
//! SASL_AUTHENTICATION_FAILED and closes the connection; without a handshake before it the
//! connection is closed, behind a login or where nobody logs in it is ILLEGAL_SASL_STATE.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse};

use super::request::{Answer, Api, Asked, Closing, Peer, Reply, encode, text};
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
        SaslState::Start => return Err(Closing::NotLoggedIn(start)),
        SaslState::Off | SaslState::Done => {
            let message = "a login has no place here";
            return refused(ResponseError::IllegalSaslState, message, false);
        }
        SaslState::Shaken => {}
    }
    let Some(access) = log_in(context, &request.auth_bytes).await else {
        context.metrics.failed_logins.up();
        let message = "the name or the password is wrong";
        return refused(ResponseError::SaslAuthenticationFailed, message, true);
    };
    peer.session.access = access;
    peer.sasl = SaslState::Done;
    Ok(answer(start, &SaslAuthenticateResponse::default(), false))
}

async fn log_in(context: &Context, token: &Bytes) -> Option<Access> {
    let token = plain_token(token)?;
    let users = context.security.users.as_ref()?;
    if !users.verify(token.user, token.password).await {
        return None;
    }
    Some(Access::of(token.user, context.security.grants.as_ref()))
}

fn answer(start: Start, response: &SaslAuthenticateResponse, then_close: bool) -> Reply {
    Reply::Answer(Answer { bytes: encode(start, response), then_close, held: Held::default() })
}
