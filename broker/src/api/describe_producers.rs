//! DescribeProducers, version 0: what partitions know of producers. A partition that is asked for
//! twice is answered once: it may know very many.

use std::collections::HashSet;

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    ApiKey, DescribeProducersRequest, DescribeProducersResponse, ProducerId,
};

use super::memory::Growing;
use super::request::{Api, Asked, Closing, Reply, reply_with, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{NUMBERED_TOPIC, field, list, plain};
use crate::wire::shape::Body;

pub(super) struct DescribeProducers;

impl Api for DescribeProducers {
    type Request = DescribeProducersRequest;
    const KEY: ApiKey = ApiKey::DescribeProducers;
    const VERSIONS: (i16, i16) = (0, 0);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;
    const IS_LIST: bool = true;

    async fn reply(asked: Asked<'_>, request: DescribeProducersRequest) -> Result<Reply, Closing> {
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

const BODY: Body = Body { flexible_since: 0, body: plain(&[field(list(&NUMBERED_TOPIC))]) };

fn describe(
    context: &Context,
    session: &Session,
    memory: &mut Growing,
    request: &DescribeProducersRequest,
) -> Result<DescribeProducersResponse, Closing> {
    let mut seen = HashSet::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::new();
        for &index in &topic.partition_indexes {
            if !seen.insert((&topic.name, index)) {
                continue;
            }
            let answer = PartitionResponse::default().with_partition_index(index);
            let found = producers(context, session, &topic.name, index);
            memory.add(PRODUCER_BYTES * (1 + found.as_ref().map_or(0, Vec::len)))?;
            partitions.push(match found {
                Ok(producers) => answer.with_active_producers(producers),
                Err(fault) => {
                    answer.with_error_code(fault.code).with_error_message(Some(text(fault.message)))
                }
            });
        }
        let answer = TopicResponse::default().with_name(topic.name.clone());
        topics.push(answer.with_partitions(partitions));
    }
    Ok(DescribeProducersResponse::default().with_topics(topics))
}

/// What a producer costs in memory, about.
const PRODUCER_BYTES: usize = 80;

fn producers(
    context: &Context,
    session: &Session,
    topic: &str,
    index: i32,
) -> Result<Vec<ProducerState>, Fault> {
    let topic = context.topic(&session.access, Action::KafkaRead, topic)?;
    let partition = topic.partition(index).map_err(|_| Fault::unknown())?;
    let producers = context.engine.producers().describe(&partition);
    let states = producers.into_iter().map(|producer| {
        ProducerState::default()
            .with_producer_id(ProducerId(producer.producer_id))
            .with_producer_epoch(i32::from(producer.producer_epoch))
            .with_last_sequence(producer.last_sequence)
            .with_last_timestamp(producer.last_timestamp)
            .with_coordinator_epoch(producer.coordinator_epoch.unwrap_or(-1))
            .with_current_txn_start_offset(producer.open_first_offset.unwrap_or(-1))
    });
    Ok(states.collect())
}
