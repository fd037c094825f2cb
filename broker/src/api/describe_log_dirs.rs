//! DescribeLogDirs, versions 1 to 5: the one directory of the log, its disk, and the sizes of
//! partitions: all of them, or those that are asked for. Which topics are left out says who may
//! describe what; a partition that is not there is left out too. A partition's size is that of the
//! batches that can be read, since segments are shared by all.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{
    ApiKey, DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName,
};
use tidelog::TopicDescription;

use super::request::{Answer, Api, Asked, Closing, Reply, encode, text};
use crate::context::{Context, Session, off_the_loop};
use crate::security::Action;
use crate::wire::budget::Held;
use crate::wire::fields::{ALWAYS, I32, TEXT, field, plain, values};
use crate::wire::head::Start;
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct DescribeLogDirs;

impl Api for DescribeLogDirs {
    type Request = DescribeLogDirsRequest;
    const KEY: ApiKey = ApiKey::DescribeLogDirs;
    const VERSIONS: (i16, i16) = (1, 5);
    const SHAPE: &'static Body = &BODY;
    const IS_LIST: bool = true;
    const DECODED_AS: i16 = DECODED_AS;

    async fn reply(asked: Asked<'_>, request: DescribeLogDirsRequest) -> Result<Reply, Closing> {
        Ok(reply(asked.context, &asked.peer.session, asked.start, request).await)
    }
}

const BODY: Body = Body {
    flexible_since: 2,
    body: plain(&[field(Shape::Structs(ALWAYS, &DESCRIBE_LOG_DIRS_TOPIC))]),
};
const DESCRIBE_LOG_DIRS_TOPIC: Struct = plain(&[field(TEXT), field(values(&I32))]);

/// Version 5 has one more field in each result: whether the directory is cordoned.
const DECODED_AS: i16 = 4;

async fn reply(
    context: &Arc<Context>,
    session: &Session,
    start: Start,
    request: DescribeLogDirsRequest,
) -> Reply {
    let session = session.clone();
    let response = off_the_loop(context, move |cx| describe(cx, &session, &request)).await;
    let decoded_as = Start { version: start.version.min(DECODED_AS), ..start };
    let mut bytes = encode(decoded_as, &response);
    if start.version > DECODED_AS {
        bytes = with_cordoned(&bytes);
    }
    Reply::Answer(Answer { bytes, then_close: false, held: Held::default() })
}

/// The answer of version 4 as one of version 5. There is one result, and it is the last thing in
/// the answer: behind it are two empty lists of tags, one byte each, and before them the new field.
fn with_cordoned(bytes: &[u8]) -> bytes::Bytes {
    let mut longer = BytesMut::with_capacity(bytes.len() + 1);
    longer.put_slice(bytes);
    // Not cordoned is 0, as the two bytes behind it are.
    longer.put_u8(0);
    let length = i32::try_from(longer.len() - 4).expect("an answer is far below two GiB");
    longer[..4].copy_from_slice(&length.to_be_bytes());
    longer.freeze()
}

fn describe(
    context: &Context,
    session: &Session,
    request: &DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let found = context.engine.log_space();
    let result = match &found {
        Ok(space) => DescribeLogDirsResult::default()
            .with_log_dir(text(whole_path(&space.directory)))
            .with_topics(topics(context, session, request))
            .with_total_bytes(count(space.total_bytes))
            .with_usable_bytes(count(space.free_bytes)),
        Err(_) => DescribeLogDirsResult::default()
            .with_error_code(ResponseError::KafkaStorageError.code())
            .with_total_bytes(-1)
            .with_usable_bytes(-1),
    };
    DescribeLogDirsResponse::default().with_results(vec![result])
}

fn whole_path(directory: &Path) -> String {
    let whole = std::path::absolute(directory);
    whole.unwrap_or_else(|_| directory.to_owned()).display().to_string()
}

fn count(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn topics(
    context: &Context,
    session: &Session,
    request: &DescribeLogDirsRequest,
) -> Vec<DescribeLogDirsTopic> {
    let Some(asked) = &request.topics else {
        let all = context.engine.topics().list();
        let names = all.iter().map(|topic| topic.name().as_str());
        return names.filter_map(|name| sizes(context, session, name, |_| true)).collect();
    };
    let mut partitions: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for topic in asked {
        partitions.entry(topic.topic.as_str()).or_default().extend(&topic.partitions);
    }
    let found = partitions.into_iter().filter_map(|(name, mut wanted)| {
        wanted.sort_unstable();
        sizes(context, session, name, |index| wanted.binary_search(&index).is_ok())
    });
    found.collect()
}

/// The sizes of a topic's partitions, if any of them is there and may be described.
fn sizes(
    context: &Context,
    session: &Session,
    name: &str,
    is_wanted: impl Fn(i32) -> bool,
) -> Option<DescribeLogDirsTopic> {
    if !session.access.allows(Action::Describe, name) {
        return None;
    }
    let TopicDescription { partitions, .. } = context.engine.topics().describe(name)?;
    let wanted = partitions.iter().filter(|partition| is_wanted(partition.index));
    let sizes: Vec<DescribeLogDirsPartition> = wanted
        .map(|partition| {
            DescribeLogDirsPartition::default()
                .with_partition_index(partition.index)
                .with_partition_size(count(partition.size_bytes))
        })
        .collect();
    let name = TopicName(text(name));
    (!sizes.is_empty())
        .then(|| DescribeLogDirsTopic::default().with_name(name).with_partitions(sizes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;
    use kafka_protocol::messages::ApiKey;
    use kafka_protocol::protocol::Decodable;

    #[test]
    fn version_5_has_the_new_field_before_the_tags_of_the_one_result() {
        let api_key = ApiKey::DescribeLogDirs as i16;
        let start = Start { api_key, version: DECODED_AS, correlation_id: 7 };
        let result = DescribeLogDirsResult::default().with_total_bytes(5).with_usable_bytes(3);
        let response = DescribeLogDirsResponse::default().with_results(vec![result]);
        let old = encode(start, &response);
        let new = with_cordoned(&old);
        assert_eq!(new.len(), old.len() + 1);
        assert_eq!((&new[..4]).get_i32() as usize, new.len() - 4);
        // usable bytes, not cordoned, no tags, no tags
        assert_eq!(new[new.len() - 11..], [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
        let mut body = old.slice(9..);
        let read = DescribeLogDirsResponse::decode(&mut body, DECODED_AS).unwrap();
        assert_eq!((read, body.remaining()), (response, 0));
    }
}
