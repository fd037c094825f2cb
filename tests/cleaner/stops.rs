//! Nobody is left with a value of a deleted key, however passes are stopped, limited and slow.

use crate::common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::{
    NOW_MS, TestEngine, append_batch, assert_verified, batches_of, one_partition, records_of,
};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::internals;
use tidelog::record::{BatchBuilder, MarkerKind};
use tidelog::types::ProducerIdentity;
use tidelog::{CleanerPass, Codec, Durability, Engine, FirstSequence, Partition, Record};

const DELETE_RETENTION_MS: i64 = 5000;

const EAGER: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("delete.retention.ms", "5000"),
];

const PRODUCER: ProducerIdentity = ProducerIdentity { producer_id: 7, producer_epoch: 0 };

/// Memory of the cleaner for one key.
const BYTES_PER_KEY: u64 = 40;

/// Numbers that look random, the same for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

/// A partition, what was appended to it, and when older values of deleted keys were still there.
struct Watched {
    test: TestEngine,
    engine: Engine,
    partition: Partition,
    /// The newest offset of each key, and whether it has a value.
    newest: BTreeMap<Bytes, (i64, bool)>,
    older_seen_at: BTreeMap<Bytes, i64>,
    /// Of each transaction that has ended: its data, its marker, when its data was still there.
    transactions: Vec<(i64, i64, i64)>,
    now: i64,
    /// How long a pass takes from one question whether it may go on to the next.
    pace_ms: u64,
    codec: Codec,
}

impl Watched {
    fn new(key_limit: u64) -> Self {
        let memory_bytes = (key_limit * BYTES_PER_KEY).max(64);
        let test = TestEngine::with(|config| config.cleaner_memory_bytes(memory_bytes));
        let engine = test.open();
        let partition = one_partition(&engine, "t", &EAGER);
        let (newest, older_seen_at) = (BTreeMap::new(), BTreeMap::new());
        Self {
            test,
            engine,
            partition,
            newest,
            older_seen_at,
            transactions: Vec::new(),
            now: NOW_MS,
            pace_ms: 0,
            codec: Codec::None,
        }
    }

    fn advance_ms(&mut self, ms: u64) {
        self.test.clock.advance_ms(ms);
        self.now += ms as i64;
    }

    fn append(&mut self, records: &[Record]) {
        let mut builder = BatchBuilder::new().codec(self.codec);
        for record in records {
            builder.push(&record.clone().timestamp(NOW_MS)).expect("it is legal");
        }
        let batch = builder.finish().expect("there is a record");
        let base = append_batch(&self.engine, &self.partition, batch).base_offset;
        self.note(base, records);
    }

    fn note(&mut self, base: i64, records: &[Record]) {
        for (offset, record) in (base..).zip(records) {
            let key = record.key.clone().expect("the topic is compacted");
            if self.newest.get(&key).is_none_or(|(newest, _)| *newest < offset) {
                self.older_seen_at.remove(&key);
                self.newest.insert(key, (offset, record.value.is_some()));
            }
        }
    }

    /// Appends a batch of a producer transaction; tells where it begins.
    fn append_in_transaction(&mut self, sequence: i32, records: &[Record]) -> i64 {
        let mut builder = BatchBuilder::new().producer(PRODUCER.producer_id, 0, sequence);
        builder = builder.transactional();
        for record in records {
            builder.push(&record.clone().timestamp(NOW_MS)).expect("it is legal");
        }
        internals::pretend_open_transaction(&self.engine, "p", PRODUCER, &self.partition);
        let mut append = self.engine.append_transaction();
        append.transactional_id("p", FirstSequence::Any);
        append.batch(&self.partition, builder.finish().expect("it is legal")).expect("it is legal");
        append.commit(Durability::Sync).expect("it is legal").batches[0].base_offset
    }

    fn end_transaction(&mut self, base: i64, kind: MarkerKind) {
        let marker = self.engine.watermarks(&self.partition).expect("it exists").log_end;
        self.transactions.push((base, marker, self.now));
        internals::write_marker(&self.engine, PRODUCER, &self.partition, kind)
            .expect("it is legal");
    }

    /// Looks which markers are there now.
    fn look_at_markers(&mut self, of: &str) {
        let start = self.engine.watermarks(&self.partition).expect("it exists").log_start;
        let batches = batches_of(&self.engine, &self.partition);
        let headers = || batches.iter().map(|batch| batch.header());
        self.transactions.retain(|(_, marker, _)| *marker >= start);
        for (base, marker, seen_at) in &mut self.transactions {
            let has_data = headers().any(|header| header.base_offset() == *base);
            let is_there = headers().any(|h| h.base_offset() == *marker && h.record_count() > 0);
            if has_data {
                *seen_at = self.now;
            }
            let lived_ms = self.now - *seen_at;
            let is_told = is_there || !has_data && lived_ms >= DELETE_RETENTION_MS;
            assert!(is_told, "{of}: the marker at {marker} of {base} lived {lived_ms} ms");
        }
    }

    /// Looks what a reader finds now.
    fn look(&mut self, of: &str) {
        self.look_at_markers(of);
        let marks = self.engine.watermarks(&self.partition).expect("it exists");
        let found = records_of(&self.engine, &self.partition);
        let offsets: BTreeMap<_, Vec<i64>> =
            found.into_iter().fold(BTreeMap::new(), |mut all, r| {
                all.entry(r.key.expect("it has a key")).or_insert_with(Vec::new).push(r.offset);
                all
            });
        let nothing = Vec::new();
        for (key, &(offset, has_value)) in self.newest.range(Bytes::new()..) {
            let found = offsets.get(key).unwrap_or(&nothing);
            if offset < marks.log_start || offset >= marks.last_stable {
                continue;
            }
            if found.iter().any(|older| *older < offset) {
                self.older_seen_at.insert(key.clone(), self.now);
            }
            if found.contains(&offset) {
                continue;
            }
            assert!(!has_value, "{of}: the value of {key:?} at {offset} is gone");
            assert!(found.is_empty(), "{of}: {key:?} at {offset} is alive again: {found:?}");
            let lived_ms = self.older_seen_at.get(key).map(|seen_at| self.now - seen_at);
            let is_told = lived_ms.is_none_or(|lived_ms| lived_ms >= DELETE_RETENTION_MS);
            assert!(is_told, "{of}: the tombstone of {key:?} at {offset} lived {lived_ms:?} ms");
        }
    }

    /// A pass that ends when it asks once more than so often.
    fn clean_until(&mut self, stop_at: u64, of: &str) -> Option<CleanerPass> {
        self.look(of);
        let (engine, partition) = (self.engine.clone(), self.partition.clone());
        let mut calls = 0;
        let pass = engine.cleaner().clean_partition_at(&partition, |_| {
            self.advance_ms(self.pace_ms);
            self.look(of);
            calls += 1;
            if calls > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.look(of);
        assert_verified(&self.engine);
        pass.expect("nothing is damaged")
    }

    fn set(&self, name: &str, value: &str) {
        let operation = ConfigOperation::Set(value.to_owned());
        let change = ConfigChange { name: name.to_owned(), operation };
        self.engine.topics().alter("t", &[change]).expect("the setting is legal");
    }

    /// What is counted goes on from what was counted before; it must be what a new engine counts.
    fn reopen(&mut self, of: &str) {
        let before = self.engine.cleaner().plan(&self.partition).expect("the index is whole");
        self.test.kill();
        self.engine = self.test.open();
        self.partition = self.engine.topic("t").expect("it is there").partition(0).expect("it has");
        let after = self.engine.cleaner().plan(&self.partition).expect("the index is whole");
        assert_eq!(before, after, "{of}");
    }
}

fn keys(text: &str) -> Vec<Record> {
    let record = |word: &str| match word.strip_prefix('-') {
        Some(key) => Record::tombstone(key),
        None => Record::new(word, "v"),
    };
    text.split(' ').map(record).collect()
}

#[test]
fn a_tombstone_that_a_pass_did_not_reach_lives_its_time_after_the_pass_that_does() {
    for (key_limit, batch) in [(2, "b c -a"), (2, "-b c -a"), (3, "-x y z -a"), (2, "b c d -a")] {
        let mut watched = Watched::new(key_limit);
        watched.append(&keys("a"));
        watched.append(&keys(batch));
        let mut passes = 0;
        while let Some(pass) = watched.clean_until(u64::MAX, batch) {
            assert!(pass.is_finished && passes < 9, "{batch}: {pass:?}");
            watched.advance_ms(60_000);
            passes += 1;
        }
        assert!(passes > 2, "{batch}: {passes} passes");
        let left = records_of(&watched.engine, &watched.partition);
        assert!(left.iter().all(|record| record.value.is_some()), "{batch}: {left:?}");
    }
}

#[test]
fn a_tombstone_goes_at_its_horizon_although_the_rest_of_its_batch_is_too_young() {
    let mut watched = Watched::new(2);
    watched.append(&keys("-a b c"));
    let pass = watched.clean_until(u64::MAX, "memory").expect("it is due");
    assert_eq!(pass.cleaned_to, 2);
    watched.set("min.compaction.lag.ms", "60000");
    for (advance_ms, left) in [(4999, 3), (1, 2)] {
        watched.advance_ms(advance_ms);
        watched.clean_until(u64::MAX, "young");
        assert_eq!(records_of(&watched.engine, &watched.partition).len(), left);
    }
    assert_eq!(watched.clean_until(u64::MAX, "young"), None, "no pass is due for what has gone");
    watched.advance_ms(60_000);
    assert_eq!(watched.clean_until(u64::MAX, "old").expect("it is due").cleaned_to, 3);
}

#[test]
fn a_tombstone_lives_its_time_from_when_the_older_values_went_however_long_the_pass_takes() {
    for key_limit in [8, 1000] {
        // The older value waits for a commit with the tombstone, or has gone with one before.
        for value_bytes in [1, 600 << 10] {
            for codec in Codec::ALL {
                let mut watched = Watched::new(key_limit);
                watched.codec = codec;
                watched.pace_ms = 60_000;
                watched.append(&keys("a b"));
                for key in ["c", "d", "e"] {
                    watched
                        .append(&[Record::new(key, vec![b'v'; value_bytes]), keys("b")[0].clone()]);
                }
                watched.append(&keys("-a -f"));
                let of = format!("{key_limit} keys, {value_bytes} bytes, {codec:?}");
                for _ in 0..3 {
                    watched.clean_until(u64::MAX, &of);
                    watched.pace_ms = 0;
                    watched.advance_ms(2499);
                }
                watched.advance_ms(60_000);
                watched.clean_until(u64::MAX, &of);
                let left = records_of(&watched.engine, &watched.partition);
                assert!(left.iter().all(|record| record.value.is_some()), "{of}: {left:?}");
            }
        }
    }
}

fn random_keys(random: &mut Random) -> Vec<Record> {
    let count = 1 + random.below(6);
    let record = |random: &mut Random| {
        let key = random.below(7).to_string();
        match random.below(3) {
            0 => Record::tombstone(key),
            _ => Record::new(key, format!("value {}", random.below(1 << 30))),
        }
    };
    (0..count).map(|_| record(random)).collect()
}

/// A value cannot be read for some passes.
fn damage_for_a_while(watched: &mut Watched, random: &mut Random, of: &str) {
    let records = records_of(&watched.engine, &watched.partition);
    let values: Vec<_> = records.into_iter().filter_map(|record| record.value).collect();
    let Some(value) = values.get(random.below(values.len().max(1) as u64) as usize) else { return };
    let place = place_of(&watched.test, value);
    watched.test.disk.tamper(&place.0, |bytes| bytes[place.1] ^= 1);
    for _ in 0..random.below(4) {
        let stop_at = random.below(20);
        let mut calls = 0;
        // It may end well: not every batch is read in each.
        let _ = watched.engine.cleaner().clean_partition_at(&watched.partition, |_| {
            calls += 1;
            if calls > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        watched.advance_ms([0, 5000, 60_000][random.below(3) as usize]);
    }
    watched.test.disk.tamper(&place.0, |bytes| bytes[place.1] ^= 1);
    watched.look(of);
}

/// Where the log holds a text.
fn place_of(test: &TestEngine, text: &[u8]) -> (PathBuf, usize) {
    let directory = Path::new("/engine/log");
    let mut names = test.disk.process().list(directory).expect("it is there");
    names.sort();
    let mut places = names.iter().rev().filter_map(|name| {
        let path = directory.join(name);
        let contents = test.disk.contents(&path).expect("it is there");
        let at = contents.windows(text.len()).rposition(|part| part == text)?;
        Some((path, at))
    });
    places.next().expect("the log holds it")
}

fn clean_at_random(watched: &mut Watched, random: &mut Random, of: &str) {
    let stop_at = [random.below(9), u64::MAX][random.below(2) as usize];
    watched.pace_ms = [0, 2500, 7000][random.below(3) as usize];
    watched.clean_until(stop_at, of);
    watched.advance_ms([0, 4999, 5000, 60_000][random.below(4) as usize]);
}

/// A producer transaction, with others' batches and a pass while it is open.
fn transact(watched: &mut Watched, sequence: &mut i32, random: &mut Random, of: &str) {
    let records = random_keys(random);
    let base = watched.append_in_transaction(*sequence, &records);
    *sequence += records.len() as i32;
    if random.below(2) == 0 {
        watched.append(&random_keys(random));
        clean_at_random(watched, random, of);
    }
    let commits = random.below(2) == 0;
    if commits {
        watched.note(base, &records);
    }
    watched.end_transaction(base, if commits { MarkerKind::Commit } else { MarkerKind::Abort });
}

fn step(watched: &mut Watched, sequence: &mut i32, random: &mut Random, of: &str) {
    match random.below(15) {
        0..5 => watched.append(&random_keys(random)),
        5 => watched.set("min.compaction.lag.ms", ["0", "9000"][random.below(2) as usize]),
        6 => watched.reopen(of),
        7 => {
            let policy = ["delete", "compact,delete"][random.below(2) as usize];
            watched.set("cleanup.policy", policy);
            watched.append(&random_keys(random));
            watched.set("cleanup.policy", "compact");
        }
        8 if random.below(3) == 0 => {
            let end = watched.engine.watermarks(&watched.partition).expect("it exists");
            let start = random.below(end.log_end as u64 + 1) as i64;
            watched.engine.delete_records(&watched.partition, start).expect("it is legal");
        }
        9 => transact(watched, sequence, random, of),
        10 if random.below(3) == 0 => damage_for_a_while(watched, random, of),
        _ => clean_at_random(watched, random, of),
    }
}

#[test]
fn no_reader_is_left_with_a_deleted_key_whatever_limits_and_stops_the_passes() {
    for seed in 0..300 {
        let (mut random, mut sequence) = (Random(seed), 0);
        let key_limit = [2 + random.below(7), 1000][random.below(3) as usize / 2];
        let mut watched = Watched::new(key_limit);
        for _ in 0..40 {
            step(&mut watched, &mut sequence, &mut random, &format!("seed {seed}"));
            watched.engine.cleaner().plan(&watched.partition).expect("the index is whole");
        }
    }
}
