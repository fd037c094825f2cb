//! The lives of an engine: how each begins, ends, and what may go wrong in it.

use std::sync::Arc;

use tidelog::config::EngineConfig;
use tidelog::error::StorageError;
use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{Fault, FileCall, ManualClock, MemoryDisk, PowerLoss, SimulatedDisk};
use tidelog::types::LeaderEpoch;
use tidelog::{Engine, OpenError};

use super::batches::Source;
use super::history::History;
use super::input::{Crash, Failure, Input, Stop};
use super::reads::Pinned;
use super::world::read_world;
use super::writes::{Held, Waiting};

pub(super) const START_MS: i64 = 1_700_000_000_000;
const DIRECTORY: &str = "/engine";
/// What a disk holds that is not made full.
const ENDLESS_BYTES: u64 = 1 << 40;

pub(super) struct Runner {
    pub(super) disk: SimulatedDisk,
    pub(super) store: MemoryDisk,
    pub(super) clock: Arc<ManualClock>,
    config: EngineConfig,
    broken: BrokenRules,
    /// Always there, but for the moments between two lives.
    engine: Option<Engine>,
    pub(super) history: History,
    pub(super) source: Source,
    /// A transaction that was begun and not committed.
    pub(super) held: Option<Held>,
    /// What was submitted, in its order.
    pub(super) waiting: Vec<Waiting>,
    pub(super) pinned: Option<Pinned>,
    pub(super) faults: Faults,
    /// A batch was taken that claims the log's time: its maximum is what its client says.
    pub(super) has_claims: bool,
    now: i64,
    epoch: LeaderEpoch,
    /// Each life has its own random ids.
    opens: u64,
}

/// What can make calls fail in this life.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Faults {
    /// A call was planned to fail, or the process to stop.
    pub(super) planned: bool,
    /// The disk has little room.
    pub(super) short_of_room: bool,
    /// A sync may fail, or has failed: what was not synced may be lost without a power loss.
    loses_unsynced: bool,
}

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// There was none before.
    New,
    Closed,
    /// Closing failed: the next life may find it closed or not.
    Perhaps,
    Crashed,
}

impl Runner {
    pub(super) fn start(input: &Input, broken: BrokenRules) -> Self {
        let mut runner = Self {
            disk: SimulatedDisk::new(1),
            store: MemoryDisk::new(),
            clock: Arc::new(ManualClock::new(START_MS)),
            config: input.limits.config(),
            broken,
            engine: None,
            history: History::new(),
            source: Source::default(),
            held: None,
            waiting: Vec::new(),
            pinned: None,
            faults: Faults::default(),
            has_claims: false,
            now: START_MS,
            epoch: 0,
            opens: 0,
        };
        if let Some(failure) = &input.first {
            runner.fail_next(failure);
        }
        runner.open(End::New, None);
        runner
    }

    pub(super) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an engine is open between two steps")
    }

    pub(super) fn now(&self) -> i64 {
        self.now
    }

    pub(super) fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Whether nothing can be written any more in this life.
    pub(super) fn is_halted(&self) -> bool {
        self.engine.as_ref().is_none_or(|engine| engine.metrics().halted)
    }

    /// Moves the clock, in either direction; it stays within a month of the start.
    pub(super) fn move_clock(&mut self, by_ms: i32) {
        const MONTH_MS: i64 = 30 * 24 * 3_600_000;
        let now = self.now + i64::from(by_ms);
        self.now = now.clamp(START_MS - MONTH_MS, START_MS + MONTH_MS);
        self.clock.set_ms(self.now);
    }

    /// Takes an error of the storage, which must have a cause in this life.
    pub(super) fn excuse(&self, error: &StorageError) {
        assert!(!matches!(error, StorageError::Corruption(_)), "no fault damages: {error}");
        let excused = match error {
            StorageError::Halted { .. } => self.is_halted(),
            StorageError::DiskFull { .. } => self.faults.short_of_room || self.faults.planned,
            _ => self.faults.planned,
        };
        assert!(excused, "a call fails without a cause: {error:?} {:?}", self.faults);
    }

    /// A full disk alone never halts the engine, and nothing does without a fault.
    pub(super) fn check_live(&self) {
        assert!(!self.is_halted() || self.faults.planned, "the engine has halted without a cause");
    }

    pub(super) fn stop_after(&mut self, calls: u8) {
        self.disk.crash_after_calls(u64::from(calls));
        self.faults.planned = true;
    }

    pub(super) fn fail_next(&mut self, failure: &Failure) {
        let operation = failure.operation();
        let fault = Fault::next(operation, failure.errno())
            .after_calls(u64::from(failure.after_calls % 8))
            .after_bytes(failure.after_bytes());
        self.disk.plan(fault);
        self.faults.planned = true;
        self.faults.loses_unsynced |= matches!(operation, FileCall::Sync | FileCall::SyncDirectory);
    }

    pub(super) fn fail_store_write(&mut self, after: u8) {
        self.store.fail_write_after(u64::from(after % 8));
        self.faults.planned = true;
    }

    /// Leaves so much room on the disk, or all that there could be.
    pub(super) fn set_room(&mut self, bytes: Option<u64>) {
        self.disk.set_capacity(Some(ENDLESS_BYTES));
        let free = self.disk.process().free_bytes(DIRECTORY.as_ref());
        // A process that has stopped is told nothing.
        let Ok(free) = free else { return };
        self.disk.set_capacity(bytes.map(|bytes| ENDLESS_BYTES - free + bytes));
        self.faults.short_of_room = bytes.is_some();
    }

    pub(super) fn write_back(&mut self, percent: u8) {
        self.disk.set_write_back(u64::from(percent % 101));
    }

    pub(super) fn reopen(&mut self) {
        (self.pinned, self.held) = (None, None);
        let engine = self.engine.take().expect("an engine is open between two steps");
        let was_halted = engine.metrics().halted;
        let closed = engine.close();
        self.settle_waiting(true);
        match closed {
            Ok(()) => {
                assert!(!was_halted, "an engine that has halted cannot be closed cleanly");
                self.history.sync_all();
                self.open(End::Closed, None);
            }
            Err(error) => {
                let is_excused = self.faults.planned || self.faults.short_of_room;
                assert!(is_excused, "closing fails without a cause: {error:?}");
                self.open(End::Perhaps, None);
            }
        }
    }

    pub(super) fn drop_and_open(&mut self) {
        (self.pinned, self.held) = (None, None);
        self.engine = None;
        self.settle_waiting(true);
        self.open(End::Crashed, None);
    }

    pub(super) fn crash(&mut self, crash: &Crash) {
        self.stop(crash.how);
        self.store.crash(u64::from(crash.store_seed));
        // What waits in the queue was never written: no world has it.
        self.waiting.clear();
        (self.pinned, self.held, self.engine) = (None, None, None);
        if let Some((calls, _)) = crash.again {
            self.stop_after(calls % 64);
        }
        self.open(End::Crashed, crash.again.map(|(_, how)| how));
    }

    fn stop(&mut self, how: Stop) {
        let loss = match how {
            Stop::Kill => return self.disk.kill(),
            Stop::LosesAll => PowerLoss::Nothing,
            Stop::LosesNothing => PowerLoss::Everything,
            Stop::KeepsFirst(count) => PowerLoss::First(usize::from(count)),
            Stop::KeepsSome { seed, shows_stale_bytes } => {
                self.disk.set_stale_bytes(shows_stale_bytes);
                PowerLoss::Random(u64::from(seed))
            }
        };
        self.faults.loses_unsynced = true;
        self.disk.power_loss(loss);
    }

    /// Opens the engine, if need be after faults are cleared, and compares what it finds.
    fn open(&mut self, end: End, stops_again: Option<Stop>) {
        let mut attempts = 0;
        let engine = loop {
            attempts += 1;
            self.opens += 1;
            let builder = Engine::builder(DIRECTORY)
                .config(self.config.clone())
                .clock(self.clock.clone())
                .files(self.disk.process())
                .store(Arc::new(self.store.clone()))
                .broken(self.broken)
                .seed(self.opens);
            match builder.open() {
                Ok(engine) => break engine,
                Err(error) => self.recover_from(&error, attempts, stops_again),
            }
        };
        let recovered = engine.recovered();
        if attempts == 1 {
            assert_eq!(recovered.is_new, end == End::New);
            assert!(end == End::Perhaps || recovered.closed_cleanly == (end == End::Closed));
        }
        let epoch = engine.leader_epoch();
        let is_right = match end {
            End::Crashed => epoch > self.epoch,
            End::Closed if attempts == 1 => epoch == self.epoch,
            End::New | End::Closed | End::Perhaps => epoch >= self.epoch,
        };
        assert!(is_right, "the epoch was {} and is {epoch}: {end:?}", self.epoch);
        self.epoch = epoch;
        self.engine = Some(engine);
        self.clear_faults();
        let world = read_world(self.engine());
        let keeps_written = !self.faults.loses_unsynced;
        self.history.settle(world, keeps_written);
        self.faults = Faults::default();
        self.check_content();
    }

    fn recover_from(&mut self, error: &OpenError, attempts: u32, stops_again: Option<Stop>) {
        let is_excused = self.faults.planned || self.faults.short_of_room;
        assert!(is_excused && attempts < 3, "opening fails without a cause: {error:?}");
        match error {
            OpenError::Storage(StorageError::Corruption(_)) => panic!("no fault damages: {error}"),
            OpenError::Storage(_) => {}
            _ => panic!("a fault of the storage is told as one: {error:?}"),
        }
        if self.disk.has_crashed() {
            self.stop(stops_again.unwrap_or(Stop::Kill));
            self.store.crash(0);
        }
        self.clear_faults();
    }

    /// No call is planned to fail any more; what was lost stays lost.
    fn clear_faults(&mut self) {
        self.disk.clear_faults();
        self.store.clear_faults();
    }

    /// Ends the run: the engine is content, and can be closed and opened once more.
    pub(super) fn finish(mut self) {
        if self.is_halted() || self.disk.has_crashed() {
            self.stop(Stop::Kill);
            self.waiting.clear();
            (self.pinned, self.held, self.engine) = (None, None, None);
            self.store.crash(0);
            self.open(End::Crashed, None);
        }
        self.clear_faults();
        self.faults = Faults::default();
        self.reopen();
        self.verify();
    }
}
