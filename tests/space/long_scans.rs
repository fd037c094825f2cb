//! Long looks into the index: they hold up no `delete_records`, and rounds of cleaning do not repeat them.

use crate::common;

use std::path::Path;
use std::sync::Arc;

use common::{NOW_MS, TestEngine, append, assert_verified, offsets_of, one_partition};
use parking_lot::Mutex;
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::internals;
use tidelog::internals::store::{Direction, OpenStore, Read, Store, Visit};
use tidelog::internals::write_batch::{Family, WriteBatch};
use tidelog::record::BatchBuilder;
use tidelog::types::ProducerIdentity;
use tidelog::{Durability, FirstSequence, OffsetTarget, Record, StorageError};

/// Entries that a scan visits before somebody else comes between.
const LONG_SCAN: usize = 2000;

type Work = Box<dyn FnMut() + Send>;

/// A store whose long scans of batches take so long that something is done meanwhile.
#[derive(Clone)]
struct SlowScans {
    inner: Arc<dyn OpenStore>,
    meanwhile: Arc<Mutex<Option<Work>>>,
}

struct SlowStore {
    inner: Arc<dyn Store>,
    meanwhile: Arc<Mutex<Option<Work>>>,
}

impl std::fmt::Debug for SlowScans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlowScans")
    }
}

impl std::fmt::Debug for SlowStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlowStore")
    }
}

impl OpenStore for SlowScans {
    fn exists(&self, directory: &Path) -> Result<bool, StorageError> {
        self.inner.exists(directory)
    }

    fn open(&self, directory: &Path, create: bool) -> Result<Arc<dyn Store>, StorageError> {
        let inner = self.inner.open(directory, create)?;
        Ok(Arc::new(SlowStore { inner, meanwhile: Arc::clone(&self.meanwhile) }))
    }
}

impl Read for SlowStore {
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
        let mut visited = 0;
        self.inner.scan(family, begin, end, direction, &mut |key, value| {
            visited += 1;
            visit(key, value)
        })?;
        if family == Family::Batches && visited >= LONG_SCAN {
            // What is done meanwhile is not disturbed itself.
            let work = self.meanwhile.lock().take();
            if let Some(mut work) = work {
                work();
                *self.meanwhile.lock() = Some(work);
            }
        }
        Ok(())
    }
}

impl Store for SlowStore {
    fn write(&self, batches: &[&WriteBatch]) -> Result<(), StorageError> {
        self.inner.write(batches)
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        self.inner.snapshot()
    }

    fn begin_flush(&self) -> Result<(), StorageError> {
        self.inner.begin_flush()
    }

    fn is_flushed(&self) -> Result<bool, StorageError> {
        self.inner.is_flushed()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.inner.unflushed_bytes()
    }

    fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }
}

#[test]
fn records_are_deleted_although_the_cleaner_takes_some_during_every_long_scan() {
    const BATCHES: i64 = 2500;
    for target in [None, Some(BATCHES), Some(2300)] {
        let test = TestEngine::new();
        let meanwhile = Arc::default();
        let inner = Arc::new(test.store.clone());
        let stores = SlowScans { inner, meanwhile: Arc::clone(&meanwhile) };
        let engine = test.builder().store(Arc::new(stores)).open().expect("the engine opens");
        let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
        let partition = one_partition(&engine, "t", &settings);
        for index in 0..BATCHES {
            append(&engine, &partition, [Record::new(index.to_string(), "v")]);
        }
        assert!(engine.cleaner().clean_partition(&partition).unwrap().unwrap().is_finished);
        let count = Arc::new(Mutex::new(0));
        let work = {
            let (engine, partition, count) = (engine.clone(), partition.clone(), count.clone());
            move || {
                *count.lock() += 1;
                assert!(*count.lock() < 20, "it looks again and again");
                for _ in 0..2 {
                    append(&engine, &partition, [Record::new("k", "v")]);
                }
                let pass = engine.cleaner().clean_partition(&partition).unwrap().unwrap();
                assert!(pass.removed_records > 0);
            }
        };
        *meanwhile.lock() = Some(Box::new(work));
        let log_end = engine.watermarks(&partition).unwrap().log_end;
        let offset = target.unwrap_or(log_end);
        let log_start = match target {
            Some(offset) => engine.delete_records(&partition, offset),
            None => engine.delete_records(&partition, OffsetTarget::HighWatermark),
        };
        assert_eq!(log_start.unwrap(), offset);
        *meanwhile.lock() = None;
        assert!(*count.lock() > 0, "nothing came between");
        assert_eq!(engine.watermarks(&partition).unwrap().log_start, offset);
        let left = offsets_of(&engine, &partition);
        assert!(left.iter().all(|left| *left >= offset) && left.len() as i64 > BATCHES - offset);
        assert_verified(&engine);
    }
}

#[test]
fn a_round_reads_only_what_came_since_the_last_one() {
    let test = TestEngine::new();
    let meanwhile = Arc::default();
    let inner = Arc::new(test.store.clone());
    let stores = SlowScans { inner, meanwhile: Arc::clone(&meanwhile) };
    let engine = test.builder().store(Arc::new(stores)).open().expect("the engine opens");
    // One waits for its ratio, one until it is old enough, one for a transaction.
    let young = [("cleanup.policy", "compact"), ("min.compaction.lag.ms", "600000")];
    let never = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "1")];
    let partitions = [
        one_partition(&engine, "young", &young),
        one_partition(&engine, "never", &never),
        one_partition(&engine, "open", &young[..1]),
    ];
    let producer = ProducerIdentity { producer_id: 7, producer_epoch: 0 };
    internals::pretend_open_transaction(&engine, "p", producer, &partitions[2]);
    let mut builder = BatchBuilder::new().producer(7, 0, 0).transactional();
    builder.push(&Record::new("k", "v").timestamp(NOW_MS)).unwrap();
    let mut transaction = engine.append_transaction();
    transaction.transactional_id("p", FirstSequence::Any);
    transaction.batch(&partitions[2], builder.finish().unwrap()).unwrap();
    transaction.commit(Durability::Sync).unwrap();
    for (index, partition) in (0..2500).flat_map(|index| partitions.iter().map(move |p| (index, p)))
    {
        append(&engine, partition, [Record::new(index.to_string(), "v").timestamp(NOW_MS)]);
    }
    let count = Arc::new(Mutex::new(0));
    let counter = count.clone();
    *meanwhile.lock() = Some(Box::new(move || *counter.lock() += 1));
    assert!(engine.cleaner().run().unwrap().passes.is_empty());
    let first = std::mem::take(&mut *count.lock());
    assert!(first >= 3, "{first} long scans");
    for _ in 0..5 {
        for partition in &partitions {
            append(&engine, partition, [Record::new("k", "v").timestamp(NOW_MS)]);
        }
        test.clock.advance_ms(1000);
        assert!(engine.cleaner().run().unwrap().passes.is_empty());
    }
    assert_eq!(*count.lock(), 0, "it looks again and again");
    // What is old enough is too young again when the clock steps back, or the lag is raised.
    let cleanable = || engine.cleaner().plan(&partitions[0]).unwrap().cleanable_records;
    test.clock.set_ms(NOW_MS + 600_000);
    assert_eq!(cleanable(), 2505);
    test.clock.set_ms(NOW_MS + 599_999);
    assert_eq!(cleanable(), 0);
    test.clock.set_ms(NOW_MS + 600_000);
    assert_eq!(cleanable(), 2505);
    for (lag_ms, expected) in [("600001", 0), ("600000", 2505)] {
        let operation = ConfigOperation::Set(lag_ms.to_owned());
        let name = "min.compaction.lag.ms".to_owned();
        engine.topics().alter("young", &[ConfigChange { name, operation }]).unwrap();
        assert_eq!(cleanable(), expected);
    }
    assert_eq!(engine.cleaner().run().unwrap().passes.len(), 1);
    assert_eq!(cleanable(), 0);
}
