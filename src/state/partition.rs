//! The state of one partition as a pure value: its offsets, sums and leader epochs, and their legal moves.

use std::fmt;

use crate::base::types::{LeaderEpoch, Offset, TimestampMs, Watermarks};
use crate::index::keyspace::{EpochStart, IndexEntry, PartitionRow};

/// Bytes of a partition's log between two entries of family `index`. A lookup by time reads at
/// most about so much; one entry costs some 30 bytes.
pub const INDEX_INTERVAL_BYTES: u64 = 64 * 1024;

/// What an append needs to know of a record batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchFacts {
    /// The records in it, at least one.
    pub record_count: u32,
    /// Its encoded length.
    pub length_bytes: u32,
    /// Its greatest timestamp.
    pub max_timestamp: TimestampMs,
}

/// How large a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// Its encoded length.
    pub length_bytes: u32,
    /// The records in it.
    pub record_count: u32,
}

/// What an append gives a record batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assigned {
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// An entry of family `index` at the last offset, where one is due.
    pub index_entry: Option<IndexEntry>,
}

/// A partition has no offsets left for a batch: they end at 2^63 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetsExhausted {
    /// The offset that the next record would get.
    pub log_end: Offset,
}

/// What goes from the start of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Batches.
    pub batch_count: u64,
    /// Records in them.
    pub record_count: u64,
    /// Bytes of them.
    pub size_bytes: u64,
}

/// What stays the same while records are only appended, and changes with whatever removes any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalMark {
    /// The log start.
    pub log_start: Offset,
    removed_bytes: u64,
    removed_records: u64,
}

/// A partition's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionState {
    row: PartitionRow,
}

impl PartitionState {
    /// The state that a row holds.
    #[must_use]
    pub fn new(row: PartitionRow) -> Self {
        Self { row }
    }

    /// What every change of the state leaves true.
    fn assert_sound(&self) {
        debug_assert_eq!(self.row.fault(), None, "a row that is written can be read");
        debug_assert!(
            self.row.size_bytes <= self.row.cumulative_bytes,
            "what is there was written"
        );
    }

    /// The row to store.
    #[must_use]
    pub fn row(&self) -> &PartitionRow {
        &self.row
    }

    /// Takes over another state of the same partition, without a new allocation where epochs agree.
    pub fn copy_from(&mut self, other: &Self) {
        let mut epochs = std::mem::take(&mut self.row.epochs);
        if epochs != other.row.epochs {
            epochs.clone_from(&other.row.epochs);
        }
        self.row = PartitionRow { epochs, ..Self::without_epochs(&other.row) };
    }

    fn without_epochs(row: &PartitionRow) -> PartitionRow {
        PartitionRow {
            log_start: row.log_start,
            log_end: row.log_end,
            first_dirty: row.first_dirty,
            next_horizon: row.next_horizon,
            first_unstable: row.first_unstable,
            size_bytes: row.size_bytes,
            batch_count: row.batch_count,
            record_count: row.record_count,
            cumulative_bytes: row.cumulative_bytes,
            bytes_at_last_index_entry: row.bytes_at_last_index_entry,
            running_max_timestamp: row.running_max_timestamp,
            epochs: Vec::new(),
        }
    }

    /// The four offsets. With one replica the last two agree, and where no producer transaction is
    /// open the last three. Of a transaction whose beginning was deleted the rest is unstable.
    #[must_use]
    pub fn watermarks(&self) -> Watermarks {
        let unstable = self.row.first_unstable.map(|offset| offset.max(self.row.log_start));
        let marks = Watermarks {
            log_start: self.row.log_start,
            last_stable: unstable.unwrap_or(self.row.log_end),
            high_watermark: self.row.log_end,
            log_end: self.row.log_end,
        };
        debug_assert!(is_in_order(&marks), "the four offsets are in order: {marks:?}");
        marks
    }

    /// Whether this many records can still get offsets.
    ///
    /// # Errors
    /// [`OffsetsExhausted`] if they cannot.
    pub fn check_room(&self, record_count: u64) -> Result<(), OffsetsExhausted> {
        debug_assert!(self.row.log_end >= 0, "offsets are never negative");
        let room = Offset::MAX.abs_diff(self.row.log_end);
        if record_count > room {
            return Err(OffsetsExhausted { log_end: self.row.log_end });
        }
        Ok(())
    }

    /// Puts a batch after the last one.
    ///
    /// # Panics
    /// If the batch has no records, or [`PartitionState::check_room`] was not heeded.
    pub fn append(&mut self, batch: &BatchFacts, leader_epoch: LeaderEpoch) -> Assigned {
        assert!(batch.record_count > 0, "the append validator refuses empty batches");
        let row = &mut self.row;
        let base_offset = row.log_end;
        let end = base_offset.checked_add(i64::from(batch.record_count));
        row.log_end = end.expect("room was checked before");
        let newest = row.epochs.last().map_or(LeaderEpoch::MIN, |last| last.leader_epoch);
        assert!(newest <= leader_epoch, "leader epochs never fall");
        if row.epochs.last().is_none_or(|last| last.leader_epoch < leader_epoch) {
            row.epochs.push(EpochStart { leader_epoch, first_offset: base_offset });
        }
        row.size_bytes += u64::from(batch.length_bytes);
        row.batch_count += 1;
        row.record_count += u64::from(batch.record_count);
        row.cumulative_bytes += u64::from(batch.length_bytes);
        row.running_max_timestamp = row.running_max_timestamp.max(batch.max_timestamp);
        let index_entry = (row.cumulative_bytes - row.bytes_at_last_index_entry
            >= INDEX_INTERVAL_BYTES)
            .then(|| {
                row.bytes_at_last_index_entry = row.cumulative_bytes;
                IndexEntry {
                    cumulative_bytes: row.cumulative_bytes,
                    running_max_timestamp: row.running_max_timestamp,
                }
            });
        let last_offset = row.log_end - 1;
        assert!(base_offset <= last_offset, "a batch has an offset");
        self.assert_sound();
        Assigned { base_offset, last_offset, index_entry }
    }

    /// Takes a batch away, or puts another in its place, which cleaning made of it: length and
    /// records of both. What takes its place counts as written once more, so the mark of removals
    /// changes whatever the sizes are.
    ///
    /// # Panics
    /// If the partition has no such batch.
    pub fn replace_batch(&mut self, old: BatchSize, new: Option<BatchSize>) {
        let (kept, before) = (new.map_or(0, |new| new.record_count), old.record_count);
        assert!(kept <= before, "cleaning adds no record");
        let row = &mut self.row;
        let less = |sum: u64, part: u32| {
            sum.checked_sub(u64::from(part)).expect("the sums are those of what is there")
        };
        row.size_bytes = less(row.size_bytes, old.length_bytes);
        row.record_count = less(row.record_count, old.record_count);
        row.batch_count = less(row.batch_count, 1);
        if let Some(new) = new {
            row.size_bytes += u64::from(new.length_bytes);
            row.cumulative_bytes += u64::from(new.length_bytes);
            row.record_count += u64::from(new.record_count);
            row.batch_count += 1;
        }
        let is_empty = row.batch_count == 0;
        assert!(!is_empty || (row.size_bytes, row.record_count) == (0, 0), "no batch, no bytes");
        self.assert_sound();
    }

    /// The oldest open producer transaction begins here, or none is open.
    pub fn set_first_unstable(&mut self, offset: Option<Offset>) {
        self.row.first_unstable = offset;
        self.assert_sound();
    }

    /// A tombstone or marker below the first dirty offset may go at this time.
    pub fn note_horizon(&mut self, horizon: TimestampMs) {
        self.row.next_horizon = self.row.next_horizon.min(horizon);
    }

    /// The cleaner was everywhere below this offset, and the first horizon there is this one.
    pub fn set_cleaned(&mut self, first_dirty: Offset, next_horizon: TimestampMs) {
        assert!(first_dirty <= self.row.log_end, "nothing beyond the end was cleaned");
        assert!(first_dirty >= self.row.first_dirty, "what is clean stays clean");
        self.row.first_dirty = first_dirty;
        self.row.next_horizon = next_horizon;
    }

    /// What changes with every removal and with no append.
    #[must_use]
    pub fn removal_mark(&self) -> RemovalMark {
        let row = &self.row;
        RemovalMark {
            log_start: row.log_start,
            // A batch that is cleaned may grow, so this is a difference and no sum.
            removed_bytes: row.cumulative_bytes.wrapping_sub(row.size_bytes),
            removed_records: row.log_end.unsigned_abs().saturating_sub(row.record_count),
        }
    }

    /// Moves the log start up, and takes what lay below it out of the sums. A batch that holds the
    /// new start stays whole, and counts whole.
    ///
    /// # Panics
    /// If the start would move back or beyond the log end, or more would go than is there.
    pub fn advance_start(&mut self, new_start: Offset, removed: &Removed) {
        let is_some = removed.batch_count > 0;
        assert_eq!(is_some, removed.size_bytes > 0, "a batch has bytes");
        assert!(is_some || removed.record_count == 0, "records go with their batches");
        let row = &mut self.row;
        assert!(row.log_start <= new_start, "the log start never moves back");
        assert!(new_start <= row.log_end, "the log start never passes the log end");
        let taken = "what goes was there";
        row.log_start = new_start;
        row.size_bytes = row.size_bytes.checked_sub(removed.size_bytes).expect(taken);
        row.batch_count = row.batch_count.checked_sub(removed.batch_count).expect(taken);
        row.record_count = row.record_count.checked_sub(removed.record_count).expect(taken);
        // The batch that holds the start is of the last epoch that began at or below it.
        let begun = row.epochs.partition_point(|epoch| epoch.first_offset <= new_start);
        row.epochs.drain(..begun.saturating_sub(1));
        self.assert_sound();
    }

    /// The leader epoch of the newest batch; `None` before the first.
    #[must_use]
    pub fn newest_epoch(&self) -> Option<LeaderEpoch> {
        self.row.epochs.last().map(|last| last.leader_epoch)
    }

    /// The leader epoch under which an offset was appended, or would be the next; `None` where
    /// nothing was appended yet.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let epochs = &self.row.epochs;
        let after = epochs.partition_point(|start| start.first_offset <= offset);
        epochs.get(after.saturating_sub(1)).map(|start| start.leader_epoch)
    }

    /// The greatest epoch at or below `epoch` that has records, and the offset at which it ended:
    /// what Kafka's OffsetForLeaderEpoch answers (KIP-101, KIP-279). `current` is the epoch that
    /// appends get now; it ends at the log end, records or not.
    ///
    /// `None` where the epoch is not known: above `current`, or below the first one.
    #[must_use]
    pub fn epoch_end(&self, epoch: LeaderEpoch, current: LeaderEpoch) -> Option<EpochEnd> {
        if epoch > current || epoch < 0 {
            return None;
        }
        if epoch == current {
            return Some(EpochEnd { leader_epoch: epoch, end_offset: self.row.log_end });
        }
        let epochs = &self.row.epochs;
        let after = epochs.partition_point(|start| start.leader_epoch <= epoch);
        let end_offset = epochs.get(after).map_or(self.row.log_end, |next| next.first_offset);
        match after.checked_sub(1) {
            Some(found) => Some(EpochEnd { leader_epoch: epochs[found].leader_epoch, end_offset }),
            // Before the first epoch that has records nothing is left, if it ever was there.
            None => {
                let end_offset = end_offset.max(self.row.log_start);
                Some(EpochEnd { leader_epoch: epoch, end_offset })
            }
        }
    }
}

/// Whether four offsets can be those of one partition.
#[must_use]
pub fn is_in_order(marks: &Watermarks) -> bool {
    let offsets = [0, marks.log_start, marks.last_stable, marks.high_watermark, marks.log_end];
    offsets.is_sorted()
}

/// Where a leader epoch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch.
    pub leader_epoch: LeaderEpoch,
    /// The first offset that is not of it.
    pub end_offset: Offset,
}

impl fmt::Display for OffsetsExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the partition has no offsets left: log_end={} limit={}", self.log_end, i64::MAX)
    }
}

impl std::error::Error for OffsetsExhausted {}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(record_count: u32, length_bytes: u32, max_timestamp: i64) -> BatchFacts {
        BatchFacts { record_count, length_bytes, max_timestamp }
    }

    #[test]
    fn offsets_are_dense_and_all_watermarks_move_with_them() {
        let mut state = PartitionState::default();
        let first = state.append(&facts(3, 100, 5), 0);
        let second = state.append(&facts(1, 50, 4), 0);
        assert_eq!((first.base_offset, first.last_offset), (0, 2));
        assert_eq!((second.base_offset, second.last_offset), (3, 3));
        let marks = state.watermarks();
        assert_eq!((marks.log_start, marks.last_stable), (0, 4));
        assert_eq!((marks.high_watermark, marks.log_end), (4, 4));
        let row = state.row();
        assert_eq!((row.size_bytes, row.batch_count, row.record_count), (150, 2, 4));
        assert_eq!(row.running_max_timestamp, 5);
    }

    #[test]
    fn an_index_entry_comes_with_every_64_kib() {
        let mut state = PartitionState::default();
        let entries: Vec<_> = [INDEX_INTERVAL_BYTES - 1, 1, INDEX_INTERVAL_BYTES, 10]
            .iter()
            .map(|&bytes| state.append(&facts(1, bytes as u32, 1), 0).index_entry)
            .map(|entry| entry.map(|entry| entry.cumulative_bytes))
            .collect();
        assert_eq!(entries, [None, Some(65_536), Some(131_072), None]);
    }

    #[test]
    fn offsets_end_at_the_greatest_i64_and_not_beyond_it() {
        let row = PartitionRow { log_end: i64::MAX - 2, ..PartitionRow::default() };
        let mut state = PartitionState::new(row);
        assert_eq!(state.check_room(2), Ok(()));
        assert_eq!(state.check_room(3), Err(OffsetsExhausted { log_end: i64::MAX - 2 }));
        state.append(&facts(2, 100, 0), 0);
        assert_eq!(state.watermarks().log_end, i64::MAX);
        assert!(state.check_room(1).is_err());
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_with_records_began() {
        let mut state = PartitionState::default();
        state.append(&facts(2, 1, 0), 1);
        state.append(&facts(3, 1, 0), 4);
        state.append(&facts(1, 1, 0), 4);
        let end = |epoch| state.epoch_end(epoch, 6).map(|end| (end.leader_epoch, end.end_offset));
        assert_eq!(end(-1), None);
        assert_eq!(end(0), Some((0, 0)));
        assert_eq!(end(1), Some((1, 2)));
        assert_eq!(end(3), Some((1, 2)));
        assert_eq!(end(4), Some((4, 6)));
        assert_eq!(end(5), Some((4, 6)));
        assert_eq!(end(6), Some((6, 6)));
        assert_eq!(end(7), None);
    }

    #[test]
    fn a_replaced_batch_changes_the_sums_and_no_offset() {
        let mut state = PartitionState::default();
        state.append(&facts(3, 100, 5), 0);
        state.append(&facts(1, 50, 4), 0);
        let (old, new) = ((100, 3), (70, 1));
        let size =
            |(length_bytes, record_count): (u32, u32)| BatchSize { length_bytes, record_count };
        let mark = state.removal_mark();
        state.replace_batch(size(old), Some(size(new)));
        assert_ne!(state.removal_mark(), mark);
        let row = state.row();
        assert_eq!((row.size_bytes, row.batch_count, row.record_count), (120, 2, 2));
        state.replace_batch(size((50, 1)), None);
        let row = state.row();
        assert_eq!((row.size_bytes, row.batch_count, row.record_count), (70, 1, 1));
        assert_eq!((row.log_end, row.cumulative_bytes), (4, 220));
        state.note_horizon(9);
        state.note_horizon(12);
        assert_eq!(state.row().next_horizon, 9);
        state.set_cleaned(4, i64::MAX);
        assert_eq!((state.row().first_dirty, state.row().next_horizon), (4, i64::MAX));
    }

    #[test]
    fn a_moved_start_takes_its_batches_out_of_the_sums_and_forgets_epochs_that_are_gone() {
        let mut state = PartitionState::default();
        state.append(&facts(2, 100, 9), 1);
        state.append(&facts(3, 50, 0), 4);
        state.append(&facts(1, 10, 0), 6);
        let gone = Removed { batch_count: 1, record_count: 2, size_bytes: 100 };
        state.advance_start(4, &gone);
        let row = state.row();
        assert_eq!((row.log_start, row.log_end), (4, 6));
        assert_eq!((row.size_bytes, row.batch_count, row.record_count), (60, 2, 4));
        assert_eq!((row.cumulative_bytes, row.running_max_timestamp), (160, 9));
        let epochs: Vec<_> = row.epochs.iter().map(|epoch| epoch.leader_epoch).collect();
        assert_eq!(epochs, [4, 6]);
        assert_eq!(state.epoch_at(4), Some(4));
        let end = |epoch| state.epoch_end(epoch, 7).map(|end| (end.leader_epoch, end.end_offset));
        assert_eq!((end(1), end(4), end(6)), (Some((1, 4)), Some((4, 5)), Some((6, 6))));
        state.advance_start(6, &Removed { batch_count: 2, record_count: 4, size_bytes: 60 });
        assert_eq!(state.row().epochs.len(), 1);
    }

    #[test]
    fn every_removal_shows_in_the_mark_and_no_append_does() {
        let mut state = PartitionState::default();
        state.append(&facts(5, 100, 0), 0);
        let before = state.removal_mark();
        state.append(&facts(5, 70, 0), 0);
        assert_eq!(state.removal_mark(), before);
        state.advance_start(1, &Removed::default());
        let inside_a_batch = state.removal_mark();
        assert_ne!(inside_a_batch, before);
        state.row.record_count -= 1;
        assert_ne!(state.removal_mark(), inside_a_batch, "a record was cleaned away");
        let row = PartitionRow { size_bytes: 169, ..PartitionState::without_epochs(&state.row) };
        assert_ne!(PartitionState::new(row).removal_mark(), state.removal_mark());
    }

    #[test]
    #[should_panic(expected = "the log start never moves back")]
    fn a_start_never_moves_back() {
        let mut state = PartitionState::default();
        state.append(&facts(5, 100, 0), 0);
        state.advance_start(2, &Removed::default());
        state.advance_start(1, &Removed::default());
    }

    #[test]
    fn a_copy_equals_its_source() {
        let mut source = PartitionState::default();
        source.append(&facts(2, 100, 7), 3);
        let mut copy = PartitionState::default();
        copy.copy_from(&source);
        assert_eq!(copy, source);
    }
}
