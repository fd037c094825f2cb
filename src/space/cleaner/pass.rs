//! One pass over a partition: reads the dirty part, then rewrites, in commits that may each be the last.
//!
//! Here batches are rewritten in the order of offsets, so at every commit a key's older records
//! went before its tombstone gets its horizon, and before it goes; `newest_first` leaves tombstones
//! as they are. The first dirty offset moves in the last commit only: a pass that ended early is
//! done again.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::change::{CleanChange, Cleaned, Finish, Item};
use super::dirty::Known;
use super::error::{CleanError, Stop};
use super::filter::filter;
use super::gather::{gather, keys_fit};
use super::judge::Judge;
use super::learned::Learned;
use super::plan::Survey;
use super::producers::{LastBatches, Roles};
use super::reader::{LOCATE_BYTES, Reader, attributes, damaged, run_of};
use super::rules::CleaningRules;
use super::{CleanerPass, Pace};
use crate::base::error::{Corruption, Place, StorageError};
use crate::base::types::{Offset, TimestampMs};
use crate::core::{Located, Shared};
use crate::record::{RecordError, UnpackedBatch};
use crate::state::catalog::Partition;
use crate::state::producer::AbortedSet;

/// Bytes of batches in one commit of a pass, unless one is larger: appends wait for it.
const COMMIT_BYTES: usize = 512 << 10;

/// Batches in one commit of a pass.
const COMMIT_ITEMS: usize = 1024;

/// By how much a horizon may be too early, so that what is committed at once is built once.
const MOST_EARLY_MS: i64 = 100;

/// Runs a pass that is planned; tells what it did also where it has failed.
pub(super) fn run(
    shared: &Shared,
    partition: &Partition,
    survey: &Survey,
    pace: &mut Pace<'_>,
) -> (CleanerPass, Result<(), CleanError>) {
    let now = shared.clock.now_ms();
    let settings = partition.topic().settings();
    let delete_retention_ms = settings.effective().delete_retention_ms;
    let mut pass = Pass {
        reader: Reader::new(shared, partition, pace),
        now,
        delete_retention_ms,
        figures: CleanerPass::of(&survey.plan),
        items: Vec::new(),
        item_bytes: 0,
        next_horizon: TimestampMs::MAX,
        last_batches: LastBatches::look_up(shared, partition),
        roles: Roles::default(),
    };
    let ended = match pass.run(survey) {
        Ok(()) | Err(Stop::Asked) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
    };
    (pass.figures(), ended)
}

/// A pass that runs.
pub(super) struct Pass<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) now: TimestampMs,
    delete_retention_ms: i64,
    figures: CleanerPass,
    items: Vec<Item>,
    item_bytes: usize,
    pub(super) next_horizon: TimestampMs,
    pub(super) last_batches: LastBatches,
    roles: Roles,
}

impl Pass<'_> {
    fn run(&mut self, survey: &Survey) -> Result<(), Stop> {
        self.look_at_damage()?;
        let plan = &survey.plan;
        let is_plain = survey.is_plain && keys_fit(self.reader.shared, plan);
        let cleaned = if is_plain { self.clean_newest_first(survey)? } else { None };
        let learned = match cleaned {
            Some(learned) => {
                // The batch that holds the first dirty offset was judged too, if it is old enough.
                let has_parts = !survey.part_starts.is_empty();
                self.rewrite(&learned, if has_parts { plan.first_dirty } else { Offset::MAX })?;
                learned
            }
            None => {
                let learned = Learned::Gathered(gather(&mut self.reader, plan)?);
                self.rewrite(&learned, Offset::MAX)?;
                learned
            }
        };
        self.figures.key_count = learned.key_count();
        let first_dirty = learned.end();
        assert!(plan.first_dirty <= first_dirty, "what is clean stays clean");
        assert!(first_dirty <= plan.uncleanable, "what is open stays");
        self.commit(Some(first_dirty))?;
        self.figures.cleaned_to = first_dirty;
        self.figures.is_finished = true;
        Ok(())
    }

    /// Reads the batch first at which the last pass found damage: as long as it is damaged, a round
    /// costs no more than that.
    fn look_at_damage(&mut self) -> Result<(), Stop> {
        let (shared, partition) = (self.reader.shared, self.reader.partition);
        let id = partition.cell().id();
        let Some(StorageError::Corruption(Corruption { place, .. })) = shared.cleaning.failure(id)
        else {
            return Ok(());
        };
        let Place::Batch { offset, .. } = place else { return Ok(()) };
        let (_pin, found) = self.reader.locate(offset, Offset::MAX, 0)?;
        let _ = self.reader.read(&found, &mut |located, batch| {
            let mut records = batch.records();
            let fault = records.find_map(Result::err);
            fault.map_or(Ok(ControlFlow::Continue(())), |_| Err(damaged(partition, located).into()))
        })?;
        Ok(())
    }

    fn figures(self) -> CleanerPass {
        CleanerPass { read_bytes: self.reader.read_bytes, ..self.figures }
    }

    pub(super) fn log_start_and_last_stable(&self) -> (Offset, Offset) {
        self.reader.partition.cell().read(|state| {
            let marks = state.watermarks();
            (marks.log_start, marks.last_stable)
        })
    }

    pub(super) fn rules(&self, end: Offset) -> CleaningRules {
        CleaningRules { end, now: self.now, horizon: Some(self.horizon()) }
    }

    /// When tombstones may go that get their horizon now: a pass may last, and older records of
    /// their keys were there a moment ago.
    fn horizon(&self) -> TimestampMs {
        let now = self.reader.shared.clock.now_ms().max(self.now);
        now.saturating_add(self.delete_retention_ms)
    }

    /// Goes through all batches that begin below the end of what was learned and end below
    /// `bound`, in the order of offsets.
    fn rewrite(&mut self, learned: &Learned, bound: Offset) -> Result<(), Stop> {
        let (mut next, _) = self.log_start_and_last_stable();
        while next < learned.end() {
            let (_pin, mut chunk) = self.reader.locate(next, bound, LOCATE_BYTES)?;
            chunk.retain(|located| located.entry.base_offset < learned.end());
            let Some(last) = chunk.last() else { break };
            assert!(last.last_offset >= next, "each piece takes the pass on");
            next = last.last_offset + 1;
            let aborted = self.reader.aborted_in(&chunk)?;
            let (mut open, mut gone) = (Vec::new(), VecDeque::new());
            for located in chunk {
                match self.known(learned, &located) {
                    Known::Open => open.push(located),
                    Known::Superseded => gone.push_back(located),
                    Known::Whole => {}
                }
            }
            self.filter_and_push(&open, &mut gone, learned, &aborted)?;
        }
        Ok(())
    }

    /// Changes batches in the order of offsets: those that are read, and those that go unread.
    fn filter_and_push(
        &mut self,
        open: &[Located],
        gone: &mut VecDeque<Located>,
        learned: &Learned,
        aborted: &AbortedSet,
    ) -> Result<(), Stop> {
        debug_assert!(open.is_sorted_by_key(|located| located.last_offset), "by their offsets");
        debug_assert!(gone.iter().is_sorted_by_key(|located| located.last_offset));
        let mut rest = open;
        while !rest.is_empty() {
            let (run, after) = rest.split_at(run_of(rest.iter()));
            for item in self.filter_run(run, learned, aborted)? {
                self.push_gone(gone, item.expected.last_offset)?;
                self.push(item)?;
            }
            rest = after;
        }
        self.push_gone(gone, Offset::MAX)?;
        assert!(gone.is_empty(), "what goes is in a commit");
        Ok(())
    }

    fn push_gone(&mut self, gone: &mut VecDeque<Located>, until: Offset) -> Result<(), Stop> {
        while gone.front().is_some_and(|located| located.last_offset < until) {
            if let Some(expected) = gone.pop_front() {
                self.push(Item { expected, replacement: None, horizon: None })?;
            }
        }
        Ok(())
    }

    fn known(&self, learned: &Learned, located: &Located) -> Known {
        let entry = &located.entry;
        if attributes(located).is_transactional() {
            // Whether a marker has anything left to end is known by the batches before it.
            return Known::Open;
        }
        let is_clean = located.last_offset < self.figures.from;
        if is_clean && learned.key_count() == 0 {
            // Nothing supersedes it; it changes only if it holds a tombstone with a horizon.
            let is_whole = !attributes(located).has_delete_horizon() && entry.record_count > 0;
            return if is_whole { Known::Whole } else { Known::Open };
        }
        match learned.known(located) {
            // A header that stays is made of the batch's own.
            Known::Superseded if self.may_stay_empty(located) => Known::Open,
            known => known,
        }
    }

    /// Whether a batch without transactions stays as a header when it has lost all its records:
    /// the last of the log, or of a producer.
    fn may_stay_empty(&self, located: &Located) -> bool {
        located.last_offset + 1 >= self.log_start_and_last_stable().1
            || self.last_batches.has_data_at(located.last_offset)
    }

    fn filter_run(
        &mut self,
        run: &[Located],
        learned: &Learned,
        aborted: &AbortedSet,
    ) -> Result<Vec<Item>, Stop> {
        let (_, last_stable) = self.log_start_and_last_stable();
        let partition = self.reader.partition;
        let mut judge = Judge {
            partition,
            rules: self.rules(learned.end()),
            last_stable,
            last_batches: &self.last_batches,
            next_horizon: &mut self.next_horizon,
        };
        let roles = &mut self.roles;
        let mut items = Vec::new();
        let look = &mut |located: &Located, batch: &UnpackedBatch<'_>| {
            let damaged_by = |_: RecordError| damaged(partition, located);
            let role = roles.of(batch, aborted).map_err(damaged_by)?;
            let filtered = filter(batch, role, &judge.rules, learned.newer(located));
            items.extend(judge.item(located, batch.header(), filtered)?);
            Ok(ControlFlow::Continue(()))
        };
        match self.reader.read(run, look)? {
            ControlFlow::Continue(()) => Ok(items),
            ControlFlow::Break(()) => Err(Stop::Asked),
        }
    }

    /// Changes a batch in this commit or the next.
    pub(super) fn push(&mut self, item: Item) -> Result<(), Stop> {
        let (_, last_stable) = self.log_start_and_last_stable();
        assert!(item.expected.last_offset < last_stable, "what is open stays");
        self.item_bytes += item.replacement.as_ref().map_or(0, |new| new.bytes.len());
        self.items.push(item);
        if self.item_bytes >= COMMIT_BYTES || self.items.len() >= COMMIT_ITEMS {
            self.commit(None)?;
        }
        Ok(())
    }

    /// Commits what was changed; the last time with the first dirty offset after the pass.
    pub(super) fn commit(&mut self, first_dirty: Option<Offset>) -> Result<(), Stop> {
        let bytes = std::mem::take(&mut self.item_bytes) as u64;
        self.reader.keep_pace(bytes)?;
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by_key(|item| item.expected.last_offset);
        debug_assert!(
            items
                .windows(2)
                .all(|pair| pair[0].expected.last_offset < pair[1].expected.last_offset),
            "each batch is changed once"
        );
        self.stamp_again(&mut items)?;
        let next_horizon = self.next_horizon;
        let finish = first_dirty.map(|first_dirty| Finish { first_dirty, next_horizon });
        let mut figures = self.figures;
        items.iter().for_each(|item| figures.add(item));
        let pipeline = Arc::clone(&self.reader.shared.pipeline);
        let partition = self.reader.partition.clone();
        // The removal mark does not tell of a batch that gets a horizon and keeps its size.
        drop(self.reader.shared.cleaning.take_dirty(partition.cell().id()));
        let change = CleanChange { pipeline, partition, items, finish };
        match self.reader.shared.commit(change)?? {
            Cleaned::Done => {
                self.figures = CleanerPass { commits: figures.commits + 1, ..figures };
                Ok(())
            }
            Cleaned::Overtaken => Err(Stop::Asked),
        }
    }

    /// Gives what was stamped a while ago the horizon of now: the older records go in this commit,
    /// which may have waited, or in the one before it.
    fn stamp_again(&mut self, items: &mut [Item]) -> Result<(), CleanError> {
        let now_horizon = self.horizon();
        for item in items {
            let Some(horizon) = item.horizon else { continue };
            let is_new = !attributes(&item.expected).has_delete_horizon();
            if is_new && now_horizon.saturating_sub(horizon) > MOST_EARLY_MS {
                item.stamp(now_horizon).map_err(|source| CleanError::Rebuild {
                    partition: self.reader.partition.clone(),
                    offset: item.expected.entry.base_offset,
                    source,
                })?;
            }
            self.next_horizon = self.next_horizon.min(item.horizon.unwrap_or(TimestampMs::MAX));
        }
        Ok(())
    }
}
