//! A test of a service that loses power: simulated files, a store in memory, and no C++ to compile.
//!
//! Run it with `--features test-util`; a service has the same in its own tests, with tidelog as a
//! dev-dependency that names the feature.

#[cfg(not(feature = "test-util"))]
fn main() {
    println!("run it with `--features test-util`");
}

#[cfg(feature = "test-util")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    simulated::run()
}

#[cfg(feature = "test-util")]
mod simulated {
    use std::error::Error;
    use std::sync::Arc;

    use tidelog::testing::{MemoryDisk, PowerLoss, SimulatedDisk};
    use tidelog::{Durability, Engine, EngineConfig, Maintenance, Record, TopicConfig};

    /// The service under test: it says how many orders it has acknowledged.
    fn take_orders(engine: &Engine, durability: Durability) -> Result<i64, Box<dyn Error>> {
        let orders = engine.open_or_create_topic("orders", TopicConfig::new(1))?;
        for order in 0..10 {
            let mut append = engine.append_transaction();
            append.records(&orders.partition(0)?, [Record::keyless(order.to_string())])?;
            append.commit(durability)?;
        }
        Ok(engine.watermarks(&orders.partition(0)?)?.log_end)
    }

    fn open(disk: &SimulatedDisk, store: &MemoryDisk) -> Result<Engine, Box<dyn Error>> {
        let config = EngineConfig::default().maintenance(Maintenance::Manual).disk_reserve_bytes(0);
        let builder = Engine::builder("/orders").config(config).files(disk.process());
        Ok(builder.store(Arc::new(store.clone())).open()?)
    }

    pub fn run() -> Result<(), Box<dyn Error>> {
        for seed in 0..100 {
            let (disk, store) = (SimulatedDisk::new(seed), MemoryDisk::new());
            let engine = open(&disk, &store)?;
            let acknowledged = take_orders(&engine, Durability::Sync)?;
            let buffered = take_orders(&engine, Durability::Buffered)?;
            // The power goes: what was not synced is there, torn, or gone, by the seed.
            disk.power_loss(PowerLoss::Random(seed));
            store.crash(0);
            drop(engine);

            let engine = open(&disk, &store)?;
            let orders = engine.open_or_create_topic("orders", TopicConfig::new(1))?;
            let kept = engine.watermarks(&orders.partition(0)?)?.log_end;
            assert!((acknowledged..=buffered).contains(&kept), "seed {seed}: {kept}");
            assert!(engine.verify()?.is_clean(), "seed {seed}");
        }
        println!("a hundred power losses took nothing that was acknowledged as synced");
        Ok(())
    }
}
