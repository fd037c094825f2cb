//! Requests that are handed to the APIs without a connection, by whoever has a session.

use std::io::Cursor;
use std::sync::Arc;

use kafka_protocol::protocol::Request;
use tidelog_broker::api::{self, Peer, Reply};
use tidelog_broker::context::{Context, Session};
use tidelog_broker::security::sasl::SaslState;
use tidelog_broker::security::{Access, Grants};
use tidelog_broker::wire::budget::Held;
use tidelog_broker::wire::presence::Presence;

use super::client::Client;

/// A user whose grants are these lines.
pub fn user(name: &str, grants: &str) -> Session {
    let grants = Arc::new(Grants::parse(grants).expect("the grants can be read"));
    Session { access: Access::of(name, Some(&grants)) }
}

/// What becomes of a request of somebody with this session, who is there or has gone.
pub fn reply<R: Request>(
    context: &Arc<Context>,
    session: &Session,
    is_gone: bool,
    version: i16,
    request: &R,
) -> Reply {
    let mut client = Client::over(Box::new(Cursor::new(Vec::new())));
    let (_, frame) = client.frame(version, request);
    let presence = Arc::new(Presence::default());
    if is_gone {
        presence.leave();
    }
    let mut peer = Peer {
        session: session.clone(),
        sasl: SaslState::Off,
        presence,
        address: [127, 0, 0, 1].into(),
        host: "/127.0.0.1".to_owned(),
        client_id: String::new(),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(api::answer(context, &mut peer, frame.slice(4..), Held::default()))
}

/// The answer to a request of somebody with this session.
pub fn ask<R: Request>(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: &R,
) -> R::Response {
    let Reply::Answer(answer) = reply(context, session, false, version, request) else {
        panic!("the request is not answered");
    };
    // The first request of a client has the number 1.
    Client::over(Box::new(Cursor::new(answer.bytes.to_vec()))).receive::<R>(version, 1)
}
