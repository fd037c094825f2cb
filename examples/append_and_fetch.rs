//! The shortest round trip: a topic, some records, and reading them back, by offset and by time.

use std::error::Error;

use tidelog::{
    Durability, Engine, EngineConfig, FetchOptions, Isolation, OffsetQuery, Record, TopicConfig,
    Visibility,
};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-example-{}", std::process::id()));
    let engine = Engine::open(&directory, EngineConfig::default())?;
    let readings = engine.create_topic("readings", TopicConfig::new(1))?;
    let partition = readings.partition(0)?;

    let start_ms = 1_700_000_000_000;
    let records = (0..5).map(|second| {
        let value = format!("{} degrees", 20 + second);
        Record::new("sensor-1", value).timestamp(start_ms + second * 1000)
    });
    let mut append = engine.append_transaction();
    append.records(&partition, records)?;
    let committed = append.commit(Durability::Buffered)?;
    println!(
        "offsets {} to {}",
        committed.batches[0].base_offset, committed.batches[0].last_offset
    );

    // From the first record that is not older than three seconds after the start.
    let query = OffsetQuery::Timestamp(start_ms + 3000);
    let found = engine.list_offset(&partition, query, Isolation::Committed, Visibility::Applied)?;
    let from = found.ok_or("no record is so young")?;
    let fetched = engine.fetch(&partition, from.offset, FetchOptions::new())?;
    let mut values = Vec::new();
    for record in fetched.records() {
        let record = record?;
        let value = String::from_utf8(record.value.unwrap_or_default().to_vec())?;
        println!("offset {} at {}: {value}", record.offset, record.timestamp);
        values.push(value);
    }
    assert_eq!(values, ["23 degrees", "24 degrees"]);

    let marks = engine.watermarks(&partition)?;
    assert_eq!((marks.log_start, marks.high_watermark), (0, 5));
    engine.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
