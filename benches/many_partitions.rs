//! What ten thousand partitions cost: time and resident memory to make, fill, reopen and read back.

#[path = "support/mod.rs"]
mod support;

use support::{BenchDir, Stopwatch, env_u64, resident_mib};
use tidelog::{Durability, Engine, EngineConfig, FetchOptions, Record, TopicConfig};

fn main() {
    let directory = BenchDir::new("many-partitions");
    let partition_count = env_u64("TIDELOG_BENCH_PARTITIONS", 10_000) as u32;
    println!("{}; {partition_count} partitions", directory.describe());
    let path = directory.path().join("engine");
    let open = || Engine::open(&path, EngineConfig::default()).expect("the engine opens");
    let tell = |what: &str, watch: &Stopwatch| {
        println!("{what}: {:.0?}, {:.0} MiB resident", watch.elapsed(), resident_mib());
    };
    let engine = open();
    tell("open, empty", &Stopwatch::start());

    let watch = Stopwatch::start();
    let topic = engine.create_topic("many", TopicConfig::new(partition_count)).expect("made");
    tell("create", &watch);

    let watch = Stopwatch::start();
    for partition in topic.partitions() {
        let mut append = engine.append_transaction();
        append.records(&partition, [Record::new("key", "value")]).expect("the record is good");
        append.commit(Durability::Buffered).expect("it is committed");
    }
    tell("append a record to each", &watch);

    let watch = Stopwatch::start();
    engine.close().expect("it closes");
    tell("close", &watch);

    let watch = Stopwatch::start();
    let engine = open();
    tell("open again", &watch);

    let watch = Stopwatch::start();
    let topic = engine.topic("many").expect("it is there");
    let mut record_count = 0;
    for partition in topic.partitions() {
        let fetched = engine.fetch(&partition, 0, FetchOptions::new()).expect("it is readable");
        record_count += fetched.records().filter(Result::is_ok).count();
    }
    assert_eq!(record_count, partition_count as usize);
    tell("read all back", &watch);
    engine.close().expect("it closes");
}
