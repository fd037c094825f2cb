//! The index store in RocksDB: one function writes, without its log; one flushes, all families.
//!
//! INVARIANT (S2, S3): `write_opt` is called in [`RocksStore::write`] alone and `flush_cfs_opt` in
//! [`RocksStore::begin_flush`] alone; nothing else here changes or flushes anything.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, FlushOptions, ReadOptions, Snapshot, WriteOptions,
    properties,
};
use self_cell::self_cell;

use super::rocks_options;
use crate::base::error::StorageError;
use crate::index::store::{ClosedSnapshot, Direction, OpenStore, Read, Store, Visit};
use crate::index::write_batch::{Family, Operation, WriteBatch};

/// RocksDB's own family, which holds nothing here and is flushed with the others.
const DEFAULT_FAMILY: &str = "default";

/// Bytes of a memtable that an operation takes beside its key and value.
const OPERATION_OVERHEAD_BYTES: usize = 32;

/// Opens index stores in RocksDB.
#[derive(Debug, Clone)]
pub struct RocksOpener {
    block_cache_bytes: u64,
    max_open_files: Option<u32>,
}

impl RocksOpener {
    /// An opener of stores that each take this much memory for blocks that were read.
    #[must_use]
    pub fn new(block_cache_bytes: u64) -> Self {
        Self { block_cache_bytes, max_open_files: None }
    }

    /// Bounds the files that a store has open; unless it is called, half of what the process may
    /// have open at all, and 4096 at most.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn max_open_files(mut self, count: u32) -> Self {
        self.max_open_files = Some(count);
        self
    }
}

impl OpenStore for RocksOpener {
    fn exists(&self, directory: &Path) -> Result<bool, StorageError> {
        let current: PathBuf = directory.join("CURRENT");
        current.try_exists().map_err(|error| StorageError::io("look for", &current, error))
    }

    fn open(&self, directory: &Path, create: bool) -> Result<Arc<dyn Store>, StorageError> {
        if !create && !self.exists(directory)? {
            return Err(StorageError::store("open", "there is no store in this directory"));
        }
        let mut options = rocks_options::options(self.block_cache_bytes, self.max_open_files)?;
        options.create_if_missing(create);
        let names = Family::ALL.iter().map(|family| family.name()).chain([DEFAULT_FAMILY]);
        let families: Vec<_> =
            names.map(|name| ColumnFamilyDescriptor::new(name, options.clone())).collect();
        let database = DB::open_cf_descriptors(&options, directory, families);
        Ok(Arc::new(RocksStore::new(database.map_err(|error| failure("open", error))?)))
    }
}

fn failure(operation: &'static str, error: rocksdb::Error) -> StorageError {
    StorageError::store(operation, error.into_string())
}

/// An index store in RocksDB.
pub struct RocksStore {
    database: RwLock<Option<Arc<Database>>>,
    shared: Arc<Shared>,
    write_options: WriteOptions,
    /// The first failure of a write or a flush, after which nothing is written.
    failed: OnceLock<StorageError>,
    /// Whether a flush was begun and not yet seen to end.
    flushing: Mutex<bool>,
    /// Memory of what no flush that was begun holds.
    fresh_bytes: AtomicU64,
    /// Memory of what the flush under way holds.
    flushing_bytes: AtomicU64,
}

/// What a store shares with its snapshots.
#[derive(Default)]
struct Shared {
    /// No call begins any more; those under way are waited for.
    is_closing: AtomicBool,
    snapshots: Mutex<Slots>,
}

impl Shared {
    fn check_open(&self) -> Result<(), StorageError> {
        if self.is_closing.load(Ordering::SeqCst) { Err(StorageError::Closed) } else { Ok(()) }
    }
}

/// Each snapshot that lives, by its number: closing the store empties its place.
#[derive(Default)]
struct Slots {
    last_number: u64,
    live: HashMap<u64, Arc<Slot>>,
}

type Slot = RwLock<Option<SnapshotCell>>;

impl RocksStore {
    fn new(database: DB) -> Self {
        let mut write_options = WriteOptions::default();
        write_options.disable_wal(true);
        write_options.set_sync(false);
        Self {
            database: RwLock::new(Some(Arc::new(Database(database)))),
            shared: Arc::default(),
            write_options,
            failed: OnceLock::new(),
            flushing: Mutex::new(false),
            fresh_bytes: AtomicU64::new(0),
            flushing_bytes: AtomicU64::new(0),
        }
    }

    /// The open database, which is not closed while the guard lives. A visit of a scan may call
    /// this again, so it never waits for who waits to close.
    fn database(&self) -> Result<MappedRwLockReadGuard<'_, Arc<Database>>, StorageError> {
        self.shared.check_open()?;
        RwLockReadGuard::try_map(self.database.read_recursive(), Option::as_ref)
            .map_err(|_| StorageError::Closed)
    }

    fn check_failed(&self) -> Result<(), StorageError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn fail(&self, error: StorageError) -> StorageError {
        self.failed.get_or_init(|| error).clone()
    }
}

impl fmt::Debug for RocksStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksStore")
            .field("failed", &self.failed)
            .field("unflushed_bytes", &self.unflushed_bytes())
            .finish_non_exhaustive()
    }
}

impl Read for RocksStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.database()?.get(family, key, &ReadOptions::default())
    }

    fn scan(
        &self,
        family: Family,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        let range = Range { family, begin, end, direction };
        self.database()?.scan(&range, ReadOptions::default(), visit)
    }
}

impl Store for RocksStore {
    fn write(&self, batches: &[&WriteBatch]) -> Result<(), StorageError> {
        let database = self.database()?;
        self.check_failed()?;
        let encoded_bytes: usize = batches.iter().map(|batch| batch.encoded().len()).sum();
        let mut all = rocksdb::WriteBatch::with_capacity_bytes(encoded_bytes);
        let mut handles = [None; Family::ALL.len()];
        let mut handle = |family: Family| {
            *handles[family as usize - 1].get_or_insert_with(|| database.family(family))
        };
        for operation in batches.iter().flat_map(|batch| batch.operations()) {
            match operation {
                Operation::Put { family, key, value } => all.put_cf(handle(family), key, value),
                Operation::Delete { family, key } => all.delete_cf(handle(family), key),
                Operation::DeleteRange { family, begin, end } => {
                    all.delete_range_cf(handle(family), begin, end);
                }
            }
        }
        let operation_count: usize = batches.iter().map(|batch| batch.operation_count()).sum();
        assert_eq!(all.len(), operation_count, "no operation is left out");
        let memory_bytes = encoded_bytes + all.len() * OPERATION_OVERHEAD_BYTES;
        if all.is_empty() {
            return Ok(());
        }
        let written = database.0.write_opt(all, &self.write_options);
        written.map_err(|error| self.fail(failure("write", error)))?;
        self.fresh_bytes.fetch_add(memory_bytes as u64, Ordering::SeqCst);
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        match self.database() {
            Ok(database) => Arc::new(RocksSnapshot::new(&database, &self.shared)),
            Err(error) => Arc::new(ClosedSnapshot(error)),
        }
    }

    fn begin_flush(&self) -> Result<(), StorageError> {
        let database = self.database()?;
        self.check_failed()?;
        let mut flushing = self.flushing.lock();
        if *flushing {
            return Err(StorageError::store("flush", "another flush is under way"));
        }
        let mut options = FlushOptions::default();
        options.set_wait(false);
        let flushed = database.0.flush_cfs_opt(&database.all_families(), &options);
        flushed.map_err(|error| self.fail(failure("flush", error)))?;
        *flushing = true;
        debug_assert_eq!(self.flushing_bytes.load(Ordering::SeqCst), 0, "one flush at a time");
        self.flushing_bytes.store(self.fresh_bytes.swap(0, Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    fn is_flushed(&self) -> Result<bool, StorageError> {
        let database = self.database()?;
        self.check_failed()?;
        let mut flushing = self.flushing.lock();
        if !*flushing {
            return Ok(true);
        }
        // In this order: a flush that fails keeps its memtables, and counts its error first.
        let waiting = database.immutable_memtables();
        let errors = database.background_errors();
        let (waiting, errors) =
            (waiting.map_err(|error| self.fail(error))?, errors.map_err(|error| self.fail(error))?);
        if errors > 0 {
            let reason = format!("a flush or compaction failed in the background: count={errors}");
            return Err(self.fail(StorageError::store("flush", reason)));
        }
        if waiting == 0 {
            *flushing = false;
            self.flushing_bytes.store(0, Ordering::SeqCst);
        }
        Ok(waiting == 0)
    }

    fn unflushed_bytes(&self) -> u64 {
        let fresh = self.fresh_bytes.load(Ordering::SeqCst);
        fresh + self.flushing_bytes.load(Ordering::SeqCst)
    }

    fn close(&self) -> Result<(), StorageError> {
        if self.shared.is_closing.swap(true, Ordering::SeqCst) {
            return Err(StorageError::Closed);
        }
        // Waits for the calls under way: no snapshot is made after this.
        let database = self.database.write().take();
        let snapshots = std::mem::take(&mut self.shared.snapshots.lock().live);
        for slot in snapshots.into_values() {
            *slot.write() = None;
        }
        let database = database.and_then(Arc::into_inner);
        assert!(database.is_some(), "nothing holds the database but the store and its snapshots");
        Ok(())
    }
}

/// The open database.
struct Database(DB);

/// What a scan is to give.
struct Range<'a> {
    family: Family,
    begin: &'a [u8],
    end: &'a [u8],
    direction: Direction,
}

impl Range<'_> {
    /// Whether a key comes after the last one that was seen, which it then is.
    fn is_next(&self, last: &mut Option<Vec<u8>>, key: &[u8]) -> bool {
        let last = last.replace(key.to_vec());
        last.is_none_or(|last| match self.direction {
            Direction::Forward => &last[..] < key,
            Direction::Backward => &last[..] > key,
        })
    }
}

impl Database {
    fn family(&self, family: Family) -> &ColumnFamily {
        self.0.cf_handle(family.name()).expect("every family was opened")
    }

    fn default_family(&self) -> &ColumnFamily {
        self.0.cf_handle(DEFAULT_FAMILY).expect("RocksDB always has its default family")
    }

    fn all_families(&self) -> Vec<&ColumnFamily> {
        let ours = Family::ALL.iter().map(|&family| self.family(family));
        ours.chain([self.default_family()]).collect()
    }

    /// Memtables of all families that were switched and are not yet in tables.
    fn immutable_memtables(&self) -> Result<u64, StorageError> {
        let mut count = 0;
        for family in self.all_families() {
            count += self.property(family, properties::NUM_IMMUTABLE_MEM_TABLE)?;
        }
        Ok(count)
    }

    /// Failures of flushes and compactions. Only the default family counts them.
    fn background_errors(&self) -> Result<u64, StorageError> {
        self.property(self.default_family(), properties::BACKGROUND_ERRORS)
    }

    fn property(
        &self,
        family: &ColumnFamily,
        name: &properties::PropName,
    ) -> Result<u64, StorageError> {
        let value = self.0.property_int_value_cf(family, name);
        let value = value.map_err(|error| failure("read a property", error))?;
        value.ok_or_else(|| StorageError::store("read a property", name.as_str()))
    }

    fn get(
        &self,
        family: Family,
        key: &[u8],
        options: &ReadOptions,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.0.get_cf_opt(self.family(family), key, options);
        value.map_err(|error| failure("get", error))
    }

    fn scan(
        &self,
        range: &Range<'_>,
        mut options: ReadOptions,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        if range.begin >= range.end {
            return Ok(());
        }
        options.set_iterate_lower_bound(range.begin);
        options.set_iterate_upper_bound(range.end);
        let mut entries = self.0.raw_iterator_cf_opt(self.family(range.family), options);
        match range.direction {
            Direction::Forward => entries.seek(range.begin),
            Direction::Backward => entries.seek_to_last(),
        }
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = entries.item() {
            debug_assert!(range.begin <= key && key < range.end, "a scan stays in its range");
            debug_assert!(range.is_next(&mut last, key), "a scan goes one way");
            if let ControlFlow::Break(()) = visit(key, value) {
                return Ok(());
            }
            match range.direction {
                Direction::Forward => entries.next(),
                Direction::Backward => entries.prev(),
            }
        }
        // The iterator ends in the same way at the bound and at a failure.
        entries.status().map_err(|error| failure("scan", error))
    }
}

self_cell! {
    struct SnapshotCell {
        owner: Arc<Database>,

        #[covariant]
        dependent: Snapshot,
    }
}

/// A snapshot, until its store is closed.
struct RocksSnapshot {
    number: u64,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
}

impl RocksSnapshot {
    /// Takes a snapshot. REQUIRES: the store cannot be closed meanwhile.
    fn new(database: &Arc<Database>, shared: &Arc<Shared>) -> Self {
        let cell = SnapshotCell::new(Arc::clone(database), |database| database.0.snapshot());
        let slot = Arc::new(RwLock::new(Some(cell)));
        let mut slots = shared.snapshots.lock();
        slots.last_number += 1;
        let number = slots.last_number;
        let before = slots.live.insert(number, Arc::clone(&slot));
        assert!(before.is_none(), "a number is given once");
        Self { number, slot, shared: Arc::clone(shared) }
    }

    /// Reads; the store is not closed before that has ended.
    fn read<T>(
        &self,
        read: impl FnOnce(&Database, ReadOptions) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.shared.check_open()?;
        let slot = self.slot.read_recursive();
        let cell = slot.as_ref().ok_or(StorageError::Closed)?;
        let mut options = ReadOptions::default();
        options.set_snapshot(cell.borrow_dependent());
        read(cell.borrow_owner(), options)
    }
}

impl Drop for RocksSnapshot {
    fn drop(&mut self) {
        // Under the lock, so that who closes the store finds it gone, or waits for it.
        *self.slot.write() = None;
        self.shared.snapshots.lock().live.remove(&self.number);
    }
}

impl fmt::Debug for RocksSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksSnapshot").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Read for RocksSnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.read(|database, options| database.get(family, key, &options))
    }

    fn scan(
        &self,
        family: Family,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        let range = Range { family, begin, end, direction };
        self.read(|database, options| database.scan(&range, options, visit))
    }
}
