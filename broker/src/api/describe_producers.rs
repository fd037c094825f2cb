//! DescribeProducers, version 0: what partitions know of producers. A partition that is asked for
//! twice is answered once: it may know very many.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    ApiKey, DescribeProducersRequest, DescribeProducersResponse, ProducerId,
};

use super::request::{Api, Asked, Closing, Reply, reply, text};
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
        Ok(reply(asked.start, &answer(asked.context, &asked.peer.session, request).await))
    }
}

const BODY: Body = Body { flexible_since: 0, body: plain(&[field(list(&NUMBERED_TOPIC))]) };

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let session = session.clone();
    off_the_loop(context, move |context| describe(context, &session, &request)).await
}

fn describe(
    context: &Context,
    session: &Session,
    request: &DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut seen = HashSet::new();
    let topics = request.topics.iter().map(|topic| {
        let asked = topic.partition_indexes.iter();
        let asked = asked.filter(|index| seen.insert((&topic.name, **index)));
        let partitions = asked.map(|&index| {
            let answer = PartitionResponse::default().with_partition_index(index);
            match producers(context, session, &topic.name, index) {
                Ok(producers) => answer.with_active_producers(producers),
                Err(fault) => {
                    answer.with_error_code(fault.code).with_error_message(Some(text(fault.message)))
                }
            }
        });
        TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

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
