//! Appends beside cleaning and relocation against appends alone, in one run; what space takes to come back.
//!
//! `cargo bench --bench maintenance`; the environment sets:
//!
//! - `TIDELOG_BENCH_DIR`: where to write (default: the system's temporary directory)
//! - `TIDELOG_BENCH_BYTES`: bytes to clean, and as many to delete most of (default: 256 MiB)
//! - `TIDELOG_BENCH_ROUNDS`: how often it is measured (default: 5)
//!
//! One thread appends batches of 64 records of 1 KiB, buffered, as fast as it can; the engine has
//! its own threads, and its own rates for what it does beside. What is appended goes by size. First
//! nothing else is to be done. Then a compacted topic, half of whose records are superseded, is to
//! be cleaned, and four fifths of another two are deleted that share their segments, so that the
//! rest has to be moved.

#[path = "support/mod.rs"]
mod support;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use support::{BenchDir, Stopwatch, batches, env_u64, percentile};
use tidelog::config::EngineConfig;
use tidelog::record::BatchBuilder;
use tidelog::{Durability, Engine, Metrics, Partition, Record, TopicConfig};

const RECORD_BYTES: usize = 1024;
const RECORDS_PER_BATCH: usize = 64;
const SEGMENT_BYTES: u64 = 64 << 20;

/// How many times the bytes that are cleaned are appended before, with nothing beside.
const ALONE: u64 = 12;

/// Longer than any machine needs to give the space back.
const LONGEST: Duration = Duration::from_secs(120);

fn open(directory: &Path) -> Engine {
    let config = EngineConfig::default()
        .segment_bytes(SEGMENT_BYTES)
        .maintenance_interval_ms(100)
        .disk_reserve_bytes(0);
    let builder = Engine::builder(directory).config(config);
    #[cfg(all(not(feature = "rocksdb"), feature = "test-util"))]
    let builder = builder.store(std::sync::Arc::new(tidelog::testing::MemoryDisk::new()));
    builder.open().expect("the engine opens")
}

fn topic(engine: &Engine, name: &str, settings: &[(&str, &str)]) -> Partition {
    let mut config = TopicConfig::new(1);
    for (name, value) in settings {
        config = config.set(name, value).expect("it is legal");
    }
    let topic = engine.create_topic(name, config).expect("it is made");
    topic.partition(0).expect("it has a partition")
}

fn append(engine: &Engine, partition: &Partition, batch: &Bytes) {
    let mut append = engine.append_transaction();
    append.batch(partition, batch.clone()).expect("the batch is good");
    append.commit(Durability::Buffered).expect("it is committed");
}

/// Batches of so many bytes in all, in which each key comes about twice.
fn fill_compacted(engine: &Engine, partition: &Partition, total_bytes: u64) {
    let record_count = total_bytes / RECORD_BYTES as u64;
    let mut state = 1u64;
    for _ in 0..record_count / 16 {
        let mut builder = BatchBuilder::new();
        for _ in 0..16 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (state >> 33) % (record_count / 2);
            let value = state.to_le_bytes().repeat(RECORD_BYTES / 8);
            let record = Record::new(format!("key-{key:012}"), value);
            builder.push(&record.timestamp(1_700_000_000_000)).expect("the batch is small");
        }
        append(engine, partition, &builder.finish().expect("it has records"));
    }
}

/// Appends to one partition until it is told to end; the latencies, and how long it took.
fn measure(
    engine: &Engine,
    partition: &Partition,
    pool: &[Bytes],
    is_over: impl Fn(u64) -> bool,
) -> (Vec<Duration>, Duration) {
    let mut latencies = Vec::new();
    let watch = Stopwatch::start();
    let mut bytes = 0;
    while !is_over(bytes) {
        let batch = &pool[latencies.len() % pool.len()];
        let one = Stopwatch::start();
        append(engine, partition, batch);
        latencies.push(one.elapsed());
        bytes += batch.len() as u64;
    }
    let took = watch.elapsed();
    latencies.sort_unstable();
    (latencies, took)
}

/// What one round found.
struct Round {
    alone_per_s: f64,
    beside_per_s: f64,
    p99_alone: Duration,
    p99_beside: Duration,
    longest_beside: Duration,
    back_after: Duration,
    beside_bytes: u64,
    metrics: Metrics,
}

/// Whether all was cleaned and moved once.
fn is_done(metrics: &Metrics) -> bool {
    metrics.cleaner_passes > 0 && metrics.relocated_bytes > 0 && metrics.unmoved_batches == 0
}

/// Whether the log takes no more than it should after a minute of idling.
fn has_come_back(metrics: &Metrics) -> bool {
    let bound = metrics.live_bytes * 13 / 10 + 2 * SEGMENT_BYTES;
    is_done(metrics) && metrics.log_size_bytes <= bound
}

fn round(total_bytes: u64, pool: &[Bytes]) -> Round {
    let directory = BenchDir::new("maintenance");
    let engine = open(&directory.path().join("engine"));
    let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];
    let compacted = topic(&engine, "compacted", &settings);
    let forever = ("retention.ms", "-1");
    let [gone, kept] = ["gone", "kept"].map(|name| topic(&engine, name, &[forever]));
    // What is appended meanwhile goes by size, in whole segments, so that it takes no part in this.
    let appended = topic(&engine, "appended", &[forever, ("retention.bytes", "1073741824")]);
    let pause = engine.cleaner().pause();
    fill_compacted(&engine, &compacted, total_bytes);
    let batch_count = total_bytes / pool[0].len() as u64;
    for index in 0..batch_count {
        let partition = if index % 5 == 0 { &kept } else { &gone };
        append(&engine, partition, &pool[index as usize % pool.len()]);
    }
    engine.maintenance().checkpoint().expect("it is taken");
    // As long as the work beside will take, about: a few bytes would only fill the system's cache.
    let alone_bytes = total_bytes * ALONE;
    let (alone, alone_time) = measure(&engine, &appended, pool, |bytes| bytes >= alone_bytes);
    engine.sync().expect("it is synced");

    let began = Stopwatch::start();
    let before = engine.metrics();
    let deleted = engine.delete_records(&gone, tidelog::OffsetTarget::HighWatermark);
    deleted.expect("they are deleted");
    drop(pause);
    let (beside, beside_time) = measure(&engine, &appended, pool, |bytes| {
        assert!(began.elapsed() < LONGEST, "space does not come back");
        // Looked at now and then: it adds up all partitions.
        bytes % (64 << 20) < pool[0].len() as u64 && is_done(&engine.metrics())
    });
    let idle = Stopwatch::start();
    while !has_come_back(&engine.metrics()) {
        assert!(idle.elapsed() < LONGEST, "space does not come back");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let back_after = began.elapsed();
    let metrics = engine.metrics();
    let rate = |latencies: &[Duration], time: Duration| latencies.len() as f64 / time.as_secs_f64();
    Round {
        alone_per_s: rate(&alone, alone_time),
        beside_per_s: rate(&beside, beside_time),
        p99_alone: percentile(&alone, 0.99),
        p99_beside: percentile(&beside, 0.99),
        longest_beside: percentile(&beside, 1.0),
        back_after,
        beside_bytes: metrics.appended_bytes - before.appended_bytes,
        metrics,
    }
}

fn main() {
    let total_bytes = env_u64("TIDELOG_BENCH_BYTES", 256 << 20);
    let rounds = env_u64("TIDELOG_BENCH_ROUNDS", 5).max(1);
    let pool = batches(64, RECORDS_PER_BATCH, RECORD_BYTES);
    println!(
        "{}; {} MiB to clean and as many to delete four fifths of; appends of {RECORDS_PER_BATCH} \
         records of {RECORD_BYTES} bytes, buffered, one thread",
        BenchDir::new("maintenance").describe(),
        total_bytes >> 20
    );
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let found = round(total_bytes, &pool);
        let metrics = &found.metrics;
        let rate_ratio = found.beside_per_s / found.alone_per_s;
        let p99_ratio = found.p99_beside.as_secs_f64() / found.p99_alone.as_secs_f64();
        println!(
            "beside cleaning and relocation: {:.0} appends/s, {rate_ratio:.2} of {:.0} alone; \
             p99 {:.0?} against {:.0?} \
             ({p99_ratio:.1} times), longest {:.1?}; space was back after {:.1?} and {} MB \
             appended: {} MB moved, {} MB cleaned, {} MB freed",
            found.beside_per_s,
            found.alone_per_s,
            found.p99_beside,
            found.p99_alone,
            found.longest_beside,
            found.back_after,
            found.beside_bytes / 1_000_000,
            metrics.relocated_bytes / 1_000_000,
            metrics.cleaner_written_bytes / 1_000_000,
            metrics.freed_bytes / 1_000_000,
        );
        ratios.push((rate_ratio, p99_ratio));
    }
    let mut of = |pick: fn(&(f64, f64)) -> f64| {
        ratios.sort_by(|a, b| pick(a).total_cmp(&pick(b)));
        pick(&ratios[ratios.len() / 2])
    };
    let (rate, p99) = (of(|ratio| ratio.0), of(|ratio| ratio.1));
    println!("median of {rounds}: rate {rate:.2} of alone, p99 {p99:.1} times");
}
