//! A change: what one commit checks, plans, publishes and answers, and the box that carries it through the queue.

use crate::base::callback::call;
use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability};

use super::plan::FramePlan;
use super::ticket::{Promise, Ticket};

/// One commit in the hands of the committer.
///
/// The committer calls `plan`, then either `publish`, or `undo` and `fail`. A change that is
/// refused sees `plan` and `fail` only. Each of them is called at most once.
pub trait Change: Sized + Send + 'static {
    /// What planning decided: publication shows it, or it is taken back.
    type Planned: Send;

    /// Why the change cannot be made.
    type Refusal: Send;

    /// What whoever waits is told.
    type Answer: Send + 'static;

    /// What it counts against the queue's bound.
    fn queued_bytes(&self) -> u64;

    /// Whether it must be alone in its group, because it plans by what is published.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Whether it may use the space that is held back for what gives space back. A change whose
    /// plan decides that says so there: [`FramePlan::allow_reserve`].
    fn may_use_reserve(&self) -> bool {
        false
    }

    /// Checks what it expects, and plans its frame on top of what was planned before it.
    ///
    /// # Errors
    /// Why the change is refused. Then nothing is planned, and what is in the frame is dropped.
    fn plan(&mut self, frame: &mut FramePlan) -> Result<Self::Planned, Self::Refusal>;

    /// What the commit has to survive before it is answered.
    fn durability(&self, planned: &Self::Planned) -> Durability;

    /// Takes back what it planned: its group was not written.
    fn undo(&mut self, planned: Self::Planned);

    /// Makes it visible, and says what the answer is once it is as durable as it asked. Called for
    /// the whole group under the publication lock.
    fn publish(&mut self, planned: Self::Planned, sequence: CommitSequence) -> Self::Answer;

    /// The answer to a change that was not made, or is not known to be. Called without locks.
    fn fail(self, failure: Failure<Self::Refusal>) -> Self::Answer;
}

/// Why a change was not made, or is not known to be.
#[derive(Debug, Clone)]
pub enum Failure<R> {
    /// Planning refused it; nothing exists.
    Refused(R),
    /// The storage below could not take it; nothing exists.
    NotWritten(StorageError),
    /// It may exist: reopening decides.
    Unknown(StorageError),
}

impl<R> Failure<R> {
    /// Why it was refused.
    ///
    /// # Errors
    /// The error of the storage, where it was not refused.
    pub fn into_refusal(self) -> Result<R, StorageError> {
        match self {
            Self::Refused(refusal) => Ok(refusal),
            Self::NotWritten(error) | Self::Unknown(error) => Err(error),
        }
    }
}

/// How a change leaves the committer.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// What publication or planning said is the answer.
    Settled,
    /// The storage below could not take it; nothing exists.
    NotWritten(StorageError),
    /// It may exist: reopening decides.
    Unknown(StorageError),
}

/// Any change, as the queue and the committer handle it.
pub(super) trait AnyChange: Send {
    fn is_exclusive(&self) -> bool;

    fn may_use_reserve(&self) -> bool;

    /// Plans it; false if it is refused.
    fn plan(&mut self, frame: &mut FramePlan) -> bool;

    /// REQUIRES: it was planned.
    fn durability(&self) -> Durability;

    /// REQUIRES: it is planned, and not published.
    fn undo(&mut self);

    /// REQUIRES: it is planned, and not undone.
    fn publish(&mut self, sequence: CommitSequence);

    fn answer(self: Box<Self>, outcome: Outcome);
}

/// A change on its way through the queue, with the promise of its answer: the one allocation that
/// the queue makes of it.
pub(super) struct Carried<C: Change> {
    change: C,
    stage: Stage<C>,
    durability: Durability,
    promise: Promise<C::Answer>,
}

enum Stage<C: Change> {
    Waiting,
    Planned(C::Planned),
    Refused(C::Refusal),
    /// Undone; or its publication is under way, or has panicked.
    Left,
    Published(C::Answer),
}

impl<C: Change> Carried<C> {
    pub(super) fn new(change: C) -> (Box<Self>, Ticket<C::Answer>) {
        let (promise, ticket) = Promise::new();
        let (stage, durability) = (Stage::Waiting, Durability::Buffered);
        (Box::new(Self { change, stage, durability, promise }), ticket)
    }

    /// The change again. REQUIRES: it was not queued.
    pub(super) fn into_change(self) -> C {
        assert!(matches!(self.stage, Stage::Waiting), "what was planned is not taken back");
        self.change
    }
}

impl<C: Change> AnyChange for Carried<C> {
    fn is_exclusive(&self) -> bool {
        self.change.is_exclusive()
    }

    fn may_use_reserve(&self) -> bool {
        self.change.may_use_reserve()
    }

    fn plan(&mut self, frame: &mut FramePlan) -> bool {
        assert!(matches!(self.stage, Stage::Waiting), "a change is planned once");
        match self.change.plan(frame) {
            Ok(planned) => {
                self.durability = self.change.durability(&planned);
                self.stage = Stage::Planned(planned);
                true
            }
            Err(refusal) => {
                self.stage = Stage::Refused(refusal);
                false
            }
        }
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn undo(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Left) {
            Stage::Planned(planned) => self.change.undo(planned),
            _ => unreachable!("only what is planned is undone"),
        }
    }

    fn publish(&mut self, sequence: CommitSequence) {
        match std::mem::replace(&mut self.stage, Stage::Left) {
            Stage::Planned(planned) => {
                self.stage = Stage::Published(self.change.publish(planned, sequence));
            }
            _ => unreachable!("only what is planned is published"),
        }
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        let Self { change, stage, promise, .. } = *self;
        let failure = match outcome {
            Outcome::NotWritten(error) => Failure::NotWritten(error),
            Outcome::Unknown(error) => Failure::Unknown(error),
            Outcome::Settled => match stage {
                Stage::Refused(refusal) => Failure::Refused(refusal),
                Stage::Published(answer) => {
                    promise.fulfil(answer);
                    // It may hold buffers of a caller's own kind, with code that runs when they
                    // are freed.
                    return call(move || drop(change));
                }
                _ => unreachable!("only what is published or refused is settled"),
            },
        };
        promise.fulfil(change.fail(failure));
    }
}
