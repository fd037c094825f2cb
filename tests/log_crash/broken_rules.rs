//! Each rule of the log broken on purpose: then some promise does not hold, and this shows which.

use std::path::Path;
use std::sync::Arc;

use tidelog::error::{Place, StorageError};
use tidelog::internals::log::CommitLog;
use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::testing::{EIO, Fault, FileCall, PowerLoss, SimulatedDisk};

use crate::model::{Commit, DIRECTORY, LOG, SYNC_FULL, Settings, append, batch, options};
use crate::world::{run, search};

/// How many worlds are looked through for one in which a broken rule shows.
const SEEDS: std::ops::Range<u64> = 0..3000;

fn must_matter(rule: Rule, settings: Settings) {
    let broken = Settings { broken: BrokenRules::only(rule), ..settings };
    match search(SEEDS, broken) {
        Ok(_) => panic!("{rule:?} can be broken and nobody notices"),
        Err((seed, what)) => {
            println!("{rule:?}: seed {seed}: {what}");
            // It is the rule that matters: in the same world, kept, it all holds.
            run(seed, settings).expect("the promises hold while the rules do");
        }
    }
}

const FAILING_SYNCS: Settings = Settings { sync_fails_percent: 60, ..Settings::PLAIN };
const FULL_DISK: Settings =
    Settings { full_percent: 25, write_back_percent: 60, interleave_percent: 0, ..Settings::PLAIN };

/// Short lives that often write the same again after a power loss.
const STALE_BYTES: Settings = Settings {
    lives: 30,
    steps: 3,
    power_percent: 90,
    equal_frames: true,
    stale_bytes: true,
    ..Settings::PLAIN
};

#[test]
fn w1_a_segment_id_given_twice_writes_where_an_error_was() {
    must_matter(Rule::W1SegmentIdOnce, FAILING_SYNCS);
}

#[test]
fn w2_without_the_segment_in_the_frame_stale_bytes_are_taken_for_a_commit() {
    must_matter(Rule::W2SegmentInFrame, STALE_BYTES);
}

#[test]
fn w2_without_the_payload_table_a_commit_comes_back_with_half_its_payload() {
    must_matter(Rule::W2PayloadTable, Settings::PLAIN);
}

#[test]
fn w3_without_the_directory_synced_an_acknowledged_segment_is_gone() {
    must_matter(Rule::W3DirectorySynced, Settings::PLAIN);
}

#[test]
fn w3_without_the_directory_synced_a_reused_segment_has_its_old_name() {
    must_matter(Rule::W3RenameSynced, Settings::PLAIN);
}

#[test]
fn w3_without_a_new_segment_at_open_commits_go_where_an_error_was() {
    must_matter(Rule::W3NewSegmentAtOpen, FAILING_SYNCS);
}

#[test]
fn w5_a_sync_of_the_newest_segment_alone_loses_what_is_before_it() {
    must_matter(Rule::W5SyncCoversAll, Settings::PLAIN);
}

#[test]
fn w5_synced_taken_after_the_sync_covers_commits_that_came_meanwhile() {
    must_matter(Rule::W5SyncedBeforeBegin, Settings::PLAIN);
}

#[test]
fn w7_a_sync_that_succeeds_after_one_that_failed_proves_nothing() {
    must_matter(Rule::W7FailureIsFinal, FAILING_SYNCS);
}

#[test]
fn w8_without_the_bound_more_is_at_stake_than_was_promised() {
    must_matter(Rule::W8Bound, Settings::PLAIN);
}

#[test]
fn r3_a_damaged_header_taken_for_an_unfinished_creation_drops_acknowledged_commits() {
    must_matter(
        Rule::R3BadHeaderWithFrames,
        Settings { header_rot_percent: 50, ..Settings::PLAIN },
    );
}

#[test]
fn r3_the_header_of_a_freed_segment_under_a_new_name_is_no_damage() {
    must_matter(Rule::R3OldHeader, Settings::PLAIN);
}

#[test]
fn r4_commits_that_only_the_cache_holds_vanish_before_those_that_follow() {
    must_matter(Rule::R4SyncBeforeRead, Settings::PLAIN);
}

#[test]
fn r6_reading_on_beyond_the_end_takes_a_torn_tail_for_damage() {
    must_matter(Rule::R6SuccessorEnd, Settings::PLAIN);
}

#[test]
fn r7_damage_with_nothing_read_beyond_it_is_taken_for_a_torn_tail() {
    must_matter(Rule::R7LookBehind, Settings { rot_percent: 50, ..Settings::PLAIN });
}

#[test]
fn r10_without_a_synced_header_commits_stand_in_a_segment_that_cannot_be_read() {
    must_matter(Rule::R10NewHeader, Settings::PLAIN);
}

#[test]
fn e1_a_truncation_that_is_not_synced_brings_refused_commits_back() {
    must_matter(Rule::E1TruncationSynced, FULL_DISK);
}

#[test]
fn e2_a_full_disk_at_a_sync_that_does_not_halt_loses_commits() {
    let settings = Settings { sync_errno: SYNC_FULL, ..FAILING_SYNCS };
    must_matter(Rule::E2SyncErrorHalts, settings);
}

#[test]
fn e4_writing_on_in_a_file_that_had_an_error_loses_commits() {
    must_matter(Rule::E4NewFileAfterError, FULL_DISK);
}

#[test]
fn f5_a_reused_file_that_had_an_error_loses_commits() {
    must_matter(Rule::F5CleanFile, FULL_DISK);
    must_matter(Rule::F5CleanFile, FAILING_SYNCS);
}

fn one_commit() -> Commit {
    Commit::new(1, vec![batch(1, 3000)])
}

fn new_log(disk: &SimulatedDisk, broken: BrokenRules) -> CommitLog {
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    CommitLog::create(files, directory, LOG, options(broken)).expect("nothing fails yet")
}

/// Two callers sync at once, and the device fails once: how many are told that it went well?
fn two_syncers(broken: BrokenRules) -> usize {
    let disk = SimulatedDisk::new(3);
    let log = Arc::new(new_log(&disk, broken));
    append(&log, &[one_commit()]).expect("nothing fails yet");
    disk.hold_syncs();
    disk.plan(Fault::next(FileCall::Sync, EIO));
    let sync = || {
        let log = log.clone();
        std::thread::spawn(move || log.sync(log.written()).is_ok())
    };
    let threads = [sync(), sync()];
    while disk.held_syncs() + log.waiting_syncs() < 2 {
        std::thread::yield_now();
    }
    disk.release_syncs();
    let told_well = threads.map(|thread| thread.join().expect("it does not panic"));
    told_well.into_iter().filter(|went_well| *went_well).count()
}

#[test]
fn w7_a_failed_sync_is_told_to_all_who_wait_for_it() {
    assert_eq!(two_syncers(BrokenRules::NONE), 0);
    let broken = BrokenRules::only(Rule::W7OneSyncAtATime);
    assert_eq!(two_syncers(broken), 1, "with two syncs at once, one is told that all is well");
}

/// The index holds a commit that the log lost: is the open refused?
fn index_ahead(broken: BrokenRules) -> Result<(), StorageError> {
    let disk = SimulatedDisk::new(3);
    let log = new_log(&disk, broken);
    append(&log, &[one_commit()]).expect("nothing fails");
    log.sync(log.written()).expect("nothing fails");
    let ahead = append(&log, &[one_commit()]).expect("nothing fails")[0];
    disk.power_loss(PowerLoss::Nothing);
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    CommitLog::open(files, directory, LOG, options(broken), ahead, &mut |_| Ok(())).map(drop)
}

#[test]
fn r8_an_index_that_is_ahead_of_the_log_is_refused() {
    let StorageError::Corruption(found) = index_ahead(BrokenRules::NONE).unwrap_err() else {
        panic!("the commits are named");
    };
    let Place::Commits { first, last } = found.place else { panic!("{found}") };
    assert_eq!((first.0, last.0), (2, 2));
    let broken = BrokenRules::only(Rule::R8AppliedInLog);
    assert!(index_ahead(broken).is_ok(), "the index then points at bytes that are not there");
}
