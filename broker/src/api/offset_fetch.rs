//! OffsetFetch, versions 1 to 9: committed offsets of a group, from 8 of several. Null topics are
//! all that the group has and the user may see; what was never committed is -1, without an error.
//! Who asks for stable offsets (from 7) is told UNSTABLE_OFFSET_COMMIT where a transaction holds
//! one. What is asked for twice is answered once: an answer is far longer than its question.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{ApiKey, OffsetFetchRequest, OffsetFetchResponse, TopicName};
use tidelog::{GroupError, GroupOffset, Partition};

use super::group_parts::GROUPS_AT_A_TIME;
use super::request::{Api, Asked, Closing, Reply, reply, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, sentence};
use crate::security::Action;
use crate::wire::fields::{
    ALWAYS, BOOL, I32, TEXT, TEXT_OR_NULL, field, list, plain, since, until, values,
};
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct OffsetFetch;

impl Api for OffsetFetch {
    type Request = OffsetFetchRequest;
    const KEY: ApiKey = ApiKey::OffsetFetch;
    const VERSIONS: (i16, i16) = (1, 9);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: OffsetFetchRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 6,
    body: plain(&[
        until(7, TEXT),
        until(7, Shape::Structs(Some(2), &OFFSET_FETCH_TOPIC)),
        since(8, list(&OFFSET_FETCH_GROUP)),
        since(7, BOOL),
    ]),
};
const OFFSET_FETCH_TOPIC: Struct = plain(&[field(TEXT), field(values(&I32))]);
const OFFSET_FETCH_GROUP: Struct = plain(&[
    field(TEXT),
    since(9, TEXT_OR_NULL),
    since(9, I32),
    field(Shape::Structs(ALWAYS, &OFFSET_FETCH_TOPIC)),
]);

/// The first version that asks for several groups.
const MANY_GROUPS: i16 = 8;
/// The first version whose answer has a leader epoch.
const WITH_EPOCH: i16 = 5;

/// A topic, and of each of its partitions what was committed.
type Committed = Vec<(TopicName, Vec<(i32, Result<Option<GroupOffset>, Fault>)>)>;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if version >= MANY_GROUPS {
        return OffsetFetchResponse::default().with_groups(groups(context, session, request).await);
    }
    // What a member was allowed to commit before is seen.
    let locks = context.groups.lock_offsets(std::iter::once(request.group_id.as_str())).await;
    let session = session.clone();
    let work = move |context: &Context| {
        let _locks = locks;
        one_group(context, &session, version, &request)
    };
    off_the_loop(context, work).await
}

fn one_group(
    context: &Context,
    session: &Session,
    version: i16,
    request: &OffsetFetchRequest,
) -> OffsetFetchResponse {
    let response = OffsetFetchResponse::default();
    let wanted = Wanted { group: &request.group_id, stable: request.require_stable };
    let asked = request.topics.as_ref().map(|topics| {
        topics.iter().map(|topic| (&topic.name, topic.partition_indexes.as_slice())).collect()
    });
    match committed(context, session, wanted, asked) {
        Ok(found) => response.with_topics(single(version, found)),
        Err(fault) if version >= 2 => response.with_error_code(fault.code),
        Err(_) => response,
    }
}

/// Several groups, some at a time: who commits offsets of others does not wait for all of them.
async fn groups(
    context: &Arc<Context>,
    session: &Session,
    request: OffsetFetchRequest,
) -> Vec<OffsetFetchResponseGroup> {
    let stable = request.require_stable;
    let mut seen = HashSet::new();
    let mut left = request.groups.into_iter().filter(|group| seen.insert(group.group_id.clone()));
    let mut answers = Vec::new();
    loop {
        let some: Vec<_> = left.by_ref().take(GROUPS_AT_A_TIME).collect();
        if some.is_empty() {
            return answers;
        }
        let names = some.iter().map(|group| group.group_id.as_str());
        let locks = context.groups.lock_offsets(names).await;
        let session = session.clone();
        let work = move |context: &Context| -> Vec<_> {
            let _locks = locks;
            some.iter().map(|group| of_several(context, &session, stable, group)).collect()
        };
        answers.extend(off_the_loop(context, work).await);
    }
}

fn of_several(
    context: &Context,
    session: &Session,
    stable: bool,
    group: &OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    let answer = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
    let wanted = Wanted { group: &group.group_id, stable };
    let asked = group.topics.as_ref().map(|topics| {
        topics.iter().map(|topic| (&topic.name, topic.partition_indexes.as_slice())).collect()
    });
    match committed(context, session, wanted, asked) {
        Ok(found) => answer.with_topics(several(found)),
        Err(fault) => answer.with_error_code(fault.code),
    }
}

/// Whose offsets are wanted, and whether only those that no open transaction may change.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    group: &'a str,
    stable: bool,
}

impl Wanted<'_> {
    fn check(&self, context: &Context, partition: &Partition) -> Result<(), Fault> {
        if self.stable && context.engine.group(self.group).is_offset_staged(partition) {
            let message = "an open transaction holds an offset of the group for this partition";
            return Err(Fault::new(ResponseError::UnstableOffsetCommit, message));
        }
        Ok(())
    }
}

fn committed(
    context: &Context,
    session: &Session,
    wanted: Wanted<'_>,
    asked: Option<Vec<(&TopicName, &[i32])>>,
) -> Result<Committed, Fault> {
    let group = wanted.group;
    let Some(asked) = asked else { return all(context, session, wanted) };
    let mut topics = Committed::new();
    let mut seen = HashSet::new();
    for (name, indices) in asked {
        let allowed = session.access.allows(Action::Describe, name);
        let topic = context.engine.topic(name.as_str());
        let mut partitions = Vec::new();
        for &index in indices.iter().filter(|index| seen.insert((name, **index))) {
            let partition = topic.as_ref().and_then(|topic| topic.partition(index).ok());
            let found = match partition {
                _ if !allowed => Err(Fault::not_allowed()),
                None => Ok(None),
                Some(at) => match wanted.check(context, &at) {
                    Ok(()) => Ok(context.engine.group(group).offset(&at).map_err(unavailable)?),
                    Err(fault) => Err(fault),
                },
            };
            partitions.push((index, found));
        }
        topics.push((name.clone(), partitions));
    }
    Ok(topics)
}

fn all(context: &Context, session: &Session, wanted: Wanted<'_>) -> Result<Committed, Fault> {
    let mut topics = Committed::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (partition, offset) in context.engine.group(wanted.group).offsets().map_err(unavailable)? {
        let topic = partition.topic();
        let name = topic.name().as_str();
        if !session.access.allows(Action::Describe, name) {
            continue;
        }
        let place = *places.entry(name.to_owned()).or_insert_with(|| {
            topics.push((TopicName(text(name)), Vec::new()));
            topics.len() - 1
        });
        let found = match wanted.check(context, &partition) {
            // A transaction that ended between has made another one the group's.
            Ok(()) if wanted.stable => {
                Ok(context.engine.group(wanted.group).offset(&partition).map_err(unavailable)?)
            }
            Ok(()) => Ok(Some(offset)),
            Err(fault) => Err(fault),
        };
        topics[place].1.push((partition.index(), found));
    }
    Ok(topics)
}

/// What a client is told of offsets that could not be kept or read.
pub(super) fn unavailable(error: GroupError) -> Fault {
    let code = match error {
        GroupError::TooLong(_) => ResponseError::InvalidGroupId,
        _ => ResponseError::CoordinatorNotAvailable,
    };
    Fault::new(code, sentence(&error))
}

/// The fields of one partition's answer: offset, leader epoch, metadata, code.
fn fields(found: Result<Option<GroupOffset>, Fault>) -> (i64, i32, String, i16) {
    match found {
        Ok(Some(found)) => (found.offset, found.leader_epoch, found.metadata, 0),
        Ok(None) => (-1, -1, String::new(), 0),
        Err(fault) => (-1, -1, String::new(), fault.code),
    }
}

fn single(version: i16, found: Committed) -> Vec<OffsetFetchResponseTopic> {
    let topics = found.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, found)| {
            let (offset, epoch, metadata, code) = fields(found);
            OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(if version >= WITH_EPOCH { epoch } else { -1 })
                .with_metadata(Some(text(metadata)))
                .with_error_code(code)
        });
        OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions.collect())
    });
    topics.collect()
}

fn several(found: Committed) -> Vec<OffsetFetchResponseTopics> {
    let topics = found.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, found)| {
            let (offset, epoch, metadata, code) = fields(found);
            OffsetFetchResponsePartitions::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(epoch)
                .with_metadata(Some(text(metadata)))
                .with_error_code(code)
        });
        OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions.collect())
    });
    topics.collect()
}
