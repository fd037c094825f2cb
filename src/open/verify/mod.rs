//! Verify: reads everything and compares it with what must always hold (the invariants of docs/design.md).

mod producers;
mod report;

pub use report::VerifyReport;

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::error::{Corruption, Place, StorageError};
use crate::base::types::{Offset, PartitionId, TimestampMs};
use crate::core::{Located, Shared, damage, read_batch};
use crate::index::keyspace::{
    BatchEntry, IndexEntry, PartitionRow, batch_key, batch_key_offset, decode_partition_key,
    partition_range,
};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::record::RecordBatch;

/// Bytes of batches that are read under one pin: freeing waits no longer than that takes.
const PIECE_BYTES: u64 = 1 << 20;

/// Batches that are read under one pin.
const PIECE_BATCHES: usize = 1024;

/// Reads every batch of every partition, as they are at one instant, while commits go on. What is
/// removed or replaced before its turn comes is left out, so that its space comes back meanwhile.
///
/// # Errors
/// [`StorageError`] if the index cannot be read at all. Damage is in the report.
pub fn verify(shared: &Arc<Shared>) -> Result<VerifyReport, StorageError> {
    // Without a pin: what it names in the log may go. Nothing is read there by what it says alone.
    let index = shared.pipeline.store.snapshot();
    let store = &*index;
    let mut report = VerifyReport::default();
    let mut rows = Vec::new();
    let (begin, end) = ([], [0xff; 5]);
    store.scan(Family::Partitions, &begin, &end, Direction::Forward, &mut |key, value| {
        let row = decode_partition_key(key)
            .and_then(|partition| Ok((partition, PartitionRow::decode(key, value)?)));
        match row {
            Ok(row) => rows.push(row),
            Err(corruption) => report.note(corruption),
        }
        ControlFlow::Continue(())
    })?;
    let known: Vec<PartitionId> = rows.iter().map(|(partition, _)| *partition).collect();
    check_strays(store, &known, &mut report)?;
    for (partition, row) in rows {
        let mut check = Check { shared, store, partition, row: &row, sums: Sums::new() };
        check.run(&mut report)?;
        report.partition_count += 1;
    }
    Ok(report)
}

/// No entry may belong to a partition that does not exist.
fn check_strays(
    store: &dyn Read,
    known: &[PartitionId],
    report: &mut VerifyReport,
) -> Result<(), StorageError> {
    for family in [Family::Batches, Family::Index, Family::Producers, Family::Aborted] {
        debug_assert!(known.is_sorted(), "a scan gives keys in their order");
        let mut from = Vec::new();
        // One seek a partition: after each known one, the next entry tells whether one is between.
        loop {
            let mut found: Option<Vec<u8>> = None;
            store.scan(family, &from, &[0xff; 13], Direction::Forward, &mut |key, _| {
                found = Some(key.to_vec());
                ControlFlow::Break(())
            })?;
            let Some(key) = found else { break };
            let id = key.first_chunk::<4>().map(|id| PartitionId(u32::from_be_bytes(*id)));
            match id.filter(|id| known.binary_search(id).is_ok()) {
                Some(id) => from = partition_range(id).1.to_vec(),
                None => {
                    let what = "it belongs to a partition that does not exist";
                    report.note(Corruption::in_store(family.name(), &key, what));
                    from = [&key[..], &[0]].concat();
                }
            }
        }
    }
    Ok(())
}

/// How many of the batches, one at least, are read under one pin.
fn piece_len(batches: &[Located]) -> usize {
    let mut bytes = 0;
    let fitting = batches.iter().take(PIECE_BATCHES).take_while(|batch| {
        bytes += u64::from(batch.entry.location.length_bytes);
        bytes <= PIECE_BYTES
    });
    fitting.count().max(1)
}

/// What the batches of a partition add up to.
struct Sums {
    size_bytes: u64,
    batch_count: u64,
    record_count: u64,
    max_timestamp: TimestampMs,
    last_offset: Offset,
}

impl Sums {
    fn new() -> Self {
        Self {
            size_bytes: 0,
            batch_count: 0,
            record_count: 0,
            max_timestamp: TimestampMs::MIN,
            last_offset: -1,
        }
    }
}

struct Check<'a> {
    shared: &'a Shared,
    store: &'a dyn Read,
    partition: PartitionId,
    row: &'a PartitionRow,
    sums: Sums,
}

impl Check<'_> {
    fn run(&mut self, report: &mut VerifyReport) -> Result<(), StorageError> {
        let (begin, end) = partition_range(self.partition);
        let mut located = Vec::new();
        self.store.scan(Family::Batches, &begin, &end, Direction::Forward, &mut |key, value| {
            let entry = BatchEntry::decode(key, value)
                .and_then(|entry| Ok(Located { last_offset: batch_key_offset(key)?, entry }));
            match entry {
                Ok(entry) => located.push(entry),
                Err(corruption) => report.note(corruption),
            }
            ControlFlow::Continue(())
        })?;
        debug_assert!(
            located.is_sorted_by(|one, next| one.last_offset < next.last_offset),
            "a scan gives keys in their order"
        );
        located.iter().for_each(|batch| self.check_entry(batch, report));
        let mut rest = &located[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(piece_len(rest));
            assert!(!piece.is_empty(), "each piece takes the reading on");
            self.check_piece(piece, report)?;
            rest = after;
        }
        assert_eq!(self.sums.batch_count, located.len() as u64, "each batch is counted");
        self.check_sums(report);
        self.check_producers(report)?;
        self.check_aborted(&located, report)?;
        self.check_index(&located, report)
    }

    /// Reads batches in the log, under a pin of their own (rule F3).
    fn check_piece(
        &self,
        piece: &[Located],
        report: &mut VerifyReport,
    ) -> Result<(), StorageError> {
        let _pin = self.shared.pin();
        for batch in piece {
            let checked = self.find_again(batch).and_then(|found| match found {
                Some(batch) => self.check_batch(&batch).map(|()| true),
                None => Ok(false),
            });
            match checked {
                Ok(true) => {}
                Ok(false) => {
                    report.skipped_batch_count += 1;
                    continue;
                }
                Err(StorageError::Corruption(corruption)) => report.note(corruption),
                Err(StorageError::Io { .. }) => {
                    report.note(self.problem(batch.entry.base_offset, "it cannot be read"));
                }
                Err(error) => return Err(error),
            }
            report.batch_count += 1;
            report.record_count += u64::from(batch.entry.record_count);
            report.bytes += u64::from(batch.entry.location.length_bytes);
        }
        Ok(())
    }

    /// The batch as the index has it now: it may lie elsewhere. `None` if it is gone or another is
    /// in its place.
    fn find_again(&self, batch: &Located) -> Result<Option<Located>, StorageError> {
        let key = batch_key(self.partition, batch.last_offset);
        let value = self.shared.pipeline.store.get(Family::Batches, &key)?;
        let Some(value) = value else { return Ok(None) };
        let entry = BatchEntry::decode(&key, &value)?;
        let is_it = entry == BatchEntry { location: entry.location, ..batch.entry };
        Ok(is_it.then_some(Located { entry, ..*batch }))
    }

    fn problem(&self, offset: Offset, what: &'static str) -> Corruption {
        Corruption { place: Place::Batch { partition: self.partition, offset }, what }
    }

    fn check_entry(&mut self, batch: &Located, report: &mut VerifyReport) {
        let entry = &batch.entry;
        if entry.base_offset <= self.sums.last_offset {
            report.note(self.problem(entry.base_offset, "it overlaps the batch before it"));
        }
        if batch.last_offset < self.row.log_start || batch.last_offset >= self.row.log_end {
            report.note(self.problem(entry.base_offset, "it lies outside of the log"));
        }
        let known =
            self.row.epochs.iter().rev().find(|epoch| epoch.first_offset <= entry.base_offset);
        if known.is_none_or(|epoch| epoch.leader_epoch != entry.leader_epoch) {
            report.note(self.problem(entry.base_offset, "its leader epoch is not its partition's"));
        }
        self.sums.last_offset = batch.last_offset;
        self.sums.size_bytes += u64::from(entry.location.length_bytes);
        self.sums.batch_count += 1;
        self.sums.record_count += u64::from(entry.record_count);
        self.sums.max_timestamp = self.sums.max_timestamp.max(entry.max_timestamp);
    }

    fn check_batch(&self, located: &Located) -> Result<(), StorageError> {
        let entry = &located.entry;
        let corrupt = |what| damage(&self.shared.pipeline, self.partition, located, what);
        let bytes = read_batch(&self.shared.pipeline, self.partition, located)?;
        let batch = RecordBatch::parse(bytes).map_err(|_| corrupt("it is no record batch"))?;
        batch.verify_crc().map_err(|_| corrupt("its checksum does not match"))?;
        let header = batch.header();
        if header.attributes().bits() != entry.attributes {
            return Err(corrupt("its attributes are not those of the index"));
        }
        if header.last_offset() != located.last_offset {
            return Err(corrupt("its last offset is not that of the index"));
        }
        if header.max_timestamp() != entry.max_timestamp {
            return Err(corrupt("its maximum timestamp is not that of the index"));
        }
        // The greatest timestamp of the records says nothing: a client that claimed the log's time
        // keeps the maximum that it sent, beside records with times of their own, as in Kafka.
        let (mut count, mut next) = (0u32, entry.base_offset);
        for record in batch.stored_records() {
            let record = record.map_err(|_| corrupt("a record of it cannot be decoded"))?;
            if record.offset < next || record.offset > located.last_offset {
                return Err(corrupt("its records are not in the order of offsets"));
            }
            let has_horizon = record.value.is_none() || header.is_control();
            if has_horizon && self.is_early(record.offset, header.delete_horizon_ms()) {
                return Err(corrupt("a tombstone or marker may go too early"));
            }
            next = record.offset + 1;
            count += 1;
        }
        if count != entry.record_count {
            return Err(corrupt("it has another number of records than the index says"));
        }
        Ok(())
    }

    /// Whether a tombstone or marker that the cleaner has seen may go before its row says so.
    fn is_early(&self, offset: Offset, horizon: Option<TimestampMs>) -> bool {
        let horizon = horizon.filter(|_| offset < self.row.first_dirty);
        horizon.is_some_and(|horizon| horizon < self.row.next_horizon)
    }

    fn check_sums(&self, report: &mut VerifyReport) {
        let (sums, row) = (&self.sums, self.row);
        let stored = (row.size_bytes, row.batch_count, row.record_count);
        if stored != (sums.size_bytes, sums.batch_count, sums.record_count) {
            report.note(
                self.problem(row.log_start, "the sums in its row are not those of its batches"),
            );
        }
        if sums.max_timestamp > row.running_max_timestamp {
            report.note(self.problem(row.log_start, "its greatest timestamp is not in its row"));
        }
        if row.cumulative_bytes < row.size_bytes
            || row.bytes_at_last_index_entry > row.cumulative_bytes
        {
            report.note(self.problem(row.log_start, "the sums in its row contradict each other"));
        }
    }

    fn check_index(
        &self,
        located: &[Located],
        report: &mut VerifyReport,
    ) -> Result<(), StorageError> {
        let (begin, end) = (batch_key(self.partition, 0), partition_range(self.partition).1);
        let mut before: Option<IndexEntry> = None;
        let mut batches = located.iter().peekable();
        let mut running = TimestampMs::MIN;
        self.store.scan(Family::Index, &begin, &end, Direction::Forward, &mut |key, value| {
            let entry = IndexEntry::decode(key, value)
                .and_then(|entry| Ok((batch_key_offset(key)?, entry)));
            let (offset, entry) = match entry {
                Ok(entry) => entry,
                Err(corruption) => {
                    report.note(corruption);
                    return ControlFlow::Continue(());
                }
            };
            while let Some(batch) = batches.next_if(|batch| batch.last_offset <= offset) {
                running = running.max(batch.entry.max_timestamp);
            }
            let falls = before.is_some_and(|before| {
                before.cumulative_bytes >= entry.cumulative_bytes
                    || before.running_max_timestamp > entry.running_max_timestamp
            });
            let is_outside = offset < self.row.log_start || offset >= self.row.log_end;
            if falls || is_outside || running > entry.running_max_timestamp {
                report.note(self.problem(offset, "its index entry contradicts its batches"));
            }
            before = Some(entry);
            ControlFlow::Continue(())
        })
    }
}
