//! An engine, the machine under it, and the model beside it: runs operations and holds each answer against the model.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tidelog::internals::rules::BrokenRules;
use tidelog::{
    Clock, CommitError, Committed, Durability, Engine, FetchOptions, NotWritten, Partition,
    StorageError, TopicId, Visibility,
};

use crate::machine::{Machine, NOW_MS, Stop};
use crate::model::{Appended, Batch, Effect, Model};
use crate::operations::{Append, Kinds, Operation};
use crate::random::Random;

/// How a life goes on after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    GoesOn,
    /// The process has been stopped in the middle of a call.
    Crashed,
    /// A failure of the storage has halted the engine.
    Halted,
}

/// What the run has made go wrong, so that its answers are legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expected {
    /// There is little room.
    pub full: bool,
    /// A call of the disk or the store fails, which halts the engine.
    pub failure: bool,
    /// That call is a sync, which may lose what is not synced.
    pub failing_sync: bool,
}

/// How the life before ended, for the leader epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// No engine was there before.
    First,
    Closed,
    /// In the middle of closing.
    Closing,
    Otherwise,
}

pub struct World {
    pub machine: Machine,
    pub model: Model,
    pub engine: Option<Engine>,
    pub random: Random,
    pub kinds: Kinds,
    pub ending: Ending,
    /// The leader epoch of the last open that came to its end.
    pub leader_epoch: i32,
    /// Opens that were stopped since then. Each may have left the commit that begins its life.
    pub tries: usize,
    /// Whether a sync has failed since the last open: it may have lost what was not synced.
    pub lost_a_sync: bool,
    /// Which answers of the storage are legal now.
    pub expected: Expected,
    /// The ends of partitions that readers of synced data have seen.
    pub shown_as_synced: HashMap<(TopicId, usize), i64>,
    pub trace: Vec<String>,
    /// How many segments were written over freed ones.
    pub reused_count: u64,
    /// How many of them by the engine that is open.
    reused_by_engine: u64,
    batch_count: u64,
    /// The most that the frames of the last group can have.
    group_bytes: u64,
}

pub type Answer = Result<Committed, CommitError>;

impl World {
    pub fn new(seed: u64, broken: BrokenRules, kinds: Kinds) -> Self {
        Self {
            machine: Machine::new(seed, broken),
            model: Model::default(),
            engine: None,
            random: Random::at(&[seed]),
            kinds,
            ending: Ending::First,
            leader_epoch: -1,
            tries: 0,
            lost_a_sync: false,
            expected: Expected::default(),
            shown_as_synced: HashMap::new(),
            trace: Vec::new(),
            reused_count: 0,
            reused_by_engine: 0,
            batch_count: 0,
            group_bytes: 0,
        }
    }

    /// The same world on a machine of its own. The engine is not in it.
    pub fn fork(&self, random: Random) -> Self {
        Self {
            machine: self.machine.fork(),
            model: self.model.clone(),
            engine: None,
            random,
            kinds: self.kinds,
            ending: self.ending,
            leader_epoch: self.leader_epoch,
            tries: self.tries,
            lost_a_sync: self.lost_a_sync,
            expected: self.expected,
            shown_as_synced: self.shown_as_synced.clone(),
            trace: self.trace.clone(),
            reused_count: self.reused_count,
            reused_by_engine: 0,
            batch_count: self.batch_count,
            group_bytes: 0,
        }
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is open")
    }

    /// Counts what the engine that was opened just now has written over.
    pub fn note_opened(&mut self) {
        self.reused_by_engine = self.engine().metrics().reused_segments;
        self.reused_count += self.reused_by_engine;
    }

    pub fn note(&mut self, what: impl fmt::Display) {
        self.trace.push(what.to_string());
    }

    /// Ends the process or the machine, in the middle of whatever it does.
    pub fn stop(&mut self, stop: Stop) {
        self.note(format_args!("stop: {stop:?}"));
        let seed = self.random.next();
        self.machine.stop(stop, seed);
        self.engine = None;
    }

    /// Leaves this much room on the disk from now on, or all that is wanted.
    pub fn limit_room(&mut self, room_bytes: Option<u64>) {
        self.note(format_args!("room: {room_bytes:?}"));
        let used = self.machine.used_bytes();
        self.machine.disk.set_capacity(room_bytes.map(|room| used + room));
        self.expected.full = room_bytes.is_some();
    }

    /// Runs an operation of the run's own choice.
    pub fn step(&mut self) -> Result<Flow, String> {
        let operation = Operation::invent(&mut self.random, self.model.state(), self.kinds);
        self.run(&operation)
    }

    pub fn run(&mut self, operation: &Operation) -> Result<Flow, String> {
        self.note(format_args!("{operation:?}"));
        if let Operation::Append(_) | Operation::Together(_) = operation {
            self.group_bytes = 0;
        }
        match operation {
            Operation::Append(append) => self.append(append)?,
            Operation::Together(appends) => self.append_together(appends)?,
            Operation::Create { name, partition_count, log_time } => {
                self.create(name, *partition_count, *log_time)?;
            }
            Operation::Delete { name } => self.delete(name)?,
            Operation::Grow { name, total_count } => self.grow(name, *total_count)?,
            Operation::Alter { name, setting, value } => {
                self.alter(name, setting, value.as_deref())?;
            }
            Operation::Sync => self.sync(None, Engine::sync)?,
            Operation::SyncWith(append) => self.sync(Some(append), Engine::sync)?,
            Operation::Checkpoint => self.sync(None, |engine| engine.maintenance().checkpoint())?,
            Operation::CheckpointWith(append) => {
                self.sync(Some(append), |engine| engine.maintenance().checkpoint())?
            }
            Operation::Maintain => self.maintain()?,
            Operation::DeleteRecords { name, partition, offset } => {
                self.delete_records(name, *partition, *offset)?;
            }
            Operation::CommitOffset { name, partition, offset } => {
                self.commit_offset(name, *partition, *offset)?;
            }
            Operation::StepClock(by_ms) => self.step_clock(*by_ms),
            Operation::Close => return self.close(),
            Operation::Drop => return self.drop_and_open(),
        }
        self.flow()
    }

    /// Whether the life goes on, after what must hold while it does.
    fn flow(&mut self) -> Result<Flow, String> {
        if self.machine.disk.has_crashed() {
            return Ok(Flow::Crashed);
        }
        let metrics = self.engine().metrics();
        self.reused_count += metrics.reused_segments - self.reused_by_engine;
        self.reused_by_engine = metrics.reused_segments;
        if metrics.halted {
            return match self.expected.failure {
                true => Ok(Flow::Halted),
                false => Err("the engine has halted and nothing had failed".into()),
            };
        }
        // A group larger than the bound is written alone.
        let limit = self.machine.config.max_unsynced_bytes.max(self.group_bytes);
        if metrics.unsynced_bytes > limit {
            return Err(format!("unsynced_bytes={} limit={limit}", metrics.unsynced_bytes));
        }
        self.note_synced_watermarks()?;
        Ok(Flow::GoesOn)
    }

    /// What a reader of synced data sees must survive whatever comes.
    fn note_synced_watermarks(&mut self) -> Result<(), String> {
        let engine = self.engine.as_ref().expect("the engine is open");
        for (name, topic) in &self.model.state().topics {
            let handle = engine.topic(name).ok_or_else(|| format!("topic {name} is gone"))?;
            for (index, partition) in handle.partitions().iter().enumerate() {
                let applied = engine.watermarks(partition).map_err(|error| error.to_string())?;
                let synced = engine.watermarks_of(partition, Visibility::Synced);
                let synced = synced.map_err(|error| error.to_string())?;
                let log_end = topic.log_end(index);
                if applied.log_end != log_end || synced.high_watermark > log_end {
                    return Err(format!("{name}-{index}: {applied:?}, and {log_end} is its end"));
                }
                self.shown_as_synced.insert((handle.id(), index), synced.high_watermark);
            }
        }
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        self.machine.clock.now_ms()
    }

    fn step_clock(&mut self, by_ms: i64) {
        let stepped = self.now_ms() + by_ms;
        // Times stay positive, whatever the steps come to.
        let is_far = !(NOW_MS / 4..NOW_MS * 3).contains(&stepped);
        self.machine.clock.set_ms(if is_far { NOW_MS } else { stepped });
    }

    /// The batches of a transaction, and the transaction with them.
    fn build(&mut self, append: &Append) -> (Vec<Appended>, Effect) {
        let now_ms = self.now_ms();
        let build = |part: &crate::operations::Part| {
            self.batch_count += 1;
            part.build(self.batch_count, now_ms)
        };
        let batches: Vec<Appended> = append.parts.iter().map(build).collect();
        // What a frame has beside its batches, at most.
        self.group_bytes +=
            batches.iter().map(|batch| batch.bytes.len() as u64 + 1024).sum::<u64>();
        let leader_epoch = self.leader_epoch;
        let effect =
            Effect::Append { leader_epoch, append_time_ms: now_ms, batches: batches.clone() };
        (batches, effect)
    }

    fn append(&mut self, append: &Append) -> Result<(), String> {
        let (batches, effect) = self.build(append);
        let transaction = transaction(self.engine(), &batches)?;
        let number = self.model.attempt(effect);
        let answer = transaction.commit(append.durability);
        self.judge(number, append.durability, answer)
    }

    fn append_together(&mut self, appends: &[Append]) -> Result<(), String> {
        let mut tickets = Vec::new();
        for append in appends {
            let (batches, effect) = self.build(append);
            let transaction = transaction(self.engine(), &batches)?;
            let number = self.model.attempt(effect);
            let ticket = transaction.submit(append.durability);
            let ticket = ticket.map_err(|error| format!("the queue has no room: {error}"))?;
            tickets.push((number, append.durability, ticket));
        }
        self.engine().maintenance().run_pending();
        let answers = tickets
            .into_iter()
            .map(|(number, durability, ticket)| (number, durability, ticket.wait()));
        // From the last on: what was not written is withdrawn from the end.
        let answers: Vec<_> = answers.collect();
        answers
            .into_iter()
            .rev()
            .try_for_each(|(number, durability, answer)| self.judge(number, durability, answer))
    }

    /// Holds the answer to a commit against the model.
    pub fn judge(
        &mut self,
        number: usize,
        durability: Durability,
        answer: Answer,
    ) -> Result<(), String> {
        match answer {
            Ok(committed) => {
                if committed.sequence.map(|sequence| sequence.0) != Some(number as u64) {
                    let sequence = committed.sequence;
                    return Err(format!("commit {number} was told another number: {sequence:?}"));
                }
                self.model.acknowledge(number);
                if durability == Durability::Sync {
                    self.model.settle(number);
                }
                let batches = self.read_back(number, &committed)?;
                let given = &mut self.model.given;
                batches.iter().try_for_each(|(id, index, batch)| given.batch(*id, *index, batch))
            }
            Err(CommitError::OutcomeUnknown(error)) => self.expect_storage(Err(error)),
            Err(CommitError::NotWritten { reason: NotWritten::Storage(error), .. }) => {
                if number <= self.model.acked() {
                    return Err(format!("commit {number} was not written, and one behind it was"));
                }
                self.model.withdraw(number);
                self.expect_storage(Err(error))
            }
            Err(error) => Err(format!("commit {number} was refused: {error}")),
        }
    }

    /// A failure of the storage, where one is legal.
    pub fn expect_storage(&mut self, result: Result<(), StorageError>) -> Result<(), String> {
        match result {
            Err(error) if !self.machine.disk.has_crashed() => {
                let is_full = matches!(error, StorageError::DiskFull { .. });
                if !(self.expected.failure || is_full && self.expected.full) {
                    return Err(format!("the storage failed, and nothing was wrong: {error}"));
                }
                self.lost_a_sync |= self.expected.failing_sync && !is_full;
                self.note(format_args!("  failed: {error}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What was committed can be read at once, where its answer says; the batches of it.
    fn read_back(
        &self,
        number: usize,
        committed: &Committed,
    ) -> Result<Vec<(TopicId, u32, Batch)>, String> {
        let mut read = Vec::new();
        let engine = self.engine();
        let state = self.model.state();
        let Effect::Append { batches, .. } = self.model.effect(number) else {
            return Err(format!("commit {number} is no append"));
        };
        for (appended, told) in batches.iter().zip(&committed.batches) {
            let topic = &state.topics[&appended.name];
            let known = &topic.partitions[appended.partition as usize];
            let found = known.iter().find(|batch| batch.base_offset == told.base_offset);
            let found = found.filter(|batch| {
                batch.bytes == appended.bytes && batch.end_offset() == told.last_offset + 1
            });
            let Some(batch) = found else {
                return Err(format!("commit {number} got other offsets than are next: {told:?}"));
            };
            let partition = partition(engine, &appended.name, appended.partition)?;
            let options = FetchOptions::new().max_bytes(1);
            let fetched = engine.fetch(&partition, told.base_offset, options);
            match fetched {
                Ok(fetched) if fetched.bytes[..] == batch.served()[..] => {}
                Ok(_) => return Err(format!("commit {number} is read back as something else")),
                Err(_) if self.machine.disk.has_crashed() => {}
                Err(error) => return Err(format!("commit {number} cannot be read: {error}")),
            }
            let id = topic.id.ok_or("a topic has no id")?;
            read.push((id, appended.partition, batch.clone()));
        }
        Ok(read)
    }

    /// Syncs or takes a checkpoint, perhaps with a commit in the middle of it.
    fn sync(
        &mut self,
        inside: Option<&Append>,
        sync: impl FnOnce(&Engine) -> Result<(), StorageError>,
    ) -> Result<(), String> {
        let through = self.model.acked();
        let answer: Arc<Mutex<Option<Answer>>> = Arc::default();
        let mut attempt = None;
        if let Some(append) = inside {
            let (batches, effect) = self.build(append);
            let transaction = transaction(self.engine(), &batches)?;
            attempt = Some(effect);
            let answered = Arc::clone(&answer);
            let spares_store = Arc::clone(&self.machine.spares_store);
            self.machine.disk.during_next_sync(move || {
                spares_store.store(true, Ordering::SeqCst);
                let told = transaction.commit(Durability::Buffered);
                spares_store.store(false, Ordering::SeqCst);
                *answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
            });
        }
        let result = sync(self.engine());
        self.machine.disk.during_next_sync(|| {});
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((answer, effect)) = answer.zip(attempt) {
            let number = self.model.attempt(effect);
            self.judge(number, Durability::Buffered, answer)?;
        }
        if result.is_ok() {
            self.model.settle(through);
        }
        self.expect_storage(result)
    }

    /// A round of maintenance: retention, if it finds anything, and then what moves batches and
    /// shows nowhere but in the numbers of the commits behind it.
    fn maintain(&mut self) -> Result<(), String> {
        self.machine.clock.advance_ms(self.machine.config.maintenance_interval_ms);
        let before = self.engine().metrics();
        let result = self.engine().maintenance().run().map(|_| ());
        let after = self.engine().metrics();
        let written = (after.commits - before.commits) as usize;
        self.group_bytes = after.log_bytes - before.log_bytes;
        let has_ended = self.machine.disk.has_crashed() || after.halted;
        // Of a life that has ended in the middle, the last commit may be there or not, and where
        // the log could not write, one more.
        let is_stores = matches!(result, Err(StorageError::Store { .. }));
        let more = has_ended && !is_stores;
        let retains = self.model.state().exceeds_limits();
        let effect = |at| if at == 0 && retains { Effect::Retain } else { Effect::Silent };
        let numbers = (0..written + usize::from(more))
            .map(|at| self.model.attempt(effect(at)))
            .collect::<Vec<_>>();
        let told = if has_ended { written.saturating_sub(1) } else { written };
        numbers[..told].iter().for_each(|number| self.model.acknowledge(*number));
        self.expect_storage(result)
    }

    fn close(&mut self) -> Result<Flow, String> {
        let number = self.model.attempt(Effect::Silent);
        let engine = self.engine.take().expect("the engine is open");
        match engine.close() {
            Ok(()) => {
                self.model.acknowledge(number);
                self.model.settle(number);
                self.ending = Ending::Closed;
            }
            Err(error) => {
                self.ending = Ending::Closing;
                self.expect_storage(Err(error))?;
            }
        }
        self.open_again()
    }

    fn drop_and_open(&mut self) -> Result<Flow, String> {
        self.engine = None;
        self.open_again()
    }

    fn open_again(&mut self) -> Result<Flow, String> {
        if self.machine.disk.has_crashed() {
            return Ok(Flow::Crashed);
        }
        self.machine.disk.set_capacity(None);
        self.expected.full = false;
        let least = if self.lost_a_sync { self.model.synced() } else { self.model.acked() };
        match self.try_open(least)? {
            true => Ok(Flow::GoesOn),
            false => Ok(Flow::Crashed),
        }
    }
}

pub fn partition(engine: &Engine, name: &str, index: u32) -> Result<Partition, String> {
    let topic = engine.topic(name).ok_or_else(|| format!("there is no topic {name}"))?;
    topic.partition(index as i32).map_err(|error| error.to_string())
}

fn transaction(
    engine: &Engine,
    batches: &[Appended],
) -> Result<tidelog::AppendTransaction, String> {
    let mut transaction = engine.append_transaction();
    for batch in batches {
        let partition = partition(engine, &batch.name, batch.partition)?;
        let added = transaction.batch(&partition, batch.bytes.clone());
        added.map_err(|error| format!("a good batch is not taken: {error:?}"))?;
    }
    Ok(transaction)
}
