//! What was appended, as a list; what of it may be gone, and the random work that makes it so.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::io::simulated::PowerLoss;
use tidelog::record::BatchBuilder;
use tidelog::{Codec, Durability, Engine, FetchOptions, Partition, Record};

use crate::common::{TestEngine, assert_verified, described, one_partition};

const DELETE_RETENTION_MS: i64 = 3000;

/// Keys that records have: few, so that most are superseded.
const KEYS: u64 = 7;

/// Everything that was appended and not lost, by offset.
#[derive(Default)]
pub struct Model {
    records: BTreeMap<i64, Record>,
    /// Tombstones that a pass may have reached, and the least clock of one that may.
    seen: BTreeMap<i64, i64>,
    /// Tombstones that a pass may have reached at or behind their horizon.
    may_be_gone: BTreeMap<i64, ()>,
    log_end: i64,
    log_start: i64,
    /// Below these the log cannot go back, because that was synced.
    synced_end: i64,
    synced_start: i64,
    leader_epoch: i32,
}

impl Model {
    /// A pass ran at this time, and may have reached all below this offset.
    fn note_pass(&mut self, uncleanable: i64, now: i64) {
        let tombstones = self.records.range(..uncleanable).filter(|(_, r)| r.value.is_none());
        for (&offset, _) in tombstones {
            // Which pass wrote the horizon is not known: the earliest that any may have written.
            let first = self.seen.entry(offset).or_insert(now);
            *first = now.min(*first);
            if now >= *first + DELETE_RETENTION_MS {
                self.may_be_gone.insert(offset, ());
            }
        }
    }

    fn append(&mut self, base: i64, records: Vec<Record>) {
        for (offset, record) in (base..).zip(records) {
            self.log_end = offset + 1;
            self.records.insert(offset, Record { offset, ..record });
        }
    }

    fn note_synced(&mut self) {
        (self.synced_end, self.synced_start) = (self.log_end, self.log_start);
    }

    /// What the log holds after a crash: the first part of what was appended.
    fn crashed(&mut self, engine: &Engine, partition: &Partition) {
        let marks = engine.watermarks(partition).expect("the partition exists");
        assert!((self.synced_end..=self.log_end).contains(&marks.log_end), "{marks:?}");
        assert!((self.synced_start..=self.log_start).contains(&marks.log_start), "{marks:?}");
        if marks.log_end < self.log_end {
            assert!(engine.leader_epoch() > self.leader_epoch, "the log end went back");
        }
        self.records.retain(|offset, _| *offset < marks.log_end);
        self.seen.retain(|offset, _| *offset < marks.log_end);
        self.may_be_gone.retain(|offset, ()| *offset < marks.log_end);
        (self.log_end, self.log_start) = (marks.log_end, marks.log_start);
        // Recovery has synced what it found.
        self.note_synced();
    }

    /// Holds the partition against what may be.
    pub fn check(&mut self, engine: &Engine, partition: &Partition, now: i64) {
        assert_verified(engine);
        self.leader_epoch = engine.leader_epoch();
        let marks = engine.watermarks(partition).expect("the partition exists");
        assert_eq!(marks.log_end, self.log_end, "the log end moved");
        assert!(marks.log_start >= self.log_start, "the log start went back");
        self.log_start = marks.log_start;
        let mut found: BTreeMap<i64, Record> = BTreeMap::new();
        let mut offset = marks.log_start;
        while offset < marks.high_watermark {
            let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("readable");
            assert!(fetched.next_offset > offset, "a reader at {offset} is stuck");
            for record in fetched.records() {
                let record = record.expect("it can be decoded");
                found.insert(record.offset, record);
            }
            offset = fetched.next_offset;
        }
        assert_eq!(offset, marks.high_watermark, "a reader does not end at the high watermark");
        for (offset, record) in &found {
            assert_eq!(Some(record), self.records.get(offset), "another record is at {offset}");
        }
        let first_dirty = described(engine, partition).first_dirty;
        self.check_keys(&found, first_dirty, now);
    }

    fn check_keys(&self, found: &BTreeMap<i64, Record>, first_dirty: i64, now: i64) {
        let mut newest: BTreeMap<&Bytes, i64> = BTreeMap::new();
        let mut newest_clean: BTreeMap<&Bytes, i64> = BTreeMap::new();
        for (&offset, record) in self.records.range(self.log_start..) {
            if let Some(key) = &record.key {
                newest.insert(key, offset);
                if offset < first_dirty {
                    newest_clean.insert(key, offset);
                }
            }
        }
        for (key, offset) in newest {
            let may_be_gone = self.may_be_gone.contains_key(&offset);
            let is_there = found.contains_key(&offset) || may_be_gone;
            assert!(is_there, "the newest record of {key:?}, at {offset}, is gone at {now}");
        }
        for (&offset, record) in found.range(..first_dirty) {
            let key = record.key.as_ref().expect("what is clean has a key");
            assert_eq!(newest_clean[key], offset, "{key:?} at {offset} was superseded");
        }
    }
}

/// An engine and the random work that is done on it.
pub struct World {
    test: TestEngine,
    engine: Option<Engine>,
    state: u64,
    now: i64,
    policy: &'static str,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut test = TestEngine::new();
        let keys = 2 + seed % 8;
        test.config = test.config.cleaner_memory_bytes(40 * keys).segment_bytes(8 << 10);
        let now = crate::common::NOW_MS;
        let state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        let mut world = Self { engine: Some(test.open()), test, state, now, policy: "compact" };
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

    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) % bound
    }

    /// Does something; tells what.
    pub fn step(&mut self, model: &mut Model) -> &'static str {
        match self.below(100) {
            0..45 => self.append(model),
            45..60 => self.clean(model, u64::MAX),
            60..68 => {
                let stop_at = self.below(4);
                self.clean(model, stop_at)
            }
            68..76 => self.crash_in_a_pass(model),
            76..84 => self.set_clock(),
            84..88 => self.change_policy(),
            88..91 => self.delete_records(model),
            91..94 => {
                self.engine().run_retention().expect("nothing is damaged");
                model.log_start = model.log_start.max(self.log_start());
                "retention"
            }
            94..96 => {
                self.engine().sync().expect("the disk is good");
                model.note_synced();
                "a sync"
            }
            96..98 => {
                self.engine().checkpoint().expect("the disk is good");
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
    }

    fn append(&mut self, model: &mut Model) -> &'static str {
        let codec = Codec::ALL[self.below(5) as usize];
        let codec = if self.below(3) == 0 { codec } else { Codec::None };
        let mut builder = BatchBuilder::new().codec(codec);
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
        let mut append = self.engine().append_transaction();
        let batch = builder.finish().expect("there is a record");
        append.batch(&self.partition(), batch).expect("the batch is good");
        let is_synced = self.below(4) == 0;
        let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
        let committed = append.commit(durability).expect("the disk is good");
        model.append(committed.batches[0].base_offset, records);
        if is_synced {
            model.note_synced();
        }
        "an append"
    }

    fn uncleanable(&self) -> i64 {
        self.engine().cleaner_plan(&self.partition()).expect("readable").uncleanable
    }

    fn clean(&mut self, model: &mut Model, stop_at: u64) -> &'static str {
        let uncleanable = self.uncleanable();
        let mut calls = 0;
        let pass = self.engine().clean_partition_at(&self.partition(), |_| {
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
        let result = engine.clean_partition_at(&self.partition(), |_| {
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

    fn set_clock(&mut self) -> &'static str {
        let by = i64::try_from(self.below(2500)).expect("it is small") - 400;
        self.now += by;
        self.test.clock.set_ms(self.now);
        "a step of the clock"
    }

    fn change_policy(&mut self) -> &'static str {
        self.policy = ["compact", "delete", "compact,delete", "compact"][self.below(4) as usize];
        let value = ConfigOperation::Set(self.policy.to_owned());
        let change = ConfigChange { name: "cleanup.policy".to_owned(), operation: value };
        self.engine().alter_topic("t", &[change]).expect("the setting is legal");
        "a change of policy"
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
