//! What one client can take of the time and the memory of all: requests that are as long as they may
//! be, and answers that are longer than their questions.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

mod common;

use common::{TestBroker, config};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

/// As many elements as nearly fill a request.
const MANY: u32 = 250_000;

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// A name of three letters that no other number has.
fn short(number: u32) -> StrBytes {
    let letter = |at: u32| char::from_u32(0x30 + (number >> (6 * at) & 63)).unwrap();
    text([letter(2), letter(1), letter(0)].iter().collect::<String>())
}

#[test]
fn a_member_that_knows_very_many_protocols_joins_soon() {
    let mut config = config();
    config.limits.groups.initial_delay = std::time::Duration::ZERO;
    let broker = TestBroker::start(config);
    let protocols = (0..MANY).map(|at| JoinGroupRequestProtocol::default().with_name(short(at)));
    let mut protocols: Vec<_> = protocols.collect();
    // Of one that is there twice the first counts.
    protocols.push(protocols[0].clone().with_metadata(bytes::Bytes::from_static(b"second")));
    let request = JoinGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_session_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(protocols);
    let joined = broker.client().ask(3, &request);
    assert_eq!((joined.error_code, joined.protocol_name), (0, Some(short(0))));
    assert_eq!(joined.members[0].metadata.len(), 0);
}

#[test]
fn a_filter_of_very_many_words_goes_through_very_many_groups_soon() {
    let broker = TestBroker::new();
    for group in 0..100_000 {
        broker.context.groups.touch(&format!("group-{group}"));
    }
    let words = (0..MANY).map(short).chain([text("eMPTY")]).collect();
    let request = ListGroupsRequest::default().with_states_filter(words);
    assert_eq!(broker.client().ask(4, &request).groups.len(), 100_000);
}
