//! The index store in memory: its disk outlives it and loses at a crash what RocksDB may lose.
//!
//! It refuses what RocksDB refuses, and on demand it fails as RocksDB fails: a write or a flush
//! fails, then nothing is written until it is opened anew. Two switches break rules on purpose: a
//! store that flushes by itself, and one that flushes when it is closed.
//!
//! INVARIANT: `durable` with all of `unflushed` applied is `live`, in every open directory.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::base::error::StorageError;
use crate::index::store::{ClosedSnapshot, Direction, OpenStore, Read, Store, Visit};
use crate::index::write_batch::{Family, Operation, WriteBatch};
use crate::testing::disk::STOPPED;

/// What a crash finds after a flush that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedFlush {
    /// The flush before it: the tables could not be written.
    KeepsOld,
    /// What it flushed: only the answer about the manifest was an error.
    KeepsNew,
}

/// A disk that holds index stores by their directories. Clones are handles of the same disk.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<DiskState>>,
}

#[derive(Debug, Clone, Default)]
struct DiskState {
    directories: BTreeMap<PathBuf, Directory>,
    /// The number of the handle that was given last.
    last_handle: u64,
    flushes_by_itself: bool,
    flushes_at_close: bool,
    holds_flushes: bool,
    failing_flush: Option<FailedFlush>,
    /// Writes that still succeed before the one that fails.
    writes_before_failure: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Directory {
    durable: Families,
    live: Families,
    /// What was written and is in no complete flush, one element a write.
    unflushed: Vec<Vec<WriteBatch>>,
    unflushed_bytes: u64,
    flush: Option<Flush>,
    /// The failure after which nothing is written.
    failure: Option<StorageError>,
    open_handle: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Flush {
    /// How many of the unflushed writes are in it.
    write_count: usize,
    fails: Option<FailedFlush>,
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The entries of each family; a clone is cheap, and the first change after it is not.
#[derive(Debug, Clone, Default)]
struct Families([Arc<Entries>; Family::ALL.len()]);

impl Families {
    fn of(&self, family: Family) -> &Arc<Entries> {
        &self.0[family as usize - 1]
    }

    fn apply(&mut self, batch: &WriteBatch) {
        for operation in batch.operations() {
            match operation {
                Operation::Put { family, key, value } => {
                    self.entries(family).insert(key.to_vec(), value.to_vec());
                }
                Operation::Delete { family, key } => {
                    self.entries(family).remove(key);
                }
                Operation::DeleteRange { family, begin, end } => {
                    let entries = self.entries(family);
                    let range = between(begin, end);
                    let gone: Vec<_> =
                        entries.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
                    for key in gone {
                        entries.remove(&key);
                    }
                }
            }
        }
    }

    fn entries(&mut self, family: Family) -> &mut Entries {
        Arc::make_mut(&mut self.0[family as usize - 1])
    }
}

fn between<'a>(begin: &'a [u8], end: &'a [u8]) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (Bound::Included(begin), Bound::Excluded(end))
}

impl Directory {
    /// Makes the first of the unflushed writes durable.
    fn persist(&mut self, write_count: usize) {
        for write in self.unflushed.drain(..write_count) {
            write.iter().for_each(|batch| self.durable.apply(batch));
            self.unflushed_bytes -= bytes_of(&write);
        }
    }

    /// Falls to one of the write borders that a crash may leave, as the seed says.
    fn crash(&mut self, seed: u64, flushes_by_itself: bool) {
        let (least, most) = match self.flush {
            None => (0, 0),
            Some(Flush { write_count, fails: None }) => (0, write_count),
            Some(Flush { fails: Some(FailedFlush::KeepsOld), .. }) => (0, 0),
            Some(Flush { write_count, fails: Some(FailedFlush::KeepsNew) }) => {
                (write_count, write_count)
            }
        };
        let survivors = if flushes_by_itself {
            least + below(mix(seed), self.unflushed.len() - least + 1)
        } else if below(mix(seed), 2) == 0 {
            least
        } else {
            most
        };
        self.persist(survivors);
        self.unflushed.clear();
        self.unflushed_bytes = 0;
        self.live = self.durable.clone();
        self.flush = None;
        self.failure = None;
        self.open_handle = None;
    }
}

fn bytes_of(write: &[WriteBatch]) -> u64 {
    write.iter().map(|batch| batch.encoded().len() as u64).sum()
}

/// A number that looks random and depends on the seed alone.
pub(super) fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// One of the numbers below `limit`, which is not 0.
pub(super) fn below(bits: u64, limit: usize) -> usize {
    usize::try_from(bits % limit as u64).expect("what is below a usize is one")
}

impl MemoryDisk {
    /// A disk that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A second disk in the same state, which goes its own way from now on. Open handles belong to
    /// the first.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.state.lock().clone())) }
    }

    /// Ends the process that has stores open: handles fail from now on, and each store falls to
    /// its last complete flush. A flush that was under way may have ended or not, and a store that
    /// flushes by itself may hold any number of later writes: the seed decides.
    pub fn crash(&self, seed: u64) {
        let disk = &mut *self.state.lock();
        for (index, directory) in disk.directories.values_mut().enumerate() {
            directory.crash(seed.wrapping_add(index as u64), disk.flushes_by_itself);
        }
    }

    /// The mistake of a store that may flush after any write: a crash then finds any of them.
    pub fn set_flushes_by_itself(&self, does: bool) {
        self.state.lock().flushes_by_itself = does;
    }

    /// The mistake of a store that flushes when it is closed or dropped.
    pub fn set_flushes_at_close(&self, does: bool) {
        self.state.lock().flushes_at_close = does;
    }

    /// Lets no flush become complete until it is called with `false`.
    pub fn hold_flushes(&self, hold: bool) {
        self.state.lock().holds_flushes = hold;
    }

    /// Lets the next flush that is begun fail.
    pub fn fail_next_flush(&self, how: FailedFlush) {
        self.state.lock().failing_flush = Some(how);
    }

    /// Lets a write fail after `count` more that succeed.
    pub fn fail_write_after(&self, count: u64) {
        self.state.lock().writes_before_failure = Some(count);
    }

    /// Forgets the failures that have not come yet, and lets flushes become complete.
    pub fn clear_faults(&self) {
        let mut disk = self.state.lock();
        disk.holds_flushes = false;
        disk.failing_flush = None;
        disk.writes_before_failure = None;
    }

    /// Removes the store of a directory, as if its files had been deleted.
    pub fn remove(&self, directory: &Path) {
        self.state.lock().directories.remove(directory);
    }
}

impl OpenStore for MemoryDisk {
    fn exists(&self, directory: &Path) -> Result<bool, StorageError> {
        Ok(self.state.lock().directories.contains_key(directory))
    }

    fn open(&self, directory: &Path, create: bool) -> Result<Arc<dyn Store>, StorageError> {
        let disk = &mut *self.state.lock();
        if create {
            disk.directories.entry(directory.to_owned()).or_default();
        }
        let Some(found) = disk.directories.get_mut(directory) else {
            return Err(StorageError::store("open", "there is no store in this directory"));
        };
        if found.open_handle.is_some() {
            return Err(StorageError::store("open", "the store is open already"));
        }
        disk.last_handle += 1;
        found.crash(disk.last_handle, disk.flushes_by_itself);
        found.open_handle = Some(disk.last_handle);
        let handle = disk.last_handle;
        let opened = OpenedStore {
            disk: self.clone(),
            directory: directory.to_owned(),
            handle,
            is_closed: Arc::default(),
        };
        Ok(Arc::new(MemoryStore(opened)))
    }
}

/// A store of a [`MemoryDisk`]. Dropping it closes it.
#[derive(Debug)]
pub struct MemoryStore(OpenedStore);

/// Which store it is, and which of its lives: it is closed once the directory has another.
#[derive(Debug, Clone)]
struct OpenedStore {
    disk: MemoryDisk,
    directory: PathBuf,
    handle: u64,
    is_closed: Arc<AtomicBool>,
}

impl OpenedStore {
    fn with<T>(
        &self,
        call: impl FnOnce(&mut Directory, &mut Faults<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let disk = &mut *self.disk.state.lock();
        let found = disk.directories.get_mut(&self.directory);
        let open = found.filter(|directory| directory.open_handle == Some(self.handle));
        let Some(directory) = open else { return Err(self.gone()) };
        let mut faults = Faults {
            holds_flushes: disk.holds_flushes,
            failing_flush: &mut disk.failing_flush,
            writes_before_failure: &mut disk.writes_before_failure,
        };
        call(directory, &mut faults)
    }

    /// Why nothing can be asked any more.
    fn gone(&self) -> StorageError {
        if self.is_closed.load(Ordering::SeqCst) {
            return StorageError::Closed;
        }
        StorageError::store("answer", STOPPED)
    }

    fn check_open(&self) -> Result<(), StorageError> {
        self.with(|_, _| Ok(()))
    }
}

impl MemoryStore {
    fn with<T>(
        &self,
        call: impl FnOnce(&mut Directory, &mut Faults<'_>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.0.with(call)
    }

    fn state(&self) -> Result<MemorySnapshot, StorageError> {
        let families = self.with(|directory, _| Ok(directory.live.clone()))?;
        Ok(MemorySnapshot { store: self.0.clone(), families })
    }

    fn end(&self) -> Result<(), StorageError> {
        let flushes_at_close = self.0.disk.state.lock().flushes_at_close;
        self.with(|directory, _| {
            if flushes_at_close {
                directory.persist(directory.unflushed.len());
                directory.flush = None;
            }
            directory.open_handle = None;
            self.0.is_closed.store(true, Ordering::SeqCst);
            Ok(())
        })
    }
}

/// What the disk is to do wrong.
struct Faults<'a> {
    holds_flushes: bool,
    failing_flush: &'a mut Option<FailedFlush>,
    writes_before_failure: &'a mut Option<u64>,
}

impl Faults<'_> {
    fn write_fails(&mut self) -> bool {
        match self.writes_before_failure {
            None => false,
            Some(0) => {
                *self.writes_before_failure = None;
                true
            }
            Some(count) => {
                *count -= 1;
                false
            }
        }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // A store that was closed or crashed has nothing to end.
        let _ = self.end();
    }
}

impl Read for MemoryStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.with(|directory, _| Ok(directory.live.of(family).get(key).cloned()))
    }

    fn scan(
        &self,
        family: Family,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        self.state()?.scan(family, begin, end, direction, visit)
    }
}

impl Store for MemoryStore {
    fn write(&self, batches: &[&WriteBatch]) -> Result<(), StorageError> {
        self.with(|directory, faults| {
            if let Some(failure) = &directory.failure {
                return Err(failure.clone());
            }
            if faults.write_fails() {
                let failure = StorageError::store("write", "a write was made to fail");
                directory.failure = Some(failure.clone());
                return Err(failure);
            }
            let write: Vec<_> = batches.iter().map(|&batch| batch.clone()).collect();
            write.iter().for_each(|batch| directory.live.apply(batch));
            directory.unflushed_bytes += bytes_of(&write);
            directory.unflushed.push(write);
            Ok(())
        })
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        match self.state() {
            Ok(state) => Arc::new(state),
            Err(error) => Arc::new(ClosedSnapshot(error)),
        }
    }

    fn begin_flush(&self) -> Result<(), StorageError> {
        self.with(|directory, faults| {
            if let Some(failure) = &directory.failure {
                return Err(failure.clone());
            }
            if directory.flush.is_some() {
                return Err(StorageError::store("flush", "another flush is under way"));
            }
            let write_count = directory.unflushed.len();
            directory.flush = Some(Flush { write_count, fails: faults.failing_flush.take() });
            Ok(())
        })
    }

    fn is_flushed(&self) -> Result<bool, StorageError> {
        self.with(|directory, faults| {
            if let Some(failure) = &directory.failure {
                return Err(failure.clone());
            }
            let Some(flush) = directory.flush else { return Ok(true) };
            if faults.holds_flushes {
                return Ok(false);
            }
            if flush.fails.is_some() {
                let failure = StorageError::store("flush", "a flush was made to fail");
                directory.failure = Some(failure.clone());
                return Err(failure);
            }
            directory.persist(flush.write_count);
            directory.flush = None;
            Ok(true)
        })
    }

    fn unflushed_bytes(&self) -> u64 {
        self.with(|directory, _| Ok(directory.unflushed_bytes)).unwrap_or(0)
    }

    fn close(&self) -> Result<(), StorageError> {
        self.end()
    }
}

#[derive(Debug)]
struct MemorySnapshot {
    store: OpenedStore,
    families: Families,
}

impl Read for MemorySnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.store.check_open()?;
        Ok(self.families.of(family).get(key).cloned())
    }

    fn scan(
        &self,
        family: Family,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        self.store.check_open()?;
        if begin >= end {
            return Ok(());
        }
        let range = self.families.of(family).range::<[u8], _>(between(begin, end));
        let mut visit = |(key, value): (&Vec<u8>, &Vec<u8>)| visit(key, value);
        let _: ControlFlow<()> = match direction {
            Direction::Forward => range.into_iter().try_for_each(&mut visit),
            Direction::Backward => range.into_iter().rev().try_for_each(&mut visit),
        };
        Ok(())
    }
}
