//! Producers in a pass: what was aborted, which markers have nothing left to end, whose last batch stays.

use std::collections::{HashMap, HashSet};

use crate::base::types::{Offset, ProducerEpoch, ProducerId};
use crate::core::Shared;
use crate::record::{BatchHeader, ControlRecord, RecordError, UnpackedBatch};
use crate::state::catalog::Partition;
use crate::state::producer::AbortedSet;

/// What the transactions of producers make of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its records are judged by their keys.
    Data,
    /// Its transaction was aborted: none of its records stays.
    Aborted,
    /// A control batch that stays: a batch of the transaction that it ends is still there.
    Marker,
    /// A control batch that ends nothing any more, and goes at its horizon.
    IdleMarker,
}

/// Whether a batch belongs to an aborted transaction.
pub(super) fn is_aborted(header: &BatchHeader, aborted: &AbortedSet) -> bool {
    let is_data = header.is_transactional() && !header.is_control();
    is_data && aborted.holds(header.producer_id(), header.base_offset())
}

/// Tells the role of each batch. It has to see all batches of transactions, from the log start on
/// and in the order of offsets.
#[derive(Debug, Default)]
pub(super) struct Roles {
    /// Producers of which a batch of a transaction was seen, and no marker after it.
    unended: HashSet<ProducerId>,
}

impl Roles {
    /// The role of the next batch. One that goes in this pass counts as being there: its marker is
    /// idle from the next pass on.
    pub(super) fn of(
        &mut self,
        batch: &UnpackedBatch<'_>,
        aborted: &AbortedSet,
    ) -> Result<Role, RecordError> {
        let header = batch.header();
        let producer_id = header.producer_id();
        if header.is_control() {
            let Some(record) = batch.records().next().transpose()? else {
                return Ok(Role::IdleMarker);
            };
            // What is no marker has no place in a topic's partition, and is left alone.
            return Ok(match ControlRecord::read(record.key, record.value) {
                Ok(ControlRecord::End(_)) if !self.unended.remove(&producer_id) => Role::IdleMarker,
                _ => Role::Marker,
            });
        }
        if header.is_transactional() {
            self.unended.insert(producer_id);
        }
        Ok(if is_aborted(header, aborted) { Role::Aborted } else { Role::Data })
    }
}

/// The last batches of the producers that the partition remembers. They stay as headers once
/// their records are gone, so that the log alone still tells the last sequences.
#[derive(Debug, Default)]
pub(super) struct LastBatches {
    /// Of producers with data of their epoch: the last offset.
    data: HashSet<Offset>,
    /// Of producers of whose epoch there is a marker only.
    epochs: HashMap<ProducerId, ProducerEpoch>,
}

impl LastBatches {
    pub(super) fn look_up(shared: &Shared, partition: &Partition) -> Self {
        // Between two groups: what is planned then is published.
        shared.queue.exclusively(|_| {
            let producers = partition.cell().producers();
            let mut last = Self::default();
            for (producer_id, state) in producers.iter() {
                match state.row().batches().last() {
                    Some(batch) => _ = last.data.insert(batch.last_offset),
                    None => _ = last.epochs.insert(producer_id, state.row().epoch),
                }
            }
            last
        })
    }

    /// Whether the data batch that ends at this offset is its producer's last.
    pub(super) fn has_data_at(&self, last_offset: Offset) -> bool {
        self.data.contains(&last_offset)
    }

    /// Whether a batch stays as a header when it has lost its records.
    pub(super) fn keeps(&self, header: &BatchHeader) -> bool {
        if header.is_control() {
            self.epochs.get(&header.producer_id()) == Some(&header.producer_epoch())
        } else {
            self.has_data_at(header.last_offset())
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::{BatchBuilder, BatchView, EndMarker, MarkerKind, Record, emptied, stamp};
    use crate::state::producer::AbortedTransaction;

    fn data(producer_id: ProducerId) -> Bytes {
        let mut builder = BatchBuilder::new().producer(producer_id, 0, 0).transactional();
        builder.push(&Record::new("k", "v")).unwrap();
        builder.finish().unwrap()
    }

    fn marker(kind: MarkerKind, producer_id: ProducerId) -> Bytes {
        EndMarker { kind, coordinator_epoch: 0 }.batch(producer_id, 0, 0)
    }

    #[test]
    fn a_marker_is_idle_once_no_batch_of_its_own_transaction_lies_before_it() {
        use MarkerKind::{Abort, Commit};
        let empty = marker(Commit, 1);
        let empty = emptied(BatchView::parse(&empty).unwrap().header());
        let log = [
            (marker(Commit, 1), Role::IdleMarker),
            (data(1), Role::Aborted),
            (data(2), Role::Data),
            (marker(Commit, 3), Role::IdleMarker),
            (empty, Role::IdleMarker),
            (marker(Abort, 1), Role::Marker),
            (marker(Abort, 1), Role::IdleMarker),
            (marker(Commit, 2), Role::Marker),
            (data(1), Role::Data),
            (marker(Commit, 1), Role::Marker),
        ];
        let aborted = [AbortedTransaction::new(1, 1, 5)].iter().collect();
        let mut roles = Roles::default();
        for (offset, (bytes, expected)) in log.into_iter().enumerate() {
            let mut bytes = bytes.to_vec();
            stamp(&mut bytes, offset as i64, 0);
            let batch = BatchView::parse(&bytes).unwrap().unpack().unwrap();
            assert_eq!(roles.of(&batch, &aborted), Ok(expected), "at {offset}");
        }
    }
}
