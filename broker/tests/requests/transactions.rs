//! Producer ids and transactions over the wire: both protocols, fencing, offsets, and what readers see.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

use crate::common;

use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use common::client::{Client, name, produce};
use common::{TestBroker, config};
use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tidelog::producer::transaction::EndProtocol;
use tidelog::record::{BatchBuilder, MarkerKind};
use tidelog::{GroupMembership, GroupOffset, InitProducer, Partition, Record};
use tidelog_broker::profile::{Profile, Rules};

/// The first and the second protocol: the version of Produce, and that of EndTxn.
const FIRST: (i16, i16) = (11, 4);
const SECOND: (i16, i16) = (12, 5);

fn string(of: &str) -> StrBytes {
    StrBytes::from_string(of.to_owned())
}

fn id(of: &str) -> TransactionalId {
    TransactionalId(string(of))
}

/// A transactional producer, as the broker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    producer: i64,
    epoch: i16,
}

fn init(client: &mut Client, of: &str, held: Option<Holder>) -> (i16, Holder) {
    let Holder { producer, epoch } = held.unwrap_or(Holder { producer: -1, epoch: -1 });
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id(of)))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(producer))
        .with_producer_epoch(epoch);
    let answer = client.ask(4, &request);
    let holder = Holder { producer: answer.producer_id.0, epoch: answer.producer_epoch };
    (answer.error_code, holder)
}

fn begin(client: &mut Client, of: &str) -> Holder {
    let (code, holder) = init(client, of, None);
    assert_eq!(code, 0);
    holder
}

fn batch(holder: Holder, sequence: i32, value: &str) -> Bytes {
    let mut builder =
        BatchBuilder::new().producer(holder.producer, holder.epoch, sequence).transactional();
    // Without a timestamp its age is that of its append: the broker's clock is the system's.
    builder.push(&Record::new("key", value.to_owned())).unwrap();
    builder.finish().unwrap()
}

/// The codes of the partitions of one topic.
fn send(
    client: &mut Client,
    version: i16,
    of: &str,
    topic: &str,
    parts: &[(i32, Bytes)],
) -> Vec<i16> {
    let request = produce(-1, &[(topic, parts)]).with_transactional_id(Some(id(of)));
    let answer = client.ask(version, &request);
    let parts = &answer.responses[0].partition_responses;
    parts.iter().map(|partition| partition.error_code).collect()
}

fn add(client: &mut Client, version: i16, of: &str, holder: Holder, partitions: &[i32]) -> i16 {
    let topic = AddPartitionsToTxnTopic::default()
        .with_name(name("orders"))
        .with_partitions(partitions.to_vec());
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id(of))
        .with_v3_and_below_producer_id(ProducerId(holder.producer))
        .with_v3_and_below_producer_epoch(holder.epoch)
        .with_v3_and_below_topics(vec![topic]);
    let answer = client.ask(version, &request);
    answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
}

fn end(client: &mut Client, version: i16, of: &str, holder: Holder, commit: bool) -> (i16, Holder) {
    let request = EndTxnRequest::default()
        .with_transactional_id(id(of))
        .with_producer_id(ProducerId(holder.producer))
        .with_producer_epoch(holder.epoch)
        .with_committed(commit);
    let answer = client.ask(version, &request);
    let next = Holder { producer: answer.producer_id.0, epoch: answer.producer_epoch };
    (answer.error_code, if version >= 5 { next } else { holder })
}

/// What a reader of committed data gets of a partition: last stable offset, bytes, aborted ones.
fn read(client: &mut Client, partition: i32) -> (i64, usize, Vec<(i64, i64)>) {
    let partition =
        FetchPartition::default().with_partition(partition).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name("orders")).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_bytes(1 << 20)
        .with_isolation_level(1)
        .with_session_epoch(-1)
        .with_topics(vec![topic]);
    let answer = client.ask(12, &request);
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    let aborted = partition.aborted_transactions.iter().flatten();
    let aborted = aborted.map(|aborted| (aborted.producer_id.0, aborted.first_offset));
    let bytes = partition.records.as_ref().map_or(0, Bytes::len);
    (partition.last_stable_offset, bytes, aborted.collect())
}

#[test]
fn a_transaction_of_either_protocol_is_seen_when_it_has_ended_and_in_all_partitions() {
    for (produce, end_txn) in [FIRST, SECOND] {
        let broker = TestBroker::new();
        broker.topic("orders", 2);
        let mut client = broker.client();
        let holder = begin(&mut client, "pay");
        if produce == FIRST.0 {
            assert_eq!(add(&mut client, 3, "pay", holder, &[0, 1]), 0);
        }
        let parts = [(0, batch(holder, 0, "a")), (1, batch(holder, 0, "b"))];
        assert_eq!(send(&mut client, produce, "pay", "orders", &parts), [0, 0]);
        for partition in [0, 1] {
            assert_eq!(read(&mut client, partition), (0, 0, vec![]));
        }
        let metrics = broker.engine.metrics();
        assert_eq!((metrics.transactional_id_count, metrics.open_producer_transactions), (1, 1));
        let (code, next) = end(&mut client, end_txn, "pay", holder, true);
        assert_eq!(code, 0);
        assert_eq!(next.epoch, if end_txn == SECOND.1 { 1 } else { 0 });
        for partition in [0, 1] {
            let (stable, bytes, aborted) = read(&mut client, partition);
            assert!(stable == 2 && bytes > 0 && aborted.is_empty());
        }
    }
}

#[test]
fn an_aborted_transaction_is_named_to_readers_by_its_producer_and_first_offset() {
    let broker = TestBroker::new();
    broker.topic("orders", 1);
    let mut client = broker.client();
    let holder = begin(&mut client, "pay");
    let parts = [(0, batch(holder, 0, "a"))];
    assert_eq!(send(&mut client, SECOND.0, "pay", "orders", &parts), [0]);
    let (code, next) = end(&mut client, SECOND.1, "pay", holder, false);
    assert_eq!((code, next.epoch), (0, 1));
    let (stable, _, aborted) = read(&mut client, 0);
    assert_eq!((stable, aborted), (2, vec![(holder.producer, 0)]));
    let again = end(&mut client, SECOND.1, "pay", holder, false);
    assert_eq!(again, (0, next), "a retry is answered as the first time");
    assert_eq!(end(&mut client, SECOND.1, "pay", holder, true).0, 90, "it is fenced");
}

#[test]
fn a_late_copy_of_an_end_is_fenced_and_leaves_the_next_transaction_alone() {
    for (first, late) in [(true, true), (true, false), (false, true), (false, false)] {
        let broker = TestBroker::new();
        broker.topic("orders", 1);
        let mut client = broker.client();
        let holder = begin(&mut client, "pay");
        assert_eq!(send(&mut client, 12, "pay", "orders", &[(0, batch(holder, 0, "a"))]), [0]);
        let (code, next) = end(&mut client, 5, "pay", holder, first);
        assert_eq!(code, 0);
        assert_eq!(send(&mut client, 12, "pay", "orders", &[(0, batch(next, 0, "b"))]), [0]);
        for version in [4, 5] {
            let (code, told) = end(&mut client, version, "pay", holder, late);
            assert_eq!(code, 90, "{first} {late} {version}");
            assert!(version == 4 || told == Holder { producer: -1, epoch: -1 });
        }
        assert_eq!(end(&mut client, 5, "pay", next, true).0, 0);
    }
}

#[test]
fn an_instance_that_takes_over_aborts_what_is_open_and_fences_the_one_before() {
    let broker = TestBroker::new();
    broker.topic("orders", 1);
    let mut client = broker.client();
    let holder = begin(&mut client, "pay");
    let parts = [(0, batch(holder, 0, "a"))];
    assert_eq!(send(&mut client, SECOND.0, "pay", "orders", &parts), [0]);
    assert_eq!(init(&mut client, "pay", None).0, 51);
    let next = begin(&mut client, "pay");
    assert_eq!(next, Holder { epoch: 2, ..holder });
    assert_eq!(read(&mut client, 0).2, [(holder.producer, 0)]);
    let parts = [(0, batch(holder, 1, "b"))];
    assert_eq!(send(&mut client, SECOND.0, "pay", "orders", &parts), [47]);
    for (version, fenced) in [(1, 47), (2, 90), (3, 90)] {
        assert_eq!(add(&mut client, version, "pay", holder, &[0]), fenced);
        assert_eq!(end(&mut client, version, "pay", holder, true).0, fenced);
    }
    assert_eq!(init(&mut client, "pay", Some(holder)).0, 90);
    assert_eq!(broker.ends("orders"), [2], "nothing came behind the marker");
}

#[test]
fn a_partition_that_was_not_added_refuses_its_request_or_itself_by_the_rule() {
    for independent in [false, true] {
        let rules = Rules::new(Profile::Kafka, independent, None);
        let broker = TestBroker::start(tidelog_broker::server::Config { rules, ..config() });
        broker.topic("orders", 2);
        let mut client = broker.client();
        let holder = begin(&mut client, "pay");
        assert_eq!(add(&mut client, 3, "pay", holder, &[0]), 0);
        let parts = [(0, batch(holder, 0, "a")), (1, batch(holder, 0, "b"))];
        for (version, code) in [(9, 48), (10, 48), (11, 120)] {
            let expected = if independent { [0, code] } else { [code, code] };
            let codes = send(&mut client, version, "pay", "orders", &parts);
            assert_eq!(codes, expected, "independent={independent} version={version}");
        }
        assert_eq!(broker.ends("orders"), if independent { [1, 0] } else { [0, 0] });
    }
}

// What was refused is not staged, and what came with it is.
#[test]
fn offsets_of_a_group_come_with_the_commit_and_not_before() {
    let broker = TestBroker::new();
    broker.topic("orders", 2);
    let mut client = broker.client();
    let mut holder = begin(&mut client, "pay");
    let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(7);
    let unknown = partition.clone().with_partition_index(9);
    let too_large = partition
        .clone()
        .with_partition_index(1)
        .with_committed_metadata(Some(string(&"m".repeat(4097))));
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(name("orders"))
        .with_partitions(vec![partition, unknown, too_large]);
    for commit in [false, true] {
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id("pay"))
            .with_group_id(GroupId(string("readers")))
            .with_producer_id(ProducerId(holder.producer))
            .with_producer_epoch(holder.epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic.clone()]);
        let answer = client.ask(4, &request);
        assert_eq!(answer.topics[0].partitions[0].error_code, 120, "the group was not added");
        let answer = client.ask(5, &request);
        let codes: Vec<_> =
            answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
        assert_eq!(codes, [0, 3, 12]);
        let other = broker.engine.topic("orders").unwrap().partition(1).unwrap();
        assert!(!broker.engine.group("readers").is_offset_staged(&other));
        let orders = broker.engine.topic("orders").unwrap().partition(0).unwrap();
        let committed = || broker.engine.group("readers").offset(&orders).unwrap();
        assert_eq!(committed(), None);
        let (code, next) = end(&mut client, SECOND.1, "pay", holder, commit);
        assert_eq!(code, 0);
        assert_eq!(committed().map(|found| found.offset), commit.then_some(7));
        let stale = client.ask(5, &request);
        let codes: Vec<_> =
            stale.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
        assert!(codes.iter().all(|code| [47, 3, 12].contains(code)) && codes[0] == 47, "{codes:?}");
        holder = next;
    }
}

#[test]
fn partitions_can_be_asked_for_whether_they_are_in_a_transaction() {
    let broker = TestBroker::new();
    broker.topic("orders", 2);
    let mut client = broker.client();
    let holder = begin(&mut client, "pay");
    let ask = |client: &mut Client, verify_only, epoch, partitions: &[i32]| {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(name("orders"))
            .with_partitions(partitions.to_vec());
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(id("pay"))
            .with_producer_id(ProducerId(holder.producer))
            .with_producer_epoch(epoch)
            .with_verify_only(verify_only)
            .with_topics(vec![topic]);
        let request = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
        let answer = client.ask(5, &request);
        let results = &answer.results_by_transaction[0].topic_results[0].results_by_partition;
        results.iter().map(|result| result.partition_error_code).collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut client, true, 0, &[0]), [120]);
    assert_eq!(ask(&mut client, false, 0, &[0]), [0]);
    assert_eq!(ask(&mut client, true, 0, &[0, 1]), [0, 120]);
    assert_eq!(ask(&mut client, true, 1, &[0, 1]), [90, 90]);
    assert_eq!(ask(&mut client, false, 0, &[0, 7]), [55, 3], "none is added");
}

#[test]
fn the_event_broker_closes_the_connection_of_who_wants_a_producer_id() {
    let rules = Rules::new(Profile::EventBroker, false, None);
    let broker = TestBroker::start(tidelog_broker::server::Config { rules, ..config() });
    let mut client = broker.client();
    client.send(4, &InitProducerIdRequest::default().with_transaction_timeout_ms(1));
    assert!(client.is_closed());
}

/// All that a group has committed and no open transaction may change, as KIP-447 asks for it.
fn stable_offsets(client: &mut Client, group: &str) -> Vec<i64> {
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(string(group)))
        .with_topics(None)
        .with_require_stable(true);
    let answer = client.ask(7, &request);
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.filter(|found| found.error_code == 0).map(|found| found.committed_offset).collect()
}

#[test]
fn all_stable_offsets_are_never_those_from_before_a_transaction_that_was_open() {
    let broker = TestBroker::new();
    broker.topic("orders", 100);
    let engine = &broker.engine;
    let partitions = engine.topic("orders").unwrap().partitions();
    let all = |offset| -> Vec<(Partition, GroupOffset)> {
        let committed = GroupOffset::new(offset);
        partitions.iter().map(|one| (one.clone(), committed.clone())).collect()
    };
    engine.group("readers").commit(all(0)).unwrap();
    let init = InitProducer { timeout_ms: 60_000, expected: None };
    let producer = engine.producers().init("pay", init).unwrap();
    let staged = AtomicI64::new(0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for offset in 1..=1500 {
                engine
                    .producers()
                    .stage_offsets(
                        "pay",
                        producer,
                        "readers",
                        all(offset),
                        GroupMembership::Implied,
                    )
                    .unwrap();
                staged.store(offset, Ordering::SeqCst);
                let (kind, protocol) = (MarkerKind::Commit, EndProtocol::KeepsEpoch);
                engine.producers().end("pay", producer, kind, protocol).unwrap();
            }
        });
        let mut client = broker.client();
        while !writing.is_finished() {
            let least = staged.load(Ordering::SeqCst);
            let stable = stable_offsets(&mut client, "readers");
            assert!(stable.iter().all(|found| *found >= least), "{least} {stable:?}");
        }
    });
    assert_eq!(stable_offsets(&mut broker.client(), "readers"), [1500; 100]);
}

#[test]
fn what_is_asked_for_many_times_in_a_request_is_answered_once() {
    let broker = TestBroker::new();
    broker.topic("orders", 1);
    let mut client = broker.client();
    let holder = begin(&mut client, "pay");
    assert_eq!(send(&mut client, 12, "pay", "orders", &[(0, batch(holder, 0, "a"))]), [0]);
    let topic =
        TopicRequest::default().with_name(name("orders")).with_partition_indexes(vec![0; 100]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic; 3]);
    let answer = client.ask(0, &request);
    let counts: Vec<_> = answer.topics.iter().map(|topic| topic.partitions.len()).collect();
    assert_eq!(counts, [1, 0, 0]);
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![id("pay"); 9]);
    assert_eq!(client.ask(0, &request).transaction_states.len(), 1);

    let topic = OffsetFetchRequestTopic::default()
        .with_name(name("orders"))
        .with_partition_indexes(vec![0; 100]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(string("readers")))
        .with_topics(Some(vec![topic; 3]));
    let answer = client.ask(7, &request);
    let counts: Vec<_> = answer.topics.iter().map(|topic| topic.partitions.len()).collect();
    assert_eq!(counts, [1, 0, 0]);
    let topic = OffsetFetchRequestTopics::default()
        .with_name(name("orders"))
        .with_partition_indexes(vec![0; 100]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(string("readers")))
        .with_topics(Some(vec![topic]));
    let answer = client.ask(8, &OffsetFetchRequest::default().with_groups(vec![group; 9]));
    assert_eq!(answer.groups.len(), 1);
    assert_eq!(answer.groups[0].topics[0].partitions.len(), 1);
}
