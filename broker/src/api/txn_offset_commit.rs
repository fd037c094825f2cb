//! TxnOffsetCommit, versions 0 to 5: offsets of a group that a transaction carries. They are the
//! group's when the transaction is committed, and until then held for it. The group must have been
//! added to the transaction; from 5 on it is added by this. Each partition stands by itself.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{ApiKey, TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use tidelog::{GroupMembership, GroupOffset, Partition};

use super::group_parts::granted;
use super::offset_commit::group_offset;
use super::request::{Api, Asked, Closing, Reply, reply};
use super::transactions::{Knows, allowed, fault, identity};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{I16, I32, I64, TEXT, TEXT_OR_NULL, field, list, plain, since};
use crate::wire::shape::{Body, Struct};

pub(super) struct TxnOffsetCommit;

impl Api for TxnOffsetCommit {
    type Request = TxnOffsetCommitRequest;
    const KEY: ApiKey = ApiKey::TxnOffsetCommit;
    const VERSIONS: (i16, i16) = (0, 5);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;

    async fn reply(asked: Asked<'_>, request: TxnOffsetCommitRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 3,
    body: plain(&[
        field(TEXT),
        field(TEXT),
        field(I64),
        field(I16),
        since(3, I32),
        since(3, TEXT),
        since(3, TEXT_OR_NULL),
        field(list(&TXN_OFFSET_TOPIC)),
    ]),
};
const TXN_OFFSET_TOPIC: Struct = plain(&[field(TEXT), field(list(&TXN_OFFSET_PARTITION))]);
const TXN_OFFSET_PARTITION: Struct =
    plain(&[field(I32), field(I64), since(2, I32), field(TEXT_OR_NULL)]);

/// The first version that knows TRANSACTION_ABORTABLE.
const WITH_ABORTABLE: i16 = 4;
/// The first version that adds the group.
const ADDS_GROUP: i16 = 5;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let locks = context.groups.lock_offsets(std::iter::once(request.group_id.as_str())).await;
    let session = session.clone();
    let work = move |context: &Context| {
        let _locks = locks;
        stage(context, &session, version, &request)
    };
    off_the_loop(context, work).await
}

fn stage(
    context: &Context,
    session: &Session,
    version: i16,
    request: &TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    if let Err(fault) = allowed(session, &request.transactional_id) {
        return answered(&request.topics, |_, _| fault.code);
    }
    if let Err(error) = granted(session, Action::GroupRead, &request.group_id) {
        return answered(&request.topics, |_, _| error.code());
    }
    let find = |topic: &TxnOffsetCommitRequestTopic, at: &TxnOffsetCommitRequestPartition| {
        let topic = context.topic(&session.access, Action::KafkaRead, &topic.name)?;
        topic.partition(at.partition_index).map_err(|_| Fault::unknown())
    };
    let asked = request
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| (topic, partition)));
    let offsets =
        asked.filter_map(|(topic, at)| Some((find(topic, at).ok()?, offset_of(at).ok()?)));
    let offsets: Vec<(Partition, GroupOffset)> = offsets.collect();
    let staged = check_member(context, request).and_then(|()| {
        let (id, group) = (&request.transactional_id, &request.group_id);
        let producer = identity(request.producer_id, request.producer_epoch);
        let membership = match version {
            ADDS_GROUP.. => GroupMembership::Implied,
            _ => GroupMembership::Required,
        };
        let staged =
            context.engine.producers().stage_offsets(id, producer, group, offsets, membership);
        let knows = Knows { fenced: false, abortable: version >= WITH_ABORTABLE };
        staged.map_err(|error| fault(&error, knows))
    });
    answered(&request.topics, |topic, at| {
        let outcome = find(topic, at).and_then(|_| staged.clone()).and_then(|()| offset_of(at));
        outcome.err().map_or(0, |fault| fault.code)
    })
}

fn offset_of(asked: &TxnOffsetCommitRequestPartition) -> Result<GroupOffset, Fault> {
    let metadata = asked.committed_metadata.as_deref();
    group_offset(asked.committed_offset, asked.committed_leader_epoch, metadata)
}

/// Whether who asks may commit for the group.
fn check_member(context: &Context, request: &TxnOffsetCommitRequest) -> Result<(), Fault> {
    if request.group_id.is_empty() {
        return Err(Fault::new(ResponseError::InvalidGroupId, "the name of a group is empty"));
    }
    let checked = context.groups.check_member(
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    );
    checked.map_err(|error| Fault::new(error, "it is no member of the present generation"))
}

fn answered(
    topics: &[TxnOffsetCommitRequestTopic],
    code: impl Fn(&TxnOffsetCommitRequestTopic, &TxnOffsetCommitRequestPartition) -> i16,
) -> TxnOffsetCommitResponse {
    let topics = topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code(topic, partition))
        });
        TxnOffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}
