//! Offsets of consumer groups: what a group has committed of each partition, kept in the index.
//!
//! A commit is buffered, like all commits of groups. What was committed of a topic goes with the
//! topic.

mod removal;

pub use removal::{Which, groups, remove_group_offsets};

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability};
use crate::commit::{Change, Failure, FramePlan};
use crate::core::{
    GroupOffset, NegativeOffset, Shared, TooLong, check_lengths, group_offset_key, last_of_each,
};
use crate::index::keyspace::{GroupRow, decode_group_key, group_prefix};
use crate::index::store::Direction;
use crate::index::write_batch::Family;
use crate::state::catalog::{Catalog, Partition};

/// Offsets of a group were not committed, or could not be read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum GroupError {
    /// A name or the metadata of an offset is too long; nothing was committed.
    TooLong(TooLong),
    /// An offset is negative; nothing was committed.
    NegativeOffset(NegativeOffset),
    /// A topic was deleted since the handle was made; nothing was committed.
    UnknownPartition {
        /// The partition.
        partition: Partition,
    },
    /// The storage failed.
    Storage(StorageError),
}

/// Commits offsets of a group: all of them or none. Of one partition twice the last counts. What
/// they are is the caller's to check: see [`check_offsets`].
///
/// # Errors
/// [`GroupError`]: a name that is too long, a topic that is gone, or the storage.
pub fn commit_group_offsets(
    shared: &Arc<Shared>,
    group: &str,
    offsets: Vec<(Partition, GroupOffset)>,
) -> Result<(), GroupError> {
    check_lengths(group, &offsets).map_err(GroupError::TooLong)?;
    if offsets.is_empty() {
        return Ok(());
    }
    let offsets = last_of_each(offsets);
    let change = CommitOffsets { shared: Arc::clone(shared), group: group.to_owned(), offsets };
    shared.commit(change).unwrap_or_else(|error| Err(GroupError::Storage(error)))
}

/// What a group has committed of a partition, if anything.
///
/// # Errors
/// [`GroupError`]: a name that is too long, or the storage.
pub fn group_offset(
    shared: &Shared,
    group: &str,
    partition: &Partition,
) -> Result<Option<GroupOffset>, GroupError> {
    check_lengths(group, &[]).map_err(GroupError::TooLong)?;
    shared.check_open()?;
    let key = group_offset_key(group, partition);
    let row = shared.pipeline.store.get(Family::Groups, &key)?;
    Ok(row.map(|row| GroupRow::decode(&key, &row)).transpose()?.map(GroupOffset::from))
}

/// All that a group has committed, by topic id and partition.
///
/// # Errors
/// As [`group_offset`].
pub fn group_offsets(
    shared: &Shared,
    group: &str,
) -> Result<Vec<(Partition, GroupOffset)>, GroupError> {
    check_lengths(group, &[]).map_err(GroupError::TooLong)?;
    shared.check_open()?;
    let mut offsets = Vec::new();
    let mut failed = None;
    let begin = group_prefix(group);
    let end = [&begin[..], &[0xff; 21]].concat();
    shared.snapshot().store().scan(
        Family::Groups,
        &begin,
        &end,
        Direction::Forward,
        &mut |key, value| {
            debug_assert!(key.starts_with(&begin), "a key of this group");
            match read(&shared.catalog, key, value) {
                Ok(found) => offsets.extend(found),
                Err(error) => failed = Some(error),
            }
            if failed.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    )?;
    failed.map_or(Ok(offsets), |error| Err(GroupError::Storage(error)))
}

/// A row of a topic that exists.
fn read(
    catalog: &Catalog,
    key: &[u8],
    value: &[u8],
) -> Result<Option<(Partition, GroupOffset)>, StorageError> {
    let (topic, index) = decode_group_key(key)?;
    let Some(topic) = catalog.topic_by_id(topic) else { return Ok(None) };
    let index = i32::try_from(index).unwrap_or(-1);
    let Ok(partition) = topic.partition(index) else { return Ok(None) };
    Ok(Some((partition, GroupRow::decode(key, value)?.into())))
}

/// The commit.
struct CommitOffsets {
    shared: Arc<Shared>,
    group: String,
    offsets: Vec<(Partition, GroupOffset)>,
}

impl Change for CommitOffsets {
    type Planned = ();
    /// A partition that is gone.
    type Refusal = Partition;
    type Answer = Result<(), GroupError>;

    fn queued_bytes(&self) -> u64 {
        // What an entry costs beside its metadata and the name of its group, about.
        const PER_OFFSET: usize = 128;
        let bytes = self.offsets.iter().map(|(_, offset)| PER_OFFSET + offset.metadata.len());
        (self.group.len() * self.offsets.len() + bytes.sum::<usize>()) as u64
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<(), Partition> {
        let gone = self.offsets.iter().find(|(partition, _)| {
            partition.topic().is_deleted() || !self.shared.catalog.holds(partition.topic())
        });
        if let Some((partition, _)) = gone {
            return Err(partition.clone());
        }
        let moment = frame.moment();
        for (partition, offset) in &self.offsets {
            let row = offset.row(moment.append_time, moment.sequence);
            let key = group_offset_key(&self.group, partition);
            frame.write_batch.put(Family::Groups, &key, &row.encode());
        }
        Ok(())
    }

    fn durability(&self, _planned: &()) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, _planned: ()) {}

    fn publish(&mut self, _planned: (), _sequence: CommitSequence) -> Self::Answer {
        Ok(())
    }

    fn fail(self, failure: Failure<Partition>) -> Self::Answer {
        let partition = failure.into_refusal()?;
        Err(GroupError::UnknownPartition { partition })
    }
}

impl From<StorageError> for GroupError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<crate::base::error::Corruption> for GroupError {
    fn from(corruption: crate::base::error::Corruption) -> Self {
        Self::Storage(corruption.into())
    }
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeOffset(error) => write!(f, "an offset of the group is none: {error}"),
            Self::TooLong(error) => {
                write!(f, "a name or an offset of the group is too long: {error}")
            }
            Self::UnknownPartition { partition } => {
                write!(f, "the topic is gone: partition={partition}")
            }
            Self::Storage(error) => {
                write!(f, "the offsets of the group could not be kept or read: {error}")
            }
        }
    }
}

impl std::error::Error for GroupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooLong(error) => error.source(),
            Self::NegativeOffset(error) => error.source(),
            Self::Storage(error) => error.source(),
            Self::UnknownPartition { .. } => None,
        }
    }
}
