//! What the benchmarks share: batches, a directory, a stopwatch, and the bare append they compare with.
#![allow(dead_code, reason = "each benchmark uses its part of this")]

use std::fs::File;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tidelog::Record;
use tidelog::clock::{Clock, SystemClock};
use tidelog::record::BatchBuilder;

const BACKGROUND_SYNC_BYTES: u64 = 16 << 20;
const MAX_UNSYNCED_BYTES: u64 = 64 << 20;

/// Measures time by the engine's own clock.
pub struct Stopwatch(SystemClock);

impl Stopwatch {
    pub fn start() -> Self {
        Self(SystemClock::new())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.monotonic()
    }
}

/// Resident memory of this process, in MiB.
pub fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

/// A number from the environment.
pub fn env_u64(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => default,
    }
}

/// A directory of its own for a benchmark, removed with it.
pub struct BenchDir(PathBuf);

impl BenchDir {
    pub fn new(name: &str) -> Self {
        let parent =
            std::env::var_os("TIDELOG_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = parent.join(format!("tidelog-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the benchmark's directory can be made");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether the directory lies in memory, where a sync costs nothing and says nothing.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.file_system().as_str(), "tmpfs" | "ramfs")
    }

    pub fn describe(&self) -> String {
        let says =
            if self.is_in_memory() { ", in memory: no figure says what a sync costs" } else { "" };
        format!("{} on {}{says}", self.0.display(), self.file_system())
    }

    /// The type of the file system of the longest mount point that holds the directory.
    fn file_system(&self) -> String {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let path = self.0.canonicalize().expect("the directory is there");
        let mounted = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (point, kind) = (words.nth(1)?, words.next()?);
            path.starts_with(point).then(|| (point.len(), kind.to_owned()))
        });
        mounted.max().map_or_else(|| "an unknown file system".into(), |(_, kind)| kind)
    }
}

impl Drop for BenchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Different record batches of this many records, with incompressible values.
pub fn batches(count: usize, record_count: usize, value_bytes: usize) -> Vec<Bytes> {
    let mut state = 1u64;
    let mut value = || {
        let mut bytes = Vec::with_capacity(value_bytes + 8);
        while bytes.len() < value_bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        bytes.truncate(value_bytes);
        bytes
    };
    let batch = |_| {
        let mut builder = BatchBuilder::new();
        for index in 0..record_count {
            let record = Record::keyless(value()).timestamp(1_700_000_000_000 + index as i64);
            builder.push(&record).expect("the batch is small");
        }
        builder.finish().expect("the batch has records")
    };
    (0..count).map(batch).collect()
}

/// The value below which this share of all lies. REQUIRES: sorted.
pub fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The limit: the same batches, summed and appended to one file, synced in the background.
pub struct Bare {
    file: Arc<File>,
    unsynced: Arc<AtomicU64>,
    since_sync: u64,
    wanted: Option<Sender<u64>>,
    done: Receiver<()>,
    pending: usize,
    syncer: Option<JoinHandle<()>>,
}

impl Bare {
    pub fn create(path: &Path) -> Self {
        let file = Arc::new(File::create(path).expect("the file can be made"));
        let unsynced = Arc::new(AtomicU64::new(0));
        let (wanted, wishes) = channel::<u64>();
        let (told, done) = channel();
        let (synced_file, left) = (Arc::clone(&file), Arc::clone(&unsynced));
        let syncer = std::thread::spawn(move || {
            for bytes in wishes {
                synced_file.sync_data().expect("the file can be synced");
                left.fetch_sub(bytes, Ordering::SeqCst);
                if told.send(()).is_err() {
                    return;
                }
            }
        });
        let (since_sync, pending) = (0, 0);
        Self {
            file,
            unsynced,
            since_sync,
            wanted: Some(wanted),
            done,
            pending,
            syncer: Some(syncer),
        }
    }

    /// Sums and appends batches with one call.
    pub fn append(&mut self, batches: &[&Bytes]) {
        let sums = batches.iter().map(|batch| crc32c::crc32c(&batch[21..]));
        let sum = sums.fold(0, |sum, next| sum ^ next);
        std::hint::black_box(sum);
        let mut slices: Vec<IoSlice<'_>> =
            batches.iter().map(|batch| IoSlice::new(batch)).collect();
        let mut rest = &mut slices[..];
        let bytes: u64 = batches.iter().map(|batch| batch.len() as u64).sum();
        while !rest.is_empty() {
            let written = std::io::Write::write_vectored(&mut &*self.file, rest);
            IoSlice::advance_slices(&mut rest, written.expect("the file can be written"));
        }
        self.since_sync += bytes;
        self.unsynced.fetch_add(bytes, Ordering::SeqCst);
        if self.since_sync >= BACKGROUND_SYNC_BYTES {
            self.want_sync();
        }
        while self.unsynced.load(Ordering::SeqCst) > MAX_UNSYNCED_BYTES {
            self.done.recv().expect("the syncer lives");
            self.pending -= 1;
        }
    }

    fn want_sync(&mut self) {
        let bytes = std::mem::take(&mut self.since_sync);
        let wanted = self.wanted.as_ref().expect("the syncer lives");
        wanted.send(bytes).expect("the syncer lives");
        self.pending += 1;
    }

    /// Waits until all of it is synced.
    pub fn sync(&mut self) {
        self.want_sync();
        while self.pending > 0 {
            self.done.recv().expect("the syncer lives");
            self.pending -= 1;
        }
    }

    /// Appends batches and syncs them at once, on this thread.
    pub fn append_synced(&mut self, batches: &[&Bytes]) {
        self.append(batches);
        self.since_sync = 0;
        self.unsynced.store(0, Ordering::SeqCst);
        self.file.sync_data().expect("the file can be synced");
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.wanted = None;
        if let Some(syncer) = self.syncer.take() {
            let _ = syncer.join();
        }
    }
}
