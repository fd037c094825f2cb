//! Single failures while the log runs: a full disk, a failing cut, syncs that are held or fail.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Arc;

use tidelog::error::StorageError;
use tidelog::internals::log::{
    AppendFailure, CommitLog, LogOptions, RecoveredLog, SEGMENT_HEADER_BYTES,
};
use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{EIO, ENOSPC, Fault, FileCall, PowerLoss, SimulatedDisk};
use tidelog::types::{AppliedCommit, CommitSequence};

use crate::model::{
    Commit, DIRECTORY, LOG, append, batch, options, read_back, segment_path, used_bytes,
};

fn new_log(disk: &SimulatedDisk) -> CommitLog {
    new_log_with(disk, options(BrokenRules::NONE))
}

fn new_log_with(disk: &SimulatedDisk, options: LogOptions) -> CommitLog {
    CommitLog::create(disk.process(), Path::new(DIRECTORY), LOG, options).unwrap()
}

fn open(disk: &SimulatedDisk, applied: AppliedCommit) -> (CommitLog, RecoveredLog) {
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    let options = options(BrokenRules::NONE);
    CommitLog::open(files, directory, LOG, options, applied, &mut |_| Ok(())).unwrap()
}

fn commit(number: u64) -> Commit {
    Commit::new(number, vec![batch(number, 300)])
}

#[test]
fn a_disk_that_is_full_at_any_byte_of_a_group_leaves_nothing_of_it() {
    let group = [commit(2), commit(3), commit(4)];
    let group_bytes: u64 = group.iter().map(Commit::frame_bytes).sum();
    for room in 0..=group_bytes {
        let disk = SimulatedDisk::new(room);
        disk.set_write_back(50);
        let log = new_log(&disk);
        let first_place = log.first_place();
        append(&log, &[commit(1)]).unwrap();
        disk.set_capacity(Some(used_bytes(&log) + room));
        let result = append(&log, &group);
        if room == group_bytes {
            result.unwrap();
            continue;
        }
        let refused = result.unwrap_err();
        let AppendFailure::NotWritten(StorageError::DiskFull { .. }) = refused else {
            panic!("room {room}: {refused:?}");
        };
        assert!(!log.is_halted());
        for seed in 0..4 {
            let disk = disk.fork();
            disk.set_capacity(None);
            disk.power_loss(PowerLoss::Random(seed));
            assert_eq!(open(&disk, first_place).1.last.sequence.0, 1, "room {room}");
        }
        // Once there is space it goes on, in a new segment.
        disk.set_capacity(None);
        let place = append(&log, &[commit(5)]).unwrap()[0];
        assert_eq!(place.sequence, CommitSequence(2));
        assert_eq!(place.position, SEGMENT_HEADER_BYTES);
        log.sync(log.written()).unwrap();
        disk.power_loss(PowerLoss::Random(room));
        let (log, found) = open(&disk, first_place);
        assert_eq!(found.last, place);
        read_back(&log, &commit(5), place).unwrap();
    }
}

#[test]
fn while_the_disk_is_full_tries_leave_no_files_and_reads_go_on() {
    let disk = SimulatedDisk::new(1);
    let log = new_log(&disk);
    let place = append(&log, &[commit(1)]).unwrap()[0];
    disk.set_capacity(Some(used_bytes(&log) + 10));
    for _ in 0..5 {
        let refused = append(&log, &[commit(2)]).unwrap_err();
        assert!(matches!(refused, AppendFailure::NotWritten(StorageError::DiskFull { .. })));
        read_back(&log, &commit(1), place).unwrap();
        assert_eq!(log.segments().len(), 1);
        let names = tidelog::testing::Files::list(&disk, Path::new(DIRECTORY)).unwrap();
        assert_eq!(names.len(), 1);
        log.sync(log.written()).unwrap();
    }
    disk.set_capacity(None);
    assert_eq!(append(&log, &[commit(2)]).unwrap()[0].sequence, CommitSequence(2));
}

#[test]
fn a_write_or_a_truncation_that_fails_leaves_the_outcome_unknown_and_halts() {
    let full = Fault::next(FileCall::Write, ENOSPC).after_bytes(100);
    let cases: [&[Fault]; 3] = [
        &[Fault::next(FileCall::Write, EIO).after_bytes(100)],
        &[full, Fault::next(FileCall::SetLength, EIO)],
        &[full, Fault::next(FileCall::Sync, EIO)],
    ];
    for faults in cases {
        let disk = SimulatedDisk::new(1);
        let log = new_log(&disk);
        let place = append(&log, &[commit(1)]).unwrap()[0];
        log.sync(log.written()).unwrap();
        faults.iter().for_each(|fault| disk.plan(*fault));
        assert!(matches!(append(&log, &[commit(2)]), Err(AppendFailure::Unknown(_))));
        assert!(log.is_halted());
        let refused = append(&log, &[commit(2)]).unwrap_err();
        assert!(matches!(refused, AppendFailure::NotWritten(StorageError::Halted { .. })));
        // What was synced is, and can be read.
        log.sync(CommitSequence(1)).unwrap();
        read_back(&log, &commit(1), place).unwrap();
    }
}

#[test]
fn the_first_cause_of_a_halt_is_kept() {
    let disk = SimulatedDisk::new(1);
    let log = new_log(&disk);
    append(&log, &[commit(1)]).unwrap();
    disk.plan(Fault::next(FileCall::Sync, EIO));
    assert!(matches!(log.sync(log.written()), Err(StorageError::Io { .. })));
    log.halt(StorageError::Closed);
    let Err(StorageError::Halted { cause }) = log.sync(log.written()) else { panic!() };
    assert!(matches!(*cause, StorageError::Io { operation: "sync", .. }));
    assert!(log.check_running().is_err());
}

#[test]
fn a_new_segment_that_cannot_be_made_refuses_the_group_and_an_error_of_its_sync_halts() {
    for (operation, errno, halts) in [
        (FileCall::Create, ENOSPC, false),
        (FileCall::Create, EIO, false),
        (FileCall::Write, ENOSPC, false),
        (FileCall::Write, EIO, true),
        (FileCall::SyncDirectory, EIO, true),
        (FileCall::Sync, ENOSPC, true),
    ] {
        let disk = SimulatedDisk::new(1);
        let log = new_log(&disk);
        append(&log, &[Commit::new(1, vec![batch(1, 3500)])]).unwrap();
        disk.plan(Fault::next(operation, errno));
        let refused = append(&log, &[commit(2)]).unwrap_err();
        assert!(matches!(refused, AppendFailure::NotWritten(_)), "{operation:?}");
        assert_eq!(log.is_halted(), halts, "{operation:?}");
        if !halts {
            let place = append(&log, &[commit(2)]).unwrap()[0];
            assert_eq!(place.sequence, CommitSequence(2));
        }
    }
}

#[test]
fn appends_that_would_touch_the_reserve_are_refused_and_what_frees_space_may_use_it() {
    let disk = SimulatedDisk::new(1);
    let reserve_bytes = 5000;
    let log = new_log_with(&disk, LogOptions { reserve_bytes, ..options(BrokenRules::NONE) });
    let bytes = commit(1).frame_bytes();
    disk.set_capacity(Some(used_bytes(&log) + reserve_bytes + bytes - 1));
    let refused = log.place_group(bytes, false).unwrap_err();
    let AppendFailure::NotWritten(StorageError::DiskFull { free_bytes, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(free_bytes, reserve_bytes + bytes - 1);
    log.place_group(bytes, true).unwrap();
    disk.set_capacity(Some(used_bytes(&log) + reserve_bytes + bytes));
    append(&log, &[commit(1)]).unwrap();
    assert!(append(&log, &[commit(2)]).is_err());
}

#[test]
fn while_a_sync_is_held_appends_are_taken_and_can_be_read() {
    let disk = SimulatedDisk::new(1);
    let log = Arc::new(new_log(&disk));
    append(&log, &[commit(1)]).unwrap();
    disk.hold_syncs();
    let syncing = log.clone();
    let thread = std::thread::spawn(move || syncing.sync(CommitSequence(1)));
    while disk.held_syncs() == 0 {
        std::thread::yield_now();
    }
    for number in 2..=9 {
        let place = append(&log, &[commit(number)]).unwrap()[0];
        read_back(&log, &commit(number), place).unwrap();
    }
    assert_eq!((log.written().0, log.synced().0), (9, 0));
    disk.release_syncs();
    thread.join().unwrap().unwrap();
    assert_eq!(log.synced(), CommitSequence(1), "what came meanwhile is not covered");
    log.sync(CommitSequence(2)).unwrap();
    assert_eq!((log.synced().0, log.unsynced_bytes()), (9, 0));
}

#[test]
fn a_sync_right_after_a_roll_covers_the_segment_that_was_left() {
    let disk = SimulatedDisk::new(1);
    let log = new_log(&disk);
    let first_place = log.first_place();
    let big = |number| Commit::new(number, vec![batch(number, 2500)]);
    let places: Vec<AppliedCommit> =
        (1..=3).map(|number| append(&log, &[big(number)]).unwrap()[0]).collect();
    let segments: Vec<u64> = places.iter().map(|place| place.segment.0).collect();
    assert_eq!(segments, [1, 2, 3], "two rolls in one unsynced stretch");
    log.sync(CommitSequence(3)).unwrap();
    disk.power_loss(PowerLoss::Nothing);
    let (log, found) = open(&disk, first_place);
    assert_eq!(found.last, places[2]);
    for (place, number) in places.iter().zip(1..) {
        read_back(&log, &big(number), *place).unwrap();
    }
}

#[test]
fn a_group_larger_than_a_segment_gets_one_of_its_own() {
    let disk = SimulatedDisk::new(1);
    let log = new_log(&disk);
    let huge = |number| Commit::new(number, vec![batch(number, 20_000)]);
    let first_place = log.first_place();
    let group = [commit(1), huge(2), commit(3), huge(4), huge(5), commit(6)];
    let places: Vec<AppliedCommit> =
        group.iter().map(|one| append(&log, std::slice::from_ref(one)).unwrap()[0]).collect();
    let segments: Vec<u64> = places.iter().map(|place| place.segment.0).collect();
    assert_eq!(segments, [1, 2, 3, 4, 5, 6]);
    assert_eq!(
        log.unsynced_bytes(),
        commit(6).frame_bytes(),
        "each had to wait for the one before"
    );
    disk.kill();
    let (log, found) = open(&disk, first_place);
    assert_eq!(found.last, places[5]);
    for (one, place) in group.iter().zip(&places) {
        read_back(&log, one, *place).unwrap();
    }
}

#[test]
fn a_group_that_just_fits_stays_and_one_byte_more_rolls() {
    let room = options(BrokenRules::NONE).segment_bytes - SEGMENT_HEADER_BYTES;
    for (extra, segment) in [(0, 1), (8, 2)] {
        let disk = SimulatedDisk::new(1);
        let log = new_log(&disk);
        append(&log, &[commit(1)]).unwrap();
        let left = room - commit(1).frame_bytes();
        assert_eq!(left % 8, 0);
        let place = log.place_group(left + extra, false).unwrap();
        assert_eq!(place.segment.0, segment);
    }
}

#[test]
fn the_committer_waits_above_the_bound_until_a_sync_has_made_room() {
    let disk = SimulatedDisk::new(1);
    let log = Arc::new(new_log(&disk));
    let big = |number| Commit::new(number, vec![batch(number, 3000)]);
    append(&log, &[big(1)]).unwrap();
    append(&log, &[big(2)]).unwrap();
    assert_eq!(log.synced(), CommitSequence::NONE);
    disk.hold_syncs();
    let committer = log.clone();
    let thread = std::thread::spawn(move || append(&committer, &[big(3)]).map(drop));
    while disk.held_syncs() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(log.written(), CommitSequence(2));
    disk.release_syncs();
    thread.join().unwrap().unwrap();
    assert_eq!((log.written().0, log.synced().0), (3, 2));
}

#[test]
fn a_clock_that_steps_changes_nothing_but_the_append_times() {
    let write = |times: [i64; 3]| {
        let disk = SimulatedDisk::new(1);
        let log = new_log(&disk);
        let mut positions = Vec::new();
        for (number, append_time_ms) in (1..).zip(times) {
            let commit = commit(number);
            let payloads = commit.payloads();
            log.place_group(commit.frame_bytes(), false).unwrap();
            let frame = tidelog::internals::log::NewFrame {
                sequence: CommitSequence(number),
                append_time_ms,
                write_batch: &commit.write_batch,
                payloads: &payloads,
            };
            positions.push(log.append_group(&[frame]).unwrap()[0].position as usize);
        }
        let mut bytes = disk.contents(&segment_path(log.first_place().segment)).unwrap();
        disk.kill();
        let mut replayed = Vec::new();
        let mut replay = |frame: tidelog::internals::log::ReplayedFrame<'_>| {
            replayed.push(frame.append_time_ms);
            Ok(())
        };
        let (files, directory) = (disk.process(), Path::new(DIRECTORY));
        let (options, applied) = (options(BrokenRules::NONE), log.first_place());
        CommitLog::open(files, directory, LOG, options, applied, &mut replay).unwrap();
        assert_eq!(replayed, times);
        for at in positions {
            // The checksums, the append time and the seal.
            for place in [at + 4..at + 8, at + 40..at + 48, at + 56..at + 60, at + 68..at + 76] {
                bytes[place].fill(0);
            }
        }
        bytes
    };
    let decade = 10 * 365 * 86_400_000;
    assert_eq!(write([1_000, 1_001, 1_002]), write([decade, -decade, i64::MIN]));
}
