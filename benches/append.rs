//! Appends: one transaction over four partitions, by batch size, buffered and synced, beside a bare append.
//!
//! Figures are for batches with the record size in the name; throughput is in payload bytes.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use support::{Bare, BenchDir, batches};
use tidelog::{Durability, Engine, EngineConfig, Partition, TopicConfig};

const PARTITIONS: usize = 4;

/// Records in a batch and bytes in a record's value.
const SHAPES: &[(usize, usize)] = &[(1, 1024), (64, 1024), (640, 100)];

fn append_ours(
    engine: &Engine,
    partitions: &[Partition],
    pool: &[Bytes],
    next: &mut usize,
    durability: Durability,
) {
    let mut append = engine.append_transaction();
    for partition in partitions {
        append.batch(partition, pool[*next % pool.len()].clone()).expect("the batch is valid");
        *next += 1;
    }
    append.commit(durability).expect("it is committed");
}

type Group<'a> = BenchmarkGroup<'a, criterion::measurement::WallTime>;

fn compare(group: &mut Group<'_>, directory: &BenchDir, synced: bool) {
    let durability = if synced { Durability::Sync } else { Durability::Buffered };
    for &(record_count, record_bytes) in SHAPES {
        let pool = batches(64, record_count, record_bytes);
        let shape = format!("{record_count}x{record_bytes}B");
        let bytes: usize = pool[..PARTITIONS].iter().map(Bytes::len).sum();
        group.throughput(Throughput::Bytes(bytes as u64));
        let mut bare = Bare::create(&directory.path().join(format!("bare-{shape}-{synced}")));
        let mut next = 0;
        group.bench_function(BenchmarkId::new("bare", &shape), |bencher| {
            bencher.iter(|| {
                let chosen: Vec<_> =
                    (0..PARTITIONS).map(|i| &pool[(next + i) % pool.len()]).collect();
                next += PARTITIONS;
                if synced { bare.append_synced(&chosen) } else { bare.append(&chosen) }
            });
        });
        drop(bare);
        let path = directory.path().join(format!("engine-{shape}-{synced}"));
        let engine = Engine::open(&path, EngineConfig::default()).expect("the engine opens");
        let config = TopicConfig::new(PARTITIONS as u32);
        let partitions = engine.create_topic("bench", config).expect("it is made").partitions();
        group.bench_function(BenchmarkId::new("tidelog", &shape), |bencher| {
            bencher.iter(|| append_ours(&engine, &partitions, &pool, &mut next, durability));
        });
        engine.close().expect("it closes");
        std::fs::remove_dir_all(&path).expect("it can be removed");
    }
}

fn many_partitions(criterion: &mut Criterion, directory: &BenchDir) {
    let mut group = criterion.benchmark_group("append/one partition of many");
    group.throughput(Throughput::Elements(1)).measurement_time(Duration::from_secs(2));
    let pool = batches(64, 1, 1024);
    for partition_count in [1, 10_000] {
        let path = directory.path().join(format!("many-{partition_count}"));
        let engine = Engine::open(&path, EngineConfig::default()).expect("the engine opens");
        let topic = engine.create_topic("bench", TopicConfig::new(partition_count));
        let partitions = topic.expect("it is made").partitions();
        for partition in &partitions {
            append_ours(
                &engine,
                std::slice::from_ref(partition),
                &pool,
                &mut 0,
                Durability::Buffered,
            );
        }
        let mut next = 0;
        group.bench_function(BenchmarkId::from_parameter(partition_count), |bencher| {
            bencher.iter(|| {
                append_ours(&engine, &partitions[..1], &pool, &mut next, Durability::Buffered);
            });
        });
        engine.close().expect("it closes");
    }
    group.finish();
}

fn main() {
    let directory = BenchDir::new("append");
    println!("{}", directory.describe());
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1200))
        .configure_from_args();
    let mut group = criterion.benchmark_group("append/buffered");
    compare(&mut group, &directory, false);
    group.finish();
    if directory.is_in_memory() {
        println!("no figures for synced appends: a sync of a file in memory says nothing");
    } else {
        let mut group = criterion.benchmark_group("append/synced");
        compare(&mut group, &directory, true);
        group.finish();
    }
    many_partitions(&mut criterion, &directory);
    criterion.final_summary();
}
