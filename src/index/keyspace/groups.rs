//! Family `groups`: what each consumer group has committed of each partition.
//!
//! ```text
//! key     group length u16 | group | topic id, 16 bytes | partition u32
//! value   version u8 (1) | offset i64 | leader epoch i32 | commit time i64 | requested by u64
//!         | metadata, to the end
//! ```
//!
//! The commit that requested an offset tells which of two is the later one: what a producer
//! transaction brings is older than its end. Family `producer_transactions` keeps the same value
//! until then.
//!
//! The topic's id and not its name: what was committed of a topic is nothing to one made anew.

use super::bytes::Fields;
use crate::base::error::Corruption;
use crate::base::types::{CommitSequence, LeaderEpoch, Offset, TimestampMs, TopicId};
use crate::index::write_batch::Family;

const VERSION: u8 = 1;

/// The longest name of a group, as the longest string of Kafka's protocol: half of what a key may
/// have.
pub const MAX_GROUP_BYTES: usize = i16::MAX as usize;

/// The stored offset of a group in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    /// The offset that the group reads next.
    pub offset: Offset,
    /// The leader epoch of the record before it; -1 where the client gave none.
    pub leader_epoch: LeaderEpoch,
    /// When it was committed.
    pub commit_time: TimestampMs,
    /// The commit in which it was requested; the greater one is the later request.
    pub requested_by: CommitSequence,
    /// What the client wants to know with it.
    pub metadata: String,
}

impl GroupRow {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        value.extend_from_slice(&self.offset.to_be_bytes());
        value.extend_from_slice(&self.leader_epoch.to_be_bytes());
        value.extend_from_slice(&self.commit_time.to_be_bytes());
        value.extend_from_slice(&self.requested_by.0.to_be_bytes());
        value.extend_from_slice(self.metadata.as_bytes());
        value
    }

    /// Reads a value; the key is for the error.
    ///
    /// # Errors
    /// [`Corruption`] for a value that is too short, of an unknown version or with metadata that
    /// is no UTF-8.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        Self::decode_in(Family::Groups, key, value)
    }

    /// Reads a value of another family that keeps offsets.
    pub(super) fn decode_in(family: Family, key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        let mut fields = Fields::new(family, key, value, VERSION)?;
        let (offset, leader_epoch, commit_time) = (fields.i64()?, fields.i32()?, fields.i64()?);
        let requested_by = CommitSequence(fields.u64()?);
        let metadata = std::str::from_utf8(fields.rest())
            .map_err(|_| Corruption::in_store(family.name(), key, "it is no UTF-8"))?;
        let metadata = metadata.to_owned();
        Ok(Self { offset, leader_epoch, commit_time, requested_by, metadata })
    }
}

/// The keys of a group begin with this.
///
/// # Panics
/// If the name is longer than [`MAX_GROUP_BYTES`].
#[must_use]
pub fn group_prefix(group: &str) -> Vec<u8> {
    let length = u16::try_from(group.len()).expect("the length of a group is checked before");
    [&length.to_be_bytes(), group.as_bytes()].concat()
}

/// The key of a group and a partition.
///
/// # Panics
/// If the name is longer than [`MAX_GROUP_BYTES`].
#[must_use]
pub fn group_key(group: &str, topic: TopicId, partition: u32) -> Vec<u8> {
    let mut key = group_prefix(group);
    key.extend_from_slice(topic.as_bytes());
    key.extend_from_slice(&partition.to_be_bytes());
    debug_assert_eq!(
        split_group_key(&key),
        Some((group.as_bytes(), topic, partition)),
        "a key that is written can be read"
    );
    key
}

/// The topic and the partition that a key ends with.
///
/// # Errors
/// [`Corruption`] where the key is not as long as it says.
pub fn decode_group_key(key: &[u8]) -> Result<(TopicId, u32), Corruption> {
    let parts = split_group_key(key);
    let corrupt = || Corruption::in_store(Family::Groups.name(), key, "its key is malformed");
    parts.map(|(_, topic, partition)| (topic, partition)).ok_or_else(corrupt)
}

/// The name of the group as bytes, the topic and the partition; `None` where the key is not as
/// long as it says.
pub(super) fn split_group_key(key: &[u8]) -> Option<(&[u8], TopicId, u32)> {
    let (length, rest) = key.split_first_chunk::<2>()?;
    let (group, after) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (topic, partition) = after.split_first_chunk::<16>()?;
    let partition = u32::from_be_bytes(partition.try_into().ok()?);
    Some((group, TopicId::from_bytes(*topic), partition))
}

/// The group that a key begins with.
///
/// # Errors
/// [`Corruption`] where the key is not as long as it says, or the name is no UTF-8.
pub fn group_of_key(key: &[u8]) -> Result<&str, Corruption> {
    decode_group_key(key)?;
    let name = &key[2..key.len() - 20];
    std::str::from_utf8(name)
        .map_err(|_| Corruption::in_store(Family::Groups.name(), key, "its group is no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TopicId = TopicId::from_bytes([7; 16]);

    #[test]
    fn a_row_is_drawn_as_it_is_written_and_read_back() {
        let row = GroupRow {
            offset: 5,
            leader_epoch: -1,
            commit_time: 256,
            requested_by: CommitSequence(3),
            metadata: "m".to_owned(),
        };
        let value = row.encode();
        let expected = [
            &[1][..],
            &[0, 0, 0, 0, 0, 0, 0, 5],
            &[255, 255, 255, 255],
            &[0, 0, 0, 0, 0, 0, 1, 0],
            &[0, 0, 0, 0, 0, 0, 0, 3],
            b"m",
        ];
        assert_eq!(value, expected.concat());
        assert_eq!(GroupRow::decode(b"k", &value), Ok(row));
        for length in 0..value.len() - 1 {
            assert!(GroupRow::decode(b"k", &value[..length]).is_err(), "length={length}");
        }
        assert!(GroupRow::decode(b"k", &[&value[..], &[0xff]].concat()).is_err());
        assert!(GroupRow::decode(b"k", &[&[2], &value[1..]].concat()).is_err());
    }

    #[test]
    fn a_key_begins_with_its_group_and_no_other_groups_key_does() {
        let key = group_key("ab", ID, 3);
        let expected = [&[0, 2][..], b"ab", &[7; 16], &[0, 0, 0, 3]].concat();
        assert_eq!(key, expected);
        assert_eq!(decode_group_key(&key), Ok((ID, 3)));
        assert_eq!(group_of_key(&key), Ok("ab"));
        assert!(group_of_key(&[&[0, 1, 0xff][..], &[0; 20]].concat()).is_err());
        assert!(key.starts_with(&group_prefix("ab")));
        for other in ["", "a", "abc", "b"] {
            assert!(!group_key(other, ID, 3).starts_with(&group_prefix("ab")), "{other}");
        }
        for length in 0..key.len() {
            assert!(decode_group_key(&key[..length]).is_err(), "length={length}");
        }
        assert!(decode_group_key(&[&key[..], &[0]].concat()).is_err());
    }
}
