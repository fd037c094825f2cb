//! Synced commits of 100 KiB with freed segments written over and without, beside a bare file that
//! grows and one that is written over, in turns, in one run.
//!
//! The bare sides sum every batch too, and sync each on the thread that wrote it, as the engine
//! does. Each side is timed while it writes only: between its turns the engine deletes what it has
//! written, and frees the segments. `not cached` means that the system was told to forget what it
//! caches of the files that are written over. `cargo bench --bench reuse`; the environment sets:
//!
//! - `TIDELOG_BENCH_DIR`: where to write (default: the system's temporary directory)
//! - `TIDELOG_BENCH_BYTES`: payload bytes of a turn (default: 96 MiB)
//! - `TIDELOG_BENCH_ROUNDS`: turns that each side takes (default: 7)
//! - `TIDELOG_BENCH_BUFFERED`: 1 to commit buffered; the bare sides sync after every 16 MiB then

#[path = "support/mod.rs"]
mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use support::{BenchDir, Stopwatch, batches, env_u64, percentile};
use tidelog::config::{EngineConfig, Maintenance};
use tidelog::testing::{Files, SystemFiles};
use tidelog::{Durability, Engine, Partition, TopicConfig};

const SEGMENT_BYTES: u64 = 32 << 20;
const RECORDS_PER_BATCH: usize = 100;
const RECORD_BYTES: usize = 1014;

/// Where a side commits.
trait Commit {
    fn commit(&mut self, batch: &Bytes);
    fn sync(&mut self);
}

/// What one side did in all its turns.
struct Side {
    name: &'static str,
    turns_mb_s: Vec<f64>,
    latencies: Vec<Duration>,
}

impl Side {
    fn new(name: &'static str) -> Self {
        Self { name, turns_mb_s: Vec::new(), latencies: Vec::new() }
    }

    /// Commits batches until a turn is full, and times it. What it has left to the disk is not the
    /// next one's.
    fn turn(&mut self, pool: &[Bytes], turn_bytes: u64, on: &mut impl Commit) {
        let watch = Stopwatch::start();
        let mut written = 0;
        for batch in pool.iter().cycle() {
            let one = Stopwatch::start();
            on.commit(batch);
            self.latencies.push(one.elapsed());
            written += batch.len() as u64;
            if written >= turn_bytes {
                break;
            }
        }
        self.turns_mb_s.push(written as f64 / 1e6 / watch.elapsed().as_secs_f64());
        on.sync();
    }

    fn report(&mut self) -> f64 {
        self.latencies.sort_unstable();
        self.turns_mb_s.sort_by(f64::total_cmp);
        let median = self.turns_mb_s[self.turns_mb_s.len() / 2];
        println!(
            "{:<36} median {median:.0} MB/s of turns {:.0?}, p50 {:.0?} p99 {:.0?}",
            self.name,
            self.turns_mb_s,
            percentile(&self.latencies, 0.50),
            percentile(&self.latencies, 0.99),
        );
        median
    }
}

/// A file that is written at a place of its own choice and synced after each batch.
struct BareFile {
    file: File,
    position: u64,
    synced: u64,
}

/// After how many bytes the bare sides sync where the engine syncs in the background.
const SYNC_BYTES: u64 = 16 << 20;

fn is_buffered() -> bool {
    env_u64("TIDELOG_BENCH_BUFFERED", 0) > 0
}

impl BareFile {
    fn create(path: &Path) -> Self {
        let file = File::create_new(path).expect("the file can be made");
        Self { file, position: 0, synced: 0 }
    }

    /// One whose blocks were all written before.
    fn written_before(path: &Path, bytes: u64) -> Self {
        let bare = Self::create(path);
        let block = vec![0xa5; 1 << 20];
        for position in (0..bytes).step_by(block.len()) {
            bare.file.write_all_at(&block, position).expect("the file can be written");
        }
        bare.file.sync_all().expect("the file can be synced");
        bare
    }
}

impl Commit for BareFile {
    fn commit(&mut self, batch: &Bytes) {
        std::hint::black_box(crc32c::crc32c(&batch[21..]));
        self.file.write_all_at(batch, self.position).expect("the file can be written");
        self.position += batch.len() as u64;
        if !is_buffered() || self.position - self.synced >= SYNC_BYTES {
            self.sync();
        }
    }

    fn sync(&mut self) {
        self.file.sync_data().expect("the file can be synced");
        self.synced = self.position;
    }
}

/// An engine that frees what it wrote in the turn before.
struct Ours {
    engine: Engine,
    partition: Partition,
    log: PathBuf,
}

impl Ours {
    fn open(path: &Path, max_free_segments: u32) -> Self {
        let config = EngineConfig::default()
            .segment_bytes(SEGMENT_BYTES)
            .max_free_segments(max_free_segments)
            .maintenance(Maintenance::Manual)
            .maintenance_interval_ms(1);
        let engine = Engine::open(path, config).expect("the engine opens");
        let topic = engine.create_topic("bench", TopicConfig::new(1)).expect("it is made");
        let partition = topic.partition(0).expect("it has one");
        Self { engine, partition, log: path.join("log") }
    }

    /// Deletes all that was written, and frees its segments.
    fn free(&self) {
        let end = self.engine.watermarks(&self.partition).expect("it exists").log_end;
        self.engine.delete_records(&self.partition, end).expect("it is deleted");
        self.engine.maintenance().checkpoint().expect("it is taken");
        self.engine.maintenance().run().expect("it goes on");
    }

    fn forget_cached(&self) {
        for name in SystemFiles.list(&self.log).expect("the log is there") {
            forget_cached(&self.log.join(name));
        }
    }
}

impl Commit for Ours {
    fn commit(&mut self, batch: &Bytes) {
        let mut append = self.engine.append_transaction();
        append.batch(&self.partition, batch.clone()).expect("the batch is valid");
        let durability = if is_buffered() { Durability::Buffered } else { Durability::Sync };
        append.commit(durability).expect("it is committed");
    }

    fn sync(&mut self) {
        self.engine.sync().expect("it is synced");
    }
}

fn forget_cached(path: &Path) {
    let file = SystemFiles.open(path).expect("the file is there");
    file.sync_data().and_then(|()| file.drop_cache()).expect("the system obeys");
}

/// All that takes turns, in the order of its sides.
struct Contest {
    grows: BareFile,
    cached: BareFile,
    cold: BareFile,
    cold_path: PathBuf,
    removes: Ours,
    reuses: Ours,
    reuses_cold: Ours,
}

const NAMES: [&str; 6] = [
    "bare, the file grows",
    "bare, written over",
    "bare, written over, not cached",
    "tidelog, segments removed",
    "tidelog, segments reused",
    "tidelog, segments reused, not cached",
];

impl Contest {
    fn new(directory: &Path, turn_bytes: u64, turns: u64) -> Self {
        let path = |name: &str| directory.join(name);
        // A turn ends with the batch that fills it.
        let total_bytes = turns * (turn_bytes + (1 << 20));
        let max_free = u32::try_from(turn_bytes.div_ceil(SEGMENT_BYTES) + 2).expect("it is small");
        Self {
            grows: BareFile::create(&path("grows")),
            cached: BareFile::written_before(&path("cached"), total_bytes),
            cold: BareFile::written_before(&path("cold"), total_bytes),
            cold_path: path("cold"),
            removes: Ours::open(&path("removes"), 0),
            reuses: Ours::open(&path("reuses"), max_free),
            reuses_cold: Ours::open(&path("reuses-cold"), max_free),
        }
    }

    fn turn(&mut self, sides: &mut [Side; 6], pool: &[Bytes], turn_bytes: u64) {
        forget_cached(&self.cold_path);
        self.reuses_cold.forget_cached();
        sides[0].turn(pool, turn_bytes, &mut self.grows);
        sides[1].turn(pool, turn_bytes, &mut self.cached);
        sides[2].turn(pool, turn_bytes, &mut self.cold);
        sides[3].turn(pool, turn_bytes, &mut self.removes);
        sides[4].turn(pool, turn_bytes, &mut self.reuses);
        sides[5].turn(pool, turn_bytes, &mut self.reuses_cold);
        [&self.removes, &self.reuses, &self.reuses_cold].iter().for_each(|ours| ours.free());
    }

    fn end(self) {
        for (name, ours) in NAMES[3..].iter().zip([self.removes, self.reuses, self.reuses_cold]) {
            let metrics = ours.engine.metrics();
            let (freed, reused) = (metrics.freed_segments, metrics.reused_segments);
            println!("{name}: {freed} segments freed, {reused} reused");
            ours.engine.close().expect("it closes");
        }
    }
}

fn main() {
    let directory = BenchDir::new("reuse");
    let turn_bytes = env_u64("TIDELOG_BENCH_BYTES", 96 << 20);
    let rounds = env_u64("TIDELOG_BENCH_ROUNDS", 7).max(1);
    let pool = batches(64, RECORDS_PER_BATCH, RECORD_BYTES);
    println!(
        "{}; one batch of {RECORDS_PER_BATCH} records of {RECORD_BYTES} bytes ({} bytes) a commit, \
         {}, one thread, {} MB a turn, {rounds} turns a side",
        directory.describe(),
        pool[0].len(),
        if is_buffered() { "buffered" } else { "synced" },
        turn_bytes / 1_000_000
    );
    if directory.is_in_memory() {
        println!("no figures: a sync of a file in memory says nothing");
        return;
    }
    let mut contest = Contest::new(directory.path(), turn_bytes, rounds + 1);
    // In the first turn nothing is there to be written over: it only makes it.
    contest.turn(&mut NAMES.map(Side::new), &pool, turn_bytes);
    let mut sides = NAMES.map(Side::new);
    for _ in 0..rounds {
        contest.turn(&mut sides, &pool, turn_bytes);
    }
    let [grows, over, over_cold, removed, reused, reused_cold] = sides.each_mut().map(Side::report);
    let tell = |what: &str, cached: f64, cold: f64| {
        println!("{what:<34} {cached:.2}; not cached {cold:.2}");
    };
    tell("bare, written over / grows", over / grows, over_cold / grows);
    tell("tidelog, reused / removed", reused / removed, reused_cold / removed);
    tell("tidelog, reused / bare, over", reused / over, reused_cold / over_cold);
    println!("{:<34} {:.2}", "tidelog, removed / bare, grows", removed / grows);
    contest.end();
}
