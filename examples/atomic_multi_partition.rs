//! One append transaction over several partitions: all of it is there after a reopen, in one piece.

use std::error::Error;

use tidelog::{Durability, Engine, EngineConfig, FetchOptions, Partitioner, Record, TopicConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-demo-{}", std::process::id()));
    println!("an engine in {}", directory.display());
    let engine = Engine::open(&directory, EngineConfig::default())?;
    let orders = engine.create_topic("orders", TopicConfig::new(3))?;
    let audit = engine.create_topic("audit", TopicConfig::new(1))?;

    // Where librdkafka's default partitioner would put the same keys.
    let mut append = engine.append_transaction();
    for customer in ["customer-1", "customer-2", "customer-3"] {
        let home = Partitioner::Crc32Random.partition(Some(customer.as_bytes()), 3);
        let order = Record::new(customer, "{\"item\":7}").header("source", "demo");
        append.records(&orders.partition(home)?, [order])?;
    }
    append.records(&audit.partition(0)?, [Record::keyless("three orders came in")])?;
    println!("committing {} batches as one", append.batch_count());
    let committed = append.commit(Durability::Sync)?;
    assert_eq!(committed.batches.len(), 4);

    // A transaction that is dropped leaves no trace.
    let mut abandoned = engine.append_transaction();
    abandoned.records(&orders.partition(0)?, [Record::keyless("never seen")])?;
    drop(abandoned);
    engine.close()?;

    let engine = Engine::open(&directory, EngineConfig::default())?;
    let mut record_count = 0;
    for topic in engine.topics().list() {
        for partition in topic.partitions() {
            let fetched = engine.fetch(&partition, 0, FetchOptions::new())?;
            for record in fetched.records() {
                let record = record?;
                let text = |field: Option<&[u8]>| {
                    field.map_or("null".into(), |field| String::from_utf8_lossy(field).into_owned())
                };
                println!(
                    "{partition} offset {}: {} = {}",
                    record.offset,
                    text(record.key.as_deref()),
                    text(record.value.as_deref())
                );
                record_count += 1;
            }
        }
    }
    assert_eq!(record_count, 4);
    println!("all 4 records are there after a reopen: {}", engine.verify()?);
    engine.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
