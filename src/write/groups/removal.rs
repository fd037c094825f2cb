//! Takes away offsets of groups, and lists the groups that have any.
//!
//! A removal is alone in its commit group, so it sees every offset that was committed before it
//! and none after it.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::GroupError;
use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, TimestampMs, TopicId};
use crate::commit::{Change, Failure, FramePlan};
use crate::core::{Shared, StagedPlace, check_lengths, group_offset_key, staged_place};
use crate::index::keyspace::{GroupRow, decode_group_key, group_of_key, group_prefix};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::{Family, WriteBatch};
use crate::state::catalog::Partition;

/// Which offsets of a group go.
pub enum Which {
    /// All of them.
    All,
    /// Those of these partitions.
    Of(Vec<Partition>),
    /// Those committed at this time or before, but for those of some topics.
    CommittedUntil(TimestampMs, Vec<TopicId>),
}

/// Behind every key of a group, where its prefix stands before it.
const BEHIND_KEYS: [u8; 21] = [0xff; 21];
/// Behind every key of the family: no name is that long.
const BEHIND_GROUPS: [u8; 3] = [0xff; 3];

/// The groups that have committed something.
///
/// # Errors
/// [`GroupError`]: the storage.
pub fn groups(shared: &Shared) -> Result<Vec<String>, GroupError> {
    shared.check_open()?;
    let snapshot = shared.snapshot();
    let mut groups = Vec::new();
    let mut begin = Vec::new();
    while let Some(group) = first_group(snapshot.store(), &begin)? {
        debug_assert!(groups.last() != Some(&group), "each group is listed once");
        begin = group_prefix(&group);
        begin.extend_from_slice(&BEHIND_KEYS);
        groups.push(group);
    }
    Ok(groups)
}

/// The group of the first key from here on.
fn first_group(store: &dyn Read, begin: &[u8]) -> Result<Option<String>, StorageError> {
    let mut found = Ok(None);
    store.scan(Family::Groups, begin, &BEHIND_GROUPS, Direction::Forward, &mut |key, _| {
        found = group_of_key(key).map(|group| Some(group.to_owned()));
        ControlFlow::Break(())
    })?;
    Ok(found?)
}

/// Takes offsets of a group away; tells how many there were.
///
/// # Errors
/// [`GroupError`]: a name that is too long, or the storage.
pub fn remove_group_offsets(
    shared: &Arc<Shared>,
    group: &str,
    which: Which,
) -> Result<usize, GroupError> {
    check_lengths(group, &[]).map_err(GroupError::TooLong)?;
    let change = RemoveOffsets { shared: Arc::clone(shared), group: group.to_owned(), which };
    shared.commit(change).unwrap_or_else(|error| Err(GroupError::Storage(error)))
}

/// The commit.
struct RemoveOffsets {
    shared: Arc<Shared>,
    group: String,
    which: Which,
}

/// What planning found to remove.
struct PlannedRemoval {
    /// How many offsets.
    count: usize,
    /// What open transactions hold of it, each with its transactional id: it goes too.
    staged: Vec<(String, StagedPlace)>,
}

impl RemoveOffsets {
    fn plan_into(&self, batch: &mut WriteBatch) -> Result<usize, StorageError> {
        let store = &self.shared.pipeline.store;
        let mut count = 0;
        if let Which::Of(partitions) = &self.which {
            let mut seen = HashSet::new();
            for partition in partitions.iter().filter(|one| seen.insert(one.cell().id())) {
                let key = group_offset_key(&self.group, partition);
                if store.get(Family::Groups, &key)?.is_some() {
                    batch.delete(Family::Groups, &key);
                    count += 1;
                }
            }
            return Ok(count);
        }
        let begin = group_prefix(&self.group);
        let end = [&begin[..], &BEHIND_KEYS].concat();
        let mut failed = Ok(());
        store.scan(Family::Groups, &begin, &end, Direction::Forward, &mut |key, value| {
            debug_assert!(key.starts_with(&begin), "a key of this group");
            match self.goes(key, value) {
                Ok(true) => {
                    batch.delete(Family::Groups, key);
                    count += 1;
                }
                Ok(false) => {}
                Err(error) => failed = Err(error),
            }
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        failed.map(|()| count)
    }

    /// What open transactions hold for the group and is to go: their commit brings nothing.
    fn plan_staged(&self, batch: &mut WriteBatch) -> Vec<(String, StagedPlace)> {
        let wanted: Option<BTreeSet<StagedPlace>> = match &self.which {
            Which::All => None,
            Which::Of(partitions) => Some(
                partitions.iter().map(|partition| staged_place(&self.group, partition)).collect(),
            ),
            Which::CommittedUntil(..) => return Vec::new(),
        };
        let goes = |place: &StagedPlace| {
            place.group == self.group && wanted.as_ref().is_none_or(|wanted| wanted.contains(place))
        };
        let mut found = Vec::new();
        for (id, held) in self.shared.transactions.lock().staging() {
            for place in held.staged.keys().filter(|place| goes(place)) {
                let key = place.key(held.row.current.producer_id);
                batch.delete(Family::ProducerTransactions, &key);
                found.push((id.clone(), place.clone()));
            }
        }
        found
    }

    fn goes(&self, key: &[u8], value: &[u8]) -> Result<bool, StorageError> {
        let Which::CommittedUntil(time, except) = &self.which else { return Ok(true) };
        let (topic, partition) = decode_group_key(key)?;
        let place = StagedPlace { group: self.group.clone(), topic, partition };
        let staging = self.shared.transactions.lock();
        if staging.holds(&place) {
            return Ok(false);
        }
        Ok(!except.contains(&topic) && GroupRow::decode(key, value)?.commit_time <= *time)
    }
}

impl Change for RemoveOffsets {
    type Planned = PlannedRemoval;
    /// Nothing is to be removed, or what is there cannot be read.
    type Refusal = Result<(), StorageError>;
    type Answer = Result<usize, GroupError>;

    fn queued_bytes(&self) -> u64 {
        let partitions = if let Which::Of(partitions) = &self.which { partitions.len() } else { 1 };
        (partitions * (64 + self.group.len())) as u64
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<PlannedRemoval, Self::Refusal> {
        let count = self.plan_into(&mut frame.write_batch).map_err(Err)?;
        let staged = self.plan_staged(&mut frame.write_batch);
        if count == 0 && staged.is_empty() {
            Err(Ok(()))
        } else {
            Ok(PlannedRemoval { count, staged })
        }
    }

    fn durability(&self, _planned: &PlannedRemoval) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, _planned: PlannedRemoval) {}

    fn publish(&mut self, planned: PlannedRemoval, _sequence: CommitSequence) -> Self::Answer {
        self.shared.transactions.lock().unstage(&planned.staged);
        Ok(planned.count)
    }

    fn fail(self, failure: Failure<Self::Refusal>) -> Self::Answer {
        // Where nothing was to be removed there is no commit, and nothing is wrong.
        failure.into_refusal()??;
        Ok(0)
    }
}
