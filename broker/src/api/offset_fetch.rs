//! OffsetFetch, versions 1 to 9: committed offsets of a group, from 8 of several. Null topics are
//! all that the group has and the user may see; what was never committed is -1, without an error.
//! Who asks for stable offsets (from 7) is told UNSTABLE_OFFSET_COMMIT where a transaction holds
//! one. What is asked for twice is answered once: an answer is far longer than its question.

use std::collections::{HashMap, HashSet, VecDeque};

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    ApiKey, GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use tidelog::{GroupError, GroupOffset, Partition};

use super::group_parts::{GROUPS_AT_A_TIME, granted};
use super::memory::Growing;
use super::request::{Api, Asked, Closing, Reply, reply_with, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, sentence};
use crate::security::Action;
use crate::wire::budget::Held;
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
        answer(asked, request).await
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
/// The first version with a code for the group.
const WITH_CODE: i16 = 2;
/// What an offset costs in memory beside its metadata, about.
const OFFSET_BYTES: usize = 200;
/// Once so much was read it is accounted for before more is.
const BYTES_AT_A_TIME: usize = 1024 * 1024;
/// Who asks for no more partitions of a group than this waits for no turn.
const FEW_PARTITIONS: usize = 256;
/// The first version whose answer has a leader epoch.
const WITH_EPOCH: i16 = 5;

/// A topic, and of each of its partitions what was committed.
type Committed = Vec<(TopicName, Vec<(i32, Result<Option<GroupOffset>, Fault>)>)>;

async fn answer(asked: Asked<'_>, request: OffsetFetchRequest) -> Result<Reply, Closing> {
    let (context, start) = (asked.context, asked.start);
    if start.version >= MANY_GROUPS {
        let (found, held) = read(&asked, request.groups, request.require_stable).await?;
        let work = move |_: &Context| {
            let groups = found.into_iter().map(|(group, found)| of_several(group.group_id, found));
            let response = OffsetFetchResponse::default().with_groups(groups.collect());
            reply_with(start, &response, held)
        };
        return Ok(off_the_loop(context, work).await);
    }
    let topics = request.topics.map(|topics| topics.into_iter().map(topic_of_one).collect());
    let group = OffsetFetchRequestGroup::default().with_group_id(request.group_id);
    let groups = vec![group.with_topics(topics)];
    let (found, held) = read(&asked, groups, request.require_stable).await?;
    let work = move |_: &Context| {
        let response = OffsetFetchResponse::default();
        let response = match found.into_iter().next() {
            Some((_, Ok(found))) => response.with_topics(single(start.version, found)),
            Some((_, Err(fault))) if start.version >= WITH_CODE => {
                response.with_error_code(fault.code)
            }
            Some((group, Err(fault))) => response.with_topics(refused(group, &fault)),
            None => response,
        };
        reply_with(start, &response, held)
    };
    Ok(off_the_loop(context, work).await)
}

/// The only group's topics, as one of several groups has them.
fn topic_of_one(topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopics {
    OffsetFetchRequestTopics::default()
        .with_name(topic.name)
        .with_partition_indexes(topic.partition_indexes)
}

/// A group that is asked for, and what was found of it.
type FoundGroup = (OffsetFetchRequestGroup, Result<Committed, Fault>);

/// Reads the offsets of groups, each once, some at a time: who commits offsets of others does not
/// wait for all of them, and nothing is kept that there is no memory for.
async fn read(
    asked: &Asked<'_>,
    groups: Vec<OffsetFetchRequestGroup>,
    stable: bool,
) -> Result<(Vec<FoundGroup>, Held), Closing> {
    let (context, wish) = (asked.context, asked.wish());
    let mut memory = Growing::new(context, asked.start);
    let mut seen = HashSet::new();
    let mut left: VecDeque<_> =
        groups.into_iter().filter(|group| seen.insert(group.group_id.clone())).collect();
    drop(seen);
    let few = left.len() <= GROUPS_AT_A_TIME && left.iter().all(asks_few);
    let mut all = Vec::new();
    while !left.is_empty() {
        wish.check()?;
        let turn = if few {
            None
        } else {
            Some(context.offset_reads.acquire().await.expect("the semaphore is never closed"))
        };
        let names = left.iter().take(GROUPS_AT_A_TIME).map(|group| group.group_id.as_str());
        // What a member was allowed to commit before is seen.
        let locks = context.groups.lock_offsets(names).await;
        let session = asked.peer.session.clone();
        let work = move |context: &Context| {
            let _locks = locks;
            let (mut some, mut bytes) = (Vec::new(), 0);
            while some.len() < GROUPS_AT_A_TIME && bytes < BYTES_AT_A_TIME {
                let Some(group) = left.pop_front() else { break };
                let found = of_group(context, &session, stable, &group);
                bytes += found.as_ref().map_or(0, bytes_of);
                some.push((group, found));
            }
            (left, some, bytes)
        };
        let (rest, some, bytes) = off_the_loop(context, work).await;
        drop(turn);
        memory.grow(bytes).await?;
        all.extend(some);
        left = rest;
    }
    Ok((all, memory.into_held()))
}

/// Whether the answer for a group cannot be long, whatever was committed.
fn asks_few(group: &OffsetFetchRequestGroup) -> bool {
    let topics = group.topics.as_ref();
    topics.is_some_and(|topics| {
        topics.iter().map(|topic| topic.partition_indexes.len()).sum::<usize>() <= FEW_PARTITIONS
    })
}

/// What the offsets of a group cost in memory, about.
fn bytes_of(found: &Committed) -> usize {
    let offset = |found: &Result<Option<GroupOffset>, Fault>| match found {
        Ok(Some(offset)) => OFFSET_BYTES + offset.metadata.len(),
        _ => OFFSET_BYTES,
    };
    let topics = found.iter().map(|(name, partitions)| {
        OFFSET_BYTES + name.len() + partitions.iter().map(|(_, found)| offset(found)).sum::<usize>()
    });
    topics.sum()
}

/// Version 1 says of each partition why nothing is said of it.
fn refused(group: OffsetFetchRequestGroup, fault: &Fault) -> Vec<OffsetFetchResponseTopic> {
    let topics = group.topics.into_iter().flatten().map(|topic| {
        let indices = topic.partition_indexes.into_iter();
        (topic.name, indices.map(|index| (index, Err(fault.clone()))).collect())
    });
    single(1, topics.collect())
}

fn of_several(group: GroupId, found: Result<Committed, Fault>) -> OffsetFetchResponseGroup {
    let answer = OffsetFetchResponseGroup::default().with_group_id(group);
    match found {
        Ok(found) => answer.with_topics(several(found)),
        Err(fault) => answer.with_error_code(fault.code),
    }
}

fn of_group(
    context: &Context,
    session: &Session,
    stable: bool,
    group: &OffsetFetchRequestGroup,
) -> Result<Committed, Fault> {
    let wanted = Wanted { group: &group.group_id, stable };
    let asked = group.topics.as_ref().map(|topics| {
        topics.iter().map(|topic| (&topic.name, topic.partition_indexes.as_slice())).collect()
    });
    committed(context, session, wanted, asked)
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
    granted(session, Action::GroupDescribe, group)
        .map_err(|error| Fault::new(error, "the user has no grant for this group"))?;
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
