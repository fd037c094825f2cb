//! Relocation comes to an end: nothing is moved again and again, and a full disk gets its space back.

use crate::common;

use common::{TestEngine, append_batch, assert_verified, batch_of, offsets_of, one_partition};
use tidelog::{CommitError, Durability, Engine, Partition, Record, StorageError, TopicConfig};

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
        engine.maintenance().run().expect("it goes on");
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

/// Appends until the disk has no more than its reserve; tells how often.
fn fill(engine: &Engine, partitions: &[Partition]) -> i64 {
    for count in 0.. {
        let mut append = engine.append_transaction();
        for partition in partitions {
            append.records(partition, [Record::keyless(vec![7; 1000])]).expect("it is legal");
        }
        match append.commit(Durability::Buffered) {
            Ok(_) => {}
            Err(CommitError::NotWritten { .. }) => return count,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the disk is full at some time");
}

fn nearly_full(reserve_segments: u64) -> (TestEngine, Engine, Vec<Partition>) {
    let test = TestEngine::with(|config| {
        let config = config.segment_bytes(SEGMENT_BYTES);
        let config = config.relocation_bytes_per_second(50_000);
        config.disk_reserve_bytes(reserve_segments * SEGMENT_BYTES)
    });
    test.disk.set_capacity(Some(40 * SEGMENT_BYTES));
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(8)).expect("it is new");
    let partitions = topic.partitions();
    (test, engine, partitions)
}

#[test]
fn what_is_deleted_on_a_full_disk_comes_back_although_survivors_lie_everywhere_between() {
    for reserve_segments in [4, 8] {
        let (test, engine, partitions) = nearly_full(reserve_segments);
        let count = fill(&engine, &partitions);
        let (kept, gone) = partitions.split_at(2);
        for partition in gone {
            engine.delete_records(partition, count).unwrap();
        }
        let mut least = u64::MAX;
        for _ in 0..60 {
            test.clock.advance_ms(10_000);
            engine.maintenance().run().unwrap();
            least = least.min(engine.log_space().unwrap().free_bytes);
        }
        assert!(
            least >= reserve_segments * SEGMENT_BYTES / 2,
            "half of the reserve is left: {least}"
        );
        let metrics = engine.metrics();
        let bound = metrics.live_bytes * 13 / 10 + 2 * SEGMENT_BYTES;
        assert!(metrics.log_size_bytes <= bound, "{metrics:?}");
        assert!(fill(&engine, &partitions) > count / 2, "without being opened again");
        for partition in kept {
            assert!(offsets_of(&engine, partition).len() as i64 > count);
        }
        assert_verified(&engine);
    }
}

/// Leaves so much of the disk, to which somebody else writes too.
fn leave(test: &TestEngine, engine: &Engine, free_bytes: u64) {
    test.disk.set_capacity(Some(1 << 40));
    let used = (1 << 40) - engine.log_space().expect("it can be asked").free_bytes;
    test.disk.set_capacity(Some(used + free_bytes));
}

#[test]
fn nothing_is_moved_without_room_for_it_and_a_burst_that_meets_a_full_disk_is_given_up() {
    let (test, engine, partitions) = nearly_full(4);
    let count = fill(&engine, &partitions);
    for partition in &partitions[2..] {
        engine.delete_records(partition, count).unwrap();
    }
    leave(&test, &engine, 2 * SEGMENT_BYTES);
    for _ in 0..3 {
        test.clock.advance_ms(10_000);
        let step = engine.maintenance().run().unwrap();
        assert_eq!(
            (step.relocated_bytes, step.is_relocating),
            (0, false),
            "no room is left for it"
        );
    }
    leave(&test, &engine, 16 * SEGMENT_BYTES);
    test.clock.advance_ms(10_000);
    let step = engine.maintenance().run().unwrap();
    assert!(step.relocated_bytes > 0 && step.is_relocating, "{step:?}");
    leave(&test, &engine, 2 * SEGMENT_BYTES);
    test.clock.advance_ms(1_000);
    let refused = engine.maintenance().run().unwrap_err();
    assert!(matches!(refused, StorageError::DiskFull { .. }), "{refused:?}");
    assert_eq!(engine.metrics().unmoved_batches, 0, "the next one is chosen anew");
    leave(&test, &engine, 3 * SEGMENT_BYTES);
    for _ in 0..100 {
        test.clock.advance_ms(10_000);
        engine.maintenance().run().unwrap();
    }
    assert!(fill(&engine, &partitions) > count / 2, "without being opened again");
    assert_verified(&engine);
}
