//! The sync commits that begin and end a life of the engine; between them the leader epoch is fixed.

use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Ticket, Verdict};
use crate::core::Shared;
use crate::index::keyspace::{MetaKey, Session};
use crate::index::write_batch::Family;

struct SessionChange {
    session: Session,
    told: Promise<Result<(), StorageError>>,
}

/// Makes a life durable before anything is appended in it, and with it the leader epoch.
pub(super) fn begin_session(shared: &Arc<Shared>) -> Result<(), StorageError> {
    let session = shared.session;
    shared.commit(|told| Box::new(SessionChange { session, told }))?
}

/// Closes the queue, with the commit that says so as the last one.
///
/// # Errors
/// What the storage says; the next open then finds a life that was not closed.
pub fn end_session(shared: &Shared) -> Result<(), StorageError> {
    let session = Session { closed_cleanly: true, ..shared.session };
    let (told, ticket): (_, Ticket<Result<(), StorageError>>) = Promise::new();
    shared.queue.close(Some(Box::new(SessionChange { session, told })));
    ticket.wait()
}

impl Change for SessionChange {
    fn queued_bytes(&self) -> u64 {
        64
    }

    fn durability(&self) -> Durability {
        Durability::Sync
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        plan.write_batch.put(Family::Meta, &MetaKey::Session.key(), &self.session.encode());
        Verdict::Planned
    }

    fn undo(&mut self) {}

    fn publish(&mut self, _sequence: CommitSequence) {}

    fn answer(self: Box<Self>, outcome: Outcome) {
        self.told.fulfil(Shared::expect_committed(outcome));
    }
}
