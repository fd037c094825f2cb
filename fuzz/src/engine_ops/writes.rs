//! Append transactions: begun, committed, submitted, aborted; and what makes them durable.

use tidelog::error::StorageError;
use tidelog::record::TimestampType;
use tidelog::testing::FailedFlush;
use tidelog::{
    AppendTransaction, CommitError, CommitRefusal, Committed, Durability, NotWritten, Partition,
    Record, Ticket,
};

use super::batches::{Expected, Planned, Source, claims_log_time, records_of};
use super::input::{BatchSpec, FailedCut, Part, Spot};
use super::life::Runner;
use super::world::World;

/// A transaction that was begun.
pub(super) struct Held {
    transaction: AppendTransaction,
    parts: Vec<Planned>,
}

type AppendTicket = Ticket<Result<Committed, CommitError>>;

/// A transaction that was submitted and not answered.
pub(super) struct Waiting {
    ticket: AppendTicket,
    durability: Durability,
    state: State,
}

enum State {
    Queued(Vec<Planned>),
    /// It is published, at this place in the order of commits.
    Published(usize, Expected),
}

fn durability(sync: bool) -> Durability {
    if sync { Durability::Sync } else { Durability::Buffered }
}

impl Runner {
    pub(super) fn partition(&self, spot: &Spot) -> Option<Partition> {
        let topic = self.engine().topic(spot.name.0)?;
        topic.partition(i32::from(spot.partition) % topic.partition_count() as i32).ok()
    }

    /// Adds records or a batch to the transaction that is held.
    pub(super) fn add(&mut self, part: &Part) {
        let Some(partition) = self.partition(&part.spot) else { return };
        let records = self.source.records(part, self.now());
        let mut held = self.held.take().unwrap_or_else(|| Held {
            transaction: self.engine().append_transaction(),
            parts: Vec::new(),
        });
        let taken = match &part.batch {
            None => self.add_records(&mut held.transaction, &partition, part, records),
            Some(spec) => self.add_batch(&mut held.transaction, &partition, part, spec, &records),
        };
        if let Some(records) = taken.filter(|records| !records.is_empty()) {
            let timestamp_type = partition.topic().settings().effective().timestamp_type;
            held.parts.push(Planned {
                name: part.spot.name.0,
                id: partition.topic().id(),
                index: partition.index() as usize,
                has_log_time: timestamp_type == TimestampType::LogAppendTime,
                records,
            });
        }
        self.held = Some(held);
    }

    fn add_records(
        &self,
        transaction: &mut AppendTransaction,
        partition: &Partition,
        part: &Part,
        mut records: Vec<Record>,
    ) -> Option<Vec<Record>> {
        transaction.set_codec(part.codec);
        let before = (transaction.batch_count(), transaction.size_bytes());
        let added = transaction.records(partition, records.clone());
        for record in &mut records {
            if record.timestamp == tidelog::types::NO_TIMESTAMP {
                record.timestamp = self.now();
            }
        }
        if added.is_err() {
            let after = (transaction.batch_count(), transaction.size_bytes());
            assert_eq!(after, before, "what was refused leaves no trace");
        }
        added.is_ok().then_some(records)
    }

    fn add_batch(
        &mut self,
        transaction: &mut AppendTransaction,
        partition: &Partition,
        part: &Part,
        spec: &BatchSpec,
        records: &[Record],
    ) -> Option<Vec<Record>> {
        let batch = Source::batch(records, part, spec)?;
        let before = (transaction.batch_count(), transaction.size_bytes());
        if transaction.batch(partition, batch.clone()).is_err() {
            let after = (transaction.batch_count(), transaction.size_bytes());
            assert_eq!(after, before, "what was refused leaves no trace");
            return None;
        }
        self.has_claims |= claims_log_time(&batch);
        Some(records_of(&batch))
    }

    pub(super) fn abort(&mut self) {
        self.held = None;
    }

    pub(super) fn commit(&mut self, sync: bool) {
        let Some(Held { transaction, parts }) = self.held.take() else { return };
        let was_halted = self.is_halted();
        let is_empty = transaction.is_empty();
        let result = transaction.commit(durability(sync));
        self.settle_waiting(false);
        if is_empty {
            let committed = result.expect("a transaction without batches writes nothing");
            assert_eq!(committed.sequence, None);
            return;
        }
        assert!(result.is_err() || !was_halted, "an engine that has halted takes no commit");
        let planned = self.plan(&parts);
        match result {
            Ok(committed) => {
                let (world, expected) = planned.expect("a topic of a committed append is there");
                expected.check(&committed);
                let place = self.history.push(world);
                if sync {
                    self.history.sync_through(place);
                }
            }
            Err(error) => self.note_failure(error, &parts, planned.map(|(world, _)| world)),
        }
    }

    /// The world after a commit of these parts now; nothing if a topic is gone.
    fn plan(&self, parts: &[Planned]) -> Option<(World, Expected)> {
        let last = self.history.last();
        let world = last.after(parts, self.now(), self.epoch())?;
        let log_end = |part: &Planned| {
            last.log(part.name, part.id, part.index).expect("its world was made").len()
        };
        Some((world, Expected::new(parts, self.now(), log_end)))
    }

    /// Takes the failure of a commit: the transaction comes back, or nobody knows.
    fn note_failure(&mut self, error: CommitError, parts: &[Planned], world: Option<World>) {
        match &error {
            CommitError::Refused { reason: CommitRefusal::UnknownPartition { .. }, .. } => {
                assert!(world.is_none(), "a topic that is there is not refused");
            }
            CommitError::Refused { reason, .. } => panic!("offsets do not end here: {reason:?}"),
            CommitError::NotWritten { reason: NotWritten::Storage(error), .. } => {
                self.excuse_unwritten(error);
            }
            CommitError::NotWritten { reason: NotWritten::QueueFull { .. }, .. } => {}
            CommitError::OutcomeUnknown(error) => {
                self.excuse(error);
                assert!(self.is_halted(), "what is not known has halted the engine");
                let world = world.expect("what was refused is not written");
                self.history.push_unknown(world);
            }
            _ => panic!("a commit fails in an unknown way: {error:?}"),
        }
        let record_count: usize = parts.iter().map(|part| part.records.len()).sum();
        if let Some(transaction) = error.into_transaction() {
            assert!(record_count > 0 && !transaction.is_empty(), "it comes back whole");
        }
    }

    fn excuse_unwritten(&self, error: &StorageError) {
        // Closing answers what it can no longer take.
        if !matches!(error, StorageError::Closed) {
            self.excuse(error);
        }
    }

    pub(super) fn submit(&mut self, sync: bool) {
        let Some(Held { transaction, parts }) = self.held.take() else { return };
        let queued_bytes = self.engine().metrics().queued_bytes;
        let durability = durability(sync);
        if transaction.is_empty() {
            let ticket = transaction.submit(durability).expect("it needs no room");
            assert_eq!(ticket.wait().expect("it writes nothing").sequence, None);
            return;
        }
        match transaction.submit(durability) {
            Ok(ticket) => {
                self.waiting.push(Waiting { ticket, durability, state: State::Queued(parts) });
            }
            Err(CommitError::NotWritten { reason, transaction }) => {
                assert!(matches!(reason, NotWritten::QueueFull { .. }), "{reason:?}");
                assert!(queued_bytes > 0, "an empty queue has room for any transaction");
                self.held = Some(Held { transaction: *transaction, parts });
            }
            Err(error) => panic!("a submit fails in an unknown way: {error:?}"),
        }
    }

    pub(super) fn run_pending(&mut self) {
        self.engine().maintenance().run_pending();
        self.settle_waiting(false);
        assert!(self.waiting.is_empty(), "all that waited is answered");
    }

    /// Looks at what was submitted: a commit behind it, or a run of the queue, has drained it.
    pub(super) fn settle_waiting(&mut self, engine_is_gone: bool) {
        if !engine_is_gone && self.engine().metrics().queued_bytes > 0 {
            return;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { ticket, durability, state } = waiting;
            match (ticket.try_wait(), state) {
                (Ok(result), State::Queued(parts)) => self.settle(result, durability, &parts),
                (Ok(Ok(committed)), State::Published(place, expected)) => {
                    expected.check(&committed);
                    self.history.sync_through(place);
                }
                (Ok(Err(CommitError::OutcomeUnknown(error))), State::Published(..)) => {
                    assert!(self.faults.planned, "a sync fails without a cause: {error:?}");
                }
                (Ok(Err(error)), State::Published(..)) => {
                    panic!("what is published was not refused: {error:?}")
                }
                (Err(ticket), State::Queued(parts)) => {
                    assert_eq!(durability, Durability::Sync, "a buffered commit is answered");
                    let (world, expected) = self.plan(&parts).expect("what waits was taken");
                    let state = State::Published(self.history.push(world), expected);
                    self.waiting.push(Waiting { ticket, durability, state });
                }
                (Err(ticket), state) => {
                    self.waiting.push(Waiting { ticket, durability, state });
                }
            }
        }
        assert!(!engine_is_gone || self.waiting.is_empty(), "an end answers all that waits");
    }

    fn settle(
        &mut self,
        result: Result<Committed, CommitError>,
        durability: Durability,
        parts: &[Planned],
    ) {
        let planned = self.plan(parts);
        match result {
            Ok(committed) => {
                let (world, expected) = planned.expect("a topic of a committed append is there");
                expected.check(&committed);
                let place = self.history.push(world);
                if durability == Durability::Sync {
                    self.history.sync_through(place);
                }
            }
            Err(error) => self.note_failure(error, parts, planned.map(|(world, _)| world)),
        }
    }

    pub(super) fn sync(&mut self) {
        match self.engine().sync() {
            Ok(()) => self.history.sync_all(),
            Err(error) => self.excuse(&error),
        }
    }

    pub(super) fn checkpoint(&mut self, fails: Option<&FailedCut>) {
        // A failure that is planned stays planned until a flush begins, which must be this one's.
        let fails = fails.filter(|_| !self.is_halted() && !self.faults.planned);
        if let Some(how) = fails {
            self.store.fail_next_flush(match how {
                FailedCut::KeepsOld => FailedFlush::KeepsOld,
                FailedCut::KeepsNew => FailedFlush::KeepsNew,
            });
            self.faults.planned = true;
        }
        match self.engine().maintenance().checkpoint() {
            Ok(()) => {
                assert!(fails.is_none(), "the flush was to fail");
                self.history.sync_all();
            }
            Err(error) => self.excuse(&error),
        }
    }

    pub(super) fn maintain(&mut self) {
        match self.engine().maintenance().run() {
            Ok(step) if step.took_checkpoint => self.history.sync_all(),
            Ok(_) => {}
            Err(error) => self.excuse(&error),
        }
    }
}
