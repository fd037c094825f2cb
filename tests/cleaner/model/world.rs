//! An engine with one compacted partition, and the random work that is done on it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::record::BatchBuilder;
use tidelog::testing::PowerLoss;
use tidelog::{Codec, Durability, Engine, Partition, Record};

use super::producers::{Senders, make_senders};
use super::{DELETE_RETENTION_MS, Model, batches};
use crate::common::{TestEngine, batch_of, one_partition};

/// Keys that records have: few, so that most are superseded.
const KEYS: u64 = 7;

/// A producer that is silent for so long is forgotten.
const EXPIRATION_MS: i64 = 9000;

/// An engine and the random work that is done on it.
pub struct World {
    test: TestEngine,
    pub engine: Option<Engine>,
    state: u64,
    now: i64,
    pub policy: &'static str,
    pub senders: Senders,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut test = TestEngine::new();
        let keys = 2 + seed % 8;
        let expiration_ms = EXPIRATION_MS.unsigned_abs();
        test.config = test
            .config
            .cleaner_memory_bytes(40 * keys)
            .segment_bytes(8 << 10)
            .producer_id_expiration_ms(expiration_ms);
        let now = crate::common::NOW_MS;
        let state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        let engine = Some(test.open());
        let senders = Senders::default();
        let mut world = Self { engine, test, state, now, policy: "compact", senders };
        let retention = DELETE_RETENTION_MS.to_string();
        let ratio = if world.below(2) == 0 { "0" } else { "0.5" };
        let lag = if world.below(3) == 0 { "500" } else { "0" };
        let settings = [
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", ratio),
            ("min.compaction.lag.ms", lag),
            ("delete.retention.ms", retention.as_str()),
            ("retention.ms", "20000"),
        ];
        one_partition(&world.engine(), "t", &settings);
        world.senders = make_senders(&world.engine());
        world
    }

    pub fn now(&self) -> i64 {
        self.now
    }

    pub fn engine(&self) -> Engine {
        self.engine.clone().expect("the engine is open")
    }

    pub fn partition(&self) -> Partition {
        self.engine().topic("t").expect("it was made").partition(0).expect("it has one")
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) % bound
    }

    /// Does something; tells what.
    pub fn step(&mut self, model: &mut Model) -> &'static str {
        match self.below(100) {
            0..20 => self.append(model),
            20..28 => self.append_idempotent(model),
            28..38 => self.append_in_transaction(model),
            38..45 => self.end_transaction(model),
            45..47 => self.take_over(model),
            47..49 => self.expire_producers(model),
            49..60 => self.clean(model, u64::MAX),
            60..68 => {
                let stop_at = self.below(4);
                self.clean(model, stop_at)
            }
            68..76 => self.crash_in_a_pass(model),
            76..84 => self.set_clock(),
            84..88 => self.change_policy(),
            88..91 => self.delete_records(model),
            91..94 => {
                self.engine().maintenance().run_retention().expect("nothing is damaged");
                model.log_start = model.log_start.max(self.log_start());
                "retention"
            }
            94..96 => {
                self.engine().sync().expect("the disk is good");
                model.note_synced();
                "a sync"
            }
            96..98 => {
                self.engine().maintenance().checkpoint().expect("the disk is good");
                model.note_synced();
                "a checkpoint"
            }
            _ => {
                self.engine.take().expect("it is open").close().expect("the disk is good");
                self.open(model);
                "a reopen"
            }
        }
    }

    fn log_start(&self) -> i64 {
        self.engine().watermarks(&self.partition()).expect("it exists").log_start
    }

    fn open(&mut self, model: &mut Model) {
        self.engine = Some(self.test.open());
        model.crashed(&self.engine(), &self.partition());
        self.reopened(model);
    }

    fn append(&mut self, model: &mut Model) -> &'static str {
        let (batch, records) = self.batch(BatchBuilder::new());
        self.append_batch(model, batch, records)
    }

    fn append_batch(
        &mut self,
        model: &mut Model,
        batch: Bytes,
        records: Vec<Record>,
    ) -> &'static str {
        let mut append = self.engine().append_transaction();
        append.batch(&self.partition(), batch).expect("the batch is good");
        let is_synced = self.below(4) == 0;
        let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
        let committed = append.commit(durability).expect("the disk is good");
        model.append(committed.batches[0].base_offset, records, None);
        if is_synced {
            model.note_synced();
        }
        "an append"
    }

    /// A batch of random records.
    pub fn batch(&mut self, builder: BatchBuilder) -> (Bytes, Vec<Record>) {
        let codec = Codec::ALL[self.below(5) as usize];
        let codec = if self.below(3) == 0 { codec } else { Codec::None };
        let mut builder = builder.codec(codec);
        let mut records = Vec::new();
        for _ in 0..=self.below(5) {
            let key = format!("key{}", self.below(KEYS));
            let key = if self.policy == "delete" && self.below(4) == 0 { None } else { Some(key) };
            let length = if self.below(20) == 0 { 3000 } else { self.below(20) };
            let value = (self.below(4) > 0).then(|| vec![b'v'; length as usize]);
            let timestamp = if self.below(8) == 0 { -1 } else { self.now };
            let record = Record::new(key, value).timestamp(timestamp).header("n", "1");
            builder.push(&record).expect("the batch is small");
            records.push(record);
        }
        (builder.finish().expect("there is a record"), records)
    }

    fn uncleanable(&self) -> i64 {
        self.engine().cleaner().plan(&self.partition()).expect("readable").uncleanable
    }

    fn clean(&mut self, model: &mut Model, stop_at: u64) -> &'static str {
        let uncleanable = self.uncleanable();
        let mut calls = 0;
        let pass = self.engine().cleaner().clean_partition_at(&self.partition(), |_| {
            calls += 1;
            if calls > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some(pass) = pass.expect("nothing is damaged") {
            assert_eq!(pass.is_finished, calls <= stop_at);
            model.note_pass(uncleanable, self.now);
        }
        "a pass"
    }

    fn crash_in_a_pass(&mut self, model: &mut Model) -> &'static str {
        let uncleanable = self.uncleanable();
        let (crash_at, is_power_loss) = (self.below(6), self.below(2) == 0);
        let seed = self.below(1 << 20);
        let mut calls = 0;
        let mut did_crash = false;
        let engine = self.engine();
        let result = engine.cleaner().clean_partition_at(&self.partition(), |_| {
            if calls == crash_at {
                self.test.disk.kill();
                did_crash = true;
            }
            calls += 1;
            ControlFlow::Continue(())
        });
        model.note_pass(uncleanable, self.now);
        assert!(result.is_ok() || did_crash, "{result:?}");
        drop(result);
        drop(engine);
        if is_power_loss {
            self.test.disk.power_loss(PowerLoss::Random(seed));
        } else {
            self.test.disk.kill();
            model.note_synced();
        }
        self.engine = None;
        self.test.store.crash(seed);
        self.open(model);
        if is_power_loss { "power loss in a pass" } else { "a kill in a pass" }
    }

    /// Ends everything, waits for every horizon, and cleans until nothing is left to do: then every
    /// batch has a record, or is the last one, and every marker has a transaction to end.
    pub fn settle(&mut self, model: &mut Model) {
        self.set_policy("compact");
        self.set("min.cleanable.dirty.ratio", "0");
        self.end_all(model);
        for _ in 0..4 {
            self.pass_time(EXPIRATION_MS + DELETE_RETENTION_MS);
            self.expire_producers(model);
            let records = vec![Record::new("end", "v").timestamp(self.now)];
            self.append_batch(model, batch_of(&records), records);
            while self
                .engine()
                .cleaner()
                .clean_partition(&self.partition())
                .expect("whole")
                .is_some()
            {}
            model.note_pass(self.uncleanable(), self.now);
            model.check(&self.engine(), &self.partition(), self.now);
        }
        let mut unended = BTreeSet::new();
        for batch in batches(&self.engine(), &self.partition()) {
            let header = batch.header();
            let is_last = header.last_offset() + 1 == model.log_end;
            assert!(header.record_count() > 0 || is_last, "{header:?} is left");
            if header.is_control() {
                assert!(unended.remove(&header.producer_id()), "{header:?} ends nothing");
            } else if header.is_transactional() {
                unended.insert(header.producer_id());
            }
        }
    }

    fn pass_time(&mut self, by: i64) {
        self.now += by;
        self.test.clock.set_ms(self.now);
    }

    fn set_clock(&mut self) -> &'static str {
        let by = i64::try_from(self.below(2500)).expect("it is small") - 400;
        self.pass_time(by);
        "a step of the clock"
    }

    fn change_policy(&mut self) -> &'static str {
        let policy = ["compact", "delete", "compact,delete", "compact"][self.below(4) as usize];
        self.set_policy(policy);
        "a change of policy"
    }

    fn set_policy(&mut self, policy: &'static str) {
        self.policy = policy;
        self.set("cleanup.policy", policy);
    }

    fn set(&self, name: &str, value: &str) {
        let operation = ConfigOperation::Set(value.to_owned());
        let change = ConfigChange { name: name.to_owned(), operation };
        self.engine().topics().alter("t", &[change]).expect("the setting is legal");
    }

    fn delete_records(&mut self, model: &mut Model) -> &'static str {
        let (start, end) = (self.log_start(), model.log_end);
        let ahead = end - start;
        let target = start + i64::try_from(self.below(6)).expect("it is small").min(ahead);
        let moved = self.engine().delete_records(&self.partition(), target);
        model.log_start = moved.expect("it is in range");
        if model.log_start > start {
            model.note_synced();
        }
        "delete_records"
    }
}
