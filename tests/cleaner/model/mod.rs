//! What was appended, as a list, and what of it may be gone.

pub mod producers;
pub mod world;

use std::collections::BTreeMap;

use bytes::Bytes;
use tidelog::record::{Batches, RecordBatch};
use tidelog::{Engine, FetchOptions, Isolation, Partition, Record};

use crate::common::{as_a_client_reads, assert_verified, described};
use producers::KnownProducers;

const DELETE_RETENTION_MS: i64 = 3000;

/// How a producer transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Open,
    Committed,
    Aborted,
}

/// A record that was appended, and in which transaction.
#[derive(Debug)]
struct Appended {
    record: Record,
    transaction: Option<usize>,
}

/// Everything that was appended and not lost, by offset.
#[derive(Default)]
pub struct Model {
    records: BTreeMap<i64, Appended>,
    /// Every transaction that there was.
    transactions: Vec<Outcome>,
    pub producers: KnownProducers,
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

/// Every batch from the log start on, committed or not. A reader gets to the high watermark.
pub fn batches(engine: &Engine, partition: &Partition) -> Vec<RecordBatch> {
    let marks = engine.watermarks(partition).expect("the partition exists");
    let options = FetchOptions::new().isolation(Isolation::Uncommitted);
    let (mut all, mut offset) = (Vec::new(), marks.log_start);
    while offset < marks.high_watermark {
        let fetched = engine.fetch(partition, offset, options).expect("readable");
        assert!(fetched.next_offset > offset, "a reader at {offset} is stuck");
        all.extend(Batches::new(fetched.bytes).map(|batch| batch.expect("it is whole")));
        offset = fetched.next_offset;
    }
    assert_eq!(offset, marks.high_watermark, "a reader does not end at the high watermark");
    all
}

fn by_offset(records: impl Iterator<Item = Record>) -> BTreeMap<i64, Record> {
    records.map(|record| (record.offset, record)).collect()
}

/// The records that a reader of committed data is given, who gets to the last stable offset.
fn committed(engine: &Engine, partition: &Partition) -> BTreeMap<i64, Record> {
    let marks = engine.watermarks(partition).expect("the partition exists");
    let (mut found, mut offset) = (Vec::new(), marks.log_start);
    while offset < marks.last_stable {
        let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("readable");
        assert!(fetched.next_offset > offset, "a reader at {offset} is stuck");
        found.extend(fetched.records().map(|record| record.expect("it can be decoded")));
        offset = fetched.next_offset;
    }
    by_offset(found.into_iter())
}

impl Model {
    /// A pass ran at this time, and may have reached all below this offset.
    fn note_pass(&mut self, uncleanable: i64, now: i64) {
        let tombstones = self.records.range(..uncleanable);
        let tombstones = tombstones.filter(|(_, appended)| appended.record.value.is_none());
        for (&offset, _) in tombstones {
            // Which pass wrote the horizon is not known: the earliest that any may have written.
            let first = self.seen.entry(offset).or_insert(now);
            *first = now.min(*first);
            if now >= *first + DELETE_RETENTION_MS {
                self.may_be_gone.insert(offset, ());
            }
        }
    }

    fn append(&mut self, base: i64, records: Vec<Record>, transaction: Option<usize>) {
        for (offset, record) in (base..).zip(records) {
            self.log_end = offset + 1;
            let record = Record { offset, ..record };
            self.records.insert(offset, Appended { record, transaction });
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
        self.producers.crashed(marks.log_end);
        (self.log_end, self.log_start) = (marks.log_end, marks.log_start);
        // Recovery has synced what it found.
        self.note_synced();
    }

    fn outcome(&self, appended: &Appended) -> Outcome {
        appended.transaction.map_or(Outcome::Committed, |index| self.transactions[index])
    }

    /// Holds the partition against what may be.
    pub fn check(&mut self, engine: &Engine, partition: &Partition, now: i64) {
        assert_verified(engine);
        self.leader_epoch = engine.leader_epoch();
        let marks = engine.watermarks(partition).expect("the partition exists");
        assert_eq!(marks.log_end, self.log_end, "the log end moved");
        assert!(marks.log_start >= self.log_start, "the log start went back");
        self.log_start = marks.log_start;
        let first_dirty = described(engine, partition).first_dirty;
        let batches = batches(engine, partition);
        let all = batches.iter().filter(|batch| !batch.header().is_control());
        let all = all.flat_map(RecordBatch::records).map(|record| record.expect("decodable"));
        let all = by_offset(all.filter(|record| record.offset >= marks.log_start));
        for (offset, record) in &all {
            let appended = self.records.get(offset).expect("what is there was appended");
            assert_eq!(*record, appended.record, "another record is at {offset}");
            let is_aborted = self.outcome(appended) == Outcome::Aborted;
            assert!(*offset >= first_dirty || !is_aborted, "aborted at {offset} is still there");
        }
        for offset in self.records.range(marks.last_stable.max(marks.log_start)..) {
            assert!(all.contains_key(offset.0), "{} is gone, and not stable yet", offset.0);
        }
        let found = committed(engine, partition);
        for (offset, record) in &found {
            assert_eq!(self.outcome(&self.records[offset]), Outcome::Committed, "at {offset}");
            assert_eq!(all.get(offset), Some(record), "readers differ at {offset}");
        }
        let offsets: Vec<i64> = found.keys().copied().collect();
        assert_eq!(as_a_client_reads(engine, partition), offsets);
        let scanned = engine.snapshot().scan(partition.topic());
        let scanned = scanned.map(|scanned| scanned.expect("readable").record.offset);
        // A scan goes on behind what is not stable, and leaves out open transactions.
        let behind = all.keys().filter(|offset| **offset >= marks.last_stable);
        let behind =
            behind.filter(|offset| self.outcome(&self.records[offset]) == Outcome::Committed);
        let expected: Vec<i64> = offsets.iter().chain(behind).copied().collect();
        assert_eq!(scanned.collect::<Vec<i64>>(), expected);
        self.check_keys(&found, marks.last_stable, first_dirty, now);
        self.check_markers(&batches);
        self.producers.check(engine, partition, &batches);
    }

    /// As long as a batch of a transaction that has ended is there, so is its marker.
    fn check_markers(&self, batches: &[RecordBatch]) {
        let mut unended: BTreeMap<i64, usize> = BTreeMap::new();
        for header in batches.iter().map(RecordBatch::header) {
            let producer_id = header.producer_id();
            if header.is_control() {
                unended.remove(&producer_id);
            } else if header.is_transactional() {
                let index = self.records[&header.base_offset()].transaction;
                let index = index.expect("it is of a transaction");
                let before = unended.insert(producer_id, index);
                assert!(before.is_none_or(|before| before == index), "a marker before {header:?}");
            }
        }
        for (producer_id, index) in unended {
            let outcome = self.transactions[index];
            assert_eq!(outcome, Outcome::Open, "the marker of {producer_id} is gone");
        }
    }

    fn check_keys(
        &self,
        found: &BTreeMap<i64, Record>,
        last_stable: i64,
        first_dirty: i64,
        now: i64,
    ) {
        let mut newest: BTreeMap<&Bytes, i64> = BTreeMap::new();
        let mut newest_clean: BTreeMap<&Bytes, i64> = BTreeMap::new();
        for (&offset, appended) in self.records.range(self.log_start..last_stable) {
            let is_committed = self.outcome(appended) == Outcome::Committed;
            if let Some(key) = appended.record.key.as_ref().filter(|_| is_committed) {
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
