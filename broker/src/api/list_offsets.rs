//! ListOffsets, versions 1 to 11: the offset at a time, or at one of the special values: -1 latest,
//! -2 earliest, -3 the largest timestamp (from 7), -4 earliest local (from 8), -5 latest tiered
//! (from 9) and -6 earliest that waits for a tier (from 11); without tiers the last two are none.
//! Other values are UNSUPPORTED_VERSION, a partition asked for twice is INVALID_REQUEST.

use std::collections::HashMap;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ApiKey, ListOffsetsRequest, ListOffsetsResponse, TopicName};
use tidelog::{FoundOffset, ListOffsetError, OffsetQuery, Partition};

use super::fetch::{check_epoch, isolation_of, storage_fault};
use super::request::{Api, Asked, Closing, Reply, reply};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{I8, I32, I64, TEXT, field, list, plain, since};
use crate::wire::head::Start;
use crate::wire::shape::{Body, Struct};

pub(super) struct ListOffsets;

impl Api for ListOffsets {
    type Request = ListOffsetsRequest;
    const KEY: ApiKey = ApiKey::ListOffsets;
    const VERSIONS: (i16, i16) = (1, 11);
    const SHAPE: &'static Body = &BODY;
    const DECODED_AS: i16 = DECODED_AS;

    async fn reply(asked: Asked<'_>, request: ListOffsetsRequest) -> Result<Reply, Closing> {
        answer(asked, request).await
    }
}

const BODY: Body = Body {
    flexible_since: 6,
    body: plain(&[field(I32), since(2, I8), field(list(&LIST_OFFSETS_TOPIC)), since(10, I32)]),
};
const LIST_OFFSETS_TOPIC: Struct = plain(&[field(TEXT), field(list(&LIST_OFFSETS_PARTITION))]);
const LIST_OFFSETS_PARTITION: Struct = plain(&[field(I32), since(4, I32), field(I64)]);

/// Version 11 has the layout of 10; only a special value is new in it.
const DECODED_AS: i16 = 10;
/// The first version whose answer has a leader epoch.
const WITH_EPOCH: i16 = 4;
/// The special value that asks for the record with the largest timestamp.
const LARGEST_TIMESTAMP: i64 = -3;

async fn answer(asked: Asked<'_>, request: ListOffsetsRequest) -> Result<Reply, Closing> {
    let (context, version) = (asked.context, asked.start.version);
    let mut wish = asked.wish();
    let (session, isolation) = (asked.peer.session.clone(), request.isolation_level);
    let work = move |context: &Context| look_up(context, &session, version, &request);
    let mut topics = off_the_loop(context, work).await;
    // A record is looked for in its batch, which may be many MiB once it is decompressed: each in
    // a turn of its own, so that who asks for one does not wait for those who ask for very many.
    for (_, answer) in topics.iter_mut().flat_map(|(_, answers)| answers) {
        let Found::Later(partition, query) = answer else { continue };
        wish.check()?;
        let (partition, query) = (partition.clone(), *query);
        let _turn = tokio::select! {
            turn = context.lookups.acquire() => turn.expect("the semaphore is never closed"),
            closing = wish.end() => return Err(closing),
        };
        let work = move |context: &Context| find(context, &partition, query, isolation);
        *answer = Found::Now(off_the_loop(context, work).await);
    }
    let topics = topics.into_iter().map(|(name, answers)| {
        let answers = answers.into_iter().map(|(index, found)| {
            let found = match found {
                Found::Now(found) => found,
                Found::Later(..) => Err(Fault::unknown()),
            };
            partition_answer(version, index, found)
        });
        ListOffsetsTopicResponse::default().with_name(name).with_partitions(answers.collect())
    });
    let response = ListOffsetsResponse::default().with_topics(topics.collect());
    let start = Start { version: version.min(DECODED_AS), ..asked.start };
    Ok(reply(start, &response))
}

/// What is known of a partition's offset.
enum Found {
    Now(Result<Option<FoundOffset>, Fault>),
    /// Records have to be read for it.
    Later(Partition, OffsetQuery),
}

/// Answers all that no records have to be read for.
fn look_up(
    context: &Context,
    session: &Session,
    version: i16,
    request: &ListOffsetsRequest,
) -> Vec<(TopicName, Vec<(i32, Found)>)> {
    let mut times_asked: HashMap<(&str, i32), usize> = HashMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            *times_asked.entry((topic.name.as_str(), partition.partition_index)).or_default() += 1;
        }
    }
    let mut topics = Vec::new();
    for topic in &request.topics {
        let mut answers = Vec::new();
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let found = match times_asked.remove(&(topic.name.as_str(), index)) {
                None => continue,
                Some(1) => one(context, session, version, request, &topic.name, partition)
                    .unwrap_or_else(|fault| Found::Now(Err(fault))),
                Some(_) => {
                    Found::Now(Err(Fault::invalid_request("the partition is asked for twice")))
                }
            };
            answers.push((index, found));
        }
        topics.push((topic.name.clone(), answers));
    }
    topics
}

fn partition_answer(
    version: i16,
    index: i32,
    found: Result<Option<FoundOffset>, Fault>,
) -> ListOffsetsPartitionResponse {
    let answer = ListOffsetsPartitionResponse::default().with_partition_index(index);
    match found {
        Err(fault) => answer.with_error_code(fault.code),
        Ok(None) => answer,
        Ok(Some(found)) => {
            let epoch = if version >= WITH_EPOCH { found.leader_epoch } else { -1 };
            answer
                .with_timestamp(found.timestamp)
                .with_offset(found.offset)
                .with_leader_epoch(epoch)
        }
    }
}

fn one(
    context: &Context,
    session: &Session,
    version: i16,
    request: &ListOffsetsRequest,
    topic: &str,
    asked: &ListOffsetsPartition,
) -> Result<Found, Fault> {
    let topic = context.topic(&session.access, Action::Describe, topic)?;
    isolation_of(request.isolation_level)?;
    let query = query(asked.timestamp, version)?;
    let partition = topic.partition(asked.partition_index).map_err(|_| Fault::unknown())?;
    check_epoch(context, &partition, asked.current_leader_epoch)?;
    let Some(query) = query else { return Ok(Found::Now(Ok(None))) };
    if is_by_time(asked.timestamp) {
        return Ok(Found::Later(partition, query));
    }
    Ok(Found::Now(find(context, &partition, query, request.isolation_level)))
}

fn find(
    context: &Context,
    partition: &Partition,
    query: OffsetQuery,
    isolation: i8,
) -> Result<Option<FoundOffset>, Fault> {
    let isolation = isolation_of(isolation)?;
    let found = context.engine.list_offset(partition, query, isolation, context.rules.visibility());
    found.map_err(|error| list_fault(&error))
}

/// Whether records have to be read to answer.
fn is_by_time(timestamp: i64) -> bool {
    timestamp >= 0 || timestamp == LARGEST_TIMESTAMP
}

/// What a timestamp asks for; `None`: a tier that is not there.
fn query(timestamp: i64, version: i16) -> Result<Option<OffsetQuery>, Fault> {
    Ok(match timestamp {
        -1 => Some(OffsetQuery::Latest),
        -2 => Some(OffsetQuery::Earliest),
        LARGEST_TIMESTAMP if version >= 7 => Some(OffsetQuery::MaxTimestamp),
        -4 if version >= 8 => Some(OffsetQuery::Earliest),
        -5 if version >= 9 => None,
        -6 if version >= 11 => None,
        0.. => Some(OffsetQuery::Timestamp(timestamp)),
        _ => {
            let message = format!("a special value that this version has not: value={timestamp}");
            return Err(Fault::new(ResponseError::UnsupportedVersion, message));
        }
    })
}

fn list_fault(error: &ListOffsetError) -> Fault {
    match error {
        ListOffsetError::UnknownPartition { .. } => Fault::unknown(),
        ListOffsetError::Storage(error) => storage_fault(error),
        _ => Fault::storage(error),
    }
}
