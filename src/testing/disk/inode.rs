//! A simulated file: what the page cache shows, what the device holds, and how the two differ.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::random::Random;

/// The unit that the device writes whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// A change that was not synced, kept so that a power loss can keep the first ones only.
#[derive(Debug, Clone)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Length(usize),
}

/// What a power loss leaves of the unsynced changes of one file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Remains {
    Nothing,
    Everything,
    /// The changes with a lower number.
    Before(u64),
    /// Each sector at random, with this chance in a hundred.
    Sectors {
        percent: u64,
    },
}

/// What a sync found when it began.
#[derive(Debug)]
pub(super) struct SyncSnapshot {
    length: usize,
    truncated_to: Option<usize>,
    sectors: BTreeMap<usize, Vec<u8>>,
    change_count: usize,
}

/// INVARIANT: a sector that is not in `dirty` and not lost is the same in `cache` and `device`, as
/// far as both reach.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    cache: Vec<u8>,
    device: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// The least length that the file had since the last sync, if it was truncated.
    truncated_to: Option<usize>,
    /// Sectors that an error has hit: writing them again succeeds and does not reach the device.
    lost: BTreeSet<usize>,
    changes: Vec<(u64, Change)>,
}

impl Inode {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.cache
    }

    pub(super) fn device_bytes(&self) -> &[u8] {
        &self.device
    }

    pub(super) fn change_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.changes.iter().map(|(number, _)| *number)
    }

    /// Sets cache and device at once, as if it had always been so.
    pub(super) fn replace(&mut self, bytes: Vec<u8>) {
        *self = Self { cache: bytes.clone(), device: bytes, ..Self::default() };
    }

    pub(super) fn write(&mut self, number: u64, position: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = position + bytes.len();
        if self.cache.len() < end {
            self.cache.resize(end, 0);
        }
        self.cache[position..end].copy_from_slice(bytes);
        self.dirty.extend(sectors(position..end));
        self.changes.push((number, Change::Write { position, bytes: bytes.to_vec() }));
    }

    /// Tells that writing this place failed: what is written there later is lost. A sector that
    /// was in part written before stays good.
    pub(super) fn fail_write(&mut self, place: Range<usize>) {
        self.lost.extend(place.start.div_ceil(SECTOR_BYTES)..place.end.div_ceil(SECTOR_BYTES));
    }

    pub(super) fn set_length(&mut self, number: u64, length: usize) {
        if length < self.cache.len() {
            self.dirty.retain(|sector| sector * SECTOR_BYTES < length);
            if !length.is_multiple_of(SECTOR_BYTES) {
                self.dirty.insert(length / SECTOR_BYTES);
            }
            self.truncated_to = Some(self.truncated_to.map_or(length, |least| least.min(length)));
        }
        self.cache.resize(length, 0);
        self.changes.push((number, Change::Length(length)));
    }

    pub(super) fn begin_sync(&self) -> SyncSnapshot {
        let copy = |&sector: &usize| (sector, self.cache[self.span(sector)].to_vec());
        SyncSnapshot {
            length: self.cache.len(),
            truncated_to: self.truncated_to,
            sectors: self.dirty.iter().map(copy).collect(),
            change_count: self.changes.len(),
        }
    }

    /// Makes durable what the sync found when it began, but what another sync lost meanwhile.
    pub(super) fn finish_sync(&mut self, snapshot: SyncSnapshot) {
        if let Some(least) = snapshot.truncated_to {
            self.device.truncate(least);
            if self.truncated_to == Some(least) {
                self.truncated_to = None;
            }
        }
        for (sector, bytes) in snapshot.sectors {
            if !self.dirty.contains(&sector) {
                continue;
            }
            self.store(sector, &bytes);
            if self.cache[self.span(sector)] == bytes {
                self.dirty.remove(&sector);
            }
        }
        if self.device.len() < snapshot.length {
            self.device.resize(snapshot.length, 0);
        }
        self.changes.drain(..snapshot.change_count.min(self.changes.len()));
    }

    /// A failing sync: its sectors count as clean, and some of them have not reached the device.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        for sector in std::mem::take(&mut self.dirty) {
            if random.chance(50) {
                self.persist(sector);
            } else {
                self.lost.insert(sector);
            }
        }
        self.changes.clear();
    }

    /// The system writes back some of what is dirty, unasked.
    pub(super) fn write_back(&mut self, random: &mut Random, percent: u64) {
        if self.truncated_to.is_some() {
            return;
        }
        let chosen: Vec<usize> =
            self.dirty.iter().copied().filter(|_| random.chance(percent)).collect();
        for sector in chosen {
            self.persist(sector);
            self.dirty.remove(&sector);
        }
    }

    /// Forgets what is cached and clean: it shows what the device holds from now on.
    pub(super) fn drop_cache(&mut self) {
        for sector in sectors(0..self.cache.len()) {
            if self.dirty.contains(&sector) {
                continue;
            }
            let span = self.span(sector);
            let known = self.device.len().clamp(span.start, span.end);
            self.cache[known..span.end].fill(0);
            self.cache[span.start..known].copy_from_slice(&self.device[span.start..known]);
        }
    }

    /// The machine stops. `stale` is what a new file's unwritten sectors may show instead of
    /// zeros: the bytes that another file had there.
    pub(super) fn power_loss(&mut self, remains: Remains, stale: &[u8], random: &mut Random) {
        let known = self.device.len();
        let mut written = BTreeSet::new();
        match remains {
            Remains::Nothing => {}
            Remains::Everything => {
                self.finish_sync(self.begin_sync());
            }
            Remains::Before(limit) => self.apply_changes(limit),
            Remains::Sectors { percent } => {
                let is_truncated = random.chance(50);
                if let Some(least) = self.truncated_to.filter(|_| is_truncated) {
                    self.device.truncate(least);
                }
                let chosen = self.dirty.iter().copied().filter(|_| random.chance(percent));
                written = chosen.collect();
                for &sector in &written {
                    self.persist(sector);
                }
                if random.chance(30) && self.device.len() < self.cache.len() {
                    self.device.resize(self.cache.len(), 0);
                }
            }
        }
        for sector in sectors(known..self.device.len()) {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(self.device.len()).min(stale.len());
            if start >= known && end > start && !written.contains(&sector) {
                self.device[start..end].copy_from_slice(&stale[start..end]);
            }
        }
        let survived = std::mem::take(&mut self.device);
        self.replace(survived);
    }

    fn apply_changes(&mut self, limit: u64) {
        for (number, change) in std::mem::take(&mut self.changes) {
            if number >= limit {
                break;
            }
            match change {
                Change::Length(length) => self.device.resize(length, 0),
                Change::Write { position, bytes } => {
                    let end = position + bytes.len();
                    if self.device.len() < end {
                        self.device.resize(end, 0);
                    }
                    for at in (position..end).filter(|at| !self.lost.contains(&(at / SECTOR_BYTES)))
                    {
                        self.device[at] = bytes[at - position];
                    }
                }
            }
        }
    }

    fn persist(&mut self, sector: usize) {
        let bytes = self.cache[self.span(sector)].to_vec();
        self.store(sector, &bytes);
    }

    fn store(&mut self, sector: usize, bytes: &[u8]) {
        let start = sector * SECTOR_BYTES;
        let end = start + bytes.len();
        if bytes.is_empty() || self.lost.contains(&sector) {
            return;
        }
        if self.device.len() < end {
            self.device.resize(end, 0);
        }
        self.device[start..end].copy_from_slice(bytes);
    }

    /// The bytes of a sector that are within the file.
    fn span(&self, sector: usize) -> Range<usize> {
        let start = (sector * SECTOR_BYTES).min(self.cache.len());
        start..(start + SECTOR_BYTES).min(self.cache.len())
    }
}

/// The sectors that a place touches.
fn sectors(place: Range<usize>) -> Range<usize> {
    place.start / SECTOR_BYTES..place.end.div_ceil(SECTOR_BYTES)
}
