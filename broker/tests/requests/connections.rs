//! Connections: answers in order, limits, logins, TLS, figures, and the end of the broker.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

use crate::common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use common::client::{batch, name, produce};
use common::{Client, TestBroker, config};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, DescribeTransactionsRequest, EndTxnRequest, FetchRequest,
    InitProducerIdRequest, ListTransactionsRequest, MetadataRequest, MetadataResponse,
    SaslAuthenticateRequest, SaslHandshakeRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use tidelog_broker::context::Limits;
use tidelog_broker::security::users::hash_password;
use tidelog_broker::security::{Grants, Security, Users, tls};
use tidelog_broker::server::Config;

fn poll(topic: &str, offset: i64, min_bytes: i32, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_min_bytes(min_bytes)
        .with_max_wait_ms(max_wait_ms)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic])
}

fn topics(client: &mut Client, names: &[&str]) -> MetadataResponse {
    let asked = names
        .iter()
        .map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic))))
        .collect();
    client.ask(9, &MetadataRequest::default().with_topics(Some(asked)))
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    let mut sent = Vec::new();
    for _ in 0..50 {
        let produced = client.send(9, &produce(1, &[("t", &[(0, batch("x"))])]));
        let listed = client.send(0, &ApiVersionsRequest::default());
        sent.push((produced, listed));
    }
    for (offset, (produced, listed)) in sent.into_iter().enumerate() {
        let answer = client.receive::<kafka_protocol::messages::ProduceRequest>(9, produced);
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (0, offset as i64));
        client.receive::<ApiVersionsRequest>(0, listed);
    }
}

#[test]
fn a_long_poll_is_answered_by_the_next_commit_and_holds_up_nobody_else() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut waiting = broker.client();
    let id = waiting.send(12, &poll("t", 0, 1, 25_000));
    while broker.context.metrics.waiting_fetches.get() == 0 {
        std::thread::yield_now();
    }
    let mut other = broker.client();
    let answer = other.ask(9, &produce(1, &[("t", &[(0, batch("news"))])]));
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    let fetched = waiting.receive::<FetchRequest>(12, id);
    let partition = &fetched.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (0, 1));
    assert!(!partition.records.as_ref().unwrap().is_empty());
    assert_eq!(broker.context.metrics.waiting_fetches.get(), 0);
}

#[test]
fn a_long_poll_waits_for_no_more_than_it_may_be_given() {
    let limits = Limits { max_fetch_bytes: 4000, ..Limits::default() };
    let broker = TestBroker::start(Config { limits, ..config() });
    broker.topic("t", 1);
    let mut client = broker.client();
    for _ in 0..50 {
        client.ask(9, &produce(1, &[("t", &[(0, batch(&"x".repeat(100)))])]));
    }
    // Of whole batches there are fewer bytes than may be given.
    for max_bytes in [0, 1, 3999, 4000, 4001, i32::MAX] {
        let request = poll("t", 0, i32::MAX, 290_000).with_max_bytes(max_bytes);
        let fetched = client.ask(12, &request);
        let records = fetched.responses[0].partitions[0].records.as_ref().unwrap().len();
        assert!((100..=4000).contains(&records), "max_bytes={max_bytes} records={records}");
    }
}

#[test]
fn who_waits_for_more_holds_no_memory_and_is_given_what_there_is_in_the_end() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut client = broker.client();
    let produced = produce(1, &[("t", &[(0, batch(&"x".repeat(500_000)))])]);
    assert_eq!(client.ask(9, &produced).responses[0].partition_responses[0].error_code, 0);
    let total = broker.context.budget.total_bytes();
    let id = client.send(12, &poll("t", 0, 600_000, 290_000));
    while broker.context.metrics.waiting_fetches.get() == 0 {
        std::thread::yield_now();
    }
    // But for what its request is.
    while broker.context.budget.free_bytes() < total - 1024 {
        std::thread::yield_now();
    }
    let mut other = broker.client();
    assert_eq!(other.ask(9, &produced).responses[0].partition_responses[0].error_code, 0);
    let fetched = client.receive::<FetchRequest>(12, id);
    assert!(fetched.responses[0].partitions[0].records.as_ref().unwrap().len() > 1_000_000);
    let fetched = client.ask(12, &poll("t", 1, 600_000, 10));
    assert!(fetched.responses[0].partitions[0].records.as_ref().unwrap().len() > 500_000);
}

#[test]
fn a_client_that_goes_away_is_waited_for_no_longer() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut waiting = broker.client();
    waiting.send(12, &poll("t", 0, 1, 290_000));
    while broker.context.metrics.waiting_fetches.get() == 0 {
        std::thread::yield_now();
    }
    drop(waiting);
    while broker.context.metrics.connections.get() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(broker.context.metrics.waiting_fetches.get(), 0);
}

#[test]
fn stopping_answers_long_polls_and_closes_idle_connections_at_once() {
    let mut broker = TestBroker::new();
    broker.topic("t", 1);
    let (mut waiting, mut idle) = (broker.client(), broker.client());
    topics(&mut idle, &["t"]);
    let id = waiting.send(12, &poll("t", 0, 1, 290_000));
    while broker.context.metrics.waiting_fetches.get() == 0 {
        std::thread::yield_now();
    }
    broker.stop();
    let fetched = waiting.receive::<FetchRequest>(12, id);
    assert_eq!(fetched.responses[0].partitions[0].error_code, 0);
    assert!(waiting.is_closed());
    assert!(idle.is_closed());
    assert!(Client::try_connect(broker.address).is_err());
}

#[test]
fn a_limit_of_connections_above_what_can_be_counted_is_none() {
    for max_connections in [usize::MAX, 1 << 61, 1 << 32] {
        let limits = Limits { max_connections, ..Limits::default() };
        let mut broker = TestBroker::start(Config { limits, ..config() });
        topics(&mut broker.client(), &[]);
        broker.stop();
    }
}

#[test]
fn connections_above_the_limit_are_closed_and_room_comes_back() {
    let limits = Limits { max_connections: 2, ..Limits::default() };
    let broker = TestBroker::start(Config { limits, ..config() });
    let (mut one, mut two) = (broker.client(), broker.client());
    topics(&mut one, &[]);
    topics(&mut two, &[]);
    assert!(broker.client().is_closed());
    assert_eq!(broker.context.metrics.refused.get(), 1);
    drop(one);
    while broker.context.metrics.connections.get() > 1 {
        std::thread::yield_now();
    }
    topics(&mut broker.client(), &[]);
}

#[test]
fn a_request_above_the_limit_closes_the_connection_and_one_at_it_is_read() {
    let limits = Limits { max_request_bytes: 10_000, ..Limits::default() };
    let broker = TestBroker::start(Config { limits, ..config() });
    let mut client = broker.client();
    let (_, empty) = client.frame(1, &MetadataRequest::default().with_topics(Some(Vec::new())));
    let padded = |length: usize| {
        let mut frame = empty.to_vec();
        frame.resize(length + 4, 0);
        frame[..4].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        frame
    };
    client.send_bytes(&padded(10_000)).unwrap();
    assert!(!client.read_frame().unwrap().is_empty());
    client.send_bytes(&padded(10_001)[..100]).unwrap();
    assert!(client.is_closed());
}

#[test]
fn many_requests_larger_than_the_memory_are_all_served() {
    let limits = Limits { max_memory_bytes: 2 << 20, ..Limits::default() };
    let broker = TestBroker::start(Config { limits, ..config() });
    broker.topic("t", 4);
    let address = broker.address;
    let senders: Vec<_> = (0..8)
        .map(|at| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let records = batch(&"x".repeat(700_000));
                for _ in 0..5 {
                    let request = produce(1, &[("t", &[(at % 4, records.clone())])]);
                    let answer = client.ask(9, &request);
                    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(broker.ends("t"), [10; 4]);
    while broker.context.budget.free_bytes() < 2 << 20 {
        std::thread::yield_now();
    }
}

fn secured() -> Config {
    let line = |name, password: &[u8]| format!("{name}:{}\n", hash_password(password).unwrap());
    let users = Users::parse(&(line("ann", b"a-secret") + &line("root", b"r-secret"))).unwrap();
    let grants =
        Grants::parse("root All *\nann KafkaWrite orders\nann TransactionalIdWrite pay-*\n")
            .unwrap();
    let security =
        Security { users: Some(users), grants: Some(Arc::new(grants)), ..Security::default() };
    Config { security, ..config() }
}

fn log_in(client: &mut Client, user: &str, password: &str) -> i16 {
    let plain = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    assert_eq!(client.ask(1, &plain).error_code, 0);
    let token = format!("\0{user}\0{password}").into_bytes().into();
    client.ask(2, &SaslAuthenticateRequest::default().with_auth_bytes(token)).error_code
}

#[test]
fn a_login_opens_the_connection_for_what_is_granted() {
    let broker = TestBroker::start(secured());
    broker.topic("orders", 1);
    broker.topic("secret", 1);
    let mut client = broker.client();
    assert_eq!(log_in(&mut client, "ann", "a-secret"), 0);
    let answer = topics(&mut client, &["orders", "secret", "none"]);
    let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, 29, 29]);
    let mut code = |topic| {
        let answer = client.ask(9, &produce(1, &[(topic, &[(0, batch("x"))])]));
        answer.responses[0].partition_responses[0].error_code
    };
    assert_eq!([code("orders"), code("secret"), code("none")], [0, 29, 29]);
    let fetched = client.ask(12, &poll("orders", 0, 0, 0));
    assert_eq!(fetched.responses[0].partitions[0].error_code, 29);
}

#[test]
fn a_transactional_id_is_for_whom_it_is_granted_and_a_producer_id_for_who_may_write() {
    let broker = TestBroker::start(secured());
    let mut client = broker.client();
    assert_eq!(log_in(&mut client, "ann", "a-secret"), 0);
    let id = |id: &'static str| TransactionalId(StrBytes::from_static_str(id));
    let mut code = |asked: Option<&'static str>| {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(asked.map(id))
            .with_transaction_timeout_ms(1000);
        client.ask(4, &request).error_code
    };
    assert_eq!([code(None), code(Some("pay-1")), code(Some("ship-1"))], [0, 0, 53]);
    let end = EndTxnRequest::default().with_transactional_id(id("ship-1"));
    assert_eq!(client.ask(4, &end).error_code, 53);
    let asked = vec![id("ship-1")];
    let describe = DescribeTransactionsRequest::default().with_transactional_ids(asked);
    assert_eq!(client.ask(0, &describe).transaction_states[0].error_code, 53);
    let listed = client.ask(0, &ListTransactionsRequest::default());
    assert_eq!(listed.transaction_states.len(), 1, "only what is granted is listed");
}

#[test]
fn a_wrong_password_is_told_and_closes_and_without_a_login_nothing_is_answered() {
    let broker = TestBroker::start(secured());
    let mut client = broker.client();
    assert_eq!(log_in(&mut client, "ann", "r-secret"), 58);
    assert!(client.is_closed());
    let mut client = broker.client();
    client.ask(0, &ApiVersionsRequest::default());
    client.send(9, &MetadataRequest::default());
    assert!(client.is_closed());
    assert_eq!(broker.context.metrics.failed_logins.get(), 1);
}

#[test]
fn a_request_before_the_login_may_be_as_long_as_a_login_and_behind_it_as_any() {
    let broker = TestBroker::start(secured());
    let (_, empty) = broker.client().frame(0, &ApiVersionsRequest::default());
    let padded = |length: usize| {
        let mut frame = empty.to_vec();
        frame.resize(length + 4, 0);
        frame[..4].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        frame
    };
    let mut client = broker.client();
    client.send_bytes(&padded(16 * 1024)).unwrap();
    assert!(!client.read_frame().unwrap().is_empty());
    // No more than its length is waited for.
    client.send_bytes(&padded(16 * 1024 + 1)[..4]).unwrap();
    assert!(client.is_closed());
    let mut client = broker.client();
    assert_eq!(log_in(&mut client, "ann", "a-secret"), 0);
    client.send_bytes(&padded(16 * 1024 + 1)).unwrap();
    assert!(!client.read_frame().unwrap().is_empty());
}

#[test]
fn a_client_of_tls_is_served_and_one_without_it_is_not() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = made.key_pair.serialize_pem();
    let acceptor = tls::acceptor(made.cert.pem().as_bytes(), key.as_bytes()).unwrap();
    let broker = TestBroker::start(Config { tls: Some(acceptor), ..config() });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let session = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let stream = TcpStream::connect(broker.address).unwrap();
    let mut client = Client::over(Box::new(rustls::StreamOwned::new(session, stream)));
    assert_eq!(topics(&mut client, &[]).brokers.len(), 1);

    let mut plain = broker.client();
    plain.send(9, &MetadataRequest::default());
    assert!(plain.read_frame().is_err());
}

#[test]
fn figures_are_served_as_text() {
    let metrics_listen = Some(([127, 0, 0, 1], 0).into());
    let broker = TestBroker::start(Config { metrics_listen, ..config() });
    topics(&mut broker.client(), &[]);
    let mut stream = TcpStream::connect(broker.metrics.unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    for line in [
        "tidelog_broker_connections_accepted_total 1\n",
        "tidelog_broker_request_duration_seconds_count{api=\"Metadata\"} 1\n",
        "tidelog_halted 0\n",
        "# TYPE tidelog_disk_free_bytes gauge\ntidelog_disk_free_bytes ",
        "# TYPE tidelog_disk_reserve_bytes gauge\ntidelog_disk_reserve_bytes ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
