//! Checkpoints that meet: each is complete before it counts, however the index store is timed.

use crate::common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use common::{TestEngine, append, one_partition};
use tidelog::internals::store::{Direction, OpenStore, Read, Store, Visit};
use tidelog::internals::write_batch::{Family, WriteBatch};
use tidelog::testing::{EIO, Fault, FileCall, MemoryDisk};
use tidelog::{Record, StorageError, TopicConfig};

/// Polls after which a flush is complete.
const POLLS: u64 = 3;

/// A store in memory whose flushes take a while, and whose callers are held up at every call.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Store>,
    polls_left: AtomicU64,
    calls: AtomicU64,
    flushes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct SlowDisk {
    inner: MemoryDisk,
    /// Flushes that were begun.
    flushes: Arc<AtomicU64>,
}

impl SlowDisk {
    fn of(test: &TestEngine) -> Arc<Self> {
        Arc::new(Self { inner: test.store.clone(), flushes: Arc::default() })
    }
}

impl OpenStore for SlowDisk {
    fn exists(&self, directory: &Path) -> Result<bool, StorageError> {
        self.inner.exists(directory)
    }

    fn open(&self, directory: &Path, create: bool) -> Result<Arc<dyn Store>, StorageError> {
        let inner = self.inner.open(directory, create)?;
        let (polls_left, calls) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(Slow { inner, polls_left, calls, flushes: Arc::clone(&self.flushes) }))
    }
}

impl Slow {
    /// Lets others run, a little more often at each call, and then from the beginning.
    fn dawdle(&self) {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        (0..call % 97).for_each(|_| thread::yield_now());
    }
}

impl Read for Slow {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
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
        self.inner.scan(family, begin, end, direction, visit)
    }
}

impl Store for Slow {
    fn write(&self, batches: &[&WriteBatch]) -> Result<(), StorageError> {
        self.inner.write(batches)
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        self.inner.snapshot()
    }

    fn begin_flush(&self) -> Result<(), StorageError> {
        self.dawdle();
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.inner.begin_flush()?;
        self.polls_left.store(POLLS, Ordering::SeqCst);
        Ok(())
    }

    fn is_flushed(&self) -> Result<bool, StorageError> {
        let less = |left: u64| left.checked_sub(1);
        let is_early = self.polls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        let flushed = if is_early.is_ok() { Ok(false) } else { self.inner.is_flushed() };
        self.dawdle();
        flushed
    }

    fn unflushed_bytes(&self) -> u64 {
        self.inner.unflushed_bytes()
    }

    fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }
}

#[test]
fn of_checkpoints_that_meet_none_takes_the_flush_of_another_for_its_own() {
    const CHECKPOINTS: usize = 200;
    let test = TestEngine::new();
    let engine = test.builder().store(SlowDisk::of(&test)).open().unwrap();
    let partition = one_partition(&engine, "t", &[]);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..CHECKPOINTS {
                    append(&engine, &partition, [Record::keyless("v")]);
                    engine.maintenance().checkpoint().expect("a checkpoint disturbs no other");
                }
            });
        }
    });
    assert_eq!(engine.metrics().checkpoints, 3 * CHECKPOINTS as u64);
    engine.close().unwrap();
}

// commit log rule E3
#[test]
fn an_engine_that_has_halted_begins_no_flush_although_all_that_is_applied_is_synced() {
    let test = TestEngine::new();
    let store = SlowDisk::of(&test);
    let engine = test.builder().store(store.clone()).open().unwrap();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("v")]);
    engine.sync().unwrap();
    let begun = store.flushes.load(Ordering::SeqCst);
    test.disk.plan(Fault::next(FileCall::Write, EIO));
    assert!(engine.create_topic("unknown", TopicConfig::new(1)).is_err());
    for _ in 0..2 {
        assert!(matches!(engine.maintenance().checkpoint(), Err(StorageError::Halted { .. })));
    }
    assert!(engine.close().is_err());
    assert_eq!(store.flushes.load(Ordering::SeqCst), begun);
}
