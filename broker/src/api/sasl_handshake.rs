//! SaslHandshake, versions 0 and 1: which mechanism the login uses. Only PLAIN is offered; another
//! one is UNSUPPORTED_SASL_MECHANISM and closes the connection, a handshake out of place is
//! ILLEGAL_SASL_STATE.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{ApiKey, SaslHandshakeRequest, SaslHandshakeResponse};

use super::request::{Answer, Api, Asked, Closing, Peer, Reply, encode, text};
use crate::security::sasl::{Handshake, PLAIN, SaslState};
use crate::wire::budget::Held;
use crate::wire::fields::{LAST, TEXT, field, plain};
use crate::wire::head::Start;
use crate::wire::shape::Body;

pub(super) struct SaslHandshake;

impl Api for SaslHandshake {
    type Request = SaslHandshakeRequest;
    const KEY: ApiKey = ApiKey::SaslHandshake;
    const VERSIONS: (i16, i16) = (0, 1);
    const SHAPE: &'static Body = &BODY;
    const BEFORE_LOGIN: bool = true;

    async fn reply(asked: Asked<'_>, request: SaslHandshakeRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.peer, asked.start, &request))
    }
}

const BODY: Body = Body { flexible_since: LAST, body: plain(&[field(TEXT)]) };

fn reply(peer: &mut Peer, start: Start, request: &SaslHandshakeRequest) -> Reply {
    let before = peer.sasl;
    let (outcome, after) = before.handshake(start.version, &request.mechanism);
    peer.sasl = after;
    let response = SaslHandshakeResponse::default();
    let (response, then_close) = match outcome {
        Handshake::Go => (response.with_mechanisms(vec![text(PLAIN)]), false),
        Handshake::UnknownMechanism => {
            let code = ResponseError::UnsupportedSaslMechanism.code();
            (response.with_error_code(code).with_mechanisms(vec![text(PLAIN)]), true)
        }
        Handshake::IllegalState => {
            let code = ResponseError::IllegalSaslState.code();
            (response.with_error_code(code), before == SaslState::Shaken)
        }
    };
    Reply::Answer(Answer { bytes: encode(start, &response), then_close, held: Held::default() })
}
