//! Who may commit offsets, and the locks that keep the order of commits and readers.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use tidelog::GroupError;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::coordinator::{Coordinator, OFFSET_LOCKS};
use super::group::State;
use super::messages::Committer;

impl Coordinator {
    /// Whether these offsets may be committed; call it with the lock of the group's offsets. It
    /// may look into the engine.
    ///
    /// # Errors
    /// Why not; `unknown_group` where there is no such group and a generation is named.
    pub fn check_commit(
        &self,
        name: &str,
        committer: Committer<'_>,
        unknown_group: ResponseError,
    ) -> Result<(), ResponseError> {
        self.check(name, committer, false, unknown_group)
    }

    /// Whether this member may commit offsets inside a producer transaction; call it with the lock
    /// of the group's offsets. It may look into the engine.
    ///
    /// # Errors
    /// Why not.
    pub fn check_member(
        &self,
        group: &str,
        member_id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), ResponseError> {
        let committer = Committer { member_id, instance, generation };
        self.check(group, committer, true, ResponseError::IllegalGeneration)
    }

    fn check(
        &self,
        name: &str,
        committer: Committer<'_>,
        in_transaction: bool,
        unknown_group: ResponseError,
    ) -> Result<(), ResponseError> {
        let Committer { member_id, instance, generation } = committer;
        let checked = self.with(name, |group, now, _| {
            group.check_commit(now, member_id, instance, generation, in_transaction)
        });
        match checked {
            Some(checked) => checked,
            None if generation < 0 => Ok(()),
            // A member from before a restart: it is to join again, as one of a known group.
            None if is_of_a_broker(member_id) => Err(ResponseError::UnknownMemberId),
            None if self.has_offsets(name)? => Err(ResponseError::UnknownMemberId),
            None => Err(unknown_group),
        }
    }

    /// Whether offsets of a group may be deleted; call it with their lock. It may look into the
    /// engine.
    ///
    /// # Errors
    /// That there is no such group, or that it has members of whom it is not known what they read.
    pub fn check_offset_delete(&self, name: &str) -> Result<(), ResponseError> {
        let known =
            self.with(name, |group, _, _| group.state() == State::Empty || group.is_of_consumers());
        match known {
            Some(true) => Ok(()),
            Some(false) => Err(ResponseError::NonEmptyGroup),
            // It stays, also when its last offset is gone.
            None if self.has_offsets(name)? => {
                self.touch(name);
                Ok(())
            }
            None => Err(ResponseError::GroupIdNotFound),
        }
    }

    /// Whether members of a group read this topic.
    pub fn is_subscribed_to(&self, name: &str, topic: &str) -> bool {
        self.with(name, |group, _, _| group.is_subscribed_to(topic)).unwrap_or(false)
    }

    /// Waits for the offsets of groups: while the locks are held nobody else commits, deletes or,
    /// through the broker, reads them.
    pub async fn lock_offsets<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Vec<OwnedMutexGuard<()>> {
        // Always in one order, so that nobody waits in a circle.
        let places: BTreeSet<usize> = names.map(place_of).collect();
        let mut locks = Vec::with_capacity(places.len());
        for place in places {
            locks.push(Arc::clone(&self.offset_locks[place]).lock_owned().await);
        }
        locks
    }

    /// As [`Coordinator::lock_offsets`], for one group, on a thread that may block.
    pub(super) fn lock_offsets_blocking(&self, name: &str) -> OwnedMutexGuard<()> {
        Arc::clone(&self.offset_locks[place_of(name)]).blocking_lock_owned()
    }

    /// Whether a group has committed anything.
    pub(super) fn has_offsets(&self, name: &str) -> Result<bool, ResponseError> {
        match self.engine.group(name).offsets() {
            Ok(offsets) => Ok(!offsets.is_empty()),
            Err(GroupError::TooLong(_)) => Ok(false),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

fn place_of(name: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    usize::try_from(hasher.finish() % OFFSET_LOCKS).expect("a small number")
}

/// Whether a member id was made by this broker or by one before it in its place.
fn is_of_a_broker(member_id: &str) -> bool {
    let start = member_id.len().checked_sub(36);
    let id = start.and_then(|start| member_id.get(start..));
    id.and_then(|id| Uuid::try_parse(id).ok()).is_some_and(|id| id.get_version_num() == 8)
}

/// The code where the engine cannot be read.
pub(super) fn unavailable(error: &GroupError) -> ResponseError {
    let reason = crate::fault::sentence(error);
    tracing::warn!(%reason, "offsets of groups could not be read or removed");
    ResponseError::CoordinatorNotAvailable
}
