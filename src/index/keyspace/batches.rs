//! Families `batches` and `index`: where each record batch lies, and the sparse sums over a partition.
//!
//! ```text
//! key (both)   partition id u32 | last offset u64 (offsets are never negative)
//! batches      version u8 (1) | base offset i64 | record count u32 | CRC-32C u32 | attributes u16
//!              | max timestamp i64 | append time i64 | leader epoch i32
//!              | home u8 (1: commit log) | segment u64 | position u64 | length u32
//! index        version u8 (1) | cumulative bytes u64 | running maximum timestamp i64
//! ```
//!
//! The key is the *last* offset, so that one forward seek to a fetch offset lands on the batch that
//! holds it, gaps included. `home` leaves room for small batches inside the store itself.

use super::bytes::Fields;
use crate::base::error::Corruption;
use crate::base::types::{
    LeaderEpoch, Offset, PartitionId, PayloadLocation, SegmentId, TimestampMs,
};
use crate::index::write_batch::Family;

const VERSION: u8 = 1;
const HOME_LOG: u8 = 1;

/// What the index knows of one record batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The offset of its first record when it was appended.
    pub base_offset: Offset,
    /// The records in it.
    pub record_count: u32,
    /// Its checksum, as in its header: what a read compares.
    pub crc: u32,
    /// Its attributes, as in its header.
    pub attributes: u16,
    /// Its greatest timestamp.
    pub max_timestamp: TimestampMs,
    /// The engine's clock when its commit was formed.
    pub append_time: TimestampMs,
    /// The leader epoch that it is served with.
    pub leader_epoch: LeaderEpoch,
    /// Where its bytes lie.
    pub location: PayloadLocation,
}

impl BatchEntry {
    /// The length of the encoding.
    pub const ENCODED_LEN: usize = 1 + 8 + 4 + 4 + 2 + 8 + 8 + 4 + 1 + 8 + 8 + 4;

    /// Where segment and position stand in the encoding, 16 bytes: they are known only once the
    /// write batch that holds the entry is complete.
    pub const LOCATION_AT: usize = 1 + 8 + 4 + 4 + 2 + 8 + 8 + 4 + 1;

    /// The bytes of segment and position at [`BatchEntry::LOCATION_AT`].
    #[must_use]
    pub fn encode_location(segment: SegmentId, position: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&segment.0.to_be_bytes());
        bytes[8..].copy_from_slice(&position.to_be_bytes());
        bytes
    }

    /// When the batch counts as written, for its age: at the smaller of its greatest timestamp and
    /// its append time, so that a timestamp far in the future pins nothing; at its append time if
    /// it has none.
    #[must_use]
    pub fn written_at(&self) -> TimestampMs {
        if self.max_timestamp < 0 {
            return self.append_time;
        }
        self.max_timestamp.min(self.append_time)
    }

    /// The value in family `batches`.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_LEN] {
        assert!(self.base_offset >= 0, "offsets are never negative");
        let mut bytes = [0; Self::ENCODED_LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&[VERSION]);
        put(&self.base_offset.to_be_bytes());
        put(&self.record_count.to_be_bytes());
        put(&self.crc.to_be_bytes());
        put(&self.attributes.to_be_bytes());
        put(&self.max_timestamp.to_be_bytes());
        put(&self.append_time.to_be_bytes());
        put(&self.leader_epoch.to_be_bytes());
        put(&[HOME_LOG]);
        put(&Self::encode_location(self.location.segment, self.location.position));
        put(&self.location.length_bytes.to_be_bytes());
        assert_eq!(at, Self::ENCODED_LEN, "every byte is written");
        bytes
    }

    /// Reads a value of family `batches`.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`BatchEntry::encode`] does not write.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        let mut fields = Fields::new(Family::Batches, key, value, VERSION)?;
        let (base_offset, record_count, crc) = (fields.i64()?, fields.u32()?, fields.u32()?);
        let attributes = u16::from_be_bytes([fields.u8()?, fields.u8()?]);
        let (max_timestamp, append_time, leader_epoch) =
            (fields.i64()?, fields.i64()?, fields.i32()?);
        if fields.u8()? != HOME_LOG {
            return Err(fields.corruption("the home of the batch is not known"));
        }
        let location = PayloadLocation {
            segment: SegmentId(fields.u64()?),
            position: fields.u64()?,
            length_bytes: fields.u32()?,
        };
        let last_offset = batch_key_offset(key)?;
        if base_offset < 0 || base_offset > last_offset {
            return Err(fields.corruption("its base offset is not at or below its last offset"));
        }
        fields.end()?;
        Ok(Self {
            base_offset,
            record_count,
            crc,
            attributes,
            max_timestamp,
            append_time,
            leader_epoch,
            location,
        })
    }
}

/// What the index knows of a partition up to one batch; one entry for every 64 KiB or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Bytes of all batches appended to the partition up to here, removed ones too.
    pub cumulative_bytes: u64,
    /// The greatest timestamp up to here.
    pub running_max_timestamp: TimestampMs,
}

impl IndexEntry {
    /// The value in family `index`.
    #[must_use]
    pub fn encode(&self) -> [u8; 17] {
        let mut bytes = [VERSION; 17];
        bytes[1..9].copy_from_slice(&self.cumulative_bytes.to_be_bytes());
        bytes[9..].copy_from_slice(&self.running_max_timestamp.to_be_bytes());
        bytes
    }

    /// Reads a value of family `index`.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`IndexEntry::encode`] does not write.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        let mut fields = Fields::new(Family::Index, key, value, VERSION)?;
        let (cumulative_bytes, running_max_timestamp) = (fields.u64()?, fields.i64()?);
        fields.end()?;
        Ok(Self { cumulative_bytes, running_max_timestamp })
    }
}

/// The key of a batch, or of an index entry, by its last offset.
///
/// # Panics
/// If the offset is negative: such a one is never given.
#[must_use]
pub fn batch_key(partition: PartitionId, last_offset: Offset) -> [u8; 12] {
    let offset = u64::try_from(last_offset).expect("offsets are never negative");
    let mut key = [0; 12];
    key[..4].copy_from_slice(&partition.0.to_be_bytes());
    key[4..].copy_from_slice(&offset.to_be_bytes());
    debug_assert_eq!(decode_batch_key(&key), Ok((partition, last_offset)));
    key
}

/// The last offset in a key that [`batch_key`] made.
///
/// # Errors
/// [`Corruption`] for any other key.
pub fn batch_key_offset(key: &[u8]) -> Result<Offset, Corruption> {
    Ok(decode_batch_key(key)?.1)
}

/// Partition and last offset in a key that [`batch_key`] made.
///
/// # Errors
/// [`Corruption`] for any other key.
pub fn decode_batch_key(key: &[u8]) -> Result<(PartitionId, Offset), Corruption> {
    let corrupt =
        || Corruption::in_store(Family::Batches.name(), key, "its key is not a partition's");
    let bytes: &[u8; 12] = key.try_into().map_err(|_| corrupt())?;
    let (partition, offset) = bytes.split_last_chunk::<8>().ok_or_else(corrupt)?;
    let partition: &[u8; 4] = partition.try_into().map_err(|_| corrupt())?;
    let offset = Offset::try_from(u64::from_be_bytes(*offset)).map_err(|_| corrupt())?;
    Ok((PartitionId(u32::from_be_bytes(*partition)), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> BatchEntry {
        BatchEntry {
            base_offset: 40,
            record_count: 3,
            crc: 0xdead_beef,
            attributes: 0x0102,
            max_timestamp: -1,
            append_time: 1_700_000_000_000,
            leader_epoch: 7,
            location: PayloadLocation { segment: SegmentId(9), position: 4096, length_bytes: 77 },
        }
    }

    #[test]
    fn an_entry_is_decoded_as_it_was_encoded_and_its_bytes_are_those_on_disk() {
        let key = batch_key(PartitionId(5), 42);
        let value = entry().encode();
        assert_eq!(BatchEntry::decode(&key, &value), Ok(entry()));
        let expected = b"\x01\0\0\0\0\0\0\0\x28\0\0\0\x03\xde\xad\xbe\xef\x01\x02\
            \xff\xff\xff\xff\xff\xff\xff\xff\0\0\x01\x8b\xcf\xe5\x68\0\0\0\0\x07\
            \x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\x10\0\0\0\0\x4d";
        assert_eq!(&value[..], &expected[..]);
        let location = BatchEntry::encode_location(SegmentId(9), 4096);
        assert_eq!(value[BatchEntry::LOCATION_AT..][..16], location);
    }

    #[test]
    fn every_other_length_version_and_home_is_corruption() {
        let key = batch_key(PartitionId(5), 42);
        let value = entry().encode();
        for length in 0..value.len() {
            assert!(BatchEntry::decode(&key, &value[..length]).is_err(), "length {length}");
        }
        let mut longer = value.to_vec();
        longer.push(0);
        assert!(BatchEntry::decode(&key, &longer).is_err());
        for at in [0, BatchEntry::LOCATION_AT - 1] {
            let mut changed = value;
            changed[at] = 9;
            assert!(BatchEntry::decode(&key, &changed).is_err(), "byte {at}");
        }
        assert!(BatchEntry::decode(&batch_key(PartitionId(5), 39), &value).is_err());
        assert!(BatchEntry::decode(b"short", &value).is_err());
    }

    #[test]
    fn keys_sort_by_partition_and_then_by_offset() {
        let mut keys = [
            batch_key(PartitionId(257), 0),
            batch_key(PartitionId(1), i64::MAX),
            batch_key(PartitionId(256), 1),
            batch_key(PartitionId(1), 255),
            batch_key(PartitionId(1), 256),
        ];
        keys.sort_unstable();
        let offsets: Vec<_> = keys.iter().map(|key| batch_key_offset(key).unwrap()).collect();
        assert_eq!(offsets, [255, 256, i64::MAX, 1, 0]);
    }

    #[test]
    fn an_index_entry_is_decoded_as_it_was_encoded() {
        let key = batch_key(PartitionId(5), 42);
        let entry = IndexEntry { cumulative_bytes: u64::MAX, running_max_timestamp: i64::MIN };
        assert_eq!(IndexEntry::decode(&key, &entry.encode()), Ok(entry));
        assert!(IndexEntry::decode(&key, &entry.encode()[1..]).is_err());
    }
}
