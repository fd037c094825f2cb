//! Closing beside maintenance: once the directories are let go, no file in them is touched any more.

use crate::common;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{TestEngine, append, one_partition};
use tidelog::testing::{File, Files, LockError, LockGuard};
use tidelog::{OffsetTarget, Record, StorageError};

/// Files that are removed slowly, and counted where that is too late.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn Files>,
    removals: AtomicU64,
    late_removals: AtomicU64,
    is_closed: AtomicBool,
}

impl Files for Watched {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.inner.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.inner.open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.removals.fetch_add(1, Ordering::SeqCst);
        (0..200).for_each(|_| thread::yield_now());
        let removed = self.inner.remove(path);
        let is_late = self.is_closed.load(Ordering::SeqCst);
        self.late_removals.fetch_add(u64::from(is_late), Ordering::SeqCst);
        removed
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.inner.sync_directory(directory)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.inner.free_bytes(directory)
    }

    fn total_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.inner.total_bytes(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        self.inner.lock(path)
    }
}

#[test]
fn no_segment_is_freed_once_another_thread_has_closed_the_engine() {
    // Freed segments are removed, or kept and then given back.
    for max_free_segments in [0, 1024] {
        let test = TestEngine::with(|config| {
            config.segment_bytes(8 << 10).max_free_segments(max_free_segments)
        });
        let files = Arc::new(Watched {
            inner: test.disk.process(),
            removals: AtomicU64::new(0),
            late_removals: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let engine = test.builder().files(files.clone()).open().unwrap();
        let partition = one_partition(&engine, "t", &[]);
        let value = "x".repeat(3000);
        for _ in 0..400 {
            append(&engine, &partition, [Record::keyless(value.clone())]);
        }
        engine.delete_records(&partition, OffsetTarget::HighWatermark).unwrap();
        let before = files.removals.load(Ordering::SeqCst);
        thread::scope(|scope| {
            let freeing = scope.spawn(|| {
                // The second round after an append gives back what the first one has kept.
                for _ in 0..4 {
                    test.clock.advance_ms(test.config.maintenance_interval_ms);
                    if let Err(error) = engine.maintenance().run() {
                        assert!(matches!(error, StorageError::Closed), "{error}");
                        return;
                    }
                }
            });
            while files.removals.load(Ordering::SeqCst) == before && !freeing.is_finished() {
                thread::yield_now();
            }
            engine.clone().close().unwrap();
            files.is_closed.store(true, Ordering::SeqCst);
            freeing.join().unwrap();
        });
        assert!(files.removals.load(Ordering::SeqCst) > before);
        assert_eq!(files.late_removals.load(Ordering::SeqCst), 0);
        assert!(test.open().verify().unwrap().is_clean());
    }
}
