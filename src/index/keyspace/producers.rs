//! Families `producers` and `aborted`: what each partition knows of who wrote to it, and which transactions to skip.
//!
//! ```text
//! producers key    partition id u32 | producer id u64
//!           value  version u8 (1) | epoch i16 | batch count u8 (0 to 5), with a marker + 128
//!                  | last time i64
//!                  | first offset of the open transaction i64 (-1: none)
//!                  | of the newest batch: last sequence i32 | last offset i64 | timestamp i64
//!                  | of each batch, newest first: records varint, and of all but the newest
//!                    offsets between it and the next varint | timestamp less that one's, zigzag
//! aborted   key    partition id u32 | offset of the abort marker u64
//!           value  version u8 (1) | producer id i64 | first offset i64 | last stable offset i64
//! ```
//!
//! A producer's row is written with every batch of it, whole, so that it is right after any crash
//! without a look at the batches; and small, because it is written so often. The sequences of the
//! batches follow each other without a gap, so the last one tells them all.

use super::bytes::{Fields, put_varint};
use crate::base::error::Corruption;
use crate::base::types::{
    NO_PRODUCER_EPOCH, NO_SEQUENCE, Offset, PartitionId, ProducerEpoch, ProducerId, Sequence,
    TimestampMs,
};
use crate::index::write_batch::Family;

const VERSION: u8 = 1;
const NONE: Offset = -1;
const HAS_MARKER: u8 = 0x80;

/// How many batches of a producer a partition remembers, to know a retried one (Kafka's
/// `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
pub const SEQUENCE_WINDOW: usize = 5;

/// A batch that a partition remembers of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequencedBatch {
    /// The sequence of its first record.
    pub first_sequence: Sequence,
    /// The sequence of its last record; below the first one where it went over the end.
    pub last_sequence: Sequence,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// Its greatest timestamp, as it was stored.
    pub timestamp: TimestampMs,
}

impl SequencedBatch {
    /// The offset of its first record: a batch has as many offsets as sequences.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.last_offset - self.ahead()
    }

    fn ahead(&self) -> i64 {
        i64::from(self.last_sequence.wrapping_sub(self.first_sequence) & Sequence::MAX)
    }

    fn record_count(&self) -> u64 {
        debug_assert!(self.first_sequence >= 0 && self.last_sequence >= 0, "they count from 0");
        self.ahead().unsigned_abs() + 1
    }

    /// A batch of so many records that ends here; `None` where there can be none.
    fn ending(
        last_sequence: Sequence,
        last_offset: Offset,
        timestamp: TimestampMs,
        record_count: u64,
    ) -> Option<Self> {
        let ahead = Sequence::try_from(record_count.checked_sub(1)?).ok()?;
        let first_sequence = last_sequence.wrapping_sub(ahead) & Sequence::MAX;
        let is_legal = last_sequence >= 0 && last_offset >= i64::from(ahead);
        is_legal.then_some(Self { first_sequence, last_sequence, last_offset, timestamp })
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// What a partition knows of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerRow {
    /// The newest epoch that wrote here; -1 where a client sent an id without an epoch, which
    /// Kafka takes.
    pub epoch: ProducerEpoch,
    /// The engine's clock when the producer last wrote here, a marker counts: its age.
    pub last_time: TimestampMs,
    /// The first offset of its open producer transaction here.
    pub open_first_offset: Option<Offset>,
    /// Whether a transaction of it has ended here.
    pub has_marker: bool,
    batches: [SequencedBatch; SEQUENCE_WINDOW],
    batch_count: u8,
}

impl ProducerRow {
    /// A producer that has written no data batch of this epoch here.
    #[must_use]
    pub fn new(epoch: ProducerEpoch, last_time: TimestampMs) -> Self {
        Self {
            epoch,
            last_time,
            open_first_offset: None,
            has_marker: false,
            batches: [SequencedBatch::default(); SEQUENCE_WINDOW],
            batch_count: 0,
        }
    }

    /// The last batches of this epoch, oldest first, five at most.
    #[must_use]
    pub fn batches(&self) -> &[SequencedBatch] {
        &self.batches[..usize::from(self.batch_count)]
    }

    /// The sequence of the last record of this epoch; -1 where there is none.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        self.batches().last().map_or(NO_SEQUENCE, |last| last.last_sequence)
    }

    /// Remembers a batch, which follows the last one; the oldest is forgotten where there are five.
    ///
    /// # Panics
    /// If it does not follow the last one: the encoding holds the sequences of the last one alone.
    pub fn push(&mut self, batch: SequencedBatch) {
        if let Some(last) = self.batches().last() {
            let next = last.last_sequence.wrapping_add(1) & Sequence::MAX;
            assert_eq!(batch.first_sequence, next, "sequences follow each other without a gap");
            assert!(batch.base_offset() > last.last_offset, "offsets of a producer only rise");
        }
        assert!(batch.last_sequence >= 0, "sequences are never negative");
        if usize::from(self.batch_count) == SEQUENCE_WINDOW {
            self.batches.rotate_left(1);
        } else {
            self.batch_count += 1;
        }
        self.batches[usize::from(self.batch_count) - 1] = batch;
        debug_assert!(self.last_sequence() == batch.last_sequence, "the newest stands last");
    }

    /// Forgets all batches: they were of another epoch.
    pub fn forget_batches(&mut self) {
        self.batch_count = 0;
    }

    /// Writes the value over what the buffer holds.
    pub fn encode(&self, value: &mut Vec<u8>) {
        value.clear();
        value.push(VERSION);
        value.extend_from_slice(&self.epoch.to_be_bytes());
        value.push(self.batch_count | if self.has_marker { HAS_MARKER } else { 0 });
        value.extend_from_slice(&self.last_time.to_be_bytes());
        value.extend_from_slice(&self.open_first_offset.unwrap_or(NONE).to_be_bytes());
        assert!(self.batches().len() <= SEQUENCE_WINDOW, "five batches are remembered at most");
        let mut newer: Option<&SequencedBatch> = None;
        for batch in self.batches().iter().rev() {
            match newer {
                None => {
                    value.extend_from_slice(&batch.last_sequence.to_be_bytes());
                    value.extend_from_slice(&batch.last_offset.to_be_bytes());
                    value.extend_from_slice(&batch.timestamp.to_be_bytes());
                    put_varint(value, batch.record_count());
                }
                Some(newer) => {
                    put_varint(value, batch.record_count());
                    assert!(newer.base_offset() > batch.last_offset, "offsets only rise");
                    put_varint(value, newer.base_offset().abs_diff(batch.last_offset));
                    put_varint(value, zigzag(batch.timestamp.wrapping_sub(newer.timestamp)));
                }
            }
            newer = Some(batch);
        }
    }

    /// Reads a value; the key is for the error.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`ProducerRow::encode`] does not write.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        let mut fields = Fields::new(Family::Producers, key, value, VERSION)?;
        let epoch = ProducerEpoch::from_be_bytes([fields.u8()?, fields.u8()?]);
        let counts = fields.u8()?;
        let batch_count = counts & !HAS_MARKER;
        let mut row = Self::new(epoch, fields.i64()?);
        let open = fields.i64()?;
        row.open_first_offset = (open != NONE).then_some(open);
        row.has_marker = counts & HAS_MARKER != 0;
        if epoch < NO_PRODUCER_EPOCH || open < NONE || usize::from(batch_count) > SEQUENCE_WINDOW {
            return Err(fields.corruption("a field is out of its range"));
        }
        row.batch_count = batch_count;
        let mut newer: Option<SequencedBatch> = None;
        for at in (0..usize::from(batch_count)).rev() {
            let batch = match newer {
                None => {
                    let (sequence, offset) = (fields.i32()?, fields.i64()?);
                    let timestamp = fields.i64()?;
                    SequencedBatch::ending(sequence, offset, timestamp, fields.varint()?)
                }
                Some(newer) => {
                    let (record_count, gap) = (fields.varint()?, fields.varint()?);
                    let sequence = newer.first_sequence.wrapping_sub(1) & Sequence::MAX;
                    let offset = newer.base_offset().checked_sub_unsigned(gap).unwrap_or(-1);
                    let timestamp = newer.timestamp.wrapping_add(unzigzag(fields.varint()?));
                    let batch = SequencedBatch::ending(sequence, offset, timestamp, record_count);
                    batch.filter(|_| gap > 0)
                }
            };
            let batch = batch.ok_or_else(|| fields.corruption("a batch of it is out of range"))?;
            row.batches[at] = batch;
            newer = Some(batch);
        }
        fields.end()?;
        Ok(row)
    }
}

/// The key of a producer in a partition.
///
/// # Panics
/// If the id is negative: such a one is no producer's.
#[must_use]
pub fn producer_key(partition: PartitionId, producer_id: ProducerId) -> [u8; 12] {
    let id = u64::try_from(producer_id).expect("the id of a producer is never negative");
    let mut key = [0; 12];
    key[..4].copy_from_slice(&partition.0.to_be_bytes());
    key[4..].copy_from_slice(&id.to_be_bytes());
    debug_assert_eq!(decode_producer_key(&key), Ok((partition, producer_id)));
    key
}

/// Partition and producer of a key.
///
/// # Errors
/// [`Corruption`] for a key that [`producer_key`] does not make.
pub fn decode_producer_key(key: &[u8]) -> Result<(PartitionId, ProducerId), Corruption> {
    split(Family::Producers, key)
}

/// A producer transaction that was aborted, in one partition where it has data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedRow {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// The offset of its first record here.
    pub first_offset: Offset,
    /// The last stable offset once it had ended: whoever reads no further than it needs no entry
    /// after this one.
    pub last_stable: Offset,
}

impl AbortedRow {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> [u8; 25] {
        assert!(self.producer_id >= 0, "a producer has an id");
        assert!(self.first_offset >= 0, "offsets are never negative");
        let mut value = [VERSION; 25];
        value[1..9].copy_from_slice(&self.producer_id.to_be_bytes());
        value[9..17].copy_from_slice(&self.first_offset.to_be_bytes());
        value[17..].copy_from_slice(&self.last_stable.to_be_bytes());
        value
    }

    /// Reads a value; the key is for the error.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`AbortedRow::encode`] does not write.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        let mut fields = Fields::new(Family::Aborted, key, value, VERSION)?;
        let row = Self {
            producer_id: fields.i64()?,
            first_offset: fields.i64()?,
            last_stable: fields.i64()?,
        };
        let (_, marker) = decode_aborted_key(key)?;
        if row.producer_id < 0 || row.first_offset < 0 || row.first_offset > marker {
            return Err(fields.corruption("a field is out of its range"));
        }
        fields.end()?;
        Ok(row)
    }
}

/// Partition and offset of the abort marker of a key of family `aborted`, which is made as that of
/// a batch whose last offset is the marker's: [`super::batch_key`].
///
/// # Errors
/// [`Corruption`] for any other key.
pub fn decode_aborted_key(key: &[u8]) -> Result<(PartitionId, Offset), Corruption> {
    split(Family::Aborted, key)
}

fn split(family: Family, key: &[u8]) -> Result<(PartitionId, i64), Corruption> {
    let corrupt = || Corruption::in_store(family.name(), key, "its key is malformed");
    let (partition, number) = key.split_first_chunk::<4>().ok_or_else(corrupt)?;
    let number = number.try_into().map_err(|_| corrupt())?;
    let number = i64::try_from(u64::from_be_bytes(number)).map_err(|_| corrupt())?;
    Ok((PartitionId(u32::from_be_bytes(*partition)), number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::keyspace::batch_key;

    fn batch(first_sequence: i32, last_sequence: i32, last_offset: i64) -> SequencedBatch {
        SequencedBatch { first_sequence, last_sequence, last_offset, timestamp: -1 }
    }

    #[test]
    fn a_producer_is_drawn_as_it_is_written_and_every_truncation_is_corruption() {
        let key = producer_key(PartitionId(5), 1000);
        assert_eq!(key, *b"\0\0\0\x05\0\0\0\0\0\0\x03\xe8");
        assert_eq!(decode_producer_key(&key), Ok((PartitionId(5), 1000)));
        let mut row = ProducerRow::new(3, 256);
        row.open_first_offset = Some(7);
        row.has_marker = true;
        row.push(batch(0, 1, 8));
        row.push(batch(2, 4, 42));
        let mut value = Vec::new();
        row.encode(&mut value);
        let expected = [
            &b"\x01\0\x03\x82"[..],
            b"\0\0\0\0\0\0\x01\0",
            b"\0\0\0\0\0\0\0\x07",
            b"\0\0\0\x04\0\0\0\0\0\0\0\x2a",
            &[0xff; 8],
            b"\x03\x02\x20\x00",
        ];
        assert_eq!(value, expected.concat());
        assert_eq!(ProducerRow::decode(&key, &value), Ok(row));
        for length in 0..value.len() {
            assert!(ProducerRow::decode(&key, &value[..length]).is_err(), "length {length}");
        }
        value.push(0);
        assert!(ProducerRow::decode(&key, &value).is_err());
        for length in 0..key.len() {
            assert!(decode_producer_key(&key[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn five_batches_are_remembered_and_the_oldest_is_forgotten() {
        let mut row = ProducerRow::new(0, 0);
        assert_eq!(row.last_sequence(), -1);
        for sequence in 0..7 {
            row.push(batch(sequence, sequence, i64::from(sequence)));
        }
        let sequences: Vec<_> = row.batches().iter().map(|batch| batch.first_sequence).collect();
        assert_eq!(sequences, [2, 3, 4, 5, 6]);
        assert_eq!(row.last_sequence(), 6);
        let mut value = Vec::new();
        row.encode(&mut value);
        assert_eq!(value.len(), 4 + 8 + 8 + 21 + 4 * 3, "five batches take little room");
        assert_eq!(ProducerRow::decode(b"", &value), Ok(row));
        row.forget_batches();
        assert!(row.batches().is_empty());
    }

    #[test]
    fn a_batch_that_goes_over_the_end_of_sequences_knows_its_first_offset() {
        assert_eq!(batch(i32::MAX - 1, 1, 10).base_offset(), 7);
        assert_eq!(batch(4, 4, 10).base_offset(), 10);
        assert_eq!(batch(0, i32::MAX, i64::from(i32::MAX)).base_offset(), 0);
    }

    #[test]
    fn batches_of_any_size_at_any_offsets_and_times_are_read_as_they_were_written() {
        let mut row = ProducerRow::new(0, i64::MIN);
        let mut first = i32::MAX - 5;
        for (count, last_offset, timestamp) in [
            (1, 0, i64::MAX),
            (4, 4, i64::MIN),
            (300, 1 << 40, -1),
            (i32::MAX, (1 << 40) + (1 << 33), 1_700_000_000_000),
            (70_000, i64::MAX, 0),
        ] {
            let last_sequence = first.wrapping_add(count - 1) & i32::MAX;
            row.push(SequencedBatch {
                first_sequence: first,
                last_sequence,
                last_offset,
                timestamp,
            });
            first = last_sequence.wrapping_add(1) & i32::MAX;
            let mut value = Vec::new();
            row.encode(&mut value);
            assert_eq!(ProducerRow::decode(b"", &value), Ok(row));
        }
    }

    #[test]
    fn an_aborted_transaction_is_read_as_it_was_written_and_nothing_else_is() {
        let key = batch_key(PartitionId(5), 42);
        assert_eq!(decode_aborted_key(&key), Ok((PartitionId(5), 42)));
        let row = AbortedRow { producer_id: 1, first_offset: 40, last_stable: 43 };
        let value = row.encode();
        assert_eq!(AbortedRow::decode(&key, &value), Ok(row));
        for length in 0..value.len() {
            assert!(AbortedRow::decode(&key, &value[..length]).is_err(), "length {length}");
        }
        let after = AbortedRow { first_offset: 43, ..row }.encode();
        assert!(AbortedRow::decode(&key, &after).is_err());
    }
}
