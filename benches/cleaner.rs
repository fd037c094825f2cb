//! Compaction by key at several shares of duplicate keys, beside reading and summing the bytes.
//!
//! `cargo bench --bench cleaner`; the environment sets:
//!
//! - `TIDELOG_BENCH_DIR`: where to write (default: the system's temporary directory)
//! - `TIDELOG_BENCH_BYTES`: bytes of record batches that are cleaned (default: 256 MiB)
//! - `TIDELOG_BENCH_ROUNDS`: how often each share is measured (default: 3)
//! - `TIDELOG_BENCH_DUPLICATES`: one share to measure in place of all, in percent
//! - `TIDELOG_BENCH_KINDS`: 0 to leave out the logs that hold more than plain records: tombstones
//!   (one record in a hundred), producer transactions (one in ten is aborted), and a log of which
//!   nine tenths were cleaned before
//! - `TIDELOG_BENCH_BESIDE`: 0 to leave out the appends beside a pass
//!
//! The pass runs on one thread, the benchmark's; the engine's own threads sync the log as they
//! always do, and none of them cleans.

#[path = "support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{BenchDir, Stopwatch, batches, env_u64, percentile};
use tidelog::config::{EngineConfig, Maintenance, TopicSettings};
use tidelog::record::BatchBuilder;
use tidelog::{Durability, Engine, Partition, Record, TopicConfig};

const RECORDS_PER_BATCH: u64 = 16;
const RECORD_BYTES: usize = 1024;

/// Shares of records whose key comes again, in percent.
const DUPLICATES: &[u64] = &[0, 50, 95];

/// More than a pass writes: what is measured is the cleaner, and the time until all of it is synced
/// is told beside it.
const MAX_UNSYNCED_BYTES: u64 = 4 << 30;

/// How long appends are measured without a cleaner beside them.
const ALONE: Duration = Duration::from_millis(1500);

fn open(directory: &Path) -> Engine {
    // The first round finds nothing to do, and the next one is a day away.
    const DAY_MS: u64 = 86_400_000;
    let config = EngineConfig::default()
        .maintenance(Maintenance::Background)
        .maintenance_interval_ms(DAY_MS)
        .max_unsynced_bytes(MAX_UNSYNCED_BYTES)
        .disk_reserve_bytes(0);
    let builder = Engine::builder(directory).config(config);
    #[cfg(all(not(feature = "rocksdb"), feature = "test-util"))]
    let builder = builder.store(std::sync::Arc::new(tidelog::testing::MemoryDisk::new()));
    builder.open().expect("the engine opens")
}

fn topic(engine: &Engine, name: &str, settings: &[(&str, &str)]) -> Partition {
    let settings = TopicSettings::from_values(settings.iter().copied()).expect("legal settings");
    let topic = engine.create_topic(name, TopicConfig::with_settings(1, settings));
    topic.expect("it is made").partition(0).expect("it has a partition")
}

/// What a log holds besides records with keys and values.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// One record in a hundred has no value.
    Tombstones,
    /// Eight batches are one producer transaction, and one in ten of those is aborted.
    Transactions,
    /// Nine tenths were cleaned before.
    MostlyClean,
}

const KINDS: &[(Kind, &str)] = &[
    (Kind::Tombstones, ", tombstones"),
    (Kind::Transactions, ", transactions"),
    (Kind::MostlyClean, ", mostly clean"),
];

/// The records of a log, of which this share has keys that come again.
struct Records {
    kind: Kind,
    percent: u64,
    key_count: u64,
    state: u64,
    index: u64,
}

impl Records {
    fn new(kind: Kind, total_bytes: u64, percent: u64) -> Self {
        let record_count = total_bytes / RECORD_BYTES as u64;
        let key_count = (record_count * (100 - percent) / 100).max(1);
        Self { kind, percent, key_count, state: 1, index: 0 }
    }

    fn next(&mut self) -> Record {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = if self.percent == 0 { self.index } else { (self.state >> 33) % self.key_count };
        self.index += 1;
        let key = format!("key-{key:012}");
        let record = if self.kind == Kind::Tombstones && self.index.is_multiple_of(100) {
            Record::tombstone(key)
        } else {
            Record::new(key, self.state.to_le_bytes().repeat(RECORD_BYTES / 8 - 4))
        };
        record.timestamp(1_700_000_000_000)
    }
}

/// Appends so many of the records.
fn fill(engine: &Engine, partition: &Partition, records: &mut Records, record_count: u64) {
    let mut producer = (records.kind == Kind::Transactions).then(|| {
        engine.producers().transactional("bench", Duration::from_secs(60)).expect("an id is left")
    });
    let mut transactions = 0;
    let end = records.index + record_count;
    while records.index < end {
        if let Some(producer) = &mut producer {
            let mut transaction = producer.begin();
            for _ in 0..8 {
                let batch = (0..RECORDS_PER_BATCH).map(|_| records.next()).collect();
                transaction.append([(partition, batch)]).expect("it is appended");
            }
            transactions += 1;
            let is_aborted = transactions % 10 == 0;
            if is_aborted { transaction.abort() } else { transaction.commit() }.expect("it ends");
            continue;
        }
        let mut builder = BatchBuilder::new();
        for _ in 0..RECORDS_PER_BATCH {
            builder.push(&records.next()).expect("the batch is small");
        }
        let batch = builder.finish().expect("it has records");
        let mut append = engine.append_transaction();
        append.batch(partition, batch).expect("the batch is good");
        append.commit(Durability::Buffered).expect("it is committed");
    }
    engine.sync().expect("it is synced");
}

/// Reads the files of the log and sums their bytes, once.
fn read_and_sum(directory: &Path) -> Duration {
    let watch = Stopwatch::start();
    let mut buffer = vec![0; 1 << 20];
    for entry in std::fs::read_dir(directory).expect("the log is there") {
        let mut file = File::open(entry.expect("it is readable").path()).expect("it opens");
        loop {
            let length = file.read(&mut buffer).expect("it can be read");
            if length == 0 {
                break;
            }
            std::hint::black_box(crc32c::crc32c(&buffer[..length]));
        }
    }
    watch.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn clean_at(kind: (Kind, &str), percent: u64, total_bytes: u64, rounds: u64) {
    let (kind, name) = kind;
    let (mut cleaned, mut read, mut synced, mut pass) = (Vec::new(), Vec::new(), Vec::new(), None);
    for _ in 0..rounds {
        let directory = BenchDir::new("cleaner");
        let engine = open(&directory.path().join("engine"));
        let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
        let partition = topic(&engine, "compacted", &settings);
        let mut records = Records::new(kind, total_bytes, percent);
        let record_count = total_bytes / RECORD_BYTES as u64;
        let dirty_count = if kind == Kind::MostlyClean { record_count / 10 } else { record_count };
        if record_count > dirty_count {
            fill(&engine, &partition, &mut records, record_count - dirty_count);
            engine.cleaner().clean_partition(&partition).expect("it is clean now");
        }
        fill(&engine, &partition, &mut records, dirty_count);
        let log = directory.path().join("engine/log");
        read_and_sum(&log);
        read.push(read_and_sum(&log));
        let watch = Stopwatch::start();
        let done = engine.cleaner().clean_partition(&partition).expect("it is clean now");
        cleaned.push(watch.elapsed());
        engine.sync().expect("it is synced");
        synced.push(watch.elapsed());
        pass = done;
    }
    let pass = pass.expect("a pass was due");
    let (cleaned, read, synced) = (median(cleaned), median(read), median(synced));
    println!(
        "{percent:>3} % duplicates{name}: {:>5.0} MB/s ({cleaned:.2?}, synced after {synced:.2?}), \
         reading and summing {read:.2?}, ratio {:.2}; {} keys, {} MB read, {} MB written",
        total_bytes as f64 / 1e6 / cleaned.as_secs_f64(),
        read.as_secs_f64() / cleaned.as_secs_f64(),
        pass.key_count,
        pass.read_bytes / 1_000_000,
        pass.written_bytes / 1_000_000,
    );
}

/// Appends until it is told to end; the latencies of all appends.
fn append_until(
    engine: &Engine,
    partition: &Partition,
    is_over: impl Fn() -> bool,
) -> Vec<Duration> {
    let pool = batches(16, 64, RECORD_BYTES);
    let mut latencies = Vec::new();
    while !is_over() {
        let watch = Stopwatch::start();
        let mut append = engine.append_transaction();
        let batch = pool[latencies.len() % pool.len()].clone();
        append.batch(partition, batch).expect("the batch is good");
        append.commit(Durability::Buffered).expect("it is committed");
        latencies.push(watch.elapsed());
    }
    latencies.sort_unstable();
    latencies
}

fn appends_beside(percent: u64, total_bytes: u64) {
    let directory = BenchDir::new("cleaner");
    let engine = open(&directory.path().join("engine"));
    let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
    let compacted = topic(&engine, "compacted", &settings);
    let appended = topic(&engine, "appended", &[]);
    let mut records = Records::new(Kind::Plain, total_bytes, percent);
    fill(&engine, &compacted, &mut records, total_bytes / RECORD_BYTES as u64);
    let watch = Stopwatch::start();
    let alone = append_until(&engine, &appended, || watch.elapsed() >= ALONE);
    let alone_time = watch.elapsed();
    let is_over = AtomicBool::new(false);
    let (beside, beside_time) = std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| {
            engine.cleaner().clean_partition(&compacted).expect("it is clean now");
            is_over.store(true, Ordering::SeqCst);
        });
        let watch = Stopwatch::start();
        let beside = append_until(&engine, &appended, || is_over.load(Ordering::SeqCst));
        cleaner.join().expect("the cleaner ends");
        (beside, watch.elapsed())
    });
    let rate = |latencies: &[Duration], time: Duration| latencies.len() as f64 / time.as_secs_f64();
    let (p99_alone, p99_beside) = (percentile(&alone, 0.99), percentile(&beside, 0.99));
    println!(
        "{percent:>3} % duplicates, appends of 64 KiB beside: rate {:.2} of alone, \
         p99 {p99_beside:.0?} against {p99_alone:.0?}",
        rate(&beside, beside_time) / rate(&alone, alone_time),
    );
}

fn main() {
    let total_bytes = env_u64("TIDELOG_BENCH_BYTES", 256 << 20);
    let rounds = env_u64("TIDELOG_BENCH_ROUNDS", 3).max(1);
    println!(
        "{} MiB of records of {RECORD_BYTES} bytes in batches of {RECORDS_PER_BATCH}, one thread, \
         warm, median of {rounds}",
        total_bytes >> 20
    );
    let only = env_u64("TIDELOG_BENCH_DUPLICATES", u64::MAX);
    let chosen = || DUPLICATES.iter().filter(|&&percent| only == u64::MAX || percent == only);
    let clean = |kind, &percent: &u64| clean_at(kind, percent, total_bytes, rounds);
    chosen().for_each(|percent| clean((Kind::Plain, ""), percent));
    if env_u64("TIDELOG_BENCH_KINDS", 1) > 0 {
        KINDS.iter().for_each(|kind| chosen().for_each(|percent| clean(*kind, percent)));
    }
    if env_u64("TIDELOG_BENCH_BESIDE", 1) > 0 {
        chosen().for_each(|&percent| appends_beside(percent, total_bytes));
    }
}
