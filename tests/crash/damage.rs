//! Damage at rest: told as an error that names its place, and never served as a record.

use std::path::PathBuf;

use tidelog::error::Place;
use tidelog::internals::rules::BrokenRules;
use tidelog::testing::PowerLoss;
use tidelog::{
    Durability, Engine, FetchError, FetchOptions, OpenError, Record, StorageError, TopicConfig,
};

use crate::machine::{Machine, Stop, small_config};
use crate::operations::Operation;
use crate::recovery::chain;
use crate::script::{THREE, started};
use crate::world::{Flow, World, partition};

/// The newest segment that holds frames, and where its bytes end.
fn newest(world: &World) -> (PathBuf, usize) {
    let is_used = |path: &PathBuf| world.machine.disk.contents(path).map_or(0, |b| b.len()) > 4096;
    let path = world.machine.segments().into_iter().rfind(is_used).expect("there are commits");
    let length = world.machine.disk.contents(&path).expect("it is there").len();
    (path, length)
}

#[test]
fn a_log_truncated_at_any_byte_of_its_last_commit_opens_without_that_commit_alone() {
    let mut base = started(1, BrokenRules::NONE);
    base.commit(&THREE, Durability::Sync);
    let (path, before) = newest(&base);
    base.commit(&THREE, Durability::Buffered);
    let (same, after) = newest(&base);
    assert_eq!(path, same);
    for length in before..after {
        let mut world = base.image(length as u64);
        world.machine.disk.tamper(&path, |bytes| bytes.truncate(length));
        // Only what was acknowledged as synced must be there: the cut is no kill.
        world.restart(Stop::Power(PowerLoss::Nothing)).unwrap_or_else(|what| {
            panic!("cut at {length} of {before}..{after}: {what}");
        });
        let engine = world.engine();
        let marks = engine.watermarks(&partition(engine, "audit", 0).expect("it exists"));
        assert_eq!(marks.expect("it is readable").log_end, 1);
        assert!(engine.recovered().torn_bytes <= (after - before) as u64);
        world.check_afterlife().unwrap_or_else(|what| panic!("cut at {length}: {what}"));
    }
}

#[test]
fn a_log_truncated_in_a_commit_that_a_later_one_proves_synced_is_refused_and_names_it() {
    let mut base = started(1, BrokenRules::NONE);
    base.commit(&THREE, Durability::Sync);
    let (path, before) = newest(&base);
    base.commit(&THREE, Durability::Sync);
    let (_, end) = newest(&base);
    // Its header says that the commit before it was synced.
    base.commit(&[("audit", 0, 30)], Durability::Buffered);
    let (same, _) = newest(&base);
    assert_eq!(path, same);
    for at in (before..end - 37).step_by(37) {
        let mut world = base.image(at as u64);
        world.machine.disk.tamper(&path, |bytes| bytes[at..at + 37].fill(0xee));
        world.stop(Stop::Kill);
        match world.machine.open().map(|_| ()) {
            Err(OpenError::Storage(StorageError::Corruption(corruption))) => {
                let number = base.model.commit_count() as u64 - 1;
                let Place::Commits { first, last } = corruption.place else {
                    panic!("{corruption}");
                };
                assert!(first.0 <= number && last.0 >= number, "{corruption}");
            }
            other => panic!("damage at {at}: {other:?}"),
        }
    }
}

/// Damages a synced commit with others behind it, and opens.
pub fn open_after_damage(broken: BrokenRules) -> Result<(), String> {
    let mut world = started(1, broken);
    world.commit(&THREE, Durability::Sync);
    let (path, before) = newest(&world);
    for _ in 0..3 {
        world.commit(&THREE, Durability::Sync);
    }
    world.machine.disk.flip_bit(&path, before as u64 * 8 + 700);
    open_refused(world)
}

/// Damages the header of a segment with synced commits, and opens.
pub fn open_after_header_damage(broken: BrokenRules) -> Result<(), String> {
    let mut world = started(1, broken);
    world.must(&Operation::Close);
    for _ in 0..2 {
        world.commit(&THREE, Durability::Sync);
    }
    let (path, _) = newest(&world);
    world.machine.disk.flip_bit(&path, 300);
    open_refused(world)
}

/// An open must be refused as damage; where it is not, what it shows is held against the model.
fn open_refused(mut world: World) -> Result<(), String> {
    world.stop(Stop::Power(PowerLoss::Everything));
    match world.machine.fork().open().map(|_| ()) {
        Err(OpenError::Storage(StorageError::Corruption(_))) => Ok(()),
        Err(error) => Err(chain(&error)),
        Ok(()) => {
            world.recover(Stop::Kill, crate::recovery::Disturbance::None)?;
            Err("damage was not noticed, and did no harm".into())
        }
    }
}

#[test]
fn damage_to_commits_that_were_acknowledged_as_synced_is_never_taken_for_a_torn_tail() {
    open_after_damage(BrokenRules::NONE).expect("it is refused");
    open_after_header_damage(BrokenRules::NONE).expect("it is refused");
}

/// A thousand records in a hundred batches, checkpointed, in few segments.
fn thousand_records() -> (Machine, Engine, tidelog::Partition) {
    let mut machine = Machine::new(5, BrokenRules::NONE);
    machine.config = small_config().segment_bytes(1 << 20).max_unsynced_bytes(1 << 20);
    let engine = machine.open().expect("it opens");
    let topic = engine.create_topic("orders", TopicConfig::new(1)).expect("it is new");
    let orders = topic.partition(0).expect("it has one");
    for batch in 0..100 {
        let mut transaction = engine.append_transaction();
        let record = |at| Record::new(format!("key-{batch}-{at}").as_str(), vec![7; 50]);
        transaction.records(&orders, (0..10).map(record)).expect("they are small");
        transaction.commit(Durability::Buffered).expect("nothing fails");
    }
    engine.maintenance().checkpoint().expect("nothing fails");
    (machine, engine, orders)
}

/// Where in its file the batch with this base offset lies.
fn place_of(
    machine: &Machine,
    engine: &Engine,
    orders: &tidelog::Partition,
    offset: i64,
) -> (PathBuf, usize) {
    let options = FetchOptions::new().max_bytes(1);
    let batch = engine.fetch(orders, offset, options).expect("it is readable").bytes;
    for path in machine.segments() {
        let bytes = machine.disk.contents(&path).expect("it is there");
        // Base offset and leader epoch are stamped when a batch is served.
        if let Some(at) = bytes.windows(batch.len() - 16).position(|part| part == &batch[16..]) {
            return (path, at - 16);
        }
    }
    panic!("the batch is nowhere");
}

#[test]
fn a_flipped_bit_in_a_batch_is_an_error_there_and_nowhere_else() {
    // In its length, its magic, its checksum; then in a record of it.
    for byte in [8, 16, 18, 70, 300] {
        let (machine, engine, orders) = thousand_records();
        let (path, at) = place_of(&machine, &engine, &orders, 150);
        machine.disk.flip_bit(&path, (at + byte) as u64 * 8 + 3);
        drop(engine);
        machine.stop(Stop::Kill, 1);
        let engine = machine.open().expect("nothing of it is replayed");
        let orders = engine.topic("orders").expect("it exists").partition(0).expect("it has one");
        assert_eq!(engine.watermarks(&orders).expect("it exists").log_end, 1000);
        let fetch = |offset| engine.fetch(&orders, offset, FetchOptions::new());
        let fetched = fetch(0).expect("what comes before it is good");
        assert_eq!((fetched.next_offset, fetched.records().count()), (150, 150), "byte {byte}");
        for offset in [150, 155, 159] {
            let Err(FetchError::Damaged { base_offset, last_offset, corruption, .. }) =
                fetch(offset)
            else {
                panic!("byte {byte} is served");
            };
            assert_eq!((base_offset, last_offset), (150, 159));
            assert!(matches!(corruption.place, Place::Batch { offset: 150, .. }), "{corruption}");
        }
        let rest = fetch(160).expect("it is good");
        assert_eq!(rest.records().filter(Result::is_ok).count(), 840);
        let behind = fetch(500).expect("it is not damaged");
        assert_eq!(behind.records().filter(|record| record.is_ok()).count(), 500);
        let report = engine.verify().expect("the index can be read");
        assert_eq!(report.problem_count, 1, "{report}");
    }
}

/// Writes the bytes of one batch over those of another of the same length, and reads that.
pub fn read_misdirected(broken: BrokenRules) -> Result<(), String> {
    let (mut machine, engine, orders) = thousand_records();
    let (path, from) = place_of(&machine, &engine, &orders, 500);
    let (_, to) = place_of(&machine, &engine, &orders, 200);
    let length = engine.fetch(&orders, 500, FetchOptions::new().max_bytes(1));
    let length = length.expect("it is readable").bytes.len();
    machine.disk.tamper(&path, |bytes| bytes.copy_within(from..from + length, to));
    drop(engine);
    machine.broken = broken;
    let engine = machine.open().expect("nothing of it is replayed");
    let orders = engine.topic("orders").expect("it exists").partition(0).expect("it has one");
    match engine.fetch(&orders, 200, FetchOptions::new().max_bytes(1)) {
        Err(FetchError::Damaged { corruption, .. }) => {
            assert!(matches!(corruption.place, Place::Batch { offset: 200, .. }), "{corruption}");
            Ok(())
        }
        Err(error) => Err(format!("{error}")),
        Ok(fetched) => {
            let record = fetched.records().next().expect("it has records");
            let key = record.expect("its own checksum holds").key;
            Err(format!("offset 200 is served as {key:?}"))
        }
    }
}

#[test]
fn bytes_of_another_batch_are_never_served_although_their_checksum_holds() {
    read_misdirected(BrokenRules::NONE).expect("it is an error");
}

#[test]
fn a_read_of_the_index_that_fails_is_an_error_and_never_an_end() {
    let (machine, engine, orders) = thousand_records();
    machine.fails_reads(true);
    assert!(engine.fetch(&orders, 0, FetchOptions::new()).is_err());
    assert!(engine.fetch(&orders, 999, FetchOptions::new()).is_err());
    assert!(engine.verify().is_err());
    let query = tidelog::OffsetQuery::Timestamp(0);
    let found = engine.list_offset(&orders, query, Default::default(), Default::default());
    assert!(found.is_err(), "{found:?}");
    assert!(engine.delete_topic("orders").is_err());
    machine.fails_reads(false);
    assert!(engine.fetch(&orders, 0, FetchOptions::new()).is_ok());
    machine.fails_reads(true);
    drop(engine);
    // An engine without topics would be the worst of answers.
    assert!(matches!(machine.open(), Err(OpenError::Storage(StorageError::Store { .. }))));
    machine.fails_reads(false);
    let engine = machine.open().expect("it can be read again");
    let orders = engine.topic("orders").expect("it exists").partition(0).expect("it has one");
    assert_eq!(engine.watermarks(&orders).expect("it exists").log_end, 1000);
}

#[test]
fn an_empty_segment_after_the_log_is_ignored_and_one_that_lost_commits_is_not() {
    let mut base = started(2, BrokenRules::NONE);
    assert_eq!(base.commit(&THREE, Durability::Sync), Flow::GoesOn);
    let (path, _) = newest(&base);
    let mut world = base.image(1);
    let next = path.with_file_name("00000000000000000009.log");
    world.machine.disk.plant(&next, Vec::new());
    world.must_restart(Stop::Kill);
    world.check_afterlife().expect("it goes on");

    base.must(&Operation::Checkpoint);
    for length in [0, 100, 4096, 5000] {
        let mut world = base.image(length);
        world.machine.disk.tamper(&path, |bytes| bytes.truncate(length as usize));
        world.stop(Stop::Kill);
        let refused = world.machine.open().map(|_| ());
        assert!(
            matches!(refused, Err(OpenError::Storage(StorageError::Corruption(_)))),
            "cut to {length}: {refused:?}"
        );
    }
}
