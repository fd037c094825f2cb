//! An async service: tickets are futures, and a listener wakes a task. The engine needs no runtime.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use tidelog::{Durability, Engine, EngineConfig, FetchOptions, Partition, Record, TopicConfig};
use tokio::sync::Notify;

/// Appends without blocking the runtime: `submit` never waits, the ticket is awaited.
async fn append(engine: &Engine, to: &Partition, value: &str) -> Result<i64, Box<dyn Error>> {
    let mut append = engine.append_transaction();
    append.records(to, [Record::keyless(value.to_owned())])?;
    let committed = append.submit(Durability::Sync)?.await?;
    Ok(committed.batches[0].base_offset)
}

/// Reads the next records; waits for them without a thread.
async fn next(
    engine: &Engine,
    from: &Partition,
    offset: i64,
) -> Result<Vec<Record>, Box<dyn Error>> {
    let changed = Arc::new(Notify::new());
    let wake = Arc::clone(&changed);
    // A permit is kept for a commit that comes between the fetch and the wait.
    let _listening = engine.listen(std::slice::from_ref(from), move || wake.notify_one());
    loop {
        // A fetch reads the disk: a service with slow disks has `spawn_blocking` do it.
        let fetched = engine.fetch(from, offset, FetchOptions::new())?;
        let records = fetched.records().collect::<Result<Vec<_>, _>>()?;
        if !records.is_empty() {
            return Ok(records);
        }
        changed.notified().await;
    }
}

async fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let engine = Engine::open(directory, EngineConfig::default())?;
    let topic = engine.open_or_create_topic("events", TopicConfig::new(1))?;
    let partition = topic.partition(0)?;
    let end = engine.watermarks(&partition)?.log_end;
    let (appended, read) =
        tokio::join!(append(&engine, &partition, "hello"), next(&engine, &partition, end));
    let (offset, records) = (appended?, read?);
    println!("offset {offset}: {:?}", records[0].value);
    assert_eq!((records[0].offset, records.len()), (offset, 1));
    // Closing waits for the disk.
    tokio::task::spawn_blocking(move || engine.close()).await??;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-tokio-{}", std::process::id()));
    run(&directory).await?;
    run(&directory).await?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
