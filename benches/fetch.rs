//! Fetches: whole batches as they go to the wire, and the records in them, from a log that was just written.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use support::{BenchDir, batches};
use tidelog::{
    Durability, Engine, EngineConfig, FetchOptions, Isolation, OffsetQuery, Partition, TopicConfig,
    Visibility,
};

const FETCH_BYTES: u64 = 1 << 20;
const LOG_BYTES: u64 = 64 << 20;

/// Records in a batch and bytes in a record's value.
const SHAPES: &[(usize, usize)] = &[(1, 1024), (64, 1024), (640, 100)];

fn fill(engine: &Engine, partition: &Partition, record_count: usize, record_bytes: usize) {
    let pool = batches(64, record_count, record_bytes);
    let mut written = 0;
    for batch in pool.iter().cycle() {
        let mut append = engine.append_transaction();
        append.batch(partition, batch.clone()).expect("the batch is valid");
        append.commit(Durability::Buffered).expect("it is committed");
        written += batch.len() as u64;
        if written >= LOG_BYTES {
            break;
        }
    }
    engine.maintenance().checkpoint().expect("a checkpoint is taken");
}

/// The first batch of a partition that was never trimmed, and of one behind many trims.
fn first_batch(criterion: &mut Criterion, engine: &Engine) {
    const BATCHES: i64 = 200_000;
    let mut group = criterion.benchmark_group("first batch");
    let batch = batches(1, 1, 100).remove(0);
    for (name, trims) in [("fresh", 0), ("behind 100 trims and a large one", 100)] {
        let topic = engine.create_topic(name.replace(' ', "-"), TopicConfig::new(1));
        let partition = topic.expect("it is made").partition(0).expect("it has one");
        let count = if trims == 0 { 1000 } else { BATCHES };
        for _ in 0..count {
            let mut append = engine.append_transaction();
            append.batch(&partition, batch.clone()).expect("the batch is valid");
            append.commit(Durability::Buffered).expect("it is committed");
        }
        for trim in 0..trims {
            engine.delete_records(&partition, trim * 10 + 10).expect("they are deleted");
        }
        if trims > 0 {
            engine.delete_records(&partition, BATCHES - 1000).expect("they are deleted");
        }
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let start = engine.watermarks(&partition).expect("it is there").log_start;
                engine.fetch(&partition, start, FetchOptions::new().max_bytes(1)).map(|_| ())
            });
        });
    }
    group.finish();
}

fn main() {
    let directory = BenchDir::new("fetch");
    println!("{}", directory.describe());
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let engine = Engine::open(directory.path().join("engine"), EngineConfig::default());
    let engine = engine.expect("the engine opens");
    let options = FetchOptions::new().max_bytes(FETCH_BYTES);
    for &(record_count, record_bytes) in SHAPES {
        let shape = format!("{record_count}x{record_bytes}B");
        let topic = engine.create_topic(&shape, TopicConfig::new(1)).expect("it is made");
        let partition = topic.partition(0).expect("it has one");
        fill(&engine, &partition, record_count, record_bytes);
        let end = engine.watermarks(&partition).expect("it is there").log_end;
        let probe = engine.fetch(&partition, 0, options).expect("it is readable");
        let mut group = criterion.benchmark_group("fetch");
        group.throughput(Throughput::Bytes(probe.bytes.len() as u64));
        let mut offset = 0;
        let mut fetch_next = || {
            let fetched = engine.fetch(&partition, offset, options).expect("it is readable");
            offset = if fetched.next_offset >= end { 0 } else { fetched.next_offset };
            fetched
        };
        group.bench_function(BenchmarkId::new("batches", &shape), |bencher| {
            bencher.iter(&mut fetch_next);
        });
        group.throughput(Throughput::Elements(probe.records().count() as u64));
        group.bench_function(BenchmarkId::new("records", &shape), |bencher| {
            bencher.iter(|| fetch_next().records().filter(Result::is_ok).count());
        });
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("offset by timestamp", &shape), |bencher| {
            let query = OffsetQuery::Timestamp(1_700_000_000_000);
            let (isolation, visibility) = (Isolation::Committed, Visibility::Applied);
            bencher.iter(|| engine.list_offset(&partition, query, isolation, visibility));
        });
        group.finish();
    }
    first_batch(&mut criterion, &engine);
    engine.close().expect("it closes");
    criterion.final_summary();
}
