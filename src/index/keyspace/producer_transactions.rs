//! Family `producer_transactions`: the state of each transactional id, and the offsets that open transactions hold.
//!
//! ```text
//! key     kind u8 (1) | transactional id, to the end
//! value   version u8 (1) | producer id i64 | epoch i16 | previous id i64 | previous epoch i16
//!         | timeout ms i32 | state u8 | started at i64 | updated at i64
//!         | partition count u32 | partition id u32 * | group count u32 | (length u16 | group) *
//! key     kind u8 (2) | producer id i64 | group length u16 | group | topic id, 16 bytes
//!         | partition u32
//! value   as in family `groups`
//! ```
//!
//! Partitions and groups stand in rising order, each once.

use super::bytes::Fields;
use super::groups::{GroupRow, group_key, split_group_key};
use crate::base::error::Corruption;
use crate::base::types::{
    MAX_PRODUCER_EPOCH, NO_TIMESTAMP, PartitionId, ProducerId, ProducerIdentity, TimestampMs,
    TopicId,
};
use crate::index::write_batch::Family;

const VERSION: u8 = 1;
const STATE: u8 = 1;
const PENDING_OFFSET: u8 = 2;

/// The longest transactional id, as the longest string of Kafka's protocol.
pub const MAX_TRANSACTIONAL_ID_BYTES: usize = i16::MAX as usize;

/// Where a transactional id stands. The numbers are Kafka's; those of its two-phase end (2, 3, 7)
/// and of removal (6) are never stored, because here a transaction ends in one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProducerTransactionState {
    /// No transaction since the producer got its epoch.
    Empty = 0,
    /// A transaction is open.
    Ongoing = 1,
    /// The last transaction was committed.
    CompleteCommit = 4,
    /// The last transaction was aborted.
    CompleteAbort = 5,
}

/// The state of a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerTransactionRow {
    /// The producer that holds the id.
    pub current: ProducerIdentity,
    /// What the present one was made of, where the request named it or the server fenced it: a
    /// request that still names it is a retry. [`ProducerIdentity::NONE`] otherwise.
    pub previous: ProducerIdentity,
    /// How long a transaction may be open.
    pub timeout_ms: i32,
    /// Where it stands.
    pub state: ProducerTransactionState,
    /// When the newest transaction was opened; [`NO_TIMESTAMP`] in state `Empty`.
    pub started_at: TimestampMs,
    /// When this row was last written.
    pub updated_at: TimestampMs,
    /// The partitions of the open transaction.
    pub partitions: Vec<PartitionId>,
    /// The consumer groups of the open transaction.
    pub groups: Vec<String>,
}

impl ProducerTransactionState {
    /// The state's name in Kafka.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Empty, Self::Ongoing, Self::CompleteCommit, Self::CompleteAbort]
            .into_iter()
            .find(|&state| state as u8 == byte)
    }
}

impl ProducerTransactionRow {
    /// The value.
    ///
    /// # Panics
    /// If a group is longer than [`super::MAX_GROUP_BYTES`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        for identity in [self.current, self.previous] {
            value.extend_from_slice(&identity.producer_id.to_be_bytes());
            value.extend_from_slice(&identity.producer_epoch.to_be_bytes());
        }
        value.extend_from_slice(&self.timeout_ms.to_be_bytes());
        value.push(self.state as u8);
        value.extend_from_slice(&self.started_at.to_be_bytes());
        value.extend_from_slice(&self.updated_at.to_be_bytes());
        let count = |length| u32::try_from(length).expect("a transaction's parts are limited");
        value.extend_from_slice(&count(self.partitions.len()).to_be_bytes());
        for partition in &self.partitions {
            value.extend_from_slice(&partition.0.to_be_bytes());
        }
        value.extend_from_slice(&count(self.groups.len()).to_be_bytes());
        for group in &self.groups {
            let length = u16::try_from(group.len()).expect("a group's length is checked before");
            value.extend_from_slice(&length.to_be_bytes());
            value.extend_from_slice(group.as_bytes());
        }
        value
    }

    /// Reads a value; the key is for the error.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`ProducerTransactionRow::encode`] does not write.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corruption> {
        let mut fields = Fields::new(Family::ProducerTransactions, key, value, VERSION)?;
        let (current, previous) = (identity(&mut fields)?, identity(&mut fields)?);
        let timeout_ms = fields.i32()?;
        let state = ProducerTransactionState::of(fields.u8()?);
        let state = state.ok_or_else(|| fields.corruption("its state is not known"))?;
        let (started_at, updated_at) = (fields.i64()?, fields.i64()?);
        let partitions = partitions(&mut fields)?;
        let groups = groups(&mut fields)?;
        let row = Self {
            current,
            previous,
            timeout_ms,
            state,
            started_at,
            updated_at,
            partitions,
            groups,
        };
        if let Some(what) = row.fault() {
            return Err(fields.corruption(what));
        }
        fields.end()?;
        Ok(row)
    }

    /// What no transactional id can be: such a row is neither read nor written.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let legal = |identity: ProducerIdentity| {
            identity.producer_id >= 0 && (0..=MAX_PRODUCER_EPOCH).contains(&identity.producer_epoch)
        };
        if !legal(self.current) {
            return Some("its producer is none");
        }
        if self.previous != ProducerIdentity::NONE && !legal(self.previous) {
            return Some("its previous producer is none");
        }
        let open = self.state == ProducerTransactionState::Ongoing;
        let has_parts = !self.partitions.is_empty() || !self.groups.is_empty();
        if has_parts && !open {
            return Some("it has parts although no transaction is open");
        }
        let empty = self.state == ProducerTransactionState::Empty;
        if empty != (self.started_at == NO_TIMESTAMP) {
            return Some("its time of opening does not fit its state");
        }
        if self.timeout_ms <= 0 {
            return Some("its timeout is not positive");
        }
        None
    }
}

fn identity(fields: &mut Fields<'_>) -> Result<ProducerIdentity, Corruption> {
    Ok(ProducerIdentity { producer_id: fields.i64()?, producer_epoch: fields.i16()? })
}

fn partitions(fields: &mut Fields<'_>) -> Result<Vec<PartitionId>, Corruption> {
    let count = fields.u32()? as usize;
    if fields.remaining() < count.saturating_mul(4) {
        return Err(fields.corruption("it has fewer partitions than it says"));
    }
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        let partition = PartitionId(fields.u32()?);
        if partitions.last().is_some_and(|last| *last >= partition) {
            return Err(fields.corruption("its partitions are not in order"));
        }
        partitions.push(partition);
    }
    Ok(partitions)
}

fn groups(fields: &mut Fields<'_>) -> Result<Vec<String>, Corruption> {
    let count = fields.u32()? as usize;
    // Each has a length of two bytes.
    if fields.remaining() < count.saturating_mul(2) {
        return Err(fields.corruption("it has fewer groups than it says"));
    }
    let mut groups: Vec<String> = Vec::with_capacity(count);
    for _ in 0..count {
        let length = fields.u16()?;
        let group = std::str::from_utf8(fields.bytes(usize::from(length))?);
        let group = group.map_err(|_| fields.corruption("a group is no UTF-8"))?;
        if groups.last().is_some_and(|last| last.as_str() >= group) {
            return Err(fields.corruption("its groups are not in order"));
        }
        groups.push(group.to_owned());
    }
    Ok(groups)
}

/// The key of a transactional id.
#[must_use]
pub fn producer_transaction_key(transactional_id: &str) -> Vec<u8> {
    [&[STATE], transactional_id.as_bytes()].concat()
}

/// The transactional id of a key.
///
/// # Errors
/// [`Corruption`] for a key that [`producer_transaction_key`] does not make.
pub fn decode_producer_transaction_key(key: &[u8]) -> Result<&str, Corruption> {
    let corrupt =
        || Corruption::in_store(Family::ProducerTransactions.name(), key, "its key is malformed");
    let [STATE, id @ ..] = key else { return Err(corrupt()) };
    std::str::from_utf8(id).map_err(|_| corrupt())
}

/// The least key that a transactional id can have, and the first key after all of them.
#[must_use]
pub const fn producer_transactions_range() -> ([u8; 1], [u8; 1]) {
    ([STATE], [STATE + 1])
}

/// Names an offset that an open transaction holds for a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingOffsetKey {
    /// The producer whose transaction it is.
    pub producer_id: ProducerId,
    /// The group.
    pub group: String,
    /// The topic of the partition.
    pub topic: TopicId,
    /// The partition's number in its topic.
    pub partition: u32,
}

impl PendingOffsetKey {
    /// The key.
    ///
    /// # Panics
    /// If the group is longer than [`super::MAX_GROUP_BYTES`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut key = pending_offsets_prefix(self.producer_id).to_vec();
        key.extend_from_slice(&group_key(&self.group, self.topic, self.partition));
        key
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`Corruption`] for a key that [`PendingOffsetKey::encode`] does not make.
    pub fn decode(key: &[u8]) -> Result<Self, Corruption> {
        let corrupt = || {
            let family = Family::ProducerTransactions.name();
            Corruption::in_store(family, key, "its key is malformed")
        };
        let [PENDING_OFFSET, rest @ ..] = key else { return Err(corrupt()) };
        let (producer_id, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let producer_id = ProducerId::from_be_bytes(*producer_id);
        let (group, topic, partition) = split_group_key(rest).ok_or_else(corrupt)?;
        let group = std::str::from_utf8(group).map_err(|_| corrupt())?.to_owned();
        Ok(Self { producer_id, group, topic, partition })
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// [`Corruption`] as [`GroupRow::decode`].
    pub fn decode_value(key: &[u8], value: &[u8]) -> Result<GroupRow, Corruption> {
        GroupRow::decode_in(Family::ProducerTransactions, key, value)
    }
}

/// The least key of an offset that an open transaction holds, and the first key after them all.
#[must_use]
pub const fn pending_offsets_range() -> ([u8; 1], [u8; 1]) {
    ([PENDING_OFFSET], [PENDING_OFFSET + 1])
}

fn pending_offsets_prefix(producer_id: ProducerId) -> [u8; 9] {
    let mut prefix = [PENDING_OFFSET; 9];
    prefix[1..].copy_from_slice(&producer_id.to_be_bytes());
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::CommitSequence;

    const ID: TopicId = TopicId::from_bytes([7; 16]);

    fn row() -> ProducerTransactionRow {
        ProducerTransactionRow {
            current: ProducerIdentity { producer_id: 5, producer_epoch: 2 },
            previous: ProducerIdentity { producer_id: 4, producer_epoch: 32766 },
            timeout_ms: 60_000,
            state: ProducerTransactionState::Ongoing,
            started_at: 256,
            updated_at: 257,
            partitions: vec![PartitionId(1), PartitionId(3)],
            groups: vec!["a".to_owned(), "bc".to_owned()],
        }
    }

    fn decode(row: &ProducerTransactionRow) -> Result<ProducerTransactionRow, Corruption> {
        ProducerTransactionRow::decode(b"k", &row.encode())
    }

    #[test]
    fn a_row_is_drawn_as_it_is_written_and_read_back_and_every_truncation_is_corruption() {
        let value = row().encode();
        let expected = [
            &[1][..],
            &[0, 0, 0, 0, 0, 0, 0, 5, 0, 2],
            &[0, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xfe],
            &[0, 0, 0xea, 0x60, 1],
            &[0, 0, 0, 0, 0, 0, 1, 0],
            &[0, 0, 0, 0, 0, 0, 1, 1],
            &[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3],
            &[0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c'],
        ];
        assert_eq!(value, expected.concat());
        assert_eq!(ProducerTransactionRow::decode(b"k", &value), Ok(row()));
        for length in 0..value.len() {
            assert!(
                ProducerTransactionRow::decode(b"k", &value[..length]).is_err(),
                "length={length}"
            );
        }
        let longer = [&value[..], &[0]].concat();
        assert!(ProducerTransactionRow::decode(b"k", &longer).is_err());
        let other_version = [&[2], &value[1..]].concat();
        assert!(ProducerTransactionRow::decode(b"k", &other_version).is_err());
    }

    #[test]
    fn counts_that_the_value_cannot_hold_are_corruption_before_anything_is_made_for_them() {
        let value = row().encode();
        for (count_at, what) in [(42, "partitions"), (54, "groups")] {
            let mut many = value.clone();
            many[count_at..count_at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
            let refused = ProducerTransactionRow::decode(b"k", &many).unwrap_err().to_string();
            assert!(refused.contains(what), "{refused}");
        }
    }

    #[test]
    fn what_no_transactional_id_can_be_is_corruption() {
        let identity =
            |producer_id, producer_epoch| ProducerIdentity { producer_id, producer_epoch };
        let complete = ProducerTransactionState::CompleteCommit;
        let bare = ProducerTransactionRow { partitions: Vec::new(), groups: Vec::new(), ..row() };
        let empty = ProducerTransactionRow {
            state: ProducerTransactionState::Empty,
            started_at: NO_TIMESTAMP,
            ..bare.clone()
        };
        for good in [
            ProducerTransactionRow { previous: ProducerIdentity::NONE, ..row() },
            ProducerTransactionRow { current: identity(0, 0), ..row() },
            ProducerTransactionRow { current: identity(0, 32766), ..row() },
            ProducerTransactionRow { state: complete, ..bare.clone() },
            empty.clone(),
        ] {
            assert_eq!(decode(&good), Ok(good));
        }
        for bad in [
            ProducerTransactionRow { current: ProducerIdentity::NONE, ..row() },
            ProducerTransactionRow { current: identity(5, -1), ..row() },
            ProducerTransactionRow { current: identity(5, 32767), ..row() },
            ProducerTransactionRow { previous: identity(-1, 0), ..row() },
            ProducerTransactionRow { previous: identity(4, 32767), ..row() },
            ProducerTransactionRow { timeout_ms: 0, ..row() },
            ProducerTransactionRow { state: complete, groups: Vec::new(), ..row() },
            ProducerTransactionRow { state: complete, partitions: Vec::new(), ..row() },
            ProducerTransactionRow { started_at: NO_TIMESTAMP, ..row() },
            ProducerTransactionRow { started_at: 0, ..empty },
            ProducerTransactionRow { partitions: vec![PartitionId(3), PartitionId(3)], ..row() },
            ProducerTransactionRow { groups: vec!["b".to_owned(), "a".to_owned()], ..row() },
        ] {
            assert!(decode(&bad).is_err(), "{bad:?}");
        }
        let mut value = row().encode();
        value[25] = 2;
        assert!(ProducerTransactionRow::decode(b"k", &value).is_err(), "a state of Kafka's alone");
    }

    #[test]
    fn keys_of_both_kinds_are_drawn_as_they_are_written_and_read_back() {
        let key = producer_transaction_key("tx");
        assert_eq!(key, b"\x01tx");
        assert_eq!(decode_producer_transaction_key(&key), Ok("tx"));
        let (begin, end) = producer_transactions_range();
        assert!(begin[..] <= key[..] && key[..] < end[..]);
        for malformed in [&b""[..], b"\x02tx", b"\x01\xff"] {
            assert!(decode_producer_transaction_key(malformed).is_err(), "{malformed:?}");
        }
        let pending =
            PendingOffsetKey { producer_id: 258, group: "ab".to_owned(), topic: ID, partition: 3 };
        let key = pending.encode();
        let expected =
            [&[2][..], &[0, 0, 0, 0, 0, 0, 1, 2], &[0, 2, b'a', b'b'], &[7; 16], &[0, 0, 0, 3]];
        assert_eq!(key, expected.concat());
        assert!(key[..] >= end[..], "the kinds do not mix");
        assert!(key.starts_with(&pending_offsets_prefix(258)));
        assert!(key[..] < pending_offsets_prefix(259)[..]);
        assert_eq!(PendingOffsetKey::decode(&key), Ok(pending));
        for length in 0..key.len() {
            assert!(PendingOffsetKey::decode(&key[..length]).is_err(), "length={length}");
        }
        assert!(PendingOffsetKey::decode(&[&key[..], &[0]].concat()).is_err());
        assert!(PendingOffsetKey::decode(&[&[1], &key[1..]].concat()).is_err());
    }

    #[test]
    fn a_pending_offset_is_kept_as_a_committed_one_and_damage_names_its_own_family() {
        let row = GroupRow {
            offset: 5,
            leader_epoch: 1,
            commit_time: 2,
            requested_by: CommitSequence(9),
            metadata: "m".to_owned(),
        };
        assert_eq!(PendingOffsetKey::decode_value(b"k", &row.encode()), Ok(row));
        let damaged = PendingOffsetKey::decode_value(b"k", &[1]).unwrap_err().to_string();
        assert!(damaged.contains("producer_transactions"), "{damaged}");
    }
}
