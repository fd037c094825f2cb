//! A report over all partitions as they were at one instant, while appends go on.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use tidelog::{Durability, Engine, EngineConfig, Record, Topic, TopicConfig};

fn transfer(engine: &Engine, accounts: &Topic, amount: i64) -> Result<(), Box<dyn Error>> {
    let mut append = engine.append_transaction();
    append.records(&accounts.partition(0)?, [Record::new("giro", (-amount).to_string())])?;
    append.records(&accounts.partition(1)?, [Record::new("savings", amount.to_string())])?;
    append.commit(Durability::Buffered)?;
    Ok(())
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let engine = Engine::open(directory, EngineConfig::default())?;
    let accounts = engine.open_or_create_topic("accounts", TopicConfig::new(2))?;
    for amount in 1..=10 {
        transfer(&engine, &accounts, amount)?;
    }
    let snapshot = engine.snapshot();
    // Later transfers are not in it, and none is in it half.
    transfer(&engine, &accounts, 1_000_000)?;
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for scanned in snapshot.scan(&accounts) {
        let record = scanned?.record;
        let text =
            |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        let amount: i64 = text(record.value.as_deref()).parse()?;
        *sums.entry(text(record.key.as_deref())).or_default() += amount;
    }
    println!("{sums:?}");
    assert_eq!(sums.values().sum::<i64>(), 0);
    engine.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-scan-{}", std::process::id()));
    run(&directory)?;
    run(&directory)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
