//! Segments whose files cannot be read: they hold up nothing but themselves.

mod common;

use std::sync::Arc;

use common::failing::{Broken, Call, FailingFiles};
use common::{TestEngine, append_batch, assert_verified, batch_of, offsets_of, one_partition};
use tidelog::{Engine, Partition, Record};

const SEGMENT_BYTES: u64 = 64 << 10;

fn open(test: &TestEngine) -> (Engine, Arc<Broken>) {
    let broken = Arc::new(Broken::default());
    let files = FailingFiles { inner: test.disk.process(), broken: Arc::clone(&broken) };
    let engine = test.builder().files(Arc::new(files)).open().expect("the engine opens");
    (engine, broken)
}

fn small() -> TestEngine {
    TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES))
}

fn append_batches(engine: &Engine, partitions: &[Partition], count: usize) {
    for _ in 0..count {
        for partition in partitions {
            append_batch(engine, partition, batch_of(&[Record::keyless(vec![7; 4000])]));
        }
    }
}

#[test]
fn a_dead_segment_that_cannot_be_read_goes_and_keeps_no_other() {
    for call in [Call::Open, Call::Read] {
        let test = small();
        let (engine, broken) = open(&test);
        let partition = one_partition(&engine, "t", &[]);
        append_batches(&engine, std::slice::from_ref(&partition), 100);
        engine.delete_records(&partition, 99).unwrap();
        broken.fail(call, "00000000000000000001.log");
        test.clock.advance_ms(10_000);
        let step = engine.run_maintenance().expect("it goes on");
        assert_eq!(step.freed_segments, 7, "{call:?} {step:?}");
        assert!(broken.take_failed() > 0);
        assert_verified(&engine);
    }
}

#[test]
fn survivors_that_cannot_be_read_stay_and_keep_no_others_from_being_moved() {
    // Of the second segment its name, any place of it, or the batches alone.
    for (call, fails_late) in [(Call::Open, false), (Call::Read, false), (Call::Read, true)] {
        let test = TestEngine::with(|config| {
            config.segment_bytes(SEGMENT_BYTES).relocation_bytes_per_second(10_000)
        });
        let (engine, broken) = open(&test);
        let (gone, kept) =
            (one_partition(&engine, "gone", &[]), one_partition(&engine, "kept", &[]));
        append_batches(&engine, &[gone.clone(), gone.clone(), gone.clone(), kept.clone()], 60);
        engine.delete_records(&gone, 180).unwrap();
        let fail = || broken.fail(call, "00000000000000000002.log");
        if fails_late {
            // The segments are chosen, and looked through.
            assert!(engine.run_maintenance().unwrap().is_relocating);
        }
        fail();
        let mut failures = 0;
        for _ in 0..100 {
            test.clock.advance_ms(10_000);
            failures += u64::from(engine.run_maintenance().is_err());
        }
        assert_eq!(failures, u64::from(fails_late), "it is told once");
        let metrics = engine.metrics();
        assert!(metrics.relocated_batches > 40, "{call:?} {metrics:?}");
        assert!(metrics.segment_count < 10, "{call:?} {metrics:?}");
        broken.mend();
        assert_eq!(offsets_of(&engine, &kept), (0..60).collect::<Vec<_>>());
        assert_verified(&engine);
    }
}
