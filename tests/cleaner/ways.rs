//! The two ways in which a pass goes through the dirty part leave the same, batch by batch.
//!
//! Newest first is taken where all records would fit the memory for keys, so that an engine with
//! little memory reads twice where another one reads once.

use std::ops::ControlFlow;
use std::path::Path;

use crate::common::{
    NOW_MS, TestEngine, append, append_batch, assert_verified, batch_of, batches_of, described,
    one_partition, records_of,
};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::internals::store::{Direction, OpenStore};
use tidelog::internals::write_batch::{Family, WriteBatch};
use tidelog::internals::{self, keyspace::BatchEntry};
use tidelog::record::{BatchBuilder, MarkerKind};
use tidelog::types::ProducerIdentity;
use tidelog::{
    CleanError, CleanerPass, Codec, Durability, Engine, FirstSequence, Partition, Record,
    StorageError,
};

const EAGER: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("delete.retention.ms", "5000"),
];

/// Keys that occur, and the memory in which they all fit: more records than that are read twice.
const KEY_COUNT: u64 = 20;
const MEMORY_BYTES: u64 = (KEY_COUNT + 1) * 40;

/// Numbers that look random, the same for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

struct Side {
    test: TestEngine,
    engine: Engine,
    partition: Partition,
}

impl Side {
    fn new(memory_bytes: Option<u64>) -> Self {
        let test = TestEngine::with(|config| match memory_bytes {
            Some(bytes) => config.cleaner_memory_bytes(bytes),
            None => config,
        });
        let engine = test.open();
        let partition = one_partition(&engine, "t", &EAGER);
        Self { test, engine, partition }
    }

    fn clean(&self) -> Option<CleanerPass> {
        let pass =
            self.engine.cleaner().clean_partition(&self.partition).expect("nothing is damaged");
        assert_verified(&self.engine);
        pass
    }

    /// A pass that is told to end when it asks once more than so often.
    fn clean_until(&self, stop_at: u32) -> CleanerPass {
        let mut calls = 0;
        let pass = self.engine.cleaner().clean_partition_at(&self.partition, |_| {
            calls += 1;
            if calls > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        pass.expect("nothing is damaged").expect("a pass is due")
    }

    fn bytes(&self) -> Vec<u8> {
        let batches = batches_of(&self.engine, &self.partition);
        batches.iter().flat_map(|batch| batch.bytes().to_vec()).collect()
    }
}

fn random_batch(random: &mut Random, sequences: &mut [i32; 3]) -> bytes::Bytes {
    let codec = [Codec::None, Codec::None, Codec::Lz4, Codec::Zstd][random.below(4) as usize];
    let mut builder = BatchBuilder::new().codec(codec);
    let record_count = 1 + random.below(40).min(random.below(6));
    if random.below(4) == 0 {
        let producer = random.below(3) as usize;
        builder = builder.producer(1 + producer as i64, 0, sequences[producer]);
        sequences[producer] += record_count as i32;
    }
    for _ in 0..record_count {
        let key = random.below(KEY_COUNT).to_string();
        let at = NOW_MS + random.below(1000) as i64;
        let record = match random.below(4) {
            0 => Record::tombstone(key),
            _ => Record::new(key, random.below(1000).to_string()).header("h", "1"),
        };
        builder.push(&record.timestamp(at)).expect("the batch is small");
    }
    builder.finish().expect("there is a record")
}

#[test]
fn newest_first_and_two_readings_leave_the_same_batches() {
    let (mut read_once, mut read_twice) = (0, 0);
    for seed in 0..80 {
        let (mut random, mut sequences) = (Random(seed), [0; 3]);
        let sides = [Side::new(None), Side::new(Some(MEMORY_BYTES))];
        for _ in 0..1 + random.below(4) {
            for _ in 0..1 + random.below(60) {
                let batch = random_batch(&mut random, &mut sequences);
                for side in &sides {
                    append_batch(&side.engine, &side.partition, batch.clone());
                }
            }
            let (advance_ms, deletes) = (random.below(7000), random.below(5) == 0);
            let log_end = sides[0].engine.watermarks(&sides[0].partition).unwrap().log_end;
            let before = random.below(log_end as u64) as i64;
            let passes = sides.each_ref().map(|side| {
                side.test.clock.advance_ms(advance_ms);
                if deletes {
                    side.engine.delete_records(&side.partition, before).unwrap();
                }
                side.clean()
            });
            assert!(sides[0].bytes() == sides[1].bytes(), "seed {seed}");
            assert_eq!(passes[0].is_some(), passes[1].is_some());
            let [Some(once), Some(twice)] = passes else { continue };
            assert_eq!(once.key_count, twice.key_count, "seed {seed}");
            assert_eq!(once.cleaned_to, twice.cleaned_to, "seed {seed}");
            assert_eq!(once.removed_records, twice.removed_records, "seed {seed}");
            read_once += once.read_bytes;
            read_twice += twice.read_bytes;
        }
    }
    assert_ne!(read_twice, read_once, "both went one way");
}

#[test]
fn each_dirty_batch_is_read_once_where_its_records_fit_the_memory() {
    let side = Side::new(None);
    let mut bytes = 0;
    for index in 0..100 {
        let key = |of: u64| Record::new((index % of).to_string(), "v").timestamp(NOW_MS);
        let batch = batch_of(&[key(7), key(100), key(3)]);
        bytes += batch.len() as u64;
        append_batch(&side.engine, &side.partition, batch);
    }
    assert_eq!(side.clean().unwrap().read_bytes, bytes);
}

#[test]
fn a_batch_of_a_producer_transaction_is_enough_for_two_readings() {
    let side = Side::new(None);
    let (engine, partition) = (&side.engine, &side.partition);
    let first = batch_of(&[Record::new("a", "1"), Record::new("b", "1")]);
    let mut bytes = first.len() as u64;
    append_batch(engine, partition, first);
    let producer = ProducerIdentity { producer_id: 7, producer_epoch: 0 };
    let mut builder = BatchBuilder::new().producer(7, 0, 0).transactional();
    builder.push(&Record::new("a", "2")).unwrap();
    let batch = builder.finish().unwrap();
    bytes += batch.len() as u64;
    internals::pretend_open_transaction(engine, "p", producer, partition);
    let mut append = engine.append_transaction();
    append.transactional_id("p", FirstSequence::Any);
    append.batch(partition, batch).unwrap();
    append.commit(Durability::Sync).unwrap();
    internals::write_marker(engine, producer, partition, MarkerKind::Commit).unwrap();
    let pass = side.clean().unwrap();
    assert!(pass.read_bytes > bytes, "read {} of {bytes}", pass.read_bytes);
    assert_eq!(crate::common::offsets_of(engine, partition), [1, 2]);
}

#[test]
fn a_pass_that_was_stopped_is_done_again_and_ends_the_same() {
    let mut ends = Vec::new();
    // With so little memory for keys the dirty part is read twice.
    for memory_bytes in [128 << 20, 8 * 40] {
        for stop_at in 0.. {
            let side = Side::new(Some(memory_bytes));
            let (engine, partition) = (&side.engine, &side.partition);
            // Each value fills a commit of its own.
            for index in 0..6 {
                let large = vec![b'v'; 600 << 10];
                let records =
                    [Record::new("k", index.to_string()), Record::new(index.to_string(), large)];
                append(engine, partition, records);
            }
            let pass = side.clean_until(stop_at);
            if pass.is_finished {
                assert!(stop_at > 10, "it was never stopped behind a commit");
                break;
            }
            assert_eq!(pass.cleaned_to, 0, "stopped at {stop_at}");
            assert_verified(engine);
            assert!(side.clean().unwrap().is_finished);
            ends.push(records_of(engine, partition));
        }
    }
    assert_eq!(ends[0].len(), 7);
    assert!(ends.iter().all(|end| *end == ends[0]));
}

#[test]
fn whichever_commit_is_the_last_each_keys_newest_value_is_there() {
    let mut is_over = false;
    for stop_at in 0.. {
        let side = Side::new(None);
        for index in 0..12 {
            // Each value fills a commit of its own.
            let large = vec![b'v'; 600 << 10];
            let record = match index {
                1 | 4 => Record::new("gone", large),
                7 => Record::tombstone("gone"),
                _ => Record::new(["k", "l"][index % 2], large),
            };
            let own = Record::new(format!("own{index}"), "v").timestamp(NOW_MS);
            append_batch(&side.engine, &side.partition, batch_of(&[record.timestamp(NOW_MS), own]));
        }
        let newest = |side: &Side| {
            let records = records_of(&side.engine, &side.partition);
            let of =
                |record: Record| (record.key.unwrap(), (record.offset, record.value.is_some()));
            records.into_iter().map(of).collect::<std::collections::BTreeMap<_, _>>()
        };
        let before = newest(&side);
        let mut calls = 0;
        let pass = side.engine.cleaner().clean_partition_at(&side.partition, |_| {
            calls += 1;
            if calls > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        is_over |= pass.unwrap().unwrap().is_finished;
        side.test.kill();
        drop(side.engine);
        let engine = side.test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        let side = Side { engine, partition, ..side };
        assert_eq!(newest(&side), before, "stopped at {stop_at}");
        // Long behind every horizon, older values still go before their tombstone.
        side.test.clock.advance_ms(60_000);
        let mut left = newest(&side);
        for calls in 0.. {
            let mut count = 0;
            let pass = side.engine.cleaner().clean_partition_at(&side.partition, |_| {
                count += 1;
                if count > calls { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            left = newest(&side);
            left.retain(|_, (_, has_value)| *has_value);
            assert!(left.keys().all(|key| *key != "gone"), "stopped at {stop_at}, {calls}");
            if pass.unwrap().is_none_or(|pass| pass.is_finished) {
                break;
            }
        }
        let mut values = before;
        values.retain(|_, (_, has_value)| *has_value);
        assert_eq!(left, values, "stopped at {stop_at}");
        if is_over {
            break;
        }
    }
    assert!(is_over);
}

#[test]
fn a_tombstone_outlives_its_keys_older_values_by_its_time_wherever_the_pass_before_was_stopped() {
    let is_gone = |record: &Record| record.key.as_deref() == Some(b"gone");
    let of_gone = |side: &Side| {
        let records = records_of(&side.engine, &side.partition).into_iter().filter(is_gone);
        records.map(|record| record.value.is_some()).collect::<Vec<bool>>()
    };
    // The older value is below the first dirty offset, or is not; newest first, or not.
    for (is_clean, memory_bytes) in [(false, None), (true, None), (false, Some(8 * 40))] {
        let mut outlived = 0;
        for (stop_at, again) in (0..16).flat_map(|one| (0..17).map(move |two| (one, two))) {
            let side = Side::new(memory_bytes);
            let (engine, partition) = (&side.engine, &side.partition);
            for index in 0..5 {
                // Each value fills a commit of its own.
                let own = Record::new(format!("own{index}"), vec![b'v'; 600 << 10]);
                let record = match index {
                    0 => Record::new("gone", "v"),
                    3 => Record::tombstone("gone"),
                    _ => Record::new("k", "v"),
                };
                let records = [record.timestamp(NOW_MS), own.timestamp(NOW_MS)];
                append_batch(engine, partition, batch_of(&records));
                if index == 0 && is_clean {
                    assert!(side.clean().unwrap().is_finished);
                }
            }
            if side.clean_until(stop_at).is_finished {
                continue;
            }
            // Behind the horizon, if there is one, a reader gets the value, and is slow.
            side.test.clock.advance_ms(60_000);
            let before = of_gone(&side);
            if !side.clean_until(again).is_finished {
                side.clean();
            }
            if before == [true, false] {
                assert_eq!(of_gone(&side), [false], "stopped at {stop_at}, {again}");
                side.test.clock.advance_ms(4_999);
                side.clean();
                assert_eq!(of_gone(&side), [false], "stopped at {stop_at}, {again}");
                outlived += 1;
            }
            side.test.clock.advance_ms(5_000);
            side.clean();
            assert!(of_gone(&side).is_empty(), "stopped at {stop_at}, {again}");
        }
        assert!(outlived > 5, "the value was there {outlived} times");
    }
}

#[test]
fn the_figures_of_a_pass_are_what_it_has_committed_wherever_it_is_stopped() {
    // The dirty part is read once, and twice.
    for memory_bytes in [None, Some(8 * 40)] {
        for stop_at in 0.. {
            let side = Side::new(memory_bytes);
            let (engine, partition) = (&side.engine, &side.partition);
            for index in 0..5 {
                let own = Record::new(format!("own{index}"), vec![b'v'; 600 << 10]);
                append_batch(engine, partition, batch_of(&[Record::new("k", "v"), own]));
            }
            let before = described(engine, partition);
            let pass = side.clean_until(stop_at);
            let after = described(engine, partition);
            let removed_records = before.record_count - after.record_count;
            assert_eq!(pass.removed_records, removed_records, "stopped at {stop_at}");
            assert_eq!(engine.metrics().cleaner_removed_records, removed_records);
            let removed_bytes = before.size_bytes - after.size_bytes;
            assert_eq!(pass.replaced_bytes - pass.written_bytes, removed_bytes);
            if pass.is_finished {
                assert_eq!(removed_records, 4);
                break;
            }
        }
    }
}

/// Changes the index entry of the newest batch, as no write ever does.
fn distort(test: &TestEngine, distortion: impl Fn(&mut BatchEntry)) {
    let store = test.store.open(Path::new("/engine/store"), false).expect("the engine is closed");
    let mut newest = None;
    let visit = &mut |key: &[u8], value: &[u8]| {
        let entry = BatchEntry::decode(key, value).expect("it is not distorted yet");
        newest = Some((key.to_vec(), entry));
        ControlFlow::Continue(())
    };
    let (begin, end) = (&[][..], &[0xff; 16][..]);
    store
        .scan(Family::Batches, begin, end, Direction::Forward, visit)
        .expect("the memory store is good");
    let (key, mut entry) = newest.expect("there is a batch");
    distortion(&mut entry);
    let mut batch = WriteBatch::new();
    batch.put(Family::Batches, &key, &entry.encode());
    store.write(&[&batch]).expect("the memory store is good");
    store.begin_flush().expect("the memory store is good");
    assert!(store.is_flushed().expect("the memory store is good"));
    store.close().expect("the memory store is good");
}

#[test]
fn nothing_is_cleaned_by_an_index_entry_that_is_not_its_batchs() {
    let producer = ProducerIdentity { producer_id: 7, producer_epoch: 0 };
    let distortions: [fn(&mut BatchEntry); 6] = [
        |entry| entry.attributes ^= 0x10,
        |entry| entry.attributes ^= 0x30,
        |entry| entry.attributes ^= 0x40,
        |entry| entry.record_count += 1,
        |entry| entry.record_count -= 1,
        |entry| entry.max_timestamp += 1,
    ];
    // The newest batch is a marker, or records.
    for (has_marker, distortion) in
        [true, false].into_iter().flat_map(|it| distortions.map(|d| (it, d)))
    {
        let side = Side::new(None);
        let (engine, partition) = (&side.engine, &side.partition);
        for value in ["1", "2", "3"] {
            append(engine, partition, [Record::new("k", value), Record::new(value, "v")]);
        }
        if has_marker {
            internals::write_marker(engine, producer, partition, MarkerKind::Commit).unwrap();
        }
        side.engine.close().unwrap();
        distort(&side.test, distortion);
        let engine = side.test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        let before = described(&engine, &partition);
        let cleaned = engine.cleaner().clean_partition(&partition);
        let is_told = matches!(cleaned, Err(CleanError::Storage(StorageError::Corruption(_))));
        assert!(is_told, "with a marker: {has_marker}: {cleaned:?}");
        let after = described(&engine, &partition);
        assert_eq!(
            (after.record_count, after.size_bytes),
            (before.record_count, before.size_bytes)
        );
    }
}

impl Side {
    fn set(&self, name: &str, value: &str) {
        let operation = ConfigOperation::Set(value.to_owned());
        let change = ConfigChange { name: name.to_owned(), operation };
        self.engine.topics().alter("t", &[change]).expect("the setting is legal");
    }

    fn transact(&self, sequence: i32, key: &str, kind: MarkerKind) {
        let producer = ProducerIdentity { producer_id: 9, producer_epoch: 0 };
        let mut builder = BatchBuilder::new().producer(9, 0, sequence).transactional();
        builder.push(&Record::new(key, "of a transaction").timestamp(NOW_MS)).expect("it is legal");
        internals::pretend_open_transaction(&self.engine, "p", producer, &self.partition);
        let mut append = self.engine.append_transaction();
        append.transactional_id("p", FirstSequence::Any);
        append.batch(&self.partition, builder.finish().expect("it is legal")).expect("it is legal");
        append.commit(Durability::Sync).expect("it is legal");
        internals::write_marker(&self.engine, producer, &self.partition, kind)
            .expect("it is legal");
    }
}

/// What happens before a pass, beside appends.
fn happen(random: &mut Random, sequence: &mut i32, sides: &[Side; 2]) {
    let (what, number) = (random.below(6), random.below(1 << 20));
    for side in sides {
        match what {
            0 => {
                let kind = if number % 2 == 0 { MarkerKind::Abort } else { MarkerKind::Commit };
                side.transact(*sequence, &(number % KEY_COUNT).to_string(), kind);
            }
            1 => {
                let end = side.engine.watermarks(&side.partition).expect("it is legal").log_end;
                let end = end + (number as i64) * 5000;
                internals::skip_offsets(&side.engine, &side.partition, end).expect("it is legal");
            }
            2 => side.set("min.compaction.lag.ms", ["0", "500", "3000"][number as usize % 3]),
            3 => {
                let kinds = ["LogAppendTime", "CreateTime"];
                side.set("message.timestamp.type", kinds[number as usize % 2]);
            }
            4 => {
                side.set("cleanup.policy", "delete");
                let keyed = Record::new((number % KEY_COUNT).to_string(), "v");
                let records = [Record::keyless("v"), keyed, Record::keyless(None::<&str>)];
                append(&side.engine, &side.partition, records[..1 + number as usize % 3].to_vec());
                side.set("cleanup.policy", "compact");
            }
            _ => {}
        }
    }
    *sequence += i32::from(what == 0);
}

#[test]
fn both_ways_leave_the_same_around_transactions_gaps_lags_and_records_without_keys() {
    let mut read_bytes = [0; 2];
    for seed in 1000..1080 {
        let (mut random, mut sequences, mut sequence) = (Random(seed), [0; 3], 0);
        let sides = [Side::new(None), Side::new(Some(MEMORY_BYTES))];
        for round in 0..6 {
            for _ in 0..1 + random.below(4) {
                happen(&mut random, &mut sequence, &sides);
                for _ in 0..random.below(20) {
                    let batch = random_batch(&mut random, &mut sequences);
                    for side in &sides {
                        append_batch(&side.engine, &side.partition, batch.clone());
                    }
                }
            }
            let advance_ms = random.below(7000);
            let log_end = sides[0].engine.watermarks(&sides[0].partition).unwrap().log_end;
            let before = random.below(log_end.max(1) as u64) as i64;
            let deletes = random.below(5) == 0;
            let passes = sides.each_ref().map(|side| {
                side.test.clock.advance_ms(advance_ms);
                if deletes {
                    side.engine.delete_records(&side.partition, before).unwrap();
                }
                side.clean()
            });
            assert!(sides[0].bytes() == sides[1].bytes(), "seed {seed} round {round}");
            let horizons = sides.each_ref().map(|side| {
                let described = described(&side.engine, &side.partition);
                (described.first_dirty, described.next_horizon)
            });
            assert_eq!(horizons[0], horizons[1], "seed {seed} round {round}");
            for (sum, pass) in read_bytes.iter_mut().zip(passes) {
                *sum += pass.map_or(0, |pass| pass.read_bytes);
            }
        }
    }
    assert!(read_bytes[1] > read_bytes[0] * 11 / 10, "read {read_bytes:?}");
}
