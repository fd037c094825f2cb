//! Limits of the engine at their bounds: each is refused by its name, or the engine works.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use common::{TestEngine, one_partition, values_of};
use tidelog::config::EngineConfig;
use tidelog::{Durability, Engine, Maintenance, Record, StorageError};

fn with(config: &EngineConfig, values: &[(&str, u64)]) -> EngineConfig {
    let mut fields = serde_json::to_value(config).unwrap();
    for (name, value) in values {
        fields[*name] = (*value).into();
    }
    serde_json::from_value(fields).unwrap()
}

/// Does something of everything. What a limit forbids is an error, and nothing hangs.
fn use_all(engine: &Engine) {
    let partition = one_partition(engine, "t", &[("cleanup.policy", "compact")]);
    let mut appended = 0;
    for durability in [Durability::Buffered, Durability::Sync] {
        let mut append = engine.append_transaction();
        let taken = append.records(&partition, [Record::new("k", "v")]);
        if taken.is_ok() {
            append.commit(durability).unwrap();
            let mut append = engine.append_transaction();
            append.records(&partition, [Record::new("k", "w")]).unwrap();
            let ticket = append.submit(durability).unwrap();
            engine.maintenance().run_pending();
            ticket.wait().unwrap();
            appended += 2;
        }
    }
    engine.sync().unwrap();
    let _ = engine.producers().idempotent().map(|mut producer| {
        producer.append([(&partition, vec![Record::new("l", "x")])], Durability::Buffered)
    });
    engine.maintenance().checkpoint().unwrap();
    engine.maintenance().run().unwrap();
    engine.cleaner().run().unwrap();
    assert!(values_of(engine, &partition).len() <= appended + 1);
    assert!(engine.verify().unwrap().is_clean());
}

fn open_and_use(config: EngineConfig) -> bool {
    let test = TestEngine::with(|_| config);
    let engine = match test.builder().open() {
        Ok(engine) => engine,
        Err(tidelog::OpenError::Storage(StorageError::DiskFull { .. })) => return false,
        Err(error) => panic!("{error}"),
    };
    use_all(&engine);
    engine.close().unwrap();
    let engine = test.open();
    assert!(engine.verify().unwrap().is_clean());
    true
}

#[test]
fn an_engine_works_with_each_of_its_limits_at_either_bound() {
    for maintenance in [Maintenance::Manual, Maintenance::Background] {
        let base = TestEngine::new().config.maintenance(maintenance);
        for (limit, _) in base.limits() {
            for value in [limit.least, limit.greatest] {
                let config = with(&base, &[(limit.name, value)]);
                match config.validate() {
                    Ok(()) => {
                        let used = open_and_use(config);
                        println!("{}={value} used={used}", limit.name);
                    }
                    // It contradicts another, and says so.
                    Err(error) => {
                        assert!(error.to_string().contains(limit.name), "{error}");
                        println!("{error}");
                    }
                }
            }
            for value in [limit.least.checked_sub(1), limit.greatest.checked_add(1)] {
                let Some(value) = value.filter(|value| i64::try_from(*value).is_ok()) else {
                    continue;
                };
                if limit.greatest <= u64::from(u32::MAX) && value > u64::from(u32::MAX) {
                    continue;
                }
                let error = with(&base, &[(limit.name, value)]).validate().unwrap_err();
                assert!(error.to_string().contains(limit.name), "{error}");
            }
        }
    }
}

#[test]
fn an_engine_works_with_all_limits_at_their_least() {
    for maintenance in [Maintenance::Manual, Maintenance::Background] {
        let base = TestEngine::new().config.maintenance(maintenance);
        let limits = base.limits();
        let least: Vec<(&str, u64)> =
            limits.iter().map(|(limit, _)| (limit.name, limit.least)).collect();
        let config = with(&base, &least);
        assert!(open_and_use(config));
    }
}
