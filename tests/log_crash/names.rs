//! Freeing beside a commit that begins a segment: what goes wrong with the one's names is not the
//! other's.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use tidelog::internals::log::CommitLog;
use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{
    EIO, Fault, File, FileCall, Files, LockError, LockGuard, PowerLoss, SimulatedDisk,
};
use tidelog::types::{AppliedCommit, SegmentId};

use crate::model::{DIRECTORY, LOG, options};
use crate::scene::{append_one, big, open};

type Hook = Box<dyn FnOnce() + Send>;

/// A disk that calls a hook before the next sync of a directory, and lets no other go on before
/// that one is made.
struct Hooked {
    inner: Arc<dyn Files>,
    hook: Mutex<Option<Hook>>,
    is_syncing: Mutex<bool>,
    synced: Condvar,
    new_names: AtomicU64,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl Files for Hooked {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let created = self.inner.create(path);
        self.new_names.fetch_add(1, Ordering::SeqCst);
        created
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.inner.open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = self.inner.rename(from, to);
        self.new_names.fetch_add(1, Ordering::SeqCst);
        renamed
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let hook = self.hook.lock().take();
        if let Some(hook) = hook {
            *self.is_syncing.lock() = true;
            hook();
            let synced = self.inner.sync_directory(directory);
            *self.is_syncing.lock() = false;
            self.synced.notify_all();
            return synced;
        }
        self.synced.wait_while(&mut self.is_syncing.lock(), |is_syncing| *is_syncing);
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

/// Frees something, has the sync of its names fail while a commit begins a segment, and loses
/// power once that commit is synced.
fn free_beside_a_commit(seed: u64, free_segments: u64, free: &dyn Fn(&CommitLog)) {
    let disk = SimulatedDisk::new(seed);
    let files = Arc::new(Hooked {
        inner: disk.process(),
        hook: Mutex::default(),
        is_syncing: Mutex::default(),
        synced: Condvar::new(),
        new_names: AtomicU64::new(0),
    });
    let options = options(BrokenRules::NONE);
    let log = CommitLog::create(files.clone(), Path::new(DIRECTORY), LOG, options).unwrap();
    let log = Arc::new(log);
    let places: Vec<_> = (1..=4).map(|number| append_one(&log, &big(number))).collect();
    log.sync(log.written()).unwrap();
    for id in 1..=free_segments {
        log.free_segment(SegmentId(id)).unwrap();
    }

    let committer: Arc<Mutex<Option<JoinHandle<AppliedCommit>>>> = Arc::default();
    let hook = {
        let (disk, files, log, committer) =
            (disk.clone(), files.clone(), log.clone(), committer.clone());
        move || {
            let before = files.new_names.load(Ordering::SeqCst);
            *committer.lock() = Some(thread::spawn(move || append_one(&log, &big(5))));
            // It gets so far, or waits.
            for _ in 0..20_000 {
                if files.new_names.load(Ordering::SeqCst) > before {
                    break;
                }
                thread::yield_now();
            }
            disk.plan(Fault::next(FileCall::SyncDirectory, EIO));
        }
    };
    *files.hook.lock() = Some(Box::new(hook));
    free(&log);
    let committer = committer.lock().take().expect("the hook was called");
    let place = committer.join().unwrap();
    log.sync(log.written()).unwrap();
    disk.power_loss(PowerLoss::Nothing);
    let (_, found) = open(&disk, places[3]);
    assert_eq!(found.last, place, "seed {seed}");
}

#[test]
fn a_sync_of_names_that_fails_for_who_frees_takes_no_new_segment_with_it() {
    let keep = |log: &CommitLog| drop(log.free_segment(SegmentId(2)).unwrap_err());
    let remove = |log: &CommitLog| {
        log.distrust(SegmentId(2));
        keep(log);
    };
    let release = |log: &CommitLog| drop(log.release_free(false).unwrap_err());
    for seed in 0..6 {
        free_beside_a_commit(seed, 1, &keep);
        free_beside_a_commit(seed, 0, &remove);
        free_beside_a_commit(seed, 1, &release);
    }
}
