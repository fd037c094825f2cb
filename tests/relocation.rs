//! Relocation comes to an end: nothing is moved again and again.

mod common;

use common::{TestEngine, append_batch, assert_verified, batch_of, one_partition};
use tidelog::{Engine, Partition, Record};

const SEGMENT_BYTES: u64 = 64 << 10;

fn tiny(engine: &Engine, partition: &Partition, count: usize) {
    for _ in 0..count {
        append_batch(engine, partition, batch_of(&[Record::keyless("v")]));
    }
}

/// A round behind each of so many small appends.
fn rounds(test: &TestEngine, engine: &Engine, partition: &Partition, count: usize) {
    for _ in 0..count {
        test.clock.advance_ms(10_000);
        tiny(engine, partition, 1);
        engine.run_maintenance().expect("it goes on");
    }
}

#[test]
fn very_small_batches_are_moved_once_however_much_of_the_log_is_no_batch() {
    let test = TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    tiny(&engine, &partition, 5000);
    rounds(&test, &engine, &partition, 20);
    let metrics = engine.metrics();
    let dead = metrics.log_size_bytes - metrics.live_bytes;
    assert!(dead > 2 * SEGMENT_BYTES + metrics.live_bytes / 2, "more than may be: {metrics:?}");
    let moved = metrics.relocated_batches;
    assert!((4500..=5020).contains(&moved), "each was moved once: {metrics:?}");
    rounds(&test, &engine, &partition, 16);
    let after = engine.metrics();
    assert_eq!(after.relocated_batches, moved, "what is there is as dense as it can be");
    assert!(after.checkpoints <= metrics.checkpoints + 1, "{after:?}");
    rounds(&test, &engine, &partition, 500);
    let after = engine.metrics();
    assert!(after.relocated_batches <= after.appended_batches, "{after:?}");
    assert!(after.freed_segments < metrics.freed_segments + 60, "{after:?}");
    assert_verified(&engine);
}
