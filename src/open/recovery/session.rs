//! The sync commits that begin and end a life of the engine; between them the leader epoch is fixed.

use std::convert::Infallible;
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability};
use crate::commit::{Change, Failure, FramePlan};
use crate::core::Shared;
use crate::index::keyspace::{MetaKey, Session};
use crate::index::write_batch::Family;

struct SessionChange {
    session: Session,
}

/// Makes a life durable before anything is appended in it, and with it the leader epoch.
pub(super) fn begin_session(shared: &Arc<Shared>) -> Result<(), StorageError> {
    let session = shared.session;
    shared.commit(SessionChange { session })?
}

/// Closes the queue, with the commit that says so as the last one.
///
/// # Errors
/// What the storage says; the next open then finds a life that was not closed.
pub fn end_session(shared: &Shared) -> Result<(), StorageError> {
    let session = Session { closed_cleanly: true, ..shared.session };
    shared.queue.close_with(SessionChange { session }).wait()
}

impl Change for SessionChange {
    type Planned = ();
    type Refusal = Infallible;
    type Answer = Result<(), StorageError>;

    fn queued_bytes(&self) -> u64 {
        64
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<(), Infallible> {
        frame.write_batch.put(Family::Meta, &MetaKey::Session.key(), &self.session.encode());
        Ok(())
    }

    fn durability(&self, _planned: &()) -> Durability {
        Durability::Sync
    }

    fn undo(&mut self, _planned: ()) {}

    fn publish(&mut self, _planned: (), _sequence: CommitSequence) -> Self::Answer {
        Ok(())
    }

    fn fail(self, failure: Failure<Infallible>) -> Self::Answer {
        failure.into_refusal().map(|never| match never {})
    }
}
