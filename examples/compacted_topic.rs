//! A topic as a table: the newest value of each key stays, a null value deletes its key.

use std::collections::BTreeMap;
use std::error::Error;

use tidelog::{
    Durability, Engine, EngineConfig, FetchOptions, Maintenance, Partition, Record, TopicConfig,
};

/// Reads the table that the topic holds.
fn table(
    engine: &Engine,
    partition: &Partition,
) -> Result<BTreeMap<String, String>, Box<dyn Error>> {
    let mut table = BTreeMap::new();
    let mut offset = engine.watermarks(partition)?.log_start;
    loop {
        let fetched = engine.fetch(partition, offset, FetchOptions::new())?;
        if fetched.bytes.is_empty() {
            return Ok(table);
        }
        for record in fetched.records() {
            let record = record?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let key = text(record.key.as_deref().unwrap_or_default());
            match record.value.as_deref() {
                Some(value) => table.insert(key, text(value)),
                None => table.remove(&key),
            };
        }
        offset = fetched.next_offset;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-table-{}", std::process::id()));
    let config = EngineConfig::default().maintenance(Maintenance::Manual);
    let engine = Engine::open(&directory, config)?;
    let prices = TopicConfig::new(1).set("cleanup.policy", "compact")?;
    let partition = engine.create_topic("prices", prices)?.partition(0)?;

    for round in 0..100 {
        let mut append = engine.append_transaction();
        let price = |fruit: &str| Record::new(fruit, (100 + round).to_string());
        append.records(&partition, ["apple", "pear", "plum"].map(price))?;
        append.commit(Durability::Buffered)?;
    }
    let mut append = engine.append_transaction();
    append.records(&partition, [Record::tombstone("plum")])?;
    append.commit(Durability::Sync)?;

    let before = table(&engine, &partition)?;
    let plan = engine.cleaner().plan(&partition)?;
    println!("{} bytes can be cleaned, due: {}", plan.cleanable_bytes, plan.is_due);
    let pass = engine.cleaner().clean_partition(&partition)?.ok_or("a pass was due")?;
    println!("{} records of {} keys are gone", pass.removed_records, pass.key_count);

    // Two prices and the tombstone are left; offsets are as they were, and so is the table.
    assert_eq!(pass.removed_records, 298);
    assert_eq!(table(&engine, &partition)?, before);
    assert_eq!(before.get("apple").map(String::as_str), Some("199"));
    assert_eq!(engine.watermarks(&partition)?.log_end, 301);
    engine.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
