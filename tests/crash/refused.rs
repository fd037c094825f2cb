//! What an open refuses: it names why, changes nothing, and says the same the next time.

use std::path::{Path, PathBuf};

use tidelog::error::{Place, StorageError};
use tidelog::internals::keyspace::{FORMAT_VERSION, MetaKey, decode_applied};
use tidelog::internals::log::{CommitLog, LogOptions, NewFrame};
use tidelog::internals::rules::BrokenRules;
use tidelog::internals::store::OpenStore;
use tidelog::internals::write_batch::Family;
use tidelog::testing::PowerLoss;
use tidelog::types::AppliedCommit;
use tidelog::{Durability, OpenError};

use crate::endings::log_identity;
use crate::machine::{DIRECTORY, Machine, Stop};
use crate::operations::Operation;
use crate::script::{THREE, started};
use crate::world::World;

fn log_directory() -> PathBuf {
    Path::new(DIRECTORY).join("log")
}

fn store_directory() -> PathBuf {
    Path::new(DIRECTORY).join("store")
}

/// A stopped machine with an engine that was closed.
fn closed() -> World {
    let mut world = started(1, BrokenRules::NONE);
    world.commit(&THREE, Durability::Sync);
    world.must(&Operation::Close);
    let engine = world.engine.take().expect("it is open");
    engine.close().expect("nothing fails");
    world
}

/// All files with their bytes.
fn files(machine: &Machine) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths = machine.segments();
    paths.push(Path::new(DIRECTORY).join("FORMAT"));
    let read = |path: PathBuf| machine.disk.contents(&path).map(|bytes| (path, bytes));
    paths.into_iter().filter_map(read).collect()
}

/// Opens twice; the error, which is the same, and nothing is changed.
fn refusal(machine: &Machine) -> OpenError {
    let before = files(machine);
    let first = machine.open().map(|_| ()).expect_err("it is refused");
    machine.stop(Stop::Power(PowerLoss::Random(1)), 1);
    let second = machine.open().map(|_| ()).expect_err("it is refused again");
    assert_eq!(first.to_string(), second.to_string());
    assert_eq!(files(machine), before, "a refused open has changed something: {first}");
    first
}

fn applied_commit(machine: &Machine) -> AppliedCommit {
    let index = machine.store.open(&store_directory(), false).expect("it is closed");
    let get = |key: MetaKey| {
        let value = index.get(Family::Meta, &key.key()).expect("it can be read");
        value.expect("it was written")
    };
    let applied = decode_applied(&get(MetaKey::Applied)).expect("it is well formed");
    index.close().expect("nothing fails");
    applied
}

#[test]
fn a_frame_whose_write_batch_is_poison_is_refused_by_its_number_each_time() {
    // An inverted range; an unknown family; one operation cut short.
    let poisons: [&[u8]; 3] =
        [b"\x01\x03\x04\x01\x01ba", b"\x01\x02\x63\x01k", b"\x01\x01\x04\x09"];
    for poison in poisons {
        let world = closed();
        let applied = applied_commit(&world.machine);
        let identity = log_identity(&world.machine);
        let files = world.machine.disk.process();
        let options = LogOptions::default();
        let mut replay = |_: tidelog::internals::log::ReplayedFrame<'_>| Ok(());
        let directory = log_directory();
        let (log, _) = CommitLog::open(files, &directory, identity, options, applied, &mut replay)
            .expect("the log is good");
        let sequence = log.written().next();
        let frame = NewFrame { sequence, append_time_ms: 0, write_batch: poison, payloads: &[] };
        log.place_group(1024, false).expect("there is room");
        log.append_group(&[frame]).expect("the log does not look into it");
        log.sync(sequence).expect("nothing fails");
        drop(log);
        match refusal(&world.machine) {
            OpenError::Storage(StorageError::Corruption(corruption)) => {
                let place = Place::Commits { first: sequence, last: sequence };
                assert_eq!(corruption.place, place, "{corruption}");
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_format_of_another_version_is_refused_untouched() {
    let ours = format!("format {FORMAT_VERSION}");
    for other in [FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
        let world = closed();
        let path = Path::new(DIRECTORY).join("FORMAT");
        let other = format!("format {other}");
        world.machine.disk.tamper(&path, |bytes| {
            let text = String::from_utf8(bytes.clone()).expect("it is text");
            // Versions before the third had no secret.
            let is_older = other < ours;
            let lines = text.lines().filter(|line| !is_older || !line.starts_with("secret "));
            let text: String = lines.map(|line| format!("{line}\n")).collect();
            *bytes = text.replace(&ours, &other).into_bytes();
        });
        let error = refusal(&world.machine);
        assert!(matches!(&error, OpenError::UnknownFormat { found, .. } if found.contains(&other)));
    }

    // A segment of a later version, whole in its own way.
    let world = closed();
    let path = world.machine.segments().pop().expect("there is a log");
    world.machine.disk.tamper(&path, |bytes| {
        bytes[12..16].copy_from_slice(&3u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[12..4096]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    });
    let error = refusal(&world.machine);
    assert!(
        matches!(&error, OpenError::Storage(StorageError::UnknownFormat { version: 3, .. })),
        "{error}"
    );
}

#[test]
fn a_log_without_its_index_and_an_index_without_its_log_are_refused() {
    let world = closed();
    world.machine.store.remove(&store_directory());
    assert!(matches!(refusal(&world.machine), OpenError::IndexMissing { .. }));

    let world = closed();
    for path in world.machine.segments() {
        world.machine.disk.vanish(&path);
    }
    let error = refusal(&world.machine);
    assert!(matches!(error, OpenError::Storage(StorageError::Corruption(_))), "{error}");

    let world = closed();
    world.machine.disk.vanish(&Path::new(DIRECTORY).join("FORMAT"));
    assert!(matches!(refusal(&world.machine), OpenError::FormatMissing { .. }));
}

#[test]
fn a_log_with_commits_is_never_made_anew() {
    let world = closed();
    world.machine.disk.vanish(&Path::new(DIRECTORY).join("FORMAT"));
    world.machine.store.remove(&store_directory());
    let before = files(&world.machine);
    for _ in 0..2 {
        let error = world.machine.open().map(|_| ()).expect_err("it is refused");
        assert!(matches!(error, OpenError::Storage(StorageError::Corruption(_))), "{error}");
        assert_eq!(files(&world.machine), before);
    }
}

#[test]
fn the_index_of_another_engine_is_refused() {
    let world = closed();
    let other = Machine::new(77, BrokenRules::NONE);
    drop(other.open().expect("it is made"));
    let mut mixed = other.fork();
    mixed.disk = world.machine.disk.fork();
    mixed.stop(Stop::Kill, 1);
    let error = refusal(&mixed);
    assert!(matches!(error, OpenError::Storage(StorageError::Corruption(_))), "{error}");
}

#[test]
fn a_second_open_of_the_same_directory_is_told_who_has_it() {
    let world = started(1, BrokenRules::NONE);
    let second = world.machine.open().map(|_| ());
    assert!(matches!(second, Err(OpenError::Locked { .. })), "{second:?}");
}
