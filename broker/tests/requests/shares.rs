//! What one address can take from the others, who may log in how, and what a broker says and does
//! when it cannot write any more.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

use crate::common;

use std::net::IpAddr;

use common::client::{batch, produce};
use common::{Client, TestBroker, config};
use kafka_protocol::messages::{MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use tidelog_broker::context::Limits;
use tidelog_broker::security::users::hash_password;
use tidelog_broker::security::{Security, Users};
use tidelog_broker::server::Config;

fn secured() -> TestBroker {
    let users = format!("ann:{}\n", hash_password(b"a-secret").unwrap());
    let users = Some(Users::parse(&users).unwrap());
    TestBroker::start(Config { security: Security { users, ..Security::default() }, ..config() })
}

fn handshake(client: &mut Client, version: i16) {
    let plain = StrBytes::from_static_str("PLAIN");
    let answer = client.ask(version, &SaslHandshakeRequest::default().with_mechanism(plain));
    assert_eq!(answer.error_code, 0);
}

/// The code of a login on a connection of its own.
fn log_in(broker: &TestBroker, password: &str) -> i16 {
    let mut client = broker.client();
    handshake(&mut client, 1);
    let token = format!("\0ann\0{password}").into_bytes().into();
    client.ask(1, &SaslAuthenticateRequest::default().with_auth_bytes(token)).error_code
}

/// Whether a connection is served.
fn is_served(broker: &TestBroker) -> Option<Client> {
    let mut client = Client::try_connect(broker.address).ok()?;
    let asked = client.try_ask(9, &MetadataRequest::default().with_topics(Some(Vec::new())));
    asked.ok().map(|_| client)
}

#[test]
fn an_address_has_its_share_of_connections_and_gets_a_place_back_when_one_ends() {
    let limits = Limits { max_connections_per_address: 3, ..Limits::default() };
    let broker = TestBroker::start(Config { limits, ..config() });
    let mut clients: Vec<_> = (0..3).map(|_| is_served(&broker).unwrap()).collect();
    assert!(is_served(&broker).is_none(), "the fourth");
    assert_eq!(broker.context.metrics.refused.get(), 1);
    clients.pop();
    while broker.context.metrics.connections.get() > 2 {
        std::thread::yield_now();
    }
    // The place is free a moment after the connection is counted as ended.
    assert!((0..1000).any(|_| is_served(&broker).is_some()));
}

#[test]
fn a_token_may_come_by_itself_after_a_handshake_of_version_0() {
    let broker = secured();
    let bare = |password: &str| {
        let mut client = broker.client();
        handshake(&mut client, 0);
        let token = format!("\0ann\0{password}");
        let length = u32::try_from(token.len()).unwrap().to_be_bytes();
        client.send_bytes(&[&length[..], token.as_bytes()].concat()).unwrap();
        client
    };
    let mut client = bare("a-secret");
    assert!(client.read_frame().unwrap().is_empty());
    assert_eq!(client.ask(9, &MetadataRequest::default()).brokers.len(), 1);
    assert!(bare("wrong").is_closed());
}

#[test]
fn who_fails_to_log_in_very_often_is_refused_at_once_and_who_was_known_is_not() {
    let broker = secured();
    assert_eq!(log_in(&broker, "a-secret"), 0);
    let here = IpAddr::from([127, 0, 0, 1]);
    let now = broker.context.clock.monotonic();
    let attempts = &broker.context.security.attempts;
    while attempts.may_try(here, now) {
        attempts.failed(here, now);
    }
    let refused = &broker.context.metrics.refused_logins;
    for at in 0..50 {
        assert_eq!(log_in(&broker, &format!("wrong-{at}")), 58);
    }
    assert!(refused.get() >= 40, "refused={}", refused.get());
    assert_eq!(log_in(&broker, "a-secret"), 0);
}

#[test]
fn a_broker_notices_that_its_engine_has_halted() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    broker.break_index();
    let mut client = broker.client();
    let stored = client.ask(9, &produce(-1, &[("t", &[(0, batch("x"))])]));
    assert_ne!(stored.responses[0].partition_responses[0].error_code, 0);
    assert!(broker.engine.metrics().halted && broker.notices_halt());
}
