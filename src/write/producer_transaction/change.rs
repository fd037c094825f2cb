//! A request to a transactional id in the committer's hands: decided, planned, published, answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ending::PlannedEnding;
use super::error::ProducerError;
use crate::base::rules::Rule;
use crate::base::types::{
    CommitSequence, Durability, NO_PRODUCER_ID, ProducerId, ProducerIdentity, TimestampMs,
};
use crate::commit::{Change, Failure, FramePlan};
use crate::core::{GroupOffset, HeldId, Shared, staged_place};
use crate::index::keyspace::{
    ProducerTransactionRow, ProducerTransactionState, producer_transaction_key,
};
use crate::index::write_batch::Family;
use crate::state::catalog::Partition;
use crate::state::producer::transaction::{ProducerTransactionError, Step};

/// Draws a producer id that was never given.
pub(super) type Fresh<'a> = &'a mut dyn FnMut() -> ProducerId;

/// What is to become of a transactional id, once its turn has come.
pub(super) type Decide = Box<
    dyn Fn(
            Option<&ProducerTransactionRow>,
            TimestampMs,
            Fresh<'_>,
        ) -> Result<Decision, ProducerTransactionError>
        + Send
        + Sync,
>;

/// What was decided.
pub(super) enum Decision {
    /// A step of its state machine.
    Step(Box<Step>),
    /// It is forgotten.
    Forget,
}

impl Decision {
    pub(super) fn of(step: Step) -> Self {
        Self::Step(Box::new(step))
    }
}

/// A request.
pub(super) struct Request {
    pub(super) id: String,
    pub(super) decide: Decide,
    /// Partitions that it may add to the transaction.
    pub(super) partitions: Vec<Partition>,
    /// Offsets that it stages, with their group.
    pub(super) staged: Option<(String, Vec<(Partition, GroupOffset)>)>,
    /// Whether the answer must survive power loss, also where it is an old one: the commit that it
    /// tells of may not be synced yet.
    pub(super) is_sync: bool,
    /// Refuses it where this is true once its turn has come: an append that it covers has failed.
    pub(super) unless: Option<Arc<AtomicBool>>,
}

impl Request {
    /// One that is a step, adds no partition, stages nothing, and need not survive power loss.
    pub(super) fn of_step(
        id: &str,
        step: impl Fn(
            Option<&ProducerTransactionRow>,
            TimestampMs,
            Fresh<'_>,
        ) -> Result<Step, ProducerTransactionError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            id: id.to_owned(),
            decide: Box::new(move |row, now, fresh| step(row, now, fresh).map(Decision::of)),
            partitions: Vec::new(),
            staged: None,
            is_sync: false,
            unless: None,
        }
    }
}

pub(super) struct TransactionChange {
    shared: Arc<Shared>,
    request: Arc<Request>,
    fresh: Option<ProducerId>,
}

/// What planning decided.
pub(super) struct PlannedStep {
    /// What the id is then; nothing where it is forgotten.
    held: Option<HeldId>,
    ending: Option<PlannedEnding>,
    durability: Durability,
    answer: Result<ProducerIdentity, ProducerTransactionError>,
}

/// Why nothing is written.
pub(super) enum Unwritten {
    /// Nothing is to be written: this is the answer.
    Answered(ProducerIdentity),
    /// A new producer id is needed, and none was drawn.
    NeedsProducerId,
    /// The request is refused.
    Refused(ProducerError),
}

impl From<ProducerError> for Unwritten {
    fn from(error: ProducerError) -> Self {
        Self::Refused(error)
    }
}

impl From<ProducerTransactionError> for Unwritten {
    fn from(error: ProducerTransactionError) -> Self {
        Self::Refused(error.into())
    }
}

/// Carries a request out and waits for it.
///
/// # Errors
/// [`ProducerError`].
pub(super) fn carry_out(
    shared: &Arc<Shared>,
    request: Request,
) -> Result<ProducerIdentity, ProducerError> {
    let request = Arc::new(request);
    let mut fresh = None;
    loop {
        let change =
            TransactionChange { shared: Arc::clone(shared), request: Arc::clone(&request), fresh };
        match shared.commit(change).map_err(ProducerError::NotWritten)?? {
            Some(answer) => return Ok(answer),
            // Few requests need one, and the committer cannot reserve ids while it plans.
            None => fresh = Some(shared.draw_producer_id()?),
        }
    }
}

impl TransactionChange {
    fn try_plan(&mut self, frame: &mut FramePlan) -> Result<PlannedStep, Unwritten> {
        if self.request.unless.as_ref().is_some_and(|failed| failed.load(Ordering::SeqCst)) {
            return Err(ProducerError::AppendFailed.into());
        }
        let held = self.shared.transactions.lock().get(&self.request.id).cloned();
        let (drawn, mut is_missing) = (&mut self.fresh, false);
        let mut fresh = || {
            drawn.take().unwrap_or_else(|| {
                is_missing = true;
                NO_PRODUCER_ID
            })
        };
        let row = held.as_ref().map(|held| &held.row);
        // Times below 0 mean "none" in a row, and a clock may tell them.
        let now_ms = frame.moment().append_time.max(0);
        let decision = (self.request.decide)(row, now_ms, &mut fresh)?;
        if is_missing {
            return Err(Unwritten::NeedsProducerId);
        }
        let step = match decision {
            Decision::Step(step) => *step,
            Decision::Forget => return Ok(self.plan_forget(frame)),
        };
        let is_valid = |row: &ProducerTransactionRow| row.fault().is_none();
        assert!(step.row.as_ref().is_none_or(is_valid), "what is stored can be read again");
        assert!(step.ending.is_none() || held.is_some(), "only what is known ends");
        if let Some(partition) = self.gone() {
            return Err(ProducerError::UnknownPartition { partition }.into());
        }
        if step.row.is_none() && self.request.staged.is_none() && !self.request.is_sync {
            return Err(Unwritten::Answered(step.answer?));
        }
        self.check_count(held.is_none())?;
        Ok(self.plan_step(step, held, frame)?)
    }

    fn plan_step(
        &self,
        step: Step,
        held: Option<HeldId>,
        frame: &mut FramePlan,
    ) -> Result<PlannedStep, ProducerError> {
        let ending = match (&step.ending, &held) {
            (Some(ending), Some(held)) => {
                let planned = PlannedEnding::plan(&self.shared, ending, held, frame);
                // An end lets readers go on, and there are no more of them than transactions are
                // open.
                frame.allow_reserve();
                Some(planned.map_err(ProducerError::NotWritten)?)
            }
            _ => None,
        };
        let mut next = match (held, step.row) {
            (Some(held), Some(row)) => HeldId { row, ..held },
            (None, Some(row)) => HeldId::new(row),
            (Some(held), None) => held,
            (None, None) => unreachable!("a step without a row was made of one"),
        };
        if ending.is_some() {
            next = HeldId::new(next.row);
        }
        for partition in &self.request.partitions {
            if next.row.partitions.binary_search(&partition.cell().id()).is_ok() {
                next.partitions.insert(partition.cell().id(), partition.clone());
            }
        }
        self.stage(&mut next, frame);
        let is_open = next.row.state == ProducerTransactionState::Ongoing;
        assert!(next.staged.is_empty() || is_open, "only an open transaction holds offsets");
        assert!(next.partitions.is_empty() || is_open, "only an open transaction has partitions");
        let key = producer_transaction_key(&self.request.id);
        frame.write_batch.put(Family::ProducerTransactions, &key, &next.row.encode());
        let durability = if self.request.is_sync { Durability::Sync } else { step.durability };
        Ok(PlannedStep { held: Some(next), ending, durability, answer: step.answer })
    }

    fn stage(&self, next: &mut HeldId, frame: &mut FramePlan) {
        let Some((group, offsets)) = &self.request.staged else { return };
        let moment = frame.moment();
        debug_assert!(next.row.groups.contains(group), "the group is in the transaction");
        for (partition, offset) in offsets {
            let place = staged_place(group, partition);
            let row = offset.row(moment.append_time, moment.sequence);
            let key = place.key(next.row.current.producer_id);
            frame.write_batch.put(Family::ProducerTransactions, &key, &row.encode());
            next.staged.insert(place, row);
        }
    }

    fn plan_forget(&self, frame: &mut FramePlan) -> PlannedStep {
        let key = producer_transaction_key(&self.request.id);
        frame.write_batch.delete(Family::ProducerTransactions, &key);
        let answer = Ok(ProducerIdentity::NONE);
        PlannedStep { held: None, ending: None, durability: Durability::Buffered, answer }
    }

    fn check_count(&self, is_new: bool) -> Result<(), ProducerError> {
        let limit = self.shared.config.max_transactional_ids;
        if is_new && self.shared.transactions.lock().len() >= limit as usize {
            return Err(ProducerError::TooManyTransactionalIds { limit });
        }
        Ok(())
    }

    fn return_unused_id(&mut self) {
        if let Some(unused) = self.fresh.take() {
            self.shared.return_producer_id(unused);
        }
    }

    /// The first partition of the request that does not exist any more.
    fn gone(&self) -> Option<Partition> {
        let staged = self.request.staged.iter().flat_map(|(_, offsets)| offsets);
        let mut all = self.request.partitions.iter().chain(staged.map(|(partition, _)| partition));
        all.find(|partition| !self.shared.catalog.holds(partition.topic())).cloned()
    }
}

impl Change for TransactionChange {
    type Planned = PlannedStep;
    type Refusal = Unwritten;
    /// `None` where a new producer id is needed and none was drawn.
    type Answer = Result<Option<ProducerIdentity>, ProducerError>;

    fn queued_bytes(&self) -> u64 {
        // What a partition, or an offset beside its metadata, costs at the end, about.
        const PER_PART: usize = 256;
        let staged = self.request.staged.iter().flat_map(|(_, offsets)| offsets);
        let staged = staged.map(|(_, offset)| PER_PART + offset.metadata.len()).sum::<usize>();
        (PER_PART * (1 + self.request.partitions.len()) + staged) as u64
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<PlannedStep, Unwritten> {
        self.try_plan(frame)
    }

    fn durability(&self, planned: &PlannedStep) -> Durability {
        if self.shared.pipeline.broken().breaks(Rule::D1ProducerTransactionsSynced) {
            return Durability::Buffered;
        }
        planned.durability
    }

    fn undo(&mut self, planned: PlannedStep) {
        if let Some(ending) = planned.ending {
            ending.undo(&self.shared);
        }
    }

    fn publish(&mut self, planned: PlannedStep, sequence: CommitSequence) -> Self::Answer {
        let mut transactions = self.shared.transactions.lock();
        match planned.held {
            Some(held) => transactions.put(self.request.id.clone(), held),
            None => transactions.remove(&self.request.id),
        }
        drop(transactions);
        self.return_unused_id();
        if let Some(ending) = &planned.ending {
            ending.publish(&self.shared, sequence);
        }
        planned.answer.map(Some).map_err(ProducerError::Refused)
    }

    fn fail(mut self, failure: Failure<Unwritten>) -> Self::Answer {
        self.return_unused_id();
        match failure {
            Failure::Refused(Unwritten::Answered(answer)) => Ok(Some(answer)),
            Failure::Refused(Unwritten::NeedsProducerId) => Ok(None),
            Failure::Refused(Unwritten::Refused(error)) => Err(error),
            Failure::NotWritten(error) => Err(ProducerError::NotWritten(error)),
            Failure::Unknown(error) => Err(ProducerError::OutcomeUnknown(error)),
        }
    }
}
