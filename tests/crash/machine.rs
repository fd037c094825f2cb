//! What outlives an engine: disk, index store and clock; how they are stopped, and how they are copied.
//!
//! Calls of the index store are places to stop at too: each asks the disk first, as one more call
//! that changes something. A crash between two of them finds a flush begun and not ended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidelog::config::{EngineConfig, Maintenance};
use tidelog::error::StorageError;
use tidelog::internals::rules::BrokenRules;
use tidelog::internals::store::{Direction, OpenStore, Read, Store, Visit};
use tidelog::internals::write_batch::{Family, WriteBatch};
use tidelog::testing::{Files, ManualClock, MemoryDisk, PowerLoss, SimulatedDisk};
use tidelog::{Engine, OpenError};

use crate::random::Random;

pub const DIRECTORY: &str = "/engine";
pub const NOW_MS: i64 = 1_700_000_000_000;

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Kill,
    Power(PowerLoss),
}

pub struct Machine {
    pub disk: SimulatedDisk,
    pub store: MemoryDisk,
    pub clock: Arc<ManualClock>,
    pub config: EngineConfig,
    pub broken: BrokenRules,
    seed: u64,
    index: Arc<Mutex<Option<Weak<dyn Store>>>>,
    /// While it is set, calls of the store are no places to stop at. The commit in the middle of a
    /// sync cannot fail there: it would wait for that very sync, on the same thread.
    pub spares_store: Arc<AtomicBool>,
    fails_reads: Arc<AtomicBool>,
}

impl Machine {
    pub fn new(seed: u64, broken: BrokenRules) -> Self {
        Self {
            disk: SimulatedDisk::new(seed),
            store: MemoryDisk::new(),
            clock: Arc::new(ManualClock::new(NOW_MS)),
            config: small_config(),
            broken,
            seed,
            index: Arc::default(),
            spares_store: Arc::default(),
            fails_reads: Arc::default(),
        }
    }

    pub fn open(&self) -> Result<Engine, OpenError> {
        let files = self.disk.process();
        let store = StoppingStores {
            disk: self.store.clone(),
            gate: Gate {
                process: Arc::clone(&files),
                is_open: Arc::clone(&self.spares_store),
                fails_reads: Arc::clone(&self.fails_reads),
            },
            opened: Arc::clone(&self.index),
        };
        Engine::builder(DIRECTORY)
            .config(self.config.clone())
            .clock(self.clock.clone())
            .files(files)
            .store(Arc::new(store))
            .seed(self.seed)
            .broken(self.broken)
            .open()
    }

    /// A second machine in the same state.
    pub fn fork(&self) -> Self {
        let now_ms = tidelog::Clock::now_ms(&*self.clock);
        Self {
            disk: self.disk.fork(),
            store: self.store.fork(),
            clock: Arc::new(ManualClock::new(now_ms)),
            config: self.config.clone(),
            broken: self.broken,
            seed: self.seed,
            index: Arc::default(),
            spares_store: Arc::default(),
            fails_reads: Arc::default(),
        }
    }

    /// Ends the process, or all of the machine; the seed decides what the store had flushed.
    pub fn stop(&self, stop: Stop, seed: u64) {
        self.store.crash(seed);
        match stop {
            Stop::Kill => self.disk.kill(),
            Stop::Power(loss) => self.disk.power_loss(loss),
        }
        self.disk.clear_faults();
        self.store.clear_faults();
    }

    /// Makes every read of the index fail, as RocksDB does where a table is damaged.
    pub fn fails_reads(&self, does: bool) {
        self.fails_reads.store(does, Ordering::SeqCst);
    }

    /// The index of the engine that is open.
    pub fn index(&self) -> Arc<dyn Store> {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.as_ref().and_then(Weak::upgrade).expect("an engine is open")
    }

    /// The segments of the log, by id.
    pub fn segments(&self) -> Vec<PathBuf> {
        let names: BTreeSet<String> = self.list(&Path::new(DIRECTORY).join("log"));
        let is_segment = |name: &String| name.ends_with(".log");
        let path = |name: String| Path::new(DIRECTORY).join("log").join(name);
        names.into_iter().filter(is_segment).map(path).collect()
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        let directories = [PathBuf::from(DIRECTORY), Path::new(DIRECTORY).join("log")];
        let length = |path: PathBuf| self.disk.contents(&path).map_or(0, |bytes| bytes.len());
        let used = directories.iter().flat_map(|directory| {
            self.list(directory).into_iter().map(move |name| length(directory.join(name)))
        });
        used.sum::<usize>() as u64
    }

    fn list(&self, directory: &Path) -> BTreeSet<String> {
        self.disk.list(directory).map(|names| names.into_iter().collect()).unwrap_or_default()
    }
}

/// Small, so that rolls, checkpoints and waits for syncs come often.
pub fn small_config() -> EngineConfig {
    EngineConfig::default()
        .maintenance(Maintenance::Manual)
        .segment_bytes(8 << 10)
        .background_sync_bytes(2 << 10)
        .max_unsynced_bytes(6 << 10)
        .checkpoint_index_bytes(4 << 10)
        .checkpoint_log_bytes(6 << 10)
        .index_memory_limit_bytes(8 << 10)
        .disk_reserve_bytes(0)
}

/// Any of the things that a stop can be.
pub fn any_stop(random: &mut Random, power_percent: u64, unsynced_changes: usize) -> Stop {
    if !random.chance(power_percent) {
        return Stop::Kill;
    }
    Stop::Power(match random.below(8) {
        0 => PowerLoss::Nothing,
        1 => PowerLoss::Everything,
        2 | 3 => PowerLoss::First(random.below(unsynced_changes as u64 + 1) as usize),
        _ => PowerLoss::Random(random.next()),
    })
}

#[derive(Debug)]
struct StoppingStores {
    disk: MemoryDisk,
    gate: Gate,
    opened: Arc<Mutex<Option<Weak<dyn Store>>>>,
}

impl OpenStore for StoppingStores {
    fn exists(&self, directory: &Path) -> Result<bool, StorageError> {
        self.disk.exists(directory)
    }

    fn open(&self, directory: &Path, create: bool) -> Result<Arc<dyn Store>, StorageError> {
        self.gate.pass()?;
        let inner = self.disk.open(directory, create)?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        *opened = Some(Arc::downgrade(&inner));
        Ok(Arc::new(StoppingStore { inner, gate: self.gate.clone() }))
    }
}

#[derive(Debug)]
struct StoppingStore {
    inner: Arc<dyn Store>,
    gate: Gate,
}

/// What every call of the store passes first.
#[derive(Debug, Clone)]
struct Gate {
    process: Arc<dyn Files>,
    is_open: Arc<AtomicBool>,
    fails_reads: Arc<AtomicBool>,
}

impl Gate {
    fn check_reads(&self) -> Result<(), StorageError> {
        match self.fails_reads.load(Ordering::SeqCst) {
            true => Err(StorageError::store("read", "a block of a table is damaged")),
            false => Ok(()),
        }
    }

    /// Counts as a call of the disk, and fails once the process has stopped.
    fn pass(&self) -> Result<(), StorageError> {
        if self.is_open.load(Ordering::SeqCst) {
            return Ok(());
        }
        let passed = self.process.create_directory(Path::new("/index"));
        passed.map_err(|error| StorageError::io("reach", Path::new("/index"), error))
    }

    /// A process that has stopped closes nothing.
    fn check_alive(&self) -> Result<(), StorageError> {
        let alive = self.process.free_bytes(Path::new("/"));
        alive.map(|_| ()).map_err(|error| StorageError::io("reach", Path::new("/index"), error))
    }
}

impl Read for StoppingStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.gate.check_reads()?;
        self.inner.get(family, key)
    }

    fn scan(
        &self,
        family: Family,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        self.gate.check_reads()?;
        self.inner.scan(family, begin, end, direction, visit)
    }
}

impl Store for StoppingStore {
    fn write(&self, batches: &[&WriteBatch]) -> Result<(), StorageError> {
        self.gate.pass()?;
        for batch in batches {
            // Rule S7: whatever the engine builds, replay takes.
            let decoded = WriteBatch::decode(batch.encoded());
            assert_eq!(decoded.as_ref(), Ok(*batch), "the engine has built an illegal write batch");
        }
        self.inner.write(batches)
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        Arc::new(Snapshot { inner: self.inner.snapshot(), gate: self.gate.clone() })
    }

    fn begin_flush(&self) -> Result<(), StorageError> {
        self.gate.pass()?;
        self.inner.begin_flush()
    }

    fn is_flushed(&self) -> Result<bool, StorageError> {
        self.gate.pass()?;
        self.inner.is_flushed()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.inner.unflushed_bytes()
    }

    fn close(&self) -> Result<(), StorageError> {
        self.gate.check_alive()?;
        self.inner.close()
    }
}

#[derive(Debug)]
struct Snapshot {
    inner: Arc<dyn Read>,
    gate: Gate,
}

impl Read for Snapshot {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.gate.check_reads()?;
        self.inner.get(family, key)
    }

    fn scan(
        &self,
        family: Family,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        self.gate.check_reads()?;
        self.inner.scan(family, begin, end, direction, visit)
    }
}
