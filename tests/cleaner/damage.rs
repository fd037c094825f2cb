//! What a damaged batch costs the cleaner: one look a round, until it is whole or gone.

use crate::common;

use common::{TestEngine, append, assert_verified, one_partition, records_of};
use tidelog::{CleanError, Engine, Partition, Record, StorageError};

const EAGER: [(&str, &str); 2] =
    [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")];

/// Bytes that the cleaner reads in a round that finds damage.
fn read_bytes(engine: &Engine, partition: &Partition) -> u64 {
    let before = engine.metrics().cleaner_read_bytes;
    let cleaned = engine.cleaner().clean_partition(partition);
    let is_told = matches!(cleaned, Err(CleanError::Storage(StorageError::Corruption(_))));
    assert!(is_told, "{cleaned:?}");
    engine.metrics().cleaner_read_bytes - before
}

#[test]
fn as_long_as_a_batch_is_damaged_a_round_reads_that_batch_alone() {
    // The damage is in what is clean already, or in what is dirty; it is repaired, or deleted.
    for (is_clean, is_repaired) in [(true, true), (true, false), (false, true), (false, false)] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &EAGER);
        for index in 0..40 {
            let value = if index == 20 { "damaged soon".to_owned() } else { "v".repeat(10_000) };
            append(&engine, &partition, [Record::new(index.to_string(), value)]);
        }
        if is_clean {
            assert!(engine.cleaner().clean_partition(&partition).unwrap().unwrap().is_finished);
            append(&engine, &partition, [Record::new("0", "newer")]);
        }
        test.flip("damaged soon");
        assert!(read_bytes(&engine, &partition) > 100_000);
        for _ in 0..3 {
            assert!(read_bytes(&engine, &partition) < 1000, "{is_clean} {is_repaired}");
            assert!(engine.cleaner().failure(&partition).is_some());
        }
        if is_repaired {
            test.flip("eamaged soon");
        } else {
            engine.delete_records(&partition, 21).unwrap();
        }
        let pass = engine.cleaner().clean_partition(&partition).unwrap().unwrap();
        assert!(pass.is_finished && engine.cleaner().failure(&partition).is_none());
        assert_verified(&engine);
        let log_start = engine.watermarks(&partition).unwrap().log_start;
        let left = 40 - log_start + i64::from(is_clean && !is_repaired);
        assert_eq!(records_of(&engine, &partition).len() as i64, left);
    }
}
