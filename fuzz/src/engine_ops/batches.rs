//! The records and batches that are appended, and what is known of them until they are committed.

use bytes::Bytes;
use tidelog::record::{BatchBuilder, RecordBatch, TimestampType};
use tidelog::types::NO_TIMESTAMP;
use tidelog::{Committed, Record, TopicId};

use super::input::{BatchSpec, Damage, Part, RecordSpec};

const MAX_VALUE_BYTES: u16 = 3000;

/// What one call added to a transaction.
pub(super) struct Planned {
    pub(super) name: &'static str,
    pub(super) id: TopicId,
    pub(super) index: usize,
    pub(super) has_log_time: bool,
    /// In their order, with the timestamps that they were sent with.
    pub(super) records: Vec<Record>,
}

/// What a commit of such calls must be answered with.
pub(super) struct Expected {
    /// Of each call: the offset of its first record, and how many there are.
    runs: Vec<(i64, usize, bool)>,
    append_time: i64,
}

impl Expected {
    /// REQUIRES: the parts can be appended, behind partitions of these lengths.
    pub(super) fn new(
        parts: &[Planned],
        append_time: i64,
        log_end: impl Fn(&Planned) -> usize,
    ) -> Self {
        let base = |(at, part): (usize, &Planned)| {
            let before =
                parts[..at].iter().filter(|other| (other.id, other.index) == (part.id, part.index));
            let base = log_end(part) + before.map(|other| other.records.len()).sum::<usize>();
            (base as i64, part.records.len(), part.has_log_time)
        };
        Self { runs: parts.iter().enumerate().map(base).collect(), append_time }
    }

    pub(super) fn check(&self, committed: &Committed) {
        let mut batches = committed.batches.iter();
        for &(base, record_count, has_log_time) in &self.runs {
            let (mut next, end) = (base, base + record_count as i64);
            while next < end {
                let batch = batches.next().expect("each record is in a batch");
                assert_eq!(batch.base_offset, next, "offsets are dense");
                assert!(batch.last_offset >= next && batch.last_offset < end);
                assert_eq!(batch.append_time, self.append_time);
                assert_eq!(batch.log_append_time, has_log_time.then_some(self.append_time));
                assert_eq!(batch.log_start, 0);
                next = batch.last_offset + 1;
            }
        }
        assert_eq!(batches.next(), None, "no batch comes from nowhere");
        assert_eq!(committed.sequence.is_some(), !committed.batches.is_empty());
    }
}

/// Makes records that are all different.
#[derive(Default)]
pub(super) struct Source {
    made: u32,
}

impl Source {
    pub(super) fn records(&mut self, part: &Part, now: i64) -> Vec<Record> {
        part.records.iter().map(|spec| self.record(spec, now)).collect()
    }

    fn record(&mut self, spec: &RecordSpec, now: i64) -> Record {
        self.made += 1;
        let value = spec.value_bytes.map(|bytes| {
            let mut value = self.made.to_be_bytes().to_vec();
            value.resize(4 + usize::from(bytes % MAX_VALUE_BYTES), spec.headers);
            value
        });
        let key = spec.key.map(|key| vec![key; usize::from(key % 3)]);
        let mut record = Record::new(key, value);
        record.timestamp = match spec.time {
            i8::MIN => NO_TIMESTAMP,
            seconds => now + i64::from(seconds) * 1000,
        };
        for header in 0..spec.headers % 4 {
            let value = (header != 2).then(|| vec![header; usize::from(header)]);
            record = record.header([header], value);
        }
        record
    }

    /// A batch of the records, with what is wrong with it; nothing where there is none.
    pub(super) fn batch(records: &[Record], part: &Part, spec: &BatchSpec) -> Option<Bytes> {
        let mut builder = BatchBuilder::new().codec(part.codec);
        if spec.has_producer {
            // The append names no transactional id, so it is not taken.
            builder = builder.producer(5, 0, 0).transactional();
        }
        if spec.claims_log_time {
            builder = builder.timestamp_type(TimestampType::LogAppendTime);
        }
        records.iter().try_for_each(|record| builder.push(record)).ok()?;
        let batch = builder.finish().ok()?;
        Some(match &spec.damage {
            Some(damage) => damaged(&batch, damage),
            None => batch,
        })
    }
}

fn damaged(batch: &[u8], damage: &Damage) -> Bytes {
    let mut bytes = batch.to_vec();
    let at = usize::from(damage.at) % bytes.len();
    if damage.cut {
        bytes.truncate(at);
    } else {
        bytes[at] ^= damage.change;
    }
    if damage.repairs_checksum && bytes.len() > 21 {
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    bytes.into()
}

/// Whether a client says of a batch that its time is the log's.
pub(super) fn claims_log_time(batch: &[u8]) -> bool {
    batch[22] & 8 != 0
}

/// The records of a batch that the engine took, each with its own timestamp.
pub(super) fn records_of(batch: &[u8]) -> Vec<Record> {
    let mut bytes = batch.to_vec();
    // The log says whose time counts: what a client claims about it is dropped.
    bytes[22] &= !8;
    let batch = RecordBatch::parse(bytes.into()).expect("the engine took it");
    batch.records().map(|record| record.expect("the engine took it")).collect()
}
