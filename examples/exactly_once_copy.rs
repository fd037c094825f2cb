//! Reads, transforms and writes: what was read, and what came of it, are committed as one.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tidelog::{Durability, Engine, EngineConfig, Record, Topic, TopicConfig};

/// Copies what is new, in capitals. Returns how many records that were.
fn copy(engine: &Engine, from: &Topic, to: &Topic) -> Result<usize, Box<dyn Error>> {
    // Whoever else holds the id is fenced: there is one copier, whatever is started twice.
    let mut producer = engine.producers().transactional("copier", Duration::from_secs(60))?;
    let mut consumer = engine.consumer("copier", from)?;
    let mut count = 0;
    loop {
        let found = consumer.poll(Duration::ZERO)?;
        if found.is_empty() {
            return Ok(count);
        }
        let target = to.partition(0)?;
        let capitals = found.iter().map(|found| {
            let value = found.record.value.as_deref().unwrap_or_default();
            Record::keyless(value.to_ascii_uppercase())
        });
        let mut transaction = producer.begin();
        transaction.append([(&target, capitals.collect())])?;
        transaction.send_offsets(consumer.group(), consumer.uncommitted())?;
        if let Err(error) = transaction.commit() {
            // Nothing of it is there. One who is fenced must end; else it may be tried again.
            return Err(if error.is_fenced() {
                "another copier runs".into()
            } else {
                error.into()
            });
        }
        consumer.note_committed();
        count += found.len();
    }
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let engine = Engine::open(directory, EngineConfig::default())?;
    let from = engine.open_or_create_topic("words", TopicConfig::new(2))?;
    let to = engine.open_or_create_topic("capitals", TopicConfig::new(1))?;
    let mut append = engine.append_transaction();
    for partition in from.partitions() {
        append.records(&partition, ["one", "two"].map(Record::keyless))?;
    }
    append.commit(Durability::Sync)?;
    let copied = copy(&engine, &from, &to)?;
    println!("{copied} records were copied, each of them once");
    assert_eq!(copied, 4);
    assert_eq!(copy(&engine, &from, &to)?, 0);
    engine.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-copy-{}", std::process::id()));
    run(&directory)?;
    run(&directory)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
