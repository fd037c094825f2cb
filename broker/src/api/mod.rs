//! The APIs that are served, and the way from a request to its answer.
//!
//! One file an API, each with an `Api` (`request`): the table here is made of them. An API that
//! is not in the table does not compile, since nothing uses it then.

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
mod memory;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod produce_parts;
mod request;
mod sasl_authenticate;
mod sasl_handshake;
mod sync_group;
mod transactions;
mod txn_offset_commit;

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

pub use request::{Answer, Closing, Peer, Reply, Served};
use request::{Asked, reply};

use crate::context::Context;
use crate::security::sasl::SaslState;
use crate::wire::budget::Held;
use crate::wire::head::{self, Start};
use crate::wire::shape;

/// Every API that is served, by key.
pub static SERVED: [Served; 36] = [
    Served::of::<produce::Produce>(),
    Served::of::<fetch::Fetch>(),
    Served::of::<list_offsets::ListOffsets>(),
    Served::of::<metadata::Metadata>(),
    Served::of::<offset_commit::OffsetCommit>(),
    Served::of::<offset_fetch::OffsetFetch>(),
    Served::of::<find_coordinator::FindCoordinator>(),
    Served::of::<join_group::JoinGroup>(),
    Served::of::<heartbeat::Heartbeat>(),
    Served::of::<leave_group::LeaveGroup>(),
    Served::of::<sync_group::SyncGroup>(),
    Served::of::<describe_groups::DescribeGroups>(),
    Served::of::<list_groups::ListGroups>(),
    Served::of::<sasl_handshake::SaslHandshake>(),
    Served::of::<api_versions::ApiVersions>(),
    Served::of::<create_topics::CreateTopics>(),
    Served::of::<delete_topics::DeleteTopics>(),
    Served::of::<delete_records::DeleteRecords>(),
    Served::of::<init_producer_id::InitProducerId>(),
    Served::of::<offset_for_leader_epoch::OffsetForLeaderEpoch>(),
    Served::of::<add_partitions_to_txn::AddPartitionsToTxn>(),
    Served::of::<add_offsets_to_txn::AddOffsetsToTxn>(),
    Served::of::<end_txn::EndTxn>(),
    Served::of::<txn_offset_commit::TxnOffsetCommit>(),
    Served::of::<describe_configs::DescribeConfigs>(),
    Served::of::<alter_configs::AlterConfigs>(),
    Served::of::<describe_log_dirs::DescribeLogDirs>(),
    Served::of::<sasl_authenticate::SaslAuthenticate>(),
    Served::of::<create_partitions::CreatePartitions>(),
    Served::of::<delete_groups::DeleteGroups>(),
    Served::of::<incremental_alter_configs::IncrementalAlterConfigs>(),
    Served::of::<offset_delete::OffsetDelete>(),
    Served::of::<describe_cluster::DescribeCluster>(),
    Served::of::<describe_producers::DescribeProducers>(),
    Served::of::<describe_transactions::DescribeTransactions>(),
    Served::of::<list_transactions::ListTransactions>(),
];

/// Answers one request, which holds this memory.
pub async fn answer(
    context: &Arc<Context>,
    peer: &mut Peer,
    mut frame: Bytes,
    held: Held,
) -> Reply {
    if peer.sasl == SaslState::ShakenForBareToken {
        let answered = sasl_authenticate::reply_bare(context, peer, &frame).await;
        return answered.unwrap_or_else(Reply::Close);
    }
    let Ok(start) = head::take_start(&mut frame) else { return Reply::Close(Closing::NoHead) };
    match route(context, peer, start, frame, held).await {
        Ok(reply) => reply,
        Err(closing) => Reply::Close(closing),
    }
}

async fn route(
    context: &Arc<Context>,
    peer: &mut Peer,
    start: Start,
    mut frame: Bytes,
    mut held: Held,
) -> Result<Reply, Closing> {
    let version = start.version;
    let served = SERVED
        .iter()
        .find(|served| served.key as i16 == start.api_key)
        .filter(|served| served.is_in(context.rules.profile))
        .ok_or(Closing::NotServed(start))?;
    if !(served.min..=served.max).contains(&version) {
        if served.key == ApiKey::ApiVersions {
            let known = Start { version: 0, ..start };
            let list = api_versions::unknown_version(&SERVED, context.rules.profile);
            return Ok(reply(known, &list));
        }
        return Err(Closing::NotServed(start));
    }
    if !peer.sasl.is_open() && !served.before_login {
        return Err(Closing::NotLoggedIn(start));
    }
    let malformed = |fault| Closing::Malformed(start, fault);
    let flexible = served.key.request_header_version(version) >= 2;
    let client_id = head::take_client_id(&mut frame, flexible).map_err(malformed)?;
    peer.client_id = client_id.unwrap_or_default();
    let elements = shape::check(served.shape, version, &frame).map_err(malformed)?;
    held.merge(take(context, start, elements * served.element_bytes).await?);
    // The lists that others make meanwhile are in memory too.
    let turn = if served.is_list {
        Some(context.lists.acquire().await.expect("the semaphore is never closed"))
    } else {
        None
    };
    let asked = Asked { context, peer, start, held, apis: &SERVED };
    let reply = (served.reply)(asked, frame).await?;
    drop(turn);
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
