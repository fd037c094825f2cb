//! The 61 bytes before the records: read into a value, written back, stamped when served.

use crate::base::types::{LeaderEpoch, Offset, TimestampMs};

use super::attributes::{Attributes, Codec, TimestampType};

/// The size of a batch's header.
pub const HEADER_BYTES: usize = 61;

/// "No producer", as clients write it; any negative number reads as none.
pub const NO_PRODUCER_ID: i64 = -1;

/// "No sequence", as clients write it.
pub const NO_SEQUENCE: i32 = -1;

/// Bytes before the part that the length field counts.
pub(super) const LENGTH_END: usize = 12;

/// The byte of the version.
pub(super) const MAGIC_AT: usize = 16;

/// The first byte under the checksum.
pub(super) const CRC_START: usize = 21;

const MAGIC: u8 = 2;
const CRC_AT: usize = 17;

/// The header of a batch, field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub(super) base_offset: Offset,
    pub(super) size_bytes: usize,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) crc: u32,
    pub(super) attributes: Attributes,
    pub(super) last_offset_delta: i32,
    pub(super) base_timestamp: TimestampMs,
    pub(super) max_timestamp: TimestampMs,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) record_count: i32,
}

fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("every field lies inside the header")
}

impl BatchHeader {
    /// Reads the fields of a header whose length and magic were checked.
    pub(super) fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let length = u32::from_be_bytes(array(bytes, 8));
        Self {
            base_offset: i64::from_be_bytes(array(bytes, 0)),
            size_bytes: LENGTH_END + length as usize,
            leader_epoch: i32::from_be_bytes(array(bytes, LENGTH_END)),
            crc: u32::from_be_bytes(array(bytes, CRC_AT)),
            attributes: Attributes::from_bits(u16::from_be_bytes(array(bytes, CRC_START))),
            last_offset_delta: i32::from_be_bytes(array(bytes, 23)),
            base_timestamp: i64::from_be_bytes(array(bytes, 27)),
            max_timestamp: i64::from_be_bytes(array(bytes, 35)),
            producer_id: i64::from_be_bytes(array(bytes, 43)),
            producer_epoch: i16::from_be_bytes(array(bytes, 51)),
            base_sequence: i32::from_be_bytes(array(bytes, 53)),
            record_count: i32::from_be_bytes(array(bytes, 57)),
        }
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let length = u32::try_from(self.size_bytes - LENGTH_END).expect("a batch is below 2 GiB");
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.base_offset.to_be_bytes());
        bytes[8..LENGTH_END].copy_from_slice(&length.to_be_bytes());
        bytes[LENGTH_END..MAGIC_AT].copy_from_slice(&self.leader_epoch.to_be_bytes());
        bytes[MAGIC_AT] = MAGIC;
        bytes[CRC_AT..CRC_START].copy_from_slice(&self.crc.to_be_bytes());
        bytes[CRC_START..23].copy_from_slice(&self.attributes.bits().to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        bytes[57..].copy_from_slice(&self.record_count.to_be_bytes());
        bytes
    }

    /// The offset from which record deltas count.
    #[must_use]
    pub const fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// The offset of the last record that the batch had when it was appended.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        self.base_offset.wrapping_add(self.last_offset_delta as i64)
    }

    /// The size of the whole batch.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The leader epoch that was stamped, -1 from clients.
    #[must_use]
    pub const fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The CRC-32C over byte 21 to the end.
    #[must_use]
    pub const fn crc(&self) -> u32 {
        self.crc
    }

    /// The attribute bits.
    #[must_use]
    pub const fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// The codec; nothing for a number that no codec has.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        self.attributes.codec()
    }

    /// Whose clock gave the timestamps.
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        self.attributes.timestamp_type()
    }

    /// Whether the batch belongs to a producer transaction.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.attributes.is_transactional()
    }

    /// Whether the batch holds a control record.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes.is_control()
    }

    /// The last offset less the base offset; cleaning leaves it as it was.
    #[must_use]
    pub const fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta
    }

    /// What the timestamp deltas of records count from.
    #[must_use]
    pub const fn base_timestamp(&self) -> TimestampMs {
        self.base_timestamp
    }

    /// When the tombstones of the batch may go, if a cleaner has decided that.
    #[must_use]
    pub const fn delete_horizon_ms(&self) -> Option<TimestampMs> {
        if self.attributes.has_delete_horizon() { Some(self.base_timestamp) } else { None }
    }

    /// The greatest timestamp of a record, or the append time.
    #[must_use]
    pub const fn max_timestamp(&self) -> TimestampMs {
        self.max_timestamp
    }

    /// The producer id as it stands there; negative for none.
    #[must_use]
    pub const fn producer_id(&self) -> i64 {
        self.producer_id
    }

    /// Whether there is a producer id.
    #[must_use]
    pub const fn has_producer_id(&self) -> bool {
        self.producer_id >= 0
    }

    /// The epoch of the producer.
    #[must_use]
    pub const fn producer_epoch(&self) -> i16 {
        self.producer_epoch
    }

    /// The sequence of the first record, negative for none.
    #[must_use]
    pub const fn base_sequence(&self) -> i32 {
        self.base_sequence
    }

    /// The sequence of the last record, which wraps from 2^31-1 to 0; -1 without one.
    #[must_use]
    pub const fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        // Nonsense of a client (negative sequences and deltas) comes out as in Kafka.
        let (base, delta) = (self.base_sequence, self.last_offset_delta);
        if base > i32::MAX.wrapping_sub(delta) {
            delta.wrapping_sub(i32::MAX.wrapping_sub(base)).wrapping_sub(1)
        } else {
            base.wrapping_add(delta)
        }
    }

    /// The number of records; fewer than the offsets where a cleaner took some.
    #[must_use]
    pub const fn record_count(&self) -> i32 {
        self.record_count
    }
}

/// Writes what lies outside the checksum into a batch that is served: base offset and leader epoch.
///
/// # Panics
/// If `batch` is shorter than the 16 bytes that these fields end at.
pub fn stamp(batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[LENGTH_END..MAGIC_AT].copy_from_slice(&leader_epoch.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_field_different() -> [u8; HEADER_BYTES] {
        let mut bytes: [u8; HEADER_BYTES] = std::array::from_fn(|i| i as u8 + 1);
        bytes[MAGIC_AT] = MAGIC;
        bytes
    }

    #[test]
    fn a_header_read_and_written_is_the_same_bytes() {
        let bytes = every_field_different();
        assert_eq!(BatchHeader::read(&bytes).encode(), bytes);
    }

    #[test]
    fn the_last_sequence_wraps_to_zero_behind_the_greatest() {
        let mut header = BatchHeader::read(&every_field_different());
        (header.base_sequence, header.last_offset_delta) = (i32::MAX, 0);
        assert_eq!(header.last_sequence(), i32::MAX);
        header.last_offset_delta = 1;
        assert_eq!(header.last_sequence(), 0);
        (header.base_sequence, header.last_offset_delta) = (i32::MAX - 1, 9);
        assert_eq!(header.last_sequence(), 7);
        header.base_sequence = -1;
        assert_eq!(header.last_sequence(), NO_SEQUENCE);
    }

    #[test]
    fn stamping_changes_base_offset_and_leader_epoch_alone() {
        let before = every_field_different();
        let mut after = before;
        stamp(&mut after, 1000, 7);
        let header = BatchHeader::read(&after);
        assert_eq!((header.base_offset(), header.leader_epoch()), (1000, 7));
        assert_eq!(after[8..12], before[8..12]);
        assert_eq!(after[16..], before[16..]);
    }
}
