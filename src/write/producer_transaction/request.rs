//! The requests of producers: ids, partitions, groups and offsets of a transaction, and its end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::change::{Fresh, Request, carry_out};
use super::error::ProducerError;
use crate::base::types::{PartitionId, ProducerId, ProducerIdentity};
use crate::core::{GroupOffset, Shared, check_lengths, last_of_each, staged_place};
use crate::record::MarkerKind;
use crate::state::catalog::Partition;
use crate::state::producer::transaction::{
    self, EndProtocol, InitRequest, ProducerTransactionError, check_transactional_id,
};

/// How a producer asks for a transactional id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitProducer {
    /// How long its transactions may be open, in milliseconds.
    pub timeout_ms: i32,
    /// Who the producer has been, where it wants to go on after an error (KIP-360). Without it,
    /// whoever held the transactional id is fenced.
    pub expected: Option<ProducerIdentity>,
}

/// Whether a consumer group must have been added to a transaction before the transaction holds
/// offsets of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupMembership {
    /// It must, as in Kafka's `TxnOffsetCommit` up to version 4.
    Required,
    /// It is added by the request itself, as from version 5 on.
    Implied,
}

/// A producer id that was never given before, also across power loss, for a producer without a
/// transactional id.
///
/// # Errors
/// [`ProducerError::ProducerId`].
pub fn new_producer_id(shared: &Arc<Shared>) -> Result<ProducerId, ProducerError> {
    shared.check_open().map_err(ProducerError::NotWritten)?;
    Ok(shared.draw_producer_id()?)
}

/// Gives a transactional id to a producer, and fences whoever held it.
///
/// # Errors
/// [`ProducerError`]; [`ProducerTransactionError::ConcurrentTransactions`] where a transaction was
/// open and is aborted now: the request may be sent again.
pub fn init_producer(
    shared: &Arc<Shared>,
    id: &str,
    init: InitProducer,
) -> Result<ProducerIdentity, ProducerError> {
    check_transactional_id(id)?;
    let max_timeout_ms = i32::try_from(shared.config.transaction_max_timeout_ms);
    let request = InitRequest {
        timeout_ms: init.timeout_ms,
        max_timeout_ms: max_timeout_ms.unwrap_or(i32::MAX),
        expected: init.expected,
    };
    let step =
        move |row: Option<&_>, now, fresh: Fresh<'_>| transaction::init(row, &request, now, fresh);
    carry_out(shared, Request { is_sync: true, ..Request::of_step(id, step) })
}

/// Adds partitions to the transaction of a producer; opens one where none is open. Partitions that
/// are in it already cost nothing.
///
/// # Errors
/// [`ProducerError`]; then none is added.
pub fn add_partitions(
    shared: &Arc<Shared>,
    id: &str,
    producer: ProducerIdentity,
    partitions: &[Partition],
) -> Result<(), ProducerError> {
    check_transactional_id(id)?;
    let ids: Vec<PartitionId> = partitions.iter().map(|partition| partition.cell().id()).collect();
    let step = move |row: Option<&_>, now, _: Fresh<'_>| {
        transaction::add_partitions(row, producer, &ids, now)
    };
    let partitions = partitions.to_vec();
    carry_out(shared, Request { partitions, ..Request::of_step(id, step) }).map(drop)
}

/// Adds partitions as an append of transactional batches does (Produce from version 12): what an
/// old epoch is told differs from [`add_partitions`]. Costs no commit where all are in it already.
///
/// # Errors
/// [`ProducerError`]; then none is added.
pub fn add_partitions_of_append(
    shared: &Arc<Shared>,
    id: &str,
    producer: ProducerIdentity,
    partitions: &[Partition],
) -> Result<(), ProducerError> {
    check_transactional_id(id)?;
    let ids: Vec<PartitionId> = partitions.iter().map(|partition| partition.cell().id()).collect();
    let known = {
        let transactions = shared.transactions.lock();
        let row = transactions.get(id).map(|held| &held.row);
        transaction::check_append(row, producer, &ids, false, 0)
    };
    match known {
        Ok(_) => return Ok(()),
        Err(ProducerTransactionError::PartitionNotAdded { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let step = move |row: Option<&_>, now, _: Fresh<'_>| {
        transaction::check_append(row, producer, &ids, true, now)
    };
    let partitions = partitions.to_vec();
    carry_out(shared, Request { partitions, ..Request::of_step(id, step) }).map(drop)
}

/// Adds a consumer group to the transaction of a producer; opens one where none is open.
///
/// # Errors
/// [`ProducerError`].
pub fn add_group(
    shared: &Arc<Shared>,
    id: &str,
    producer: ProducerIdentity,
    group: &str,
) -> Result<(), ProducerError> {
    check_transactional_id(id)?;
    check_lengths(group, &[]).map_err(ProducerError::TooLong)?;
    let group = group.to_owned();
    let step = move |row: Option<&_>, now, _: Fresh<'_>| {
        transaction::add_group(row, producer, &group, now)
    };
    carry_out(shared, Request::of_step(id, step)).map(drop)
}

/// Holds offsets of a group in the open transaction of a producer: they become the group's when it
/// is committed. Of one partition twice the last counts.
///
/// # Errors
/// [`ProducerError`]; then none is held.
pub fn stage_offsets(
    shared: &Arc<Shared>,
    id: &str,
    producer: ProducerIdentity,
    group: &str,
    offsets: Vec<(Partition, GroupOffset)>,
    membership: GroupMembership,
) -> Result<(), ProducerError> {
    check_transactional_id(id)?;
    check_lengths(group, &offsets).map_err(ProducerError::TooLong)?;
    let named = group.to_owned();
    let may_add = membership == GroupMembership::Implied;
    let step = move |row: Option<&_>, now, _: Fresh<'_>| {
        transaction::stage_offsets(row, producer, &named, may_add, now)
    };
    let staged = Some((group.to_owned(), last_of_each(offsets)));
    carry_out(shared, Request { staged, ..Request::of_step(id, step) }).map(drop)
}

/// Ends the open transaction of a producer: one sync commit, which every reader sees in all
/// partitions and groups at once or not at all. Returns who the producer is from now on.
///
/// # Errors
/// [`ProducerError`].
pub fn end_transaction(
    shared: &Arc<Shared>,
    id: &str,
    producer: ProducerIdentity,
    kind: MarkerKind,
    protocol: EndProtocol,
) -> Result<ProducerIdentity, ProducerError> {
    check_transactional_id(id)?;
    let step = move |row: Option<&_>, now, fresh: Fresh<'_>| {
        transaction::end(row, producer, kind, protocol, now, fresh)
    };
    carry_out(shared, Request { is_sync: true, ..Request::of_step(id, step) })
}

/// As [`end_transaction`], for a producer that submits its appends: the transaction is not
/// committed if one of them was not. What was submitted before is answered before this is decided.
///
/// # Errors
/// [`ProducerError`]; [`ProducerError::AppendFailed`].
pub fn end_own_transaction(
    shared: &Arc<Shared>,
    id: &str,
    producer: ProducerIdentity,
    kind: MarkerKind,
    protocol: EndProtocol,
    has_failed: &Arc<AtomicBool>,
) -> Result<ProducerIdentity, ProducerError> {
    check_transactional_id(id)?;
    let step = move |row: Option<&_>, now, fresh: Fresh<'_>| {
        transaction::end(row, producer, kind, protocol, now, fresh)
    };
    let unless = (kind == MarkerKind::Commit).then(|| Arc::clone(has_failed));
    carry_out(shared, Request { is_sync: true, unless, ..Request::of_step(id, step) })
}

/// Whether an open transaction holds an offset of a group for this partition.
#[must_use]
pub fn is_staged(shared: &Shared, group: &str, partition: &Partition) -> bool {
    let place = staged_place(group, partition);
    shared.transactions.lock().holds(&place)
}
