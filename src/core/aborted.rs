//! Looking up the aborted producer transactions that a reader of a stretch of a partition must skip.

use std::ops::ControlFlow;

use crate::base::error::StorageError;
use crate::base::types::{Offset, PartitionId};
use crate::index::keyspace::{AbortedRow, batch_key, decode_aborted_key, partition_range};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::state::producer::AbortedTransaction;

/// The aborted transactions that touch the offsets from `from` up to, not including, `end`, in the
/// order of their markers (Kafka's `TransactionIndex.collectAbortedTxns`).
///
/// # Errors
/// [`StorageError`] if the index cannot be read or is damaged.
pub fn aborted_transactions(
    store: &dyn Read,
    partition: PartitionId,
    from: Offset,
    end: Offset,
) -> Result<Vec<AbortedTransaction>, StorageError> {
    let (begin, behind) = (batch_key(partition, from), partition_range(partition).1);
    let mut found = Vec::new();
    let mut failed = None;
    store.scan(Family::Aborted, &begin, &behind, Direction::Forward, &mut |key, value| {
        let row =
            AbortedRow::decode(key, value).and_then(|row| Ok((row, decode_aborted_key(key)?.1)));
        match row {
            Ok((row, marker)) => {
                if row.first_offset < end {
                    let (id, first) = (row.producer_id, row.first_offset);
                    found.push(AbortedTransaction::new(id, first, marker));
                }
                // All that ended later began at or behind this one's last stable offset.
                let is_last = row.last_stable >= end;
                if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Err(corruption) => {
                failed = Some(corruption);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(found), |corruption| Err(corruption.into()))
}
