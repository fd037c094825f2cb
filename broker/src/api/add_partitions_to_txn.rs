//! AddPartitionsToTxn, versions 0 to 5: partitions come into a transaction, all of them or none. Of
//! a request with a partition that cannot, the others are OPERATION_NOT_ATTEMPTED. From 4 on, which
//! Kafka's brokers use among themselves, a request has several transactions, each by itself, and
//! may only ask whether partitions are in one.

use std::collections::{HashMap, HashSet};

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiKey, TransactionalId,
};
use tidelog::Partition;
use tidelog::producer::transaction::ProducerTransactionError as Refused;
use tidelog::types::ProducerIdentity;

use super::request::{Api, Asked, Closing, Reply, Wish, reply};
use super::transactions::{self, Knows, allowed, fault, identity};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{BOOL, I16, I64, NUMBERED_TOPIC, TEXT, field, list, plain, since, until};
use crate::wire::shape::{Body, Struct};

pub(super) struct AddPartitionsToTxn;

impl Api for AddPartitionsToTxn {
    type Request = AddPartitionsToTxnRequest;
    const KEY: ApiKey = ApiKey::AddPartitionsToTxn;
    const VERSIONS: (i16, i16) = (0, 5);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;

    async fn reply(asked: Asked<'_>, request: AddPartitionsToTxnRequest) -> Result<Reply, Closing> {
        let (wish, session) = (asked.wish(), asked.peer.session.clone());
        let version = asked.start.version;
        let work = move |context: &Context| add(context, &session, &wish, version, &request);
        let added = off_the_loop(asked.context, work).await?;
        Ok(reply(asked.start, &added))
    }
}

const BODY: Body = Body {
    flexible_since: 3,
    body: plain(&[
        since(4, list(&TXN_WITH_PARTITIONS)),
        until(3, TEXT),
        until(3, I64),
        until(3, I16),
        until(3, list(&NUMBERED_TOPIC)),
    ]),
};
const TXN_WITH_PARTITIONS: Struct =
    plain(&[field(TEXT), field(I64), field(I16), field(BOOL), field(list(&NUMBERED_TOPIC))]);

/// The first version with several transactions.
const MANY_TRANSACTIONS: i16 = 4;

/// What a request wants of one transaction.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    id: &'a TransactionalId,
    given: ProducerIdentity,
    verify_only: bool,
    topics: &'a [AddPartitionsToTxnTopic],
}

fn add(
    context: &Context,
    session: &Session,
    wish: &Wish,
    version: i16,
    request: &AddPartitionsToTxnRequest,
) -> Result<AddPartitionsToTxnResponse, Closing> {
    let response = AddPartitionsToTxnResponse::default();
    let knows = Knows { abortable: true, ..Knows::coordinator(version) };
    if version < MANY_TRANSACTIONS {
        let wanted = Wanted {
            id: &request.v3_and_below_transactional_id,
            given: identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            verify_only: false,
            topics: &request.v3_and_below_topics,
        };
        let results = one(context, session, knows, &mut HashMap::new(), wanted);
        return Ok(response.with_results_by_topic_v3_and_below(results));
    }
    // Each id is looked up once, however often it is there.
    let mut known = HashMap::new();
    let mut results = Vec::with_capacity(request.transactions.len());
    for transaction in &request.transactions {
        wish.check()?;
        let wanted = Wanted {
            id: &transaction.transactional_id,
            given: identity(transaction.producer_id, transaction.producer_epoch),
            verify_only: transaction.verify_only,
            topics: &transaction.topics,
        };
        let answer = AddPartitionsToTxnResult::default()
            .with_transactional_id(transaction.transactional_id.clone())
            .with_topic_results(one(context, session, knows, &mut known, wanted));
        results.push(answer);
    }
    Ok(response.with_results_by_transaction(results))
}

/// What is known of a transactional id: who has it, and the partitions of its transaction.
type Known = Option<(ProducerIdentity, HashSet<(String, i32)>)>;

fn one(
    context: &Context,
    session: &Session,
    knows: Knows,
    known: &mut HashMap<String, Known>,
    wanted: Wanted<'_>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    if let Err(fault) = allowed(session, wanted.id) {
        return results(wanted.topics, |_, _| fault.code);
    }
    let found = |topic: &AddPartitionsToTxnTopic, index| -> Result<Partition, Fault> {
        let topic = context.topic(&session.access, Action::KafkaWrite, &topic.name)?;
        topic.partition(index).map_err(|_| Fault::unknown())
    };
    let asked = wanted
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |&index| (topic, index)));
    let checked: Result<Vec<Partition>, Fault> =
        asked.map(|(topic, index)| found(topic, index)).collect();
    let Ok(partitions) = checked else {
        let not_attempted = ResponseError::OperationNotAttempted.code();
        return results(wanted.topics, |topic, index| {
            found(topic, index).err().map_or(not_attempted, |fault| fault.code)
        });
    };
    if wanted.verify_only {
        let known =
            known.entry(wanted.id.to_string()).or_insert_with(|| look_up(context, wanted.id));
        return verified(knows, known.as_ref(), wanted);
    }
    known.remove(wanted.id.as_str());
    let added = context.engine.producers().add_partitions(wanted.id, wanted.given, &partitions);
    let code = added.err().map_or(0, |error| fault(&error, knows).code);
    results(wanted.topics, |_, _| code)
}

fn look_up(context: &Context, id: &str) -> Known {
    let held = context.engine.producers().describe_transactional_id(id)?;
    let name = |partition: &Partition| partition.topic().name().to_string();
    let partitions = held.partitions.iter();
    let partitions = partitions.map(|partition| (name(partition), partition.index())).collect();
    Some((held.producer, partitions))
}

/// Which partitions are in the transaction.
fn verified(
    knows: Knows,
    known: Option<&(ProducerIdentity, HashSet<(String, i32)>)>,
    wanted: Wanted<'_>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let current = known.map(|(producer, _)| *producer);
    let refused = match current {
        Some(current) if current == wanted.given => None,
        Some(current) if current.producer_id == wanted.given.producer_id => {
            Some(Refused::ProducerFenced { given: wanted.given, current })
        }
        _ => Some(Refused::InvalidProducerIdMapping {
            producer_id: wanted.given.producer_id,
            held_by: current.map(|current| current.producer_id),
        }),
    };
    if let Some(refused) = refused {
        let code = transactions::code(&refused, knows).code();
        return results(wanted.topics, |_, _| code);
    }
    let absent = ResponseError::TransactionAbortable.code();
    results(wanted.topics, |topic, index| {
        let at = (topic.name.to_string(), index);
        if known.is_some_and(|(_, held)| held.contains(&at)) { 0 } else { absent }
    })
}

fn results(
    topics: &[AddPartitionsToTxnTopic],
    code: impl Fn(&AddPartitionsToTxnTopic, i32) -> i16,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let results = topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|&index| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(index)
                .with_partition_error_code(code(topic, index))
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    });
    results.collect()
}
