//! Loading the producers of all partitions from the index store, and comparing them with their partitions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::base::error::{Corruption, StorageError};
use crate::base::types::PartitionId;
use crate::index::keyspace::{ProducerRow, decode_producer_key};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::state::partition::PartitionState;
use crate::state::producer::{ProducerState, Producers};

/// The producers of each partition that has any.
pub(super) fn load(store: &dyn Read) -> Result<BTreeMap<PartitionId, Producers>, StorageError> {
    let mut all: BTreeMap<PartitionId, Producers> = BTreeMap::new();
    let mut failed = None;
    let (begin, end) = ([], [0xff; 13]);
    store.scan(Family::Producers, &begin, &end, Direction::Forward, &mut |key, value| {
        let row = decode_producer_key(key)
            .and_then(|(partition, id)| Ok((partition, id, ProducerRow::decode(key, value)?)));
        match row {
            Ok((partition, id, row)) => {
                all.entry(partition).or_default().set(id, Some(ProducerState::new(row)));
                ControlFlow::Continue(())
            }
            Err(corruption) => {
                failed = Some(corruption);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(all), |corruption| Err(corruption.into()))
}

/// A partition and its producers must agree where the oldest open transaction begins.
pub(super) fn compare(
    id: PartitionId,
    state: &PartitionState,
    producers: &Producers,
) -> Result<(), Corruption> {
    if state.row().first_unstable == producers.first_unstable() {
        return Ok(());
    }
    let what = "its first unstable offset is not that of its producers";
    Err(Corruption::in_store(Family::Partitions.name(), &id.0.to_be_bytes(), what))
}
