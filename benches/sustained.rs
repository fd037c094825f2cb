//! Sustained buffered appends against a bare append of the same bytes, in turns, in one run.
//!
//! Both sum every batch with CRC-32C, and both sync in the background every 16 MiB and wait above
//! 64 MiB unsynced. `cargo bench --bench sustained`; the environment sets:
//!
//! - `TIDELOG_BENCH_DIR`: where to write (default: the system's temporary directory)
//! - `TIDELOG_BENCH_BYTES`: payload bytes of each side (default: 1 GiB, which memory may hide)
//! - `TIDELOG_BENCH_RECORD_BYTES`: bytes of a record's value (default: 1024)
//! - `TIDELOG_BENCH_ROUNDS`: turns that each side takes (default: 5)

#[path = "support/mod.rs"]
mod support;

use std::path::Path;
use std::time::Duration;

use support::{Bare, BenchDir, Stopwatch, batches, env_u64, percentile};
use tidelog::config::EngineConfig;
use tidelog::{Durability, Engine, TopicConfig};

const PARTITIONS: usize = 4;
const RECORDS_PER_BATCH: usize = 64;

/// What one side did in all its turns.
#[derive(Default)]
struct Side {
    payload_bytes: u64,
    time: Duration,
    turns_mb_s: Vec<f64>,
    latencies: Vec<Duration>,
}

impl Side {
    fn turn(&mut self, payload_bytes: u64, time: Duration) {
        self.payload_bytes += payload_bytes;
        self.time += time;
        self.turns_mb_s.push(payload_bytes as f64 / 1e6 / time.as_secs_f64());
    }

    fn report(&mut self, name: &str) -> f64 {
        self.latencies.sort_unstable();
        self.turns_mb_s.sort_by(f64::total_cmp);
        let median = self.turns_mb_s[self.turns_mb_s.len() / 2];
        println!(
            "{name}: median {median:.0} MB/s of turns {:.0?}, p50 {:.0?} p99 {:.0?} longest {:.1?}",
            self.turns_mb_s,
            percentile(&self.latencies, 0.50),
            percentile(&self.latencies, 0.99),
            percentile(&self.latencies, 1.0),
        );
        median
    }
}

fn main() {
    let directory = BenchDir::new("sustained");
    let total_bytes = env_u64("TIDELOG_BENCH_BYTES", 1 << 30);
    let record_bytes = env_u64("TIDELOG_BENCH_RECORD_BYTES", 1024) as usize;
    let rounds = env_u64("TIDELOG_BENCH_ROUNDS", 5).max(1);
    println!(
        "{}; {PARTITIONS} batches of {RECORDS_PER_BATCH} records of {record_bytes} bytes a \
         transaction, buffered, one thread, {:.1} GiB a side in {rounds} turns",
        directory.describe(),
        total_bytes as f64 / (1u64 << 30) as f64
    );
    let pool = batches(64, RECORDS_PER_BATCH, record_bytes);
    let turn_bytes = total_bytes / rounds;
    let (mut ours, mut bare) = (Side::default(), Side::default());
    let engine = Engine::open(directory.path().join("engine"), EngineConfig::default())
        .expect("the engine opens");
    let topic = engine.create_topic("bench", TopicConfig::new(PARTITIONS as u32)).expect("created");
    let partitions = topic.partitions();
    let mut file = Bare::create(&directory.path().join("bare"));
    let mut next = 0;
    for _ in 0..rounds {
        let watch = Stopwatch::start();
        let mut written = 0;
        while written < turn_bytes {
            let chosen: Vec<_> = (0..PARTITIONS).map(|i| &pool[(next + i) % pool.len()]).collect();
            next += PARTITIONS;
            let one = Stopwatch::start();
            file.append(&chosen);
            bare.latencies.push(one.elapsed());
            written += chosen.iter().map(|batch| batch.len() as u64).sum::<u64>();
        }
        file.sync();
        bare.turn(written, watch.elapsed());

        let watch = Stopwatch::start();
        let mut written = 0;
        while written < turn_bytes {
            let one = Stopwatch::start();
            let mut append = engine.append_transaction();
            for partition in &partitions {
                let batch = pool[next % pool.len()].clone();
                next += 1;
                append.batch(partition, batch).expect("the batch is valid");
            }
            written += append.size_bytes();
            append.commit(Durability::Buffered).expect("it is committed");
            ours.latencies.push(one.elapsed());
        }
        engine.sync().expect("it is synced");
        ours.turn(written, watch.elapsed());
    }
    let bare_mb_s = bare.report("bare append");
    let ours_mb_s = ours.report("tidelog    ");
    println!("ratio of medians: {:.3}", ours_mb_s / bare_mb_s);
    let metrics = engine.metrics();
    println!("{} checkpoints, {} syncs", metrics.checkpoints, metrics.syncs);
    engine.close().expect("it closes");
    let stored = stored_bytes(&directory.path().join("engine"));
    println!("stored bytes per payload byte: {:.4}", stored as f64 / ours.payload_bytes as f64);
}

/// Bytes of all files below a directory.
fn stored_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("the directory is there");
    let sizes = entries.map(|entry| {
        let entry = entry.expect("the entry is readable");
        let metadata = entry.metadata().expect("the entry is there");
        if metadata.is_dir() { stored_bytes(&entry.path()) } else { metadata.len() }
    });
    sizes.sum()
}
