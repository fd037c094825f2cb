//! What a consumer group commits of a partition: the value that callers give and get, and its limits.

use std::collections::BTreeMap;
use std::fmt;

use super::transactions::StagedPlace;
use crate::base::types::{CommitSequence, LeaderEpoch, Offset, TimestampMs};
use crate::index::keyspace::{GroupRow, MAX_GROUP_BYTES, group_key};
use crate::state::catalog::Partition;

/// The longest metadata of an offset, as the longest string of Kafka's protocol.
pub const MAX_METADATA_BYTES: usize = i16::MAX as usize;

/// What a group has committed of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOffset {
    /// The offset that the group reads next; any value is kept.
    pub offset: Offset,
    /// The leader epoch of the record before it, or -1.
    pub leader_epoch: LeaderEpoch,
    /// What the client wants to know with it.
    pub metadata: String,
}

/// The leader epoch of an offset that was committed without one.
const NO_LEADER_EPOCH: LeaderEpoch = -1;

/// An offset below 0 is none: Kafka's protocol lets clients commit it all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegativeOffset {
    /// The partition that it is for.
    pub partition: Partition,
    /// The offset.
    pub offset: Offset,
}

/// Checks that every offset is one.
///
/// # Errors
/// [`NegativeOffset`], for the first that is not.
pub fn check_offsets(offsets: &[(Partition, GroupOffset)]) -> Result<(), NegativeOffset> {
    match offsets.iter().find(|(_, committed)| committed.offset < 0) {
        Some((partition, committed)) => {
            Err(NegativeOffset { partition: partition.clone(), offset: committed.offset })
        }
        None => Ok(()),
    }
}

/// The name of a group or the metadata of an offset is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// The name of the group.
    Group {
        /// Its length.
        length_bytes: usize,
    },
    /// The metadata of an offset.
    Metadata {
        /// Its length.
        length_bytes: usize,
    },
}

impl GroupOffset {
    /// An offset without a leader epoch and without metadata.
    #[must_use]
    pub fn new(offset: Offset) -> Self {
        Self { offset, leader_epoch: NO_LEADER_EPOCH, metadata: String::new() }
    }

    /// The same with the leader epoch of the record before it.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: LeaderEpoch) -> Self {
        self.leader_epoch = leader_epoch;
        self
    }

    /// The same with what the client wants to know with it.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// The row of an offset that is requested in this commit.
    #[must_use]
    pub fn row(&self, commit_time: TimestampMs, requested_by: CommitSequence) -> GroupRow {
        GroupRow {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            commit_time,
            requested_by,
            metadata: self.metadata.clone(),
        }
    }
}

impl From<GroupRow> for GroupOffset {
    fn from(row: GroupRow) -> Self {
        Self { offset: row.offset, leader_epoch: row.leader_epoch, metadata: row.metadata }
    }
}

/// Checks the lengths of a group's name and of what it commits.
///
/// # Errors
/// [`TooLong`], for the first that is.
pub fn check_lengths(group: &str, offsets: &[(Partition, GroupOffset)]) -> Result<(), TooLong> {
    let length_bytes = group.len();
    if length_bytes > MAX_GROUP_BYTES {
        return Err(TooLong::Group { length_bytes });
    }
    let longest = offsets.iter().map(|(_, offset)| offset.metadata.len()).max().unwrap_or(0);
    if longest > MAX_METADATA_BYTES {
        return Err(TooLong::Metadata { length_bytes: longest });
    }
    Ok(())
}

/// Of one partition twice the last counts, and only that one is kept: the name of the group stands
/// in the row of each, and a request could have far more of them than there are partitions.
#[must_use]
pub fn last_of_each(offsets: Vec<(Partition, GroupOffset)>) -> Vec<(Partition, GroupOffset)> {
    let offsets = offsets.into_iter();
    let last: BTreeMap<_, _> =
        offsets.map(|(partition, offset)| (partition.cell().id(), (partition, offset))).collect();
    last.into_values().collect()
}

/// The key of a group and a partition. REQUIRES: the group's length was checked.
#[must_use]
pub fn group_offset_key(group: &str, partition: &Partition) -> Vec<u8> {
    group_key(group, partition.topic().id(), partition.index().unsigned_abs())
}

/// Where an open transaction holds an offset of a group.
#[must_use]
pub fn staged_place(group: &str, partition: &Partition) -> StagedPlace {
    StagedPlace {
        group: group.to_owned(),
        topic: partition.topic().id(),
        partition: partition.index().unsigned_abs(),
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group { length_bytes } => write!(
                f,
                "the name of a group is too long: length_bytes={length_bytes} \
                 limit={MAX_GROUP_BYTES}"
            ),
            Self::Metadata { length_bytes } => write!(
                f,
                "the metadata of an offset is too long: length_bytes={length_bytes} \
                 limit={MAX_METADATA_BYTES}"
            ),
        }
    }
}

impl std::error::Error for TooLong {}

impl fmt::Display for NegativeOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, offset } = self;
        write!(f, "an offset is never negative: partition={partition} offset={offset}")
    }
}

impl std::error::Error for NegativeOffset {}
