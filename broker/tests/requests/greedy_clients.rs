//! What one client can take of the time and the memory of all: requests that are as long as they
//! may be, and answers that are longer than their questions.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

use crate::common;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::client::{batch, name, produce};
use common::paused::PausedBroker;
use common::{Client, TestBroker, config, direct};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};
use tidelog::Record;
use tidelog::record::{BatchBuilder, Codec};
use tidelog_broker::api::{Closing, Reply};
use tidelog_broker::context::{LOOKUPS_AT_A_TIME, Session, decompressions_at_a_time};

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
    config.limits.groups.initial_delay = Duration::ZERO;
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

#[test]
fn what_is_asked_for_very_often_is_told_once_or_within_the_memory() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    broker.context.groups.touch("g");
    let mut client = broker.client();
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configuration_keys(None);
    let mut resources = vec![resource.clone(); 2];
    resources.push(resource.clone().with_resource_name(text("none")));
    let request = DescribeConfigsRequest::default().with_include_documentation(true);
    let described = client.ask(4, &request.clone().with_resources(resources));
    let codes: Vec<_> = described.results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [0, 0, 3], "as often as it was asked for, as in Kafka");
    let request = request.with_include_synonyms(true).with_resources(vec![resource; MANY as usize]);
    let refused = answered(&broker, 4, &request);
    assert!(matches!(refused, Reply::Close(Closing::TooLarge(_))), "but within the memory");
    let groups = vec![GroupId(text("g")); MANY as usize];
    let described = client.ask(5, &DescribeGroupsRequest::default().with_groups(groups));
    assert_eq!(described.groups.len(), 1);
}

/// What becomes of a request of somebody who has connected.
fn answered<R: Request>(broker: &TestBroker, version: i16, request: &R) -> Reply {
    direct::reply(&broker.context, &Session::default(), false, version, request)
}

/// Requests that are answered with more than they are, each with its version.
fn greedy(count: u32, mut each: impl FnMut(&'static str, Reply), broker: &TestBroker) {
    let keys = (0..count).map(short).collect();
    let request = FindCoordinatorRequest::default().with_coordinator_keys(keys);
    each("FindCoordinator", answered(broker, 6, &request));
    let topics =
        (0..count).map(|at| MetadataRequestTopic::default().with_name(Some(TopicName(short(at)))));
    let request = MetadataRequest::default().with_topics(Some(topics.collect()));
    each("Metadata", answered(broker, 12, &request));
    let groups = (0..count).map(|at| GroupId(short(at))).collect();
    let request = DescribeGroupsRequest::default().with_groups(groups);
    each("DescribeGroups", answered(broker, 6, &request));
    let parts: Vec<_> = (0..count.cast_signed()).map(|at| (at, batch("x"))).collect();
    each("Produce", answered(broker, 9, &produce(1, &[("none", &parts)])));
}

#[test]
fn an_answer_holds_memory_until_it_is_sent() {
    let broker = TestBroker::new();
    let (budget, total) = (&broker.context.budget, broker.context.budget.free_bytes());
    let each = |api, reply| {
        let Reply::Answer(answer) = reply else { panic!("{api}: {reply:?}") };
        let bytes = answer.bytes.len();
        assert!(bytes > 64 * 1024, "{api}: bytes={bytes}");
        assert_eq!(answer.held.bytes(), bytes.next_multiple_of(1024), "{api}");
        assert_eq!(budget.free_bytes(), total - answer.held.bytes(), "{api}");
        drop(answer);
        assert_eq!(budget.free_bytes(), total, "{api}");
    };
    greedy(20_000, each, &broker);
}

#[test]
fn a_long_request_or_answer_that_there_is_no_memory_for_closes_and_short_ones_are_served() {
    let mut config = config();
    config.limits.max_memory_bytes = 8 << 20;
    config.limits.stall = Duration::from_millis(1);
    let broker = TestBroker::start(config);
    broker.topic("many", 3000);
    let all = MetadataRequest::default().with_topics(None);
    let (all_of_it, _) = broker.context.budget.take_up_to(8 << 20);
    let is_closed = |reply: Reply| matches!(reply, Reply::Close(Closing::NoMemory(_)));
    greedy(20_000, |api, reply| assert!(is_closed(reply), "{api}"), &broker);
    assert!(is_closed(answered(&broker, 12, &all)), "a short question with a long answer");
    let few = MetadataRequest::default().with_topics(Some(Vec::new()));
    assert!(matches!(answered(&broker, 12, &few), Reply::Answer(_)));
    drop(all_of_it);
    assert!(matches!(answered(&broker, 12, &all), Reply::Answer(_)));
    assert_eq!(broker.context.budget.free_bytes(), 8 << 20);
}

/// A request with so many bytes behind it that nobody looks at.
fn padded(bytes: usize) -> Vec<u8> {
    let mut client = Client::over(Box::new(std::io::Cursor::new(Vec::new())));
    let (_, frame) = client.frame(0, &ApiVersionsRequest::default());
    let mut frame = frame.to_vec();
    frame.resize(bytes, 0);
    let length = u32::try_from(bytes - 4).unwrap();
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

#[test]
fn who_does_not_take_its_answer_loses_it_to_those_who_wait_for_memory_and_not_before() {
    let mut config = config();
    config.limits.max_memory_bytes = 64 << 20;
    let broker = PausedBroker::start(config);
    broker.engine.create_topic("t", tidelog::TopicConfig::new(1)).unwrap();
    let mut other = broker.client();
    let value = batch(&"x".repeat(1_000_000));
    for _ in 0..50 {
        let stored = other.ask(9, &produce(1, &[("t", &[(0, value.clone())])]));
        assert_eq!(stored.responses[0].partition_responses[0].error_code, 0);
    }
    let partition = FetchPartition::default().with_partition_max_bytes(50 << 20);
    let topic = FetchTopic::default().with_topic(name("t")).with_partitions(vec![partition]);
    let request = FetchRequest::default().with_max_bytes(50 << 20).with_topics(vec![topic]);
    let (mut slow, figures) = (broker.client(), &broker.context.metrics);
    slow.send(12, &request);
    while figures.bytes_out.get() < 40 << 20 {
        std::thread::yield_now();
    }
    for _ in 0..25 {
        broker.advance(Duration::from_secs(1));
    }
    assert_eq!(figures.connections.get(), 2, "nobody waits for its memory");
    let large = padded(30 << 20);
    let asks = std::thread::spawn(move || {
        other.send_bytes(&large).unwrap();
        (other.read_frame().unwrap().len(), other)
    });
    while !broker.context.budget.is_wanted() {
        std::thread::yield_now();
    }
    broker.advance(Duration::from_secs(1));
    let (answered, _other) = asks.join().unwrap();
    assert!(answered > 100);
    while figures.connections.get() > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn who_does_not_end_its_request_loses_it_to_those_who_wait_for_memory_and_not_before() {
    let mut config = config();
    config.limits.max_memory_bytes = 16 << 20;
    let broker = PausedBroker::start(config);
    let (figures, budget) = (&broker.context.metrics, &broker.context.budget);
    let (mut slow, mut other) = (broker.client(), broker.client());
    let begun = padded(12 << 20);
    // One byte more every second is too little to be silent, and never an end.
    let (begun, rest) = begun.split_at(begun.len() - 100);
    slow.send_bytes(begun).unwrap();
    while budget.free_bytes() > 4 << 20 {
        std::thread::yield_now();
    }
    for byte in &rest[..25] {
        slow.send_bytes(&[*byte]).unwrap();
        broker.advance(Duration::from_secs(1));
    }
    assert_eq!(figures.broken.get(), 0, "nobody waits for its memory");
    let asks = std::thread::spawn(move || {
        other.send_bytes(&padded(8 << 20)).unwrap();
        (other.read_frame().unwrap().len(), other)
    });
    while !budget.is_wanted() {
        std::thread::yield_now();
    }
    broker.advance(Duration::from_secs(1));
    let (answered, _other) = asks.join().unwrap();
    assert!(answered > 100);
    assert_eq!(figures.broken.get(), 1);
    assert!(slow.is_closed());
}

/// A batch of 60 MiB in a few KB.
fn bomb() -> bytes::Bytes {
    let mut builder = BatchBuilder::new().codec(Codec::Zstd).max_bytes(100 << 20);
    builder.push(&Record::new("key", vec![b'x'; 60 << 20]).timestamp(5)).unwrap();
    let bomb = builder.finish().unwrap();
    assert!(bomb.len() < 64 * 1024, "bytes={}", bomb.len());
    bomb
}

#[test]
fn compressed_batches_wait_for_their_turn_and_others_do_not_wait_for_them() {
    let broker = TestBroker::new();
    broker.topic("t", 2);
    let turns = decompressions_at_a_time();
    let taken = broker.context.decompressions.try_acquire_many(turns.try_into().unwrap()).unwrap();
    let (mut greedy, mut other) = (broker.client(), broker.client());
    let id = greedy.send(9, &produce(1, &[("t", &[(0, bomb())])]));
    let codes = |answer: ProduceResponse| answer.responses[0].partition_responses[0].error_code;
    for _ in 0..20 {
        assert_eq!(codes(other.ask(9, &produce(1, &[("t", &[(1, batch("x"))])]))), 0);
    }
    assert_eq!(broker.ends("t"), [0, 20]);
    drop(taken);
    assert_eq!(codes(greedy.receive::<ProduceRequest>(9, id)), 0);
    assert_eq!(broker.ends("t"), [1, 20]);
    assert_eq!(broker.context.decompressions.available_permits(), turns);
}

#[test]
fn lookups_by_time_wait_for_their_turn_and_others_do_not_wait_for_them() {
    let broker = TestBroker::new();
    broker.topic("t", 1);
    let mut other = broker.client();
    let stored = other.ask(9, &produce(1, &[("t", &[(0, bomb())])]));
    assert_eq!(stored.responses[0].partition_responses[0].error_code, 0);
    let at = |timestamp| {
        let partition = ListOffsetsPartition::default().with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(name("t"));
        let topics = vec![topic.with_partitions(vec![partition])];
        ListOffsetsRequest::default().with_topics(topics)
    };
    let found = |answer: ListOffsetsResponse| {
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.offset)
    };
    let turns = LOOKUPS_AT_A_TIME.try_into().unwrap();
    let taken = broker.context.lookups.try_acquire_many(turns).unwrap();
    let mut waiting: Vec<_> = [0, -3]
        .map(|timestamp| {
            let mut client = broker.client();
            let id = client.send(7, &at(timestamp));
            (client, id)
        })
        .into();
    for _ in 0..20 {
        assert_eq!(found(other.ask(7, &at(-1))), (0, 1));
        assert_eq!(found(other.ask(7, &at(-2))), (0, 0));
    }
    let answered = |key: &str| {
        let text = broker.context.metrics.text();
        let name = format!("tidelog_broker_request_duration_seconds_count{{api=\"{key}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        line.parse::<u64>().unwrap()
    };
    assert_eq!(answered("ListOffsets"), 40, "those by time wait");
    drop(taken);
    for (client, id) in &mut waiting {
        assert_eq!(found(client.receive::<ListOffsetsRequest>(7, *id)), (0, 0));
    }
}

#[test]
fn a_fetch_that_waits_for_very_much_does_not_read_it_anew_for_each_commit() {
    let broker = PausedBroker::new();
    broker.engine.create_topic("t", tidelog::TopicConfig::new(1)).unwrap();
    let (mut greedy, mut other) = (broker.client(), broker.client());
    let mut store = |bytes: usize| {
        let parts = [(0, batch(&"x".repeat(bytes)))];
        let stored = other.ask(9, &produce(1, &[("t", &parts)]));
        assert_eq!(stored.responses[0].partition_responses[0].error_code, 0);
    };
    store(1_000_000);
    let partition = FetchPartition::default().with_partition_max_bytes(8 << 20);
    let topic = FetchTopic::default().with_topic(name("t")).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_min_bytes(1_500_000)
        .with_max_bytes(8 << 20)
        .with_max_wait_ms(60_000)
        .with_topics(vec![topic]);
    let id = greedy.send(12, &request);
    while broker.context.metrics.waiting_fetches.get() == 0 {
        std::thread::yield_now();
    }
    for _ in 0..50 {
        store(10);
    }
    let read = broker.engine.metrics().fetched_bytes;
    assert!(read < 4_000_000, "bytes={read}");
    store(1_000_000);
    broker.advance(Duration::from_secs(1));
    let fetched = greedy.receive::<FetchRequest>(12, id);
    assert!(fetched.responses[0].partitions[0].records.as_ref().unwrap().len() > 2_000_000);
}

#[test]
fn whoever_asks_for_very_many_groups_locks_the_offsets_of_few_at_a_time() {
    let broker = TestBroker::new();
    let groups = &broker.context.groups;
    let names: Vec<GroupId> = (0..1000).map(|at| GroupId(text(format!("{at:04}")))).collect();
    // A lock is one of a group, or of others that share it; it is there at once, or not.
    let lock = |name: &GroupId| {
        let locked = pin!(groups.lock_offsets(std::iter::once(name.as_str())));
        match locked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(locks) => Some(locks),
            Poll::Pending => None,
        }
    };
    let held = lock(&names[999]).unwrap();
    let (mut fetches, mut deletes) = (broker.client(), broker.client());
    let asked = names.iter().map(|name| {
        OffsetFetchRequestGroup::default().with_group_id(name.clone()).with_topics(None)
    });
    let fetch = OffsetFetchRequest::default().with_groups(asked.collect());
    let fetch = fetches.send(8, &fetch);
    let delete = DeleteGroupsRequest::default().with_groups_names(names.clone());
    let delete = deletes.send(2, &delete);
    // Meanwhile both come to where they wait for the lock that is held.
    let count = |_| names.iter().filter(|name| lock(name).is_none()).count();
    let busy = (0..3000).map(count).max().unwrap_or(0);
    assert!(busy < 300, "groups whose offsets cannot be committed: count={busy}");
    drop(held);
    let fetched = fetches.receive::<OffsetFetchRequest>(8, fetch);
    assert_eq!(fetched.groups.len(), 1000);
    let deleted = deletes.receive::<DeleteGroupsRequest>(2, delete);
    assert!(deleted.results.iter().all(|result| result.error_code == 69));
}
