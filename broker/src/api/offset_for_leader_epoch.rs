//! OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ended, so that a client finds out
//! which of its records a power loss took. An epoch that the log never had has neither epoch nor
//! end (-1), without an error.

use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{ApiKey, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use tidelog::EpochEnd;

use super::fetch::check_epoch;
use super::request::{Api, Asked, Closing, Reply, reply};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{I32, TEXT, field, list, plain, since};
use crate::wire::shape::{Body, Struct};

pub(super) struct OffsetForLeaderEpoch;

impl Api for OffsetForLeaderEpoch {
    type Request = OffsetForLeaderEpochRequest;
    const KEY: ApiKey = ApiKey::OffsetForLeaderEpoch;
    const VERSIONS: (i16, i16) = (2, 4);
    const SHAPE: &'static Body = &BODY;

    async fn reply(
        asked: Asked<'_>,
        request: OffsetForLeaderEpochRequest,
    ) -> Result<Reply, Closing> {
        let session = asked.peer.session.clone();
        let work = move |context: &Context| answer(context, &session, &request);
        Ok(reply(asked.start, &off_the_loop(asked.context, work).await))
    }
}

const BODY: Body =
    Body { flexible_since: 4, body: plain(&[since(3, I32), field(list(&LEADER_EPOCH_TOPIC))]) };
const LEADER_EPOCH_TOPIC: Struct = plain(&[field(TEXT), field(list(&LEADER_EPOCH_PARTITION))]);
const LEADER_EPOCH_PARTITION: Struct = plain(&[field(I32), field(I32), field(I32)]);

fn answer(
    context: &Context,
    session: &Session,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let answer = EpochEndOffset::default().with_partition(partition.partition);
            match end(context, session, &topic.topic, partition) {
                Ok(end) => {
                    answer.with_leader_epoch(end.leader_epoch).with_end_offset(end.end_offset)
                }
                Err(fault) => answer.with_error_code(fault.code),
            }
        });
        OffsetForLeaderTopicResult::default()
            .with_topic(topic.topic.clone())
            .with_partitions(partitions.collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn end(
    context: &Context,
    session: &Session,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<EpochEnd, Fault> {
    let topic = context.topic(&session.access, Action::Describe, topic)?;
    let partition = topic.partition(asked.partition).map_err(|_| Fault::unknown())?;
    check_epoch(context, &partition, asked.current_leader_epoch)?;
    let none = EpochEnd { leader_epoch: -1, end_offset: -1 };
    Ok(context.engine.epoch_end(&partition, asked.leader_epoch).unwrap_or(none))
}
