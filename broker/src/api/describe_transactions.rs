//! DescribeTransactions, version 0: where transactional ids stand. One that is asked for twice is
//! answered once: its transaction may have very many partitions.

use std::collections::{BTreeMap, HashSet};

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::{
    ApiKey, DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName,
    TransactionalId,
};

use super::memory::Growing;
use super::request::{Api, Asked, Closing, Reply, reply_with, text};
use super::transactions::allowed;
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{TEXT, field, plain, values};
use crate::wire::shape::Body;

pub(super) struct DescribeTransactions;

impl Api for DescribeTransactions {
    type Request = DescribeTransactionsRequest;
    const KEY: ApiKey = ApiKey::DescribeTransactions;
    const VERSIONS: (i16, i16) = (0, 0);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;
    const IS_LIST: bool = true;

    async fn reply(
        asked: Asked<'_>,
        request: DescribeTransactionsRequest,
    ) -> Result<Reply, Closing> {
        let start = asked.start;
        let (session, mut memory) =
            (asked.peer.session.clone(), Growing::new(asked.context, start));
        let work = move |context: &Context| {
            let answer = describe(context, &session, &mut memory, &request)?;
            Ok(reply_with(start, &answer, memory.into_held()))
        };
        off_the_loop(asked.context, work).await
    }
}

const BODY: Body = Body { flexible_since: 0, body: plain(&[field(values(&TEXT))]) };

fn describe(
    context: &Context,
    session: &Session,
    memory: &mut Growing,
    request: &DescribeTransactionsRequest,
) -> Result<DescribeTransactionsResponse, Closing> {
    let mut seen = HashSet::new();
    let mut states = Vec::new();
    for id in request.transactional_ids.iter().filter(|id| seen.insert(*id)) {
        let state = state(context, session, id)
            .unwrap_or_else(|fault| TransactionState::default().with_error_code(fault.code));
        let topics = state.topics.iter();
        let partitions = topics.map(|topic| TOPIC_BYTES + PARTITION_BYTES * topic.partitions.len());
        memory.add(TOPIC_BYTES + id.len() + partitions.sum::<usize>())?;
        states.push(state.with_transactional_id(id.clone()));
    }
    Ok(DescribeTransactionsResponse::default().with_transaction_states(states))
}

/// What a transaction costs in memory, and each of its topics, about.
const TOPIC_BYTES: usize = 400;
/// And each of its partitions.
const PARTITION_BYTES: usize = 8;

fn state(
    context: &Context,
    session: &Session,
    id: &TransactionalId,
) -> Result<TransactionState, Fault> {
    if id.is_empty() {
        return Err(Fault::invalid_request("a transactional id must not be empty"));
    }
    allowed(session, id)?;
    let held = context.engine.producers().describe_transactional_id(id).ok_or_else(|| {
        let message = "there is no such transactional id";
        Fault::new(ResponseError::TransactionalIdNotFound, message)
    })?;
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in &held.partitions {
        let name = partition.topic().name().as_str();
        if session.access.allows(Action::Describe, name) {
            topics.entry(name.to_owned()).or_default().push(partition.index());
        }
    }
    let topics = topics.into_iter().map(|(name, mut partitions)| {
        partitions.sort_unstable();
        TopicData::default().with_topic(TopicName(text(name))).with_partitions(partitions)
    });
    Ok(TransactionState::default()
        .with_transaction_state(text(held.state.name()))
        .with_transaction_timeout_ms(held.timeout_ms)
        .with_transaction_start_time_ms(held.started_at)
        .with_producer_id(ProducerId(held.producer.producer_id))
        .with_producer_epoch(held.producer.producer_epoch)
        .with_topics(topics.collect()))
}
