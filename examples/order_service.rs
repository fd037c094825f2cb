//! An order service: an order and its audit record are there together, or neither is.
//!
//! It can be run again on the same directory: it goes on with what is there.

use std::error::Error;
use std::path::Path;

use tidelog::{CommitError, Durability, Engine, EngineConfig, Partitioner, Record, Topic};
use tidelog::{Committed, TopicConfig};

/// The service: an engine, and the topics that it writes to.
struct Orders {
    engine: Engine,
    orders: Topic,
    audit: Topic,
}

impl Orders {
    fn open(directory: &Path) -> Result<Self, Box<dyn Error>> {
        let engine = Engine::open(directory, EngineConfig::default())?;
        let orders = engine.open_or_create_topic("orders", TopicConfig::new(3))?;
        let audit = engine.open_or_create_topic("audit", TopicConfig::new(1))?;
        Ok(Self { engine, orders, audit })
    }

    /// Takes an order. Once this returns it survives power loss.
    fn take(&self, customer: &str, order: &str) -> Result<Committed, Box<dyn Error>> {
        // Orders of one customer stay in their order: they go to the same partition.
        let count = self.orders.partition_count();
        let home = Partitioner::Murmur2.partition(Some(customer.as_bytes()), count);
        let mut append = self.engine.append_transaction();
        append.records(&self.orders.partition(home)?, [Record::new(customer, order)])?;
        append.records(&self.audit.partition(0)?, [Record::new(customer, "ordered")])?;
        loop {
            match append.commit(Durability::Sync) {
                Ok(committed) => return Ok(committed),
                // The queue is full: the transaction comes back, and is tried again.
                Err(error) if error.is_queue_full() => match error.into_transaction() {
                    Some(again) => append = again,
                    None => unreachable!("what was not written comes back"),
                },
                // Refused, or the disk is full, or nobody knows: the text says which.
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let service = Orders::open(directory)?;
    for customer in ["customer-1", "customer-2", "customer-3"] {
        let committed = service.take(customer, "{\"item\":7}")?;
        assert_eq!(committed.batches.len(), 2);
    }
    let taken = service.engine.watermarks(&service.audit.partition(0)?)?.log_end;
    println!("{taken} orders were taken since the first start");

    // A record that is too large is named by its place, and nothing is committed of its batch.
    let large = Record::keyless(vec![0; 2 << 20]);
    let mut append = service.engine.append_transaction();
    let error = append
        .records(&service.audit.partition(0)?, [Record::keyless("small"), large])
        .expect_err("two MiB are more than a topic takes at first");
    println!("{error}");
    assert_eq!(error.too_large().and_then(|found| found.record_index), Some(1));

    // What was deleted meanwhile is refused, and the transaction comes back.
    let gone = service.engine.open_or_create_topic("short-lived", TopicConfig::new(1))?;
    let mut append = service.engine.append_transaction();
    append.records(&gone.partition(0)?, [Record::keyless("late")])?;
    service.engine.delete_topic("short-lived")?;
    let error = append.commit(Durability::Sync).expect_err("its topic is gone");
    println!("{error}");
    assert!(matches!(error, CommitError::Refused { .. }));
    service.engine.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-orders-{}", std::process::id()));
    run(&directory)?;
    run(&directory)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
