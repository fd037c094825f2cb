//! A request to a transactional id in the committer's hands: decided, planned, published, answered.

use std::sync::Arc;

use super::ending::PlannedEnding;
use super::error::ProducerError;
use crate::base::rules::Rule;
use crate::base::types::{
    CommitSequence, Durability, NO_PRODUCER_ID, ProducerId, ProducerIdentity, TimestampMs,
};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict};
use crate::core::{GroupOffset, HeldId, Shared, staged_place};
use crate::index::keyspace::{ProducerTransactionRow, producer_transaction_key};
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
        }
    }
}

/// The answer; `None` where a new producer id is needed and none was drawn.
type Answer = Result<Option<ProducerIdentity>, ProducerError>;
type Told = Promise<Answer>;

pub(super) struct TransactionChange {
    shared: Arc<Shared>,
    request: Arc<Request>,
    told: Told,
    fresh: Option<ProducerId>,
    planned: Option<Planned>,
    refused: Option<ProducerError>,
    /// The answer where nothing is to be written.
    unwritten: Option<Option<ProducerIdentity>>,
}

struct Planned {
    /// What the id is then; nothing where it is forgotten.
    held: Option<HeldId>,
    ending: Option<PlannedEnding>,
    durability: Durability,
    answer: Result<ProducerIdentity, ProducerTransactionError>,
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
        let make = |told| -> Box<dyn Change> {
            Box::new(TransactionChange {
                shared: Arc::clone(shared),
                request: Arc::clone(&request),
                told,
                fresh,
                planned: None,
                refused: None,
                unwritten: None,
            })
        };
        match shared.commit(make).map_err(ProducerError::NotWritten)?? {
            Some(answer) => return Ok(answer),
            // Few requests need one, and the committer cannot reserve ids while it plans.
            None => fresh = Some(shared.draw_producer_id()?),
        }
    }
}

impl TransactionChange {
    fn try_plan(
        &mut self,
        moment: &Moment,
        plan: &mut FramePlan,
    ) -> Result<Option<Planned>, ProducerError> {
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
        let now_ms = moment.append_time.max(0);
        let decision = (self.request.decide)(row, now_ms, &mut fresh)?;
        if is_missing {
            self.unwritten = Some(None);
            return Ok(None);
        }
        let step = match decision {
            Decision::Step(step) => *step,
            Decision::Forget => return Ok(Some(self.plan_forget(plan))),
        };
        let gone = self.gone();
        if let Some(partition) = gone {
            return Err(ProducerError::UnknownPartition { partition });
        }
        if step.row.is_none() && self.request.staged.is_none() && !self.request.is_sync {
            self.unwritten = Some(Some(step.answer?));
            return Ok(None);
        }
        self.check_count(held.is_none())?;
        self.plan_step(moment, step, held, plan).map(Some)
    }

    fn plan_step(
        &self,
        moment: &Moment,
        step: Step,
        held: Option<HeldId>,
        plan: &mut FramePlan,
    ) -> Result<Planned, ProducerError> {
        let ending = match (&step.ending, &held) {
            (Some(ending), Some(held)) => {
                let planned = PlannedEnding::plan(&self.shared, ending, held, plan);
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
        self.stage(moment, &mut next, plan);
        let key = producer_transaction_key(&self.request.id);
        plan.write_batch.put(Family::ProducerTransactions, &key, &next.row.encode());
        let durability = if self.request.is_sync { Durability::Sync } else { step.durability };
        Ok(Planned { held: Some(next), ending, durability, answer: step.answer })
    }

    fn stage(&self, moment: &Moment, next: &mut HeldId, plan: &mut FramePlan) {
        let Some((group, offsets)) = &self.request.staged else { return };
        for (partition, offset) in offsets {
            let place = staged_place(group, partition);
            let row = offset.row(moment.append_time, moment.sequence);
            let key = place.key(next.row.current.producer_id);
            plan.write_batch.put(Family::ProducerTransactions, &key, &row.encode());
            next.staged.insert(place, row);
        }
    }

    fn plan_forget(&self, plan: &mut FramePlan) -> Planned {
        let key = producer_transaction_key(&self.request.id);
        plan.write_batch.delete(Family::ProducerTransactions, &key);
        let answer = Ok(ProducerIdentity::NONE);
        Planned { held: None, ending: None, durability: Durability::Buffered, answer }
    }

    fn check_count(&self, is_new: bool) -> Result<(), ProducerError> {
        let limit = self.shared.config.max_transactional_ids;
        if is_new && self.shared.transactions.lock().len() >= limit as usize {
            return Err(ProducerError::TooManyTransactionalIds { limit });
        }
        Ok(())
    }

    /// The first partition of the request that does not exist any more.
    fn gone(&self) -> Option<Partition> {
        let staged = self.request.staged.iter().flat_map(|(_, offsets)| offsets);
        let mut all = self.request.partitions.iter().chain(staged.map(|(partition, _)| partition));
        all.find(|partition| !self.shared.catalog.holds(partition.topic())).cloned()
    }
}

impl Change for TransactionChange {
    fn queued_bytes(&self) -> u64 {
        // What a partition, or an offset beside its metadata, costs at the end, about.
        const PER_PART: usize = 256;
        let staged = self.request.staged.iter().flat_map(|(_, offsets)| offsets);
        let staged = staged.map(|(_, offset)| PER_PART + offset.metadata.len()).sum::<usize>();
        (PER_PART * (1 + self.request.partitions.len()) + staged) as u64
    }

    fn durability(&self) -> Durability {
        if self.shared.pipeline.broken().breaks(Rule::D1ProducerTransactionsSynced) {
            return Durability::Buffered;
        }
        self.planned.as_ref().map_or(Durability::Buffered, |planned| planned.durability)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        // An end lets readers go on, and there are no more of them than transactions are open.
        self.planned.as_ref().is_some_and(|planned| planned.ending.is_some())
    }

    fn plan(&mut self, moment: &Moment, plan: &mut FramePlan) -> Verdict {
        match self.try_plan(moment, plan) {
            Ok(Some(planned)) => {
                self.planned = Some(planned);
                Verdict::Planned
            }
            Ok(None) => Verdict::Refused,
            Err(error) => {
                self.refused = Some(error);
                Verdict::Refused
            }
        }
    }

    fn undo(&mut self) {
        if let Some(ending) = self.planned.as_mut().and_then(|planned| planned.ending.as_mut()) {
            ending.undo(&self.shared);
        }
    }

    fn publish(&mut self, sequence: CommitSequence) {
        let planned = self.planned.as_mut().expect("a published change was planned");
        let mut transactions = self.shared.transactions.lock();
        match planned.held.take() {
            Some(held) => transactions.put(self.request.id.clone(), held),
            None => transactions.remove(&self.request.id),
        }
        drop(transactions);
        if let Some(ending) = &planned.ending {
            ending.publish(&self.shared, sequence);
        }
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        if let Some(unused) = self.fresh {
            self.shared.return_producer_id(unused);
        }
        self.told.fulfil(match (outcome, self.unwritten) {
            (Outcome::Refused, Some(answer)) => Ok(answer),
            (Outcome::Refused, None) => {
                Err(self.refused.expect("a refused change keeps its reason"))
            }
            (Outcome::Committed { .. }, _) => {
                let planned = self.planned.expect("a committed change was planned");
                planned.answer.map(Some).map_err(ProducerError::Refused)
            }
            (Outcome::NotWritten(error), _) => Err(ProducerError::NotWritten(error)),
            (Outcome::Unknown(error), _) => Err(ProducerError::OutcomeUnknown(error)),
        });
    }
}
