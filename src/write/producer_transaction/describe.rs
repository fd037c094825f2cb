//! What is known of producers and transactional ids, for those who look after them.

use super::ending::COORDINATOR_EPOCH;
use crate::base::types::{
    Offset, ProducerEpoch, ProducerId, ProducerIdentity, Sequence, TimestampMs,
};
use crate::core::{GroupOffset, HeldId, Shared};
use crate::index::keyspace::ProducerTransactionState;
use crate::state::catalog::Partition;

/// A producer that a partition remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerDescription {
    /// Its id.
    pub producer_id: ProducerId,
    /// The newest epoch that wrote here.
    pub producer_epoch: ProducerEpoch,
    /// The sequence of its last record here; -1 where a marker of this epoch is all there is.
    pub last_sequence: Sequence,
    /// The greatest timestamp of its last batch; of the marker where that is all there is.
    pub last_timestamp: TimestampMs,
    /// The epoch of the coordinator that ended its last transaction here; there is one coordinator,
    /// and none before it.
    pub coordinator_epoch: Option<i32>,
    /// The first offset of its open transaction here.
    pub open_first_offset: Option<Offset>,
}

/// A transactional id.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProducerTransactionDescription {
    /// The transactional id.
    pub transactional_id: String,
    /// Who holds it.
    pub producer: ProducerIdentity,
    /// How long a transaction of it may be open, in milliseconds.
    pub timeout_ms: i32,
    /// Where it stands.
    pub state: ProducerTransactionState,
    /// When the newest transaction was opened; -1 if none was since the producer got its epoch.
    pub started_at: TimestampMs,
    /// The partitions of the open transaction that still exist.
    pub partitions: Vec<Partition>,
    /// The consumer groups of the open transaction.
    pub groups: Vec<String>,
    /// The offsets that the open transaction holds for them, of partitions that still exist.
    pub staged_offsets: Vec<StagedOffset>,
}

/// An offset that an open transaction holds for a group.
#[derive(Debug, Clone)]
pub struct StagedOffset {
    /// The group.
    pub group: String,
    /// The partition.
    pub partition: Partition,
    /// What the group will have committed.
    pub offset: GroupOffset,
}

/// The producers that a partition remembers, by their ids.
#[must_use]
pub fn describe_producers(shared: &Shared, partition: &Partition) -> Vec<ProducerDescription> {
    // Between two groups: what is planned then is published.
    shared.queue.exclusively(|_| {
        let producers = partition.cell().producers();
        let described = producers.iter().map(|(producer_id, state)| {
            let row = state.row();
            let last = row.batches().last();
            ProducerDescription {
                producer_id,
                producer_epoch: row.epoch,
                last_sequence: row.last_sequence(),
                last_timestamp: last.map_or(row.last_time, |last| last.timestamp),
                coordinator_epoch: row.has_marker.then_some(COORDINATOR_EPOCH),
                open_first_offset: row.open_first_offset,
            }
        });
        described.collect()
    })
}

/// A transactional id, if it is known.
#[must_use]
pub fn describe_transactional_id(
    shared: &Shared,
    id: &str,
) -> Option<ProducerTransactionDescription> {
    let transactions = shared.transactions.lock();
    transactions.get(id).map(|held| describe(shared, id, held))
}

/// All transactional ids, by name.
#[must_use]
pub fn describe_transactional_ids(shared: &Shared) -> Vec<ProducerTransactionDescription> {
    let transactions = shared.transactions.lock();
    let all = transactions.iter().map(|(id, held)| describe(shared, id, held));
    let mut all: Vec<_> = all.collect();
    drop(transactions);
    all.sort_unstable_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
    all
}

fn describe(shared: &Shared, id: &str, held: &HeldId) -> ProducerTransactionDescription {
    let partitions = held.partitions.values();
    let there = partitions.filter(|partition| shared.catalog.holds(partition.topic()));
    let staged = held.staged.iter().filter_map(|(place, row)| {
        let topic = shared.catalog.topic_by_id(place.topic)?;
        let partition = topic.partition(i32::try_from(place.partition).ok()?).ok()?;
        Some(StagedOffset { group: place.group.clone(), partition, offset: row.clone().into() })
    });
    ProducerTransactionDescription {
        transactional_id: id.to_owned(),
        producer: held.row.current,
        timeout_ms: held.row.timeout_ms,
        state: held.row.state,
        started_at: held.row.started_at,
        partitions: there.cloned().collect(),
        groups: held.row.groups.clone(),
        staged_offsets: staged.collect(),
    }
}
