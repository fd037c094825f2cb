//! One producer in one partition: which batch may come next, which was stored before, and which is refused.
//!
//! The rules are those of Kafka's `ProducerAppendInfo` and `ProducerStateEntry` (KIP-98, KIP-360).

use std::fmt;

use crate::base::types::{NO_SEQUENCE, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::index::keyspace::{ProducerRow, SequencedBatch};
use crate::record::ErrorCode;

/// A clock that steps back by no more than an hour was not wrong for long.
const TOLERATED_STEP_MS: i64 = 3_600_000;

/// A batch of a producer before it has offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewBatch {
    /// Who sent it.
    pub producer_id: ProducerId,
    /// In which generation.
    pub epoch: ProducerEpoch,
    /// The sequence of its first record, 0 at least.
    pub first_sequence: Sequence,
    /// The records in it, at least one.
    pub record_count: u32,
    /// Whether it belongs to a producer transaction.
    pub is_transactional: bool,
}

impl NewBatch {
    /// The sequence of its last record: after the greatest comes 0.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        let ahead = self.record_count.wrapping_sub(1).cast_signed();
        self.first_sequence.wrapping_add(ahead) & Sequence::MAX
    }
}

/// What a batch is to a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceCheck {
    /// It comes next.
    Next,
    /// It is stored already, here: it was sent again because its answer was lost.
    Stored(SequencedBatch),
}

/// A batch that its producer may not append now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SequenceError {
    /// A newer generation of the producer has written: Kafka's `INVALID_PRODUCER_EPOCH` (47).
    ProducerFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The epoch of the batch.
        epoch: ProducerEpoch,
        /// The epoch that has written.
        current_epoch: ProducerEpoch,
    },
    /// Records are missing before it, or it was stored too long ago to be known: Kafka's
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER` (45).
    OutOfOrder {
        /// The producer.
        producer_id: ProducerId,
        /// The sequence of its first record.
        first_sequence: Sequence,
        /// The one that comes next.
        expected: Sequence,
    },
    /// It belongs to no transaction, and its producer has one open here: Kafka's
    /// `INVALID_TXN_STATE` (48).
    TransactionOpen {
        /// The producer.
        producer_id: ProducerId,
        /// Where the transaction begins.
        first_offset: Offset,
    },
}

/// One producer in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    row: ProducerRow,
}

impl ProducerState {
    /// The state that a row holds.
    #[must_use]
    pub fn new(row: ProducerRow) -> Self {
        Self { row }
    }

    /// The row to store.
    #[must_use]
    pub fn row(&self) -> &ProducerRow {
        &self.row
    }

    /// What a batch is to a partition that knows this of its producer, or nothing.
    /// `begins_at_zero`: a producer of which nothing is known must begin at 0, as one that takes
    /// part in transactions by Kafka's second protocol (KIP-890).
    ///
    /// # Errors
    /// [`SequenceError`] where it may not be appended.
    pub fn check(
        known: Option<&Self>,
        batch: &NewBatch,
        begins_at_zero: bool,
    ) -> Result<SequenceCheck, SequenceError> {
        let Some(known) = known else {
            let is_early = begins_at_zero && batch.first_sequence != 0;
            return if is_early { Err(batch.out_of_order(0)) } else { Ok(SequenceCheck::Next) };
        };
        let row = &known.row;
        if batch.epoch < row.epoch {
            return Err(SequenceError::ProducerFenced {
                producer_id: batch.producer_id,
                epoch: batch.epoch,
                current_epoch: row.epoch,
            });
        }
        let last = if batch.epoch > row.epoch { NO_SEQUENCE } else { row.last_sequence() };
        if batch.epoch == row.epoch {
            let (first, end) = (batch.first_sequence, batch.last_sequence());
            let mut stored = row.batches().iter();
            let same = |s: &&SequencedBatch| s.first_sequence == first && s.last_sequence == end;
            if let Some(stored) = stored.find(same) {
                return Ok(SequenceCheck::Stored(*stored));
            }
        }
        let expected = last.wrapping_add(1) & Sequence::MAX;
        debug_assert!(expected >= 0, "sequences are never negative");
        if batch.first_sequence != expected {
            return Err(batch.out_of_order(expected));
        }
        match row.open_first_offset {
            Some(first_offset) if !batch.is_transactional => {
                Err(SequenceError::TransactionOpen { producer_id: batch.producer_id, first_offset })
            }
            _ => Ok(SequenceCheck::Next),
        }
    }

    /// The state after a batch that comes next and has its offsets.
    #[must_use]
    pub fn appended(
        known: Option<&Self>,
        batch: &NewBatch,
        base_offset: Offset,
        timestamp: TimestampMs,
        now_ms: TimestampMs,
    ) -> Self {
        assert!(batch.record_count > 0, "the append validator refuses empty batches");
        debug_assert!(batch.first_sequence >= 0, "the append validator refuses negative sequences");
        debug_assert!(base_offset >= 0, "offsets are never negative");
        let mut row = Self::of_epoch(known, batch.epoch, now_ms);
        assert!(batch.is_transactional || row.open_first_offset.is_none(), "it was checked before");
        if batch.is_transactional {
            row.open_first_offset = row.open_first_offset.or(Some(base_offset));
        }
        row.push(SequencedBatch {
            first_sequence: batch.first_sequence,
            last_sequence: batch.last_sequence(),
            last_offset: base_offset + i64::from(batch.record_count) - 1,
            timestamp,
        });
        Self { row }
    }

    /// The state after a marker of this epoch, and where the transaction that it ends begins; it
    /// may have no data here. The batches of the same epoch are still remembered.
    #[must_use]
    pub fn ended(
        known: Option<&Self>,
        epoch: ProducerEpoch,
        now_ms: TimestampMs,
    ) -> (Self, Option<Offset>) {
        let mut row = Self::of_epoch(known, epoch, now_ms);
        row.has_marker = true;
        let first_offset = row.open_first_offset.take();
        debug_assert!(first_offset.is_none_or(|offset| offset >= 0), "offsets are never negative");
        (Self { row }, first_offset)
    }

    fn of_epoch(known: Option<&Self>, epoch: ProducerEpoch, now_ms: TimestampMs) -> ProducerRow {
        let Some(known) = known else { return ProducerRow::new(epoch, now_ms) };
        let mut row = known.row;
        if row.epoch != epoch {
            row.forget_batches();
        }
        row.epoch = epoch;
        // A time that was read from a wrong clock goes, whether it was too early or too late.
        row.last_time = now_ms;
        row
    }

    /// The state where a time beyond now counts as now: it was read from a wrong clock.
    #[must_use]
    pub fn at_most(mut self, now_ms: TimestampMs) -> Self {
        // A small step back is left alone: it passes by itself, and what is stored says the same.
        if self.row.last_time.saturating_sub(now_ms) > TOLERATED_STEP_MS {
            self.row.last_time = now_ms;
        }
        self
    }

    /// Whether nothing is lost but the right to retry if the producer is forgotten: it has been
    /// silent for so long by the engine's clock, and no transaction of it is open here.
    #[must_use]
    pub fn is_expired(&self, now_ms: TimestampMs, expiration_ms: u64) -> bool {
        let age = now_ms.saturating_sub(self.row.last_time);
        self.row.open_first_offset.is_none()
            && u64::try_from(age).is_ok_and(|age| age >= expiration_ms)
    }
}

impl NewBatch {
    fn out_of_order(&self, expected: Sequence) -> SequenceError {
        let Self { producer_id, first_sequence, .. } = *self;
        SequenceError::OutOfOrder { producer_id, first_sequence, expected }
    }
}

impl SequenceError {
    /// The code of the Kafka protocol that says the same.
    #[must_use]
    pub fn code(&self) -> i16 {
        let code = match self {
            Self::OutOfOrder { .. } => ErrorCode::OutOfOrderSequenceNumber,
            Self::ProducerFenced { .. } => ErrorCode::InvalidProducerEpoch,
            Self::TransactionOpen { .. } => ErrorCode::InvalidTxnState,
        };
        code.number()
    }

    /// Whether a newer generation of the producer has taken its place.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::ProducerFenced { .. })
    }
}

impl fmt::Display for SequenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProducerFenced { producer_id, epoch, current_epoch } => write!(
                f,
                "a newer producer of the same id has written: producer_id={producer_id} \
                 epoch={epoch} current_epoch={current_epoch}"
            ),
            Self::OutOfOrder { producer_id, first_sequence, expected } => write!(
                f,
                "the batch is not the next one of its producer: producer_id={producer_id} \
                 first_sequence={first_sequence} expected={expected}"
            ),
            Self::TransactionOpen { producer_id, first_offset } => write!(
                f,
                "the producer has a transaction open, and the batch is not of it: \
                 producer_id={producer_id} first_offset={first_offset}"
            ),
        }
    }
}

impl std::error::Error for SequenceError {}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCER: ProducerId = 7;

    fn batch(epoch: i16, first_sequence: i32, record_count: u32) -> NewBatch {
        NewBatch {
            producer_id: PRODUCER,
            epoch,
            first_sequence,
            record_count,
            is_transactional: false,
        }
    }

    /// Appends to a log, as a partition does, and tells the offset or the code.
    #[derive(Default)]
    struct Log {
        known: Option<ProducerState>,
        end: Offset,
    }

    impl Log {
        fn send(&mut self, batch: NewBatch) -> Result<Offset, i16> {
            match ProducerState::check(self.known.as_ref(), &batch, false) {
                Ok(SequenceCheck::Next) => {
                    let (known, base) = (self.known.as_ref(), self.end);
                    self.known = Some(ProducerState::appended(known, &batch, base, 0, 0));
                    self.end += i64::from(batch.record_count);
                    Ok(base)
                }
                Ok(SequenceCheck::Stored(stored)) => Ok(stored.base_offset()),
                Err(error) => Err(error.code()),
            }
        }

        fn end(&mut self, epoch: i16) -> Option<Offset> {
            let (known, first) = ProducerState::ended(self.known.as_ref(), epoch, 0);
            self.known = Some(known);
            self.end += 1;
            first
        }
    }

    #[test]
    fn a_retried_batch_among_the_last_five_has_its_first_offsets() {
        let mut log = Log::default();
        for sequence in 0..5 {
            assert_eq!(log.send(batch(0, sequence, 1)), Ok(i64::from(sequence)));
        }
        for sequence in [0, 2, 4] {
            assert_eq!(log.send(batch(0, sequence, 1)), Ok(i64::from(sequence)));
        }
        assert_eq!(log.end, 5);
    }

    #[test]
    fn a_retried_batch_older_than_the_last_five_is_out_of_order() {
        let mut log = Log::default();
        for sequence in 0..6 {
            assert!(log.send(batch(0, sequence, 1)).is_ok());
        }
        assert_eq!(log.send(batch(0, 0, 1)), Err(45));
        assert_eq!(log.send(batch(0, 1, 1)), Ok(1));
    }

    #[test]
    fn a_part_of_a_stored_batch_or_more_than_it_is_out_of_order() {
        let mut log = Log::default();
        assert_eq!(log.send(batch(0, 0, 3)), Ok(0));
        for (first, count) in [(0, 2), (1, 2), (0, 4), (2, 2)] {
            assert_eq!(log.send(batch(0, first, count)), Err(45), "{first} {count}");
        }
    }

    #[test]
    fn a_gap_is_out_of_order_and_uses_no_sequence() {
        let mut log = Log::default();
        assert_eq!(log.send(batch(0, 0, 5)), Ok(0));
        assert_eq!(log.send(batch(0, 6, 1)), Err(45));
        assert_eq!(log.send(batch(0, 5, 1)), Ok(5));
        assert_eq!(log.send(batch(0, 6, 1)), Ok(6));
    }

    #[test]
    fn after_the_greatest_sequence_comes_zero_within_a_batch_or_between_two() {
        let mut log = Log::default();
        assert_eq!(log.send(batch(0, i32::MAX - 1, 1)), Ok(0));
        assert_eq!(log.send(batch(0, 0, 1)), Err(45));
        assert_eq!(log.send(batch(0, i32::MAX, 1)), Ok(1));
        assert_eq!(log.send(batch(0, 0, 1)), Ok(2));
        let mut log = Log::default();
        assert_eq!(log.send(batch(0, i32::MAX - 1, 4)), Ok(0));
        assert_eq!(batch(0, i32::MAX - 1, 4).last_sequence(), 1);
        assert_eq!(log.send(batch(0, i32::MAX - 1, 4)), Ok(0));
        assert_eq!(log.send(batch(0, 2, 1)), Ok(4));
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_fences_the_old_one_only_once_it_has_written() {
        let mut log = Log::default();
        assert_eq!(log.send(batch(0, 0, 10)), Ok(0));
        assert_eq!(log.send(batch(3, 10, 1)), Err(45));
        assert_eq!(log.send(batch(0, 10, 1)), Ok(10), "a refused batch fences nobody");
        assert_eq!(log.send(batch(3, 0, 1)), Ok(11));
        assert_eq!(log.send(batch(0, 11, 1)), Err(47));
        assert_eq!(log.send(batch(0, 0, 10)), Err(47), "its batches are not known any more");
        assert_eq!(log.send(batch(2, 0, 1)), Err(47));
    }

    #[test]
    fn a_producer_of_which_nothing_is_known_may_begin_anywhere_unless_it_must_not() {
        let first = batch(5, 90, 1);
        assert_eq!(ProducerState::check(None, &first, false), Ok(SequenceCheck::Next));
        let error = ProducerState::check(None, &first, true).expect_err("it does not begin at 0");
        assert_eq!(error, first.out_of_order(0));
        assert_eq!(ProducerState::check(None, &batch(5, 0, 1), true), Ok(SequenceCheck::Next));
    }

    #[test]
    fn a_batch_outside_of_the_open_transaction_is_refused_until_the_marker() {
        let mut log = Log::default();
        let inside = |sequence| NewBatch { is_transactional: true, ..batch(0, sequence, 2) };
        assert_eq!(log.send(inside(0)), Ok(0));
        assert_eq!(log.send(inside(2)), Ok(2));
        assert_eq!(log.send(batch(0, 4, 1)), Err(48));
        assert_eq!(log.send(batch(0, 0, 2)), Ok(0), "a stored batch is known whatever is open");
        assert_eq!(log.end(0), Some(0));
        assert_eq!(log.send(batch(0, 4, 1)), Ok(5));
        assert_eq!(log.end(0), None, "a marker may find no data");
    }

    #[test]
    fn a_marker_of_the_same_epoch_keeps_the_batches_and_one_of_a_higher_epoch_does_not() {
        let mut log = Log::default();
        assert_eq!(log.send(batch(0, 0, 1)), Ok(0));
        log.end(0);
        assert_eq!(log.send(batch(0, 0, 1)), Ok(0));
        log.end(1);
        assert_eq!(log.send(batch(0, 0, 1)), Err(47));
        assert_eq!(log.send(batch(1, 1, 1)), Err(45));
        assert_eq!(log.send(batch(1, 0, 1)), Ok(3));
    }

    #[test]
    fn a_producer_expires_by_the_engines_clock_and_not_with_a_transaction_open() {
        let first = batch(0, 0, 1);
        let state = ProducerState::appended(None, &first, 0, -1, 1_000);
        assert!(!state.is_expired(1_099, 100));
        assert!(state.is_expired(1_100, 100));
        assert!(!state.is_expired(0, 100), "a clock that steps back forgets nobody");
        let inside = NewBatch { is_transactional: true, ..batch(0, 1, 1) };
        let open = ProducerState::appended(Some(&state), &inside, 1, -1, 1_050);
        assert!(!open.is_expired(i64::MAX, 100));
        let (ended, _) = ProducerState::ended(Some(&open), 0, 1_500);
        assert!(!ended.is_expired(1_599, 100), "a marker counts");
    }

    #[test]
    fn the_errors_tell_the_numbers() {
        let error = batch(0, 6, 1).out_of_order(5).to_string();
        assert!(error.ends_with("producer_id=7 first_sequence=6 expected=5"), "{error}");
    }
}
