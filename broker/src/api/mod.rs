//! Which APIs are served, in which versions, and the way from a request to its answer.

mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod alter_configs;
mod api_versions;
mod configs;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_transactions;
mod end_txn;
mod fetch;
mod fetch_parts;
mod find_coordinator;
mod group_parts;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod produce_parts;
mod sasl_authenticate;
mod sasl_handshake;
mod sync_group;
mod transactions;
mod txn_offset_commit;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use tokio::sync::Notify;

use crate::context::{Context, Session};
use crate::profile::Profile;
use crate::security::sasl::SaslState;
use crate::wire::budget::Held;
use crate::wire::head::{self, Start};
use crate::wire::shape::{self, Malformed};
use crate::wire::shapes;
use crate::wire::text::{MAX_TEXT_BYTES, cut};

/// An API that is served.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// Which one.
    pub key: ApiKey,
    /// The lowest version that clients are told of.
    pub advertised: i16,
    /// The lowest version that is served.
    pub min: i16,
    /// The highest.
    pub max: i16,
    /// Whether only the profile kafka has it.
    pub kafka_only: bool,
}

impl Served {
    /// Whether brokers of this profile serve it.
    #[must_use]
    pub fn is_in(&self, profile: Profile) -> bool {
        !self.kafka_only || profile == Profile::Kafka
    }
}

const fn served(key: ApiKey, versions: (i16, i16)) -> Served {
    Served { key, advertised: versions.0, min: versions.0, max: versions.1, kafka_only: false }
}

const fn kafka_only(key: ApiKey, versions: (i16, i16)) -> Served {
    Served { kafka_only: true, ..served(key, versions) }
}

/// Every API that is served, by key.
pub const SERVED: [Served; 36] = [
    Served { advertised: produce::ADVERTISED, ..served(ApiKey::Produce, produce::VERSIONS) },
    served(ApiKey::Fetch, fetch::VERSIONS),
    served(ApiKey::ListOffsets, list_offsets::VERSIONS),
    served(ApiKey::Metadata, metadata::VERSIONS),
    served(ApiKey::OffsetCommit, offset_commit::VERSIONS),
    served(ApiKey::OffsetFetch, offset_fetch::VERSIONS),
    served(ApiKey::FindCoordinator, find_coordinator::VERSIONS),
    served(ApiKey::JoinGroup, join_group::VERSIONS),
    served(ApiKey::Heartbeat, heartbeat::VERSIONS),
    served(ApiKey::LeaveGroup, leave_group::VERSIONS),
    served(ApiKey::SyncGroup, sync_group::VERSIONS),
    served(ApiKey::DescribeGroups, describe_groups::VERSIONS),
    served(ApiKey::ListGroups, list_groups::VERSIONS),
    served(ApiKey::SaslHandshake, sasl_handshake::VERSIONS),
    served(ApiKey::ApiVersions, api_versions::VERSIONS),
    served(ApiKey::CreateTopics, create_topics::VERSIONS),
    served(ApiKey::DeleteTopics, delete_topics::VERSIONS),
    served(ApiKey::DeleteRecords, delete_records::VERSIONS),
    kafka_only(ApiKey::InitProducerId, init_producer_id::VERSIONS),
    served(ApiKey::OffsetForLeaderEpoch, offset_for_leader_epoch::VERSIONS),
    kafka_only(ApiKey::AddPartitionsToTxn, add_partitions_to_txn::VERSIONS),
    kafka_only(ApiKey::AddOffsetsToTxn, add_offsets_to_txn::VERSIONS),
    kafka_only(ApiKey::EndTxn, end_txn::VERSIONS),
    kafka_only(ApiKey::TxnOffsetCommit, txn_offset_commit::VERSIONS),
    served(ApiKey::DescribeConfigs, describe_configs::VERSIONS),
    served(ApiKey::AlterConfigs, alter_configs::VERSIONS),
    served(ApiKey::DescribeLogDirs, describe_log_dirs::VERSIONS),
    served(ApiKey::SaslAuthenticate, sasl_authenticate::VERSIONS),
    served(ApiKey::CreatePartitions, create_partitions::VERSIONS),
    served(ApiKey::DeleteGroups, delete_groups::VERSIONS),
    served(ApiKey::IncrementalAlterConfigs, incremental_alter_configs::VERSIONS),
    served(ApiKey::OffsetDelete, offset_delete::VERSIONS),
    served(ApiKey::DescribeCluster, describe_cluster::VERSIONS),
    kafka_only(ApiKey::DescribeProducers, describe_producers::VERSIONS),
    kafka_only(ApiKey::DescribeTransactions, describe_transactions::VERSIONS),
    kafka_only(ApiKey::ListTransactions, list_transactions::VERSIONS),
];

/// Topics that Kafka keeps for itself; here there are none, and none can be made by these names.
const INTERNAL_TOPICS: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// The most partitions that one request may make.
const MAX_NEW_PARTITIONS: i64 = 10_000;

/// What becomes of a request.
#[derive(Debug)]
pub enum Reply {
    /// It is answered.
    Answer(Answer),
    /// It wants no answer.
    Nothing,
    /// The connection is closed, for this reason.
    Close(Closing),
}

/// The bytes of an answer, with their length in front.
#[derive(Debug)]
pub struct Answer {
    /// What is sent.
    pub bytes: Bytes,
    /// Whether the connection is closed behind it.
    pub then_close: bool,
    /// The memory that the answer holds until it is sent.
    pub held: Held,
}

/// Why a connection is closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// An API that is not served, or not in this version.
    NotServed(Start),
    /// The request cannot be read.
    Malformed(Start, Malformed),
    /// Others hold all memory for too long.
    NoMemory(Start),
    /// There are not even the eight bytes that every request begins with.
    NoHead,
    /// A request that has no place before the login.
    NotLoggedIn(Start),
    /// A producer that wants no answer was refused, and is told so in the only way there is.
    RefusedWithoutAnswer,
}

/// One connection, as the APIs know it.
#[derive(Debug)]
pub struct Peer {
    /// What it may do.
    pub session: Session,
    /// Where its login stands.
    pub sasl: SaslState,
    /// Told when the client has gone away, so that nothing waits for it.
    pub gone: Arc<Notify>,
    /// Where the client is, as Kafka writes it.
    pub host: String,
    /// What the client calls itself in the request under way.
    pub client_id: String,
}

/// Answers one request.
pub async fn answer(context: &Arc<Context>, peer: &mut Peer, mut frame: Bytes) -> Reply {
    let Ok(start) = head::take_start(&mut frame) else { return Reply::Close(Closing::NoHead) };
    match route(context, peer, start, frame).await {
        Ok(reply) => reply,
        Err(closing) => Reply::Close(closing),
    }
}

async fn route(
    context: &Arc<Context>,
    peer: &mut Peer,
    start: Start,
    mut frame: Bytes,
) -> Result<Reply, Closing> {
    let version = start.version;
    let served = SERVED
        .iter()
        .find(|served| served.key as i16 == start.api_key)
        .filter(|served| served.is_in(context.rules.profile))
        .ok_or(Closing::NotServed(start))?;
    if !(served.min..=served.max).contains(&version) {
        if served.key == ApiKey::ApiVersions {
            let profile = context.rules.profile;
            return Ok(reply(
                Start { version: 0, ..start },
                &api_versions::unknown_version(profile),
            ));
        }
        return Err(Closing::NotServed(start));
    }
    let before_login = matches!(
        served.key,
        ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate
    );
    if !peer.sasl.is_open() && !before_login {
        return Err(Closing::NotLoggedIn(start));
    }
    let malformed = |fault| Closing::Malformed(start, fault);
    let flexible = served.key.request_header_version(version) >= 2;
    let client_id = head::take_client_id(&mut frame, flexible).map_err(malformed)?;
    peer.client_id = client_id.unwrap_or_default();
    let body = shapes::of(served.key).expect("every served API has a shape");
    let elements = shape::check(body, version, &frame).map_err(malformed)?;
    let held = take(context, start, elements * element_bytes(served.key)).await?;
    // The lists that others make meanwhile are in memory too.
    let turn = if LISTS.contains(&served.key) {
        Some(context.lists.acquire().await.expect("the semaphore is never closed"))
    } else {
        None
    };
    let reply = dispatch(context, peer, start, served.key, frame).await?;
    drop((held, turn));
    let Reply::Answer(mut answer) = reply else { return Ok(reply) };
    answer.held.shrink_to(answer.bytes.len());
    let more = answer.bytes.len().saturating_sub(answer.held.bytes());
    answer.held.merge(take(context, start, more).await?);
    Ok(Reply::Answer(answer))
}

/// Memory for a request that is decoded and answered, or for its answer while it is sent.
async fn take(context: &Context, start: Start, bytes: usize) -> Result<Held, Closing> {
    let taken = context.budget.take_within(bytes, context.limits.stall).await;
    taken.ok_or(Closing::NoMemory(start))
}

/// What an element of a request costs in memory while it is answered, about.
fn element_bytes(key: ApiKey) -> usize {
    match key {
        // Each may be a topic with all entries of its configuration.
        ApiKey::DescribeConfigs => 8 * 1024,
        _ => 512,
    }
}

/// The APIs whose answers are as long as there is something to tell, made where no connection
/// waits: only [`crate::context::LISTS_AT_A_TIME`] of them are worked on together.
const LISTS: [ApiKey; 6] = [
    ApiKey::DescribeGroups,
    ApiKey::DescribeLogDirs,
    ApiKey::DescribeProducers,
    ApiKey::DescribeTransactions,
    ApiKey::ListGroups,
    ApiKey::ListTransactions,
];

async fn dispatch(
    cx: &Arc<Context>,
    peer: &mut Peer,
    start: Start,
    key: ApiKey,
    body: Bytes,
) -> Result<Reply, Closing> {
    let (session, version) = (&peer.session, start.version);
    Ok(match key {
        ApiKey::Produce => return produce::reply(cx, session, start, read(start, body)?).await,
        ApiKey::Fetch => return fetch::reply(cx, peer, start, read(start, body)?).await,
        ApiKey::SaslHandshake => sasl_handshake::reply(peer, start, &read(start, body)?),
        ApiKey::SaslAuthenticate => {
            return sasl_authenticate::reply(cx, peer, start, read(start, body)?).await;
        }
        ApiKey::ListOffsets => {
            let start_read = Start { version: version.min(list_offsets::DECODED_AS), ..start };
            let request = read(start_read, body)?;
            reply(start_read, &list_offsets::answer(cx, session, version, request).await)
        }
        ApiKey::Metadata => {
            reply(start, &metadata::answer(cx, session, version, &read(start, body)?))
        }
        ApiKey::OffsetCommit => {
            reply(start, &offset_commit::answer(cx, session, version, read(start, body)?).await)
        }
        ApiKey::OffsetFetch => {
            reply(start, &offset_fetch::answer(cx, session, version, read(start, body)?).await)
        }
        ApiKey::FindCoordinator => {
            reply(start, &find_coordinator::answer(cx, version, &read(start, body)?))
        }
        ApiKey::ApiVersions => {
            reply(start, &api_versions::answer(cx, version, &read(start, body)?))
        }
        ApiKey::CreateTopics => {
            reply(start, &create_topics::answer(cx, session, version, read(start, body)?).await)
        }
        ApiKey::DeleteTopics => {
            reply(start, &delete_topics::answer(cx, session, version, read(start, body)?).await)
        }
        ApiKey::DeleteRecords => {
            reply(start, &delete_records::answer(cx, session, read(start, body)?).await)
        }
        ApiKey::OffsetForLeaderEpoch => {
            reply(start, &offset_for_leader_epoch::answer(cx, session, &read(start, body)?))
        }
        ApiKey::DescribeConfigs => {
            reply(start, &describe_configs::answer(cx, session, &read(start, body)?))
        }
        ApiKey::DescribeLogDirs => {
            let decoded_as = version.min(describe_log_dirs::DECODED_AS);
            let request = read(Start { version: decoded_as, ..start }, body)?;
            return Ok(describe_log_dirs::reply(cx, session, start, request).await);
        }
        ApiKey::AlterConfigs => {
            reply(start, &alter_configs::answer(cx, session, read(start, body)?).await)
        }
        ApiKey::CreatePartitions => {
            reply(start, &create_partitions::answer(cx, session, read(start, body)?).await)
        }
        ApiKey::IncrementalAlterConfigs => {
            reply(start, &incremental_alter_configs::answer(cx, session, read(start, body)?).await)
        }
        ApiKey::DescribeCluster => {
            reply(start, &describe_cluster::answer(cx, version, &read(start, body)?))
        }
        _ => return dispatch_to_groups(cx, peer, start, key, body).await,
    })
}

async fn dispatch_to_groups(
    cx: &Arc<Context>,
    peer: &Peer,
    start: Start,
    key: ApiKey,
    body: Bytes,
) -> Result<Reply, Closing> {
    let version = start.version;
    Ok(match key {
        ApiKey::JoinGroup => {
            reply(start, &join_group::answer(cx, peer, version, read(start, body)?).await)
        }
        ApiKey::SyncGroup => reply(start, &sync_group::answer(cx, peer, read(start, body)?).await),
        ApiKey::Heartbeat => reply(start, &heartbeat::answer(cx, &read(start, body)?)),
        ApiKey::LeaveGroup => reply(start, &leave_group::answer(cx, version, &read(start, body)?)),
        ApiKey::DescribeGroups => {
            reply(start, &describe_groups::answer(cx, version, read(start, body)?).await)
        }
        ApiKey::ListGroups => reply(start, &list_groups::answer(cx, read(start, body)?).await),
        ApiKey::DeleteGroups => reply(start, &delete_groups::answer(cx, read(start, body)?).await),
        ApiKey::OffsetDelete => {
            reply(start, &offset_delete::answer(cx, &peer.session, read(start, body)?).await)
        }
        _ => return dispatch_transactional(cx, &peer.session, start, key, body).await,
    })
}

/// The requests of producers with ids and transactions, and those that look at them.
async fn dispatch_transactional(
    cx: &Arc<Context>,
    session: &Session,
    start: Start,
    key: ApiKey,
    body: Bytes,
) -> Result<Reply, Closing> {
    let version = start.version;
    Ok(match key {
        ApiKey::InitProducerId => {
            reply(start, &init_producer_id::answer(cx, session, version, read(start, body)?).await)
        }
        ApiKey::AddPartitionsToTxn => reply(
            start,
            &add_partitions_to_txn::answer(cx, session, version, read(start, body)?).await,
        ),
        ApiKey::AddOffsetsToTxn => reply(
            start,
            &add_offsets_to_txn::answer(cx, session, version, read(start, body)?).await,
        ),
        ApiKey::EndTxn => {
            reply(start, &end_txn::answer(cx, session, version, read(start, body)?).await)
        }
        ApiKey::TxnOffsetCommit => {
            reply(start, &txn_offset_commit::answer(cx, session, version, read(start, body)?).await)
        }
        ApiKey::DescribeProducers => {
            reply(start, &describe_producers::answer(cx, session, read(start, body)?).await)
        }
        ApiKey::DescribeTransactions => {
            reply(start, &describe_transactions::answer(cx, session, read(start, body)?).await)
        }
        ApiKey::ListTransactions => {
            reply(start, &list_transactions::answer(cx, session, version, read(start, body)?).await)
        }
        _ => return Err(Closing::NotServed(start)),
    })
}

/// Decodes a body that was walked over before.
fn read<T: Decodable>(start: Start, mut body: Bytes) -> Result<T, Closing> {
    T::decode(&mut body, start.version).map_err(|_| Closing::Malformed(start, Malformed::Field))
}

/// Encodes an answer.
fn reply<T: Encodable + HeaderVersion>(start: Start, response: &T) -> Reply {
    Reply::Answer(Answer {
        bytes: encode(start, response),
        then_close: false,
        held: Held::default(),
    })
}

/// ```text
/// length i32 | correlation id i32 | [no tags: 0] | body
/// ```
fn encode<T: Encodable + HeaderVersion>(start: Start, response: &T) -> Bytes {
    let version = start.version;
    let body_bytes = response.compute_size(version).unwrap_or(0);
    let mut bytes = BytesMut::with_capacity(9 + body_bytes);
    bytes.put_i32(0);
    bytes.put_i32(start.correlation_id);
    if T::header_version(version) >= 1 {
        bytes.put_u8(0);
    }
    response
        .encode(&mut bytes, version)
        .expect("an answer sets only the fields that its version has");
    let length = i32::try_from(bytes.len() - 4).expect("an answer is far below two GiB");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes.freeze()
}

/// A string of an answer; no version can say one that is longer than texts may be.
fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(cut(text.into(), MAX_TEXT_BYTES))
}
