//! Verify holds up nothing that goes on beside it, and takes nothing of that for damage.

use crate::common;

use std::path::PathBuf;
use std::sync::Arc;

use common::failing::{Broken, Call, FailingFiles};
use common::{TestEngine, append_batch, assert_verified, batch_of, one_partition};
use tidelog::{Engine, Partition, Record, VerifyReport};

const SEGMENT_BYTES: u64 = 64 << 10;
const BATCHES: i64 = 600;

/// An engine with some MiB in one partition, of the keys 0 to 9 in turn.
fn filled(test: &TestEngine) -> (Engine, Arc<Broken>, Partition) {
    let broken = Arc::new(Broken::default());
    let files = FailingFiles { inner: test.disk.process(), broken: Arc::clone(&broken) };
    let engine = test.builder().files(Arc::new(files)).open().expect("the engine opens");
    let partition = one_partition(&engine, "t", &[]);
    for number in 0..BATCHES {
        let record = Record::new(format!("{}", number % 10), vec![number as u8; 4000]);
        append_batch(&engine, &partition, batch_of(&[record]));
    }
    (engine, broken, partition)
}

fn test_engine() -> TestEngine {
    TestEngine::with(|config| config.segment_bytes(SEGMENT_BYTES).max_free_segments(4))
}

fn round(test: &TestEngine, engine: &Engine) {
    test.clock.advance_ms(10_000);
    engine.maintenance().run().expect("it goes on");
}

fn append_batches(engine: &Engine, partition: &Partition, count: usize) {
    for _ in 0..count {
        append_batch(engine, partition, batch_of(&[Record::keyless(vec![7; 4000])]));
    }
}

/// What happens while a verification reads.
type Happening = fn(&Engine, &Partition);

/// Verifies while something happens, of which the space comes back and is written over before the
/// verification ends.
fn verify_beside(happening: Happening) -> (VerifyReport, Engine) {
    let test = test_engine();
    let (engine, broken, partition) = filled(&test);
    let other = one_partition(&engine, "other", &[]);
    append_batches(&engine, &other, 10);
    let (beside, hooks) = (engine.clone(), Arc::clone(&broken));
    broken.before_read(20, move || {
        happening(&beside, &partition);
        round(&test, &beside);
        // What is read next is in another piece: nothing holds what has gone.
        hooks.before_read(1, move || {
            assert_eq!(beside.metrics().pin_count, 1);
            for _ in 0..20 {
                append_batches(&beside, &other, 14);
                round(&test, &beside);
            }
            let metrics = beside.metrics();
            assert!(metrics.freed_segments > 5 && metrics.reused_segments > 2, "{metrics:?}");
        });
    });
    let report = engine.verify().expect("the index can be read");
    assert!(engine.metrics().freed_segments > 5, "it was not over before");
    assert_verified(&engine);
    assert_eq!(engine.metrics().corruptions, 0);
    (report, engine)
}

#[test]
fn what_is_removed_before_its_turn_is_left_out_and_its_space_comes_back_meanwhile() {
    let happenings: [Happening; 3] = [
        |engine, partition| _ = engine.delete_records(partition, BATCHES - 1).unwrap(),
        |engine, _| engine.delete_topic("t").unwrap(),
        |engine, _| {
            let compact = tidelog::config::ConfigChange {
                name: "cleanup.policy".to_owned(),
                operation: tidelog::config::ConfigOperation::Set("compact".to_owned()),
            };
            engine.topics().alter("t", &[compact]).unwrap();
        },
    ];
    for (case, happening) in happenings.into_iter().enumerate() {
        let (report, _) = verify_beside(happening);
        assert!(report.is_clean(), "{case}: {report}");
        assert!(report.skipped_batch_count > 300, "{case}: {report}");
        assert!(report.batch_count >= 20, "{case}: {report}");
        let seen = report.batch_count + report.skipped_batch_count;
        assert_eq!(seen, BATCHES as u64 + 10, "{case}");
    }
}

#[test]
fn what_lies_elsewhere_when_its_turn_comes_is_read_there_and_damage_there_is_found() {
    for damage in [false, true] {
        let test = Arc::new(test_engine());
        let (engine, broken, kept) = filled(&test);
        let gone = one_partition(&engine, "gone", &[]);
        for _ in 0..200 {
            append_batches(&engine, &gone, 3);
            append_batches(&engine, &kept, 1);
        }
        engine.delete_records(&gone, 600).unwrap();
        engine.delete_records(&kept, BATCHES - 50).unwrap();
        let (beside, disk) = (engine.clone(), Arc::clone(&test));
        broken.before_read(10, move || {
            (0..5).for_each(|_| round(&disk, &beside));
            let metrics = beside.metrics();
            assert!(metrics.relocated_batches > 100, "{metrics:?}");
            let newest = beside.log_space().expect("it can be asked").directory;
            let mut names = disk.disk.process().list(&newest).expect("it is there");
            names.retain(|name| name.ends_with(".log"));
            names.sort();
            if damage {
                // One bit of a batch that was moved.
                let value = |path: &PathBuf| {
                    let bytes = disk.disk.contents(path).expect("it is there");
                    bytes.windows(99).position(|part| part == [7; 99])
                };
                let mut paths = names.iter().rev().map(|name| newest.join(name));
                let found = paths.find_map(|path| value(&path).map(|at| (path, at)));
                let (path, at) = found.expect("there is a value");
                disk.disk.tamper(&path, |bytes| bytes[at] ^= 1);
            }
        });
        let report = engine.verify().unwrap();
        assert_eq!(report.problem_count, u64::from(damage), "{report}");
        assert_eq!((report.batch_count, report.skipped_batch_count), (250, 0), "{report}");
    }
}

#[test]
fn what_cannot_be_read_is_in_the_report_and_the_rest_is_read() {
    let test = test_engine();
    let (engine, broken, _) = filled(&test);
    // Its file is opened at the first read, and stays open.
    for call in [Call::Open, Call::Read] {
        broken.fail(call, "00000000000000000002.log");
        let report = engine.verify().unwrap();
        assert_eq!((report.problem_count, report.batch_count), (14, BATCHES as u64), "{report}");
        broken.mend();
        assert_verified(&engine);
    }
}
