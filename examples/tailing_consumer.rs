//! A consumer that follows a topic, and goes on where it has committed when it is started again.

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tidelog::{Durability, Engine, EngineConfig, Record, Topic, TopicConfig};

/// Follows the topic until `wanted` records were read. Returns the offset of the first.
fn follow(engine: &Engine, topic: &Topic, wanted: usize) -> Result<i64, Box<dyn Error>> {
    let mut consumer = engine.consumer("printer", topic)?.max_bytes(64 << 10);
    let (mut first, mut count) = (None, 0);
    while count < wanted {
        // Waits while there is nothing; an empty answer only means that the time is over.
        for found in consumer.poll(Duration::from_secs(10))? {
            first.get_or_insert(found.record.offset);
            println!("{} {}: {:?}", found.partition, found.record.offset, found.record.value);
            count += 1;
        }
        // What was worked on is not read again. What is not committed is, after a crash.
        consumer.commit()?;
    }
    Ok(first.unwrap_or_default())
}

fn run(directory: &Path) -> Result<i64, Box<dyn Error>> {
    let engine = Engine::open(directory, EngineConfig::default())?;
    let topic = engine.open_or_create_topic("events", TopicConfig::new(1))?;
    let partition = topic.partition(0)?;
    let first = thread::scope(|scope| {
        let following =
            scope.spawn(|| follow(&engine, &topic, 3).map_err(|error| error.to_string()));
        for value in ["started", "working", "stopped"] {
            let mut append = engine.append_transaction();
            append.records(&partition, [Record::keyless(value)])?;
            append.commit(Durability::Buffered)?;
        }
        let first = following.join().map_err(|_| "the consumer has panicked")??;
        Ok::<i64, Box<dyn Error>>(first)
    })?;
    let committed = engine.group("printer").offset(&partition)?;
    println!("the group goes on at {:?}", committed.map(|found| found.offset));
    engine.close()?;
    Ok(first)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-tail-{}", std::process::id()));
    assert_eq!(run(&directory)?, 0);
    assert_eq!(run(&directory)?, 3, "the second run goes on where the first has ended");
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
