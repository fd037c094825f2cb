//! Proof of the last sync (rule R7): where nothing in the log tells of it, a small commit does.
//!
//! The commit changes nothing and is not synced: about a hundred bytes in the log and one write to
//! the index. Each sync gets at most one, so an engine that is idle writes once, and then nothing.

use std::convert::Infallible;

use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability};
use crate::commit::{Change, Effects, Failure, FramePlan};
use crate::core::Shared;

struct Proof;

/// Commits what proves the last sync, if nothing proves it yet. On a full disk that comes later.
///
/// # Errors
/// What the storage says.
pub fn prove_sync(shared: &Shared) -> Result<(), StorageError> {
    let pipeline = &shared.pipeline;
    if pipeline.halted().is_some() || !pipeline.log.lacks_proof() {
        return Ok(());
    }
    if shared.queue.queued_bytes() > 0 {
        // The engine is not idle: the next frame tells of the sync.
        return Ok(());
    }
    match shared.commit(Proof)? {
        Ok(sequence) => {
            pipeline.log.note_proof(sequence);
            Ok(())
        }
        Err(StorageError::DiskFull { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Change for Proof {
    type Planned = ();
    type Refusal = Infallible;
    type Answer = Result<CommitSequence, StorageError>;

    fn queued_bytes(&self) -> u64 {
        64
    }

    fn plan(&mut self, _frame: &mut FramePlan) -> Result<(), Infallible> {
        Ok(())
    }

    fn durability(&self, _planned: &()) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, _planned: ()) {}

    fn publish(&mut self, _planned: (), sequence: CommitSequence) -> Self::Answer {
        Ok(sequence)
    }

    fn fail(self, failure: Failure<Infallible>) -> Self::Answer {
        failure.into_refusal().map(|never| match never {})
    }
}
