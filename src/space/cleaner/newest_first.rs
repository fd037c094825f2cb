//! The dirty part cleaned with one reading, from its newest batch to its oldest: what was seen before supersedes.
//!
//! Each batch is read, checked, judged and rebuilt at once. A commit leaves the newest record of
//! every key where it is, so any may be the last before a crash. Tombstones get no horizon here:
//! older records of their keys may be left. Where there are any, the usual way follows.

use std::ops::Range;

use super::change::Item;
use super::error::{CleanError, Stop};
use super::filter::filter_noted;
use super::judge::Judge;
use super::key_set::{KeySet, NO_KEY, Seen};
use super::learned::Learned;
use super::pass::Pass;
use super::plan::Survey;
use super::reader::{Reader, damaged, run_of};
use super::rules::CleaningRules;
use crate::base::error::StorageError;
use crate::base::hash::{Hash, HashKey};
use crate::base::types::Offset;
use crate::core::Located;
use crate::record::UnpackedBatch;
use crate::state::catalog::Partition;

/// Bytes of unpacked records that are held at a time, unless one batch has more.
const GROUP_BYTES: usize = 1 << 20;

/// Records whose keys are looked up together, unless one batch has more: what the fastest cache
/// holds of them.
const GROUP_RECORDS: u32 = 64;

impl Pass<'_> {
    /// Cleans all batches that end between the first dirty and the first uncleanable offset. All
    /// their keys fit the memory, none is of a producer transaction, and none has a horizon yet.
    /// `None` if there are tombstones, which are still to be judged once their older records are
    /// gone.
    pub(super) fn clean_newest_first(&mut self, survey: &Survey) -> Result<Option<Learned>, Stop> {
        let plan = &survey.plan;
        let secret = HashKey(self.reader.shared.secrets.key());
        let mut keys = KeySet::new(plan.cleanable_records, secret);
        let mut group_keys = GroupKeys::default();
        let mut end = plan.first_dirty;
        let mut bound = plan.uncleanable;
        for &start in survey.part_starts.iter().rev() {
            let (_pin, part) = self.reader.locate(start, bound, u64::MAX)?;
            assert!(start < bound, "parts are cleaned from the newest to the oldest");
            bound = start;
            end = end.max(part.last().map_or(0, |last| last.last_offset + 1));
            let rules = CleaningRules { horizon: None, ..self.rules(end) };
            let mut rest = &part[..];
            while !rest.is_empty() {
                let (before, run) = rest.split_at(rest.len() - run_of(rest.iter().rev()));
                self.clean_run(run, (&mut keys, &mut group_keys), plan.first_dirty, rules)?;
                rest = before;
            }
        }
        if group_keys.has_tombstone {
            self.commit(None)?;
            return Ok(None);
        }
        Ok(Some(Learned::Cleaned { keys, end }))
    }

    fn clean_run(
        &mut self,
        run: &[Located],
        (keys, group_keys): (&mut KeySet, &mut GroupKeys),
        first_dirty: Offset,
        rules: CleaningRules,
    ) -> Result<(), Stop> {
        let places = self.reader.fetch(run)?;
        assert!(!run.is_empty(), "each run takes the pass on");
        let (_, last_stable) = self.log_start_and_last_stable();
        let mut judge = Judge {
            partition: self.reader.partition,
            rules,
            last_stable,
            last_batches: &self.last_batches,
            next_horizon: &mut self.next_horizon,
        };
        let mut items = Vec::new();
        let mut rest = run.iter().zip(places).rev();
        loop {
            let group = open_group(&self.reader, &mut rest)?;
            if group.is_empty() {
                break;
            }
            judge_group(&group, keys, group_keys, first_dirty, &mut judge, &mut items)?;
        }
        items.into_iter().try_for_each(|item| self.push(item))
    }
}

type Opened<'b> = (&'b Located, UnpackedBatch<'b>);

/// The next batches, checked, as many as may be held at a time.
fn open_group<'b>(
    reader: &'b Reader<'_>,
    rest: &mut impl Iterator<Item = (&'b Located, Range<usize>)>,
) -> Result<Vec<Opened<'b>>, StorageError> {
    let (mut group, mut bytes, mut records) = (Vec::new(), 0, 0);
    while bytes < GROUP_BYTES && records < GROUP_RECORDS {
        let Some((located, place)) = rest.next() else { break };
        let batch = reader.open(located, place)?;
        bytes += batch.unpacked_bytes();
        records = located.entry.record_count.saturating_add(records);
        group.push((located, batch));
    }
    Ok(group)
}

/// The keys of one batch in a group.
struct Keyed {
    /// Where the group's keys end that are its own.
    end: usize,
    /// Whether more than its keys decides: it has tombstones, records without a key, or none.
    is_open: bool,
}

/// The hashes and offsets of all records in a group; one group after another is read into it.
#[derive(Default)]
struct GroupKeys {
    hashes: Vec<Hash>,
    offsets: Vec<Offset>,
    batches: Vec<Keyed>,
    has_newer: Vec<bool>,
    /// Whether any group had a tombstone.
    has_tombstone: bool,
}

impl GroupKeys {
    fn read(
        &mut self,
        group: &[Opened<'_>],
        keys: &KeySet,
        partition: &Partition,
    ) -> Result<(), StorageError> {
        self.hashes.clear();
        self.offsets.clear();
        self.batches.clear();
        for (located, batch) in group {
            let begin = self.hashes.len();
            let mut is_open = false;
            for record in batch.keys() {
                let record = record.map_err(|_| damaged(partition, located))?;
                is_open |= !record.has_value || record.key.is_none();
                self.has_tombstone |= !record.has_value;
                self.hashes.push(record.key.map_or(NO_KEY, |key| keys.hash(key)));
                self.offsets.push(record.offset);
            }
            let end = self.hashes.len();
            self.batches.push(Keyed { end, is_open: is_open || end == begin });
        }
        assert_eq!(self.batches.len(), group.len(), "each batch has its keys");
        assert_eq!(self.hashes.len(), self.offsets.len(), "each key has its offset");
        self.has_newer.clear();
        self.has_newer.resize(self.hashes.len(), false);
        Ok(())
    }
}

/// Judges batches that come newest first, each of its records by the keys of all newer ones.
fn judge_group(
    group: &[Opened<'_>],
    keys: &mut KeySet,
    group_keys: &mut GroupKeys,
    first_dirty: Offset,
    judge: &mut Judge<'_>,
    items: &mut Vec<Item>,
) -> Result<(), CleanError> {
    group_keys.read(group, keys, judge.partition)?;
    let GroupKeys { hashes, offsets, batches, has_newer, .. } = group_keys;
    keys.bring_near(hashes);
    let mut begin = 0;
    for ((located, batch), Keyed { end, is_open }) in group.iter().zip(batches) {
        for index in (begin..*end).rev().filter(|index| hashes[*index] != NO_KEY) {
            let is_superseded = match offsets[index] < first_dirty {
                true => keys.holds(hashes[index]),
                false => match keys.put(hashes[index]) {
                    Seen::First => false,
                    Seen::Before => true,
                    // There are more records than the index says.
                    Seen::Full => return Err(damaged(judge.partition, located).into()),
                },
            };
            has_newer[index] = is_superseded;
            *is_open |= is_superseded;
        }
        if *is_open {
            let filtered = filter_noted(batch, &judge.rules, &has_newer[begin..*end]);
            items.extend(judge.item(located, batch.header(), filtered)?);
        }
        begin = *end;
    }
    assert_eq!(begin, hashes.len(), "each key belongs to a batch");
    Ok(())
}
