//! Family `partitions`: the state of each partition, one row that every append to it rewrites.
//!
//! ```text
//! key     partition id u32
//! value   version u8 (2) | log start i64 | log end i64 | first dirty offset i64
//!         | next horizon i64 | first unstable offset i64 (-1: none)
//!         | size bytes u64 | batch count u64 | record count u64 | cumulative bytes u64
//!         | bytes at last index entry u64 | running maximum timestamp i64
//!         | epoch count u32 | (leader epoch i32 | first offset i64)*
//! ```
//!
//! The log end is stored, not derived, so that whatever removes batches never moves it back.

use super::bytes::Fields;
use crate::base::error::Corruption;
use crate::base::types::{LeaderEpoch, Offset, PartitionId, TimestampMs};
use crate::index::write_batch::Family;

const VERSION: u8 = 2;

/// What [`PartitionRow::first_unstable`] is on disk where there is none.
const NONE: Offset = -1;

/// The first offset that was appended under a leader epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The first offset of it.
    pub first_offset: Offset,
}

/// The stored state of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRow {
    /// The first offset that can be read.
    pub log_start: Offset,
    /// The offset that the next record gets.
    pub log_end: Offset,
    /// The offset below which the cleaner has been.
    pub first_dirty: Offset,
    /// When the first tombstone or marker below that offset may go, or earlier; `i64::MAX`: none.
    pub next_horizon: TimestampMs,
    /// The first offset of the oldest open producer transaction, if one is open here.
    pub first_unstable: Option<Offset>,
    /// Bytes of the batches that are there.
    pub size_bytes: u64,
    /// The batches that are there.
    pub batch_count: u64,
    /// The records in them.
    pub record_count: u64,
    /// Bytes of all batches ever appended, or written again by the cleaner.
    pub cumulative_bytes: u64,
    /// The sum above at the last entry of family `index`.
    pub bytes_at_last_index_entry: u64,
    /// The greatest timestamp ever appended; `i64::MIN` before the first.
    pub running_max_timestamp: TimestampMs,
    /// Leader epochs, rising, each with its first offset.
    pub epochs: Vec<EpochStart>,
}

impl Default for PartitionRow {
    fn default() -> Self {
        Self {
            log_start: 0,
            log_end: 0,
            first_dirty: 0,
            next_horizon: TimestampMs::MAX,
            first_unstable: None,
            size_bytes: 0,
            batch_count: 0,
            record_count: 0,
            cumulative_bytes: 0,
            bytes_at_last_index_entry: 0,
            running_max_timestamp: TimestampMs::MIN,
            epochs: Vec::new(),
        }
    }
}

impl PartitionRow {
    /// Writes the value over what the buffer holds, which is reused for many.
    pub fn encode(&self, value: &mut Vec<u8>) {
        value.clear();
        value.push(VERSION);
        let first_unstable = self.first_unstable.unwrap_or(NONE);
        for field in
            [self.log_start, self.log_end, self.first_dirty, self.next_horizon, first_unstable]
        {
            value.extend_from_slice(&field.to_be_bytes());
        }
        for count in [
            self.size_bytes,
            self.batch_count,
            self.record_count,
            self.cumulative_bytes,
            self.bytes_at_last_index_entry,
        ] {
            value.extend_from_slice(&count.to_be_bytes());
        }
        value.extend_from_slice(&self.running_max_timestamp.to_be_bytes());
        let epoch_count = u32::try_from(self.epochs.len()).expect("epochs rise within an i32");
        value.extend_from_slice(&epoch_count.to_be_bytes());
        for epoch in &self.epochs {
            value.extend_from_slice(&epoch.leader_epoch.to_be_bytes());
            value.extend_from_slice(&epoch.first_offset.to_be_bytes());
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`PartitionRow::encode`] does not write.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        let mut fields = Fields::new(Family::Partitions, key, value, VERSION)?;
        let mut row = Self {
            log_start: fields.i64()?,
            log_end: fields.i64()?,
            first_dirty: fields.i64()?,
            next_horizon: fields.i64()?,
            first_unstable: Some(fields.i64()?).filter(|offset| *offset != NONE),
            size_bytes: fields.u64()?,
            batch_count: fields.u64()?,
            record_count: fields.u64()?,
            cumulative_bytes: fields.u64()?,
            bytes_at_last_index_entry: fields.u64()?,
            running_max_timestamp: fields.i64()?,
            epochs: Vec::new(),
        };
        let epoch_count = fields.u32()? as usize;
        if fields.remaining() != epoch_count.saturating_mul(12) {
            return Err(fields.corruption("its leader epochs have another length than it says"));
        }
        row.epochs.reserve_exact(epoch_count);
        for _ in 0..epoch_count {
            let (leader_epoch, first_offset) = (fields.i32()?, fields.i64()?);
            row.epochs.push(EpochStart { leader_epoch, first_offset });
        }
        if let Some(what) = row.fault() {
            return Err(fields.corruption(what));
        }
        fields.end()?;
        Ok(row)
    }

    /// What no partition can be: such a row is neither read nor written.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let is_unstable_inside =
            self.first_unstable.is_none_or(|offset| (0..self.log_end).contains(&offset));
        if !is_unstable_inside {
            return Some("its first unstable offset is not in its log");
        }
        let rising = |pair: &[EpochStart]| {
            pair[0].leader_epoch < pair[1].leader_epoch
                && pair[0].first_offset <= pair[1].first_offset
        };
        let is_in_order = self.log_start >= 0 && self.log_start <= self.log_end;
        if !is_in_order || !self.epochs.windows(2).all(rising) {
            return Some("its offsets are not in order");
        }
        None
    }
}

/// The key of a partition's row.
#[must_use]
pub fn partition_key(partition: PartitionId) -> [u8; 4] {
    partition.0.to_be_bytes()
}

/// The partition of a key.
///
/// # Errors
/// [`Corruption`] for a key that [`partition_key`] does not make.
pub fn decode_partition_key(key: &[u8]) -> Result<PartitionId, Corruption> {
    let bytes: &[u8; 4] = key.try_into().map_err(|_| {
        Corruption::in_store(Family::Partitions.name(), key, "its key is not a partition id")
    })?;
    Ok(PartitionId(u32::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> PartitionRow {
        PartitionRow {
            log_start: 1,
            log_end: 10,
            first_dirty: 2,
            next_horizon: 11,
            first_unstable: Some(9),
            size_bytes: 3,
            batch_count: 4,
            record_count: 5,
            cumulative_bytes: 6,
            bytes_at_last_index_entry: 7,
            running_max_timestamp: -8,
            epochs: vec![
                EpochStart { leader_epoch: 0, first_offset: 0 },
                EpochStart { leader_epoch: 3, first_offset: 9 },
            ],
        }
    }

    #[test]
    fn a_row_is_decoded_as_it_was_encoded_and_every_truncation_is_corruption() {
        let key = partition_key(PartitionId(7));
        let mut value = Vec::new();
        row().encode(&mut value);
        assert_eq!(PartitionRow::decode(&key, &value), Ok(row()));
        assert_eq!(value.len(), 1 + 11 * 8 + 4 + 2 * 12);
        for length in 0..value.len() {
            assert!(PartitionRow::decode(&key, &value[..length]).is_err(), "length {length}");
        }
        value.push(0);
        assert!(PartitionRow::decode(&key, &value).is_err());
    }

    #[test]
    fn offsets_and_epochs_out_of_order_are_corruption() {
        let key = partition_key(PartitionId(7));
        let mut value = Vec::new();
        let start_beyond_end = PartitionRow { log_start: 11, ..row() };
        let epochs_fall =
            PartitionRow { epochs: row().epochs.into_iter().rev().collect(), ..row() };
        let unstable_at_end = PartitionRow { first_unstable: Some(10), ..row() };
        let unstable_below_zero = PartitionRow { first_unstable: Some(-2), ..row() };
        for bad in [start_beyond_end, epochs_fall, unstable_at_end, unstable_below_zero] {
            bad.encode(&mut value);
            assert!(PartitionRow::decode(&key, &value).is_err(), "{bad:?}");
        }
    }
}
