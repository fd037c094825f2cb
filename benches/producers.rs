//! What producers cost: idempotent appends beside plain ones, the end of a large transaction, many live producer ids.
//!
//! Plain and idempotent appends take turns in the same engine, one batch a commit, buffered, one
//! thread; the batches are encoded beforehand, as clients do. Ratios are of medians.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use support::{BenchDir, Stopwatch, env_u64, resident_mib};
use tidelog::record::BatchBuilder;
use tidelog::{Durability, Engine, EngineConfig, Partition, Record, TopicConfig};

/// So many batches of so many records of 1 KiB, of a producer that begins here, or of none.
fn encode(count: usize, records: usize, producer: Option<(i64, &mut i32)>) -> Vec<Bytes> {
    let value = vec![b'v'; 1024 - 16];
    let mut producer = producer;
    let batches = (0..count).map(|_| {
        let mut builder = BatchBuilder::new();
        if let Some((id, sequence)) = &mut producer {
            builder = builder.producer(*id, 0, **sequence);
            **sequence += records as i32;
        }
        for _ in 0..records {
            builder.push(&Record::keyless(value.clone()).timestamp(1)).expect("it is small");
        }
        builder.finish().expect("there is a record")
    });
    batches.collect()
}

/// What a turn took: by the clock, and of the processor on this thread, undisturbed by others.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    cpu: f64,
}

/// The seconds that this thread has run for.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map_or(f64::NAN, |nanoseconds| nanoseconds / 1e9)
}

fn append_all(engine: &Engine, partition: &Partition, batches: &[Bytes]) -> Took {
    let (watch, cpu) = (Stopwatch::start(), cpu_seconds());
    for batch in batches {
        let mut append = engine.append_transaction();
        append.batch(partition, batch.clone()).expect("the batch is good");
        append.commit(Durability::Buffered).expect("it is committed");
    }
    Took { wall: watch.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu }
}

fn median(times: impl IntoIterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.into_iter().collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn idempotent_beside_plain(engine: &Engine, records: usize, count: usize, turns: u64) {
    let config = TopicConfig::new(2).set("message.timestamp.before.max.ms", "9223372036854775807");
    let name = format!("batches-{records}");
    let topic = engine.create_topic(&name, config.expect("legal")).expect("it is made");
    let [plain, idempotent] = [0, 1].map(|index| topic.partition(index).expect("it has two"));
    let producer_id = engine.producers().new_id().expect("an id");
    let (mut sequence, mut of_plain, mut of_idempotent) = (0, Vec::new(), Vec::new());
    for turn in 0..turns {
        let ours = encode(count, records, Some((producer_id, &mut sequence)));
        let others = encode(count, records, None);
        // Whoever comes second finds another machine: they change places.
        if turn % 2 == 0 {
            of_plain.push(append_all(engine, &plain, &others));
            of_idempotent.push(append_all(engine, &idempotent, &ours));
        } else {
            of_idempotent.push(append_all(engine, &idempotent, &ours));
            of_plain.push(append_all(engine, &plain, &others));
        }
    }
    let wall = |of: &[Took]| median(of.iter().map(|took| took.wall));
    let cpu = |of: &[Took]| median(of.iter().map(|took| took.cpu));
    println!(
        "batches of {records} records of 1 KiB: plain {:.0}/s, idempotent {:.0}/s, ratio {:.3}; by \
         the processor's time {:.1} and {:.1} us each, ratio {:.3}",
        count as f64 / wall(&of_plain),
        count as f64 / wall(&of_idempotent),
        wall(&of_plain) / wall(&of_idempotent),
        cpu(&of_plain) / count as f64 * 1e6,
        cpu(&of_idempotent) / count as f64 * 1e6,
        cpu(&of_plain) / cpu(&of_idempotent),
    );
}

fn end_over_partitions(engine: &Engine, partition_count: u32) {
    let topic = engine.create_topic("hundred", TopicConfig::new(partition_count));
    let partitions = topic.expect("it is made").partitions();
    let minute = Duration::from_secs(60);
    let mut producer = engine.producers().transactional("bench", minute).expect("an id");
    let mut times = Vec::new();
    let before = engine.metrics();
    let turns = 50;
    for _ in 0..turns {
        let mut transaction = producer.begin();
        let records = partitions.iter().map(|partition| (partition, vec![Record::keyless("v")]));
        transaction.append(records).expect("it is appended");
        let watch = Stopwatch::start();
        transaction.commit().expect("it is committed");
        times.push(watch.elapsed().as_secs_f64());
    }
    let commits = engine.metrics().commits - before.commits;
    println!(
        "a transaction over {partition_count} partitions ends in {:.0} us; {:.2} commits a \
         transaction: one adds, one appends, one ends",
        median(times) * 1e6,
        commits as f64 / f64::from(turns)
    );
}

fn many_ids(directory: &BenchDir, id_count: u64) {
    let path = directory.path().join("ids");
    let open = || Engine::open(&path, EngineConfig::default()).expect("the engine opens");
    let engine = open();
    let topic = engine.create_topic("ids", TopicConfig::new(1)).expect("it is made");
    let partition = topic.partition(0).expect("it has one");
    engine.maintenance().checkpoint().expect("the disk is good");
    let before = resident_mib();
    for id in 0..id_count as i64 {
        let mut sequence = 0;
        let batches = encode(5, 1, Some((id, &mut sequence)));
        let mut append = engine.append_transaction();
        for batch in batches {
            append.batch(&partition, batch).expect("the batch is good");
        }
        append.commit(Durability::Buffered).expect("it is committed");
    }
    engine.maintenance().checkpoint().expect("the disk is good");
    let after = resident_mib();
    println!("{id_count} live producer ids, five batches each: {:.0} MiB more", after - before);
    engine.close().expect("it closes");
    let watch = Stopwatch::start();
    let engine = open();
    let with_ids = watch.elapsed();
    assert_eq!(engine.metrics().producer_count, id_count);
    engine.delete_topic("ids").expect("it is there");
    engine.close().expect("it closes");
    let watch = Stopwatch::start();
    let engine = open();
    println!("opening: {with_ids:.0?} with them, {:.0?} without", watch.elapsed());
    engine.close().expect("it closes");
}

fn main() {
    let directory = BenchDir::new("producers");
    println!("{}", directory.describe());
    many_ids(&directory, env_u64("TIDELOG_BENCH_IDS", 100_000));
    let turns = env_u64("TIDELOG_BENCH_TURNS", 7);
    let path = directory.path().join("engine");
    // Nothing is to be removed, so no round is needed; checkpoints come when they are due.
    let config = EngineConfig::default().maintenance_interval_ms(3_600_000);
    let engine = Engine::open(&path, config).expect("the engine opens");
    idempotent_beside_plain(&engine, 64, 2_000, turns);
    idempotent_beside_plain(&engine, 1, 100_000, turns);
    end_over_partitions(&engine, 100);
    engine.close().expect("it closes");
}
