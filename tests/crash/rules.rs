//! Each rule, broken on purpose, breaks a promise: so each of them matters, and the tests would notice.
//!
//! Here are the rules that show in the whole engine. `tests/log_crash` breaks those of the log in
//! the log alone, among them `W2SegmentInFrame`, which shows nowhere else: a frame of another
//! segment at the same place needs the log's own control over its bytes.

use tidelog::internals::rules::{BrokenRules, Rule};

use crate::damage::{open_after_damage, open_after_header_damage, read_misdirected};
use crate::endings::{Ends, end_halted};
use crate::faults::{AHEAD, lose_what_was_flushed, refuse_for_good, sync_beside_one_that_fails};
use crate::lives::{Settings, run};

/// How many runs are looked through for one in which a broken rule shows.
const SEEDS: u64 = 400;

fn must_matter(rule: Rule, settings: Settings) {
    let broken = Settings { broken: BrokenRules::only(rule), ..settings };
    // A broken rule may also end in an assertion of the engine's own.
    let breaks = |seed: &u64| {
        let ran = std::panic::catch_unwind(|| run(*seed, broken));
        ran.map_or(true, |result| result.is_err())
    };
    let seed = (0..SEEDS).find(breaks);
    let seed = seed.unwrap_or_else(|| panic!("{rule:?} can be broken and nobody notices"));
    println!("{rule:?}: seed {seed}");
    // It is the rule that matters: in the same run, kept, all holds.
    run(seed, settings).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn w1_segment_ids_that_are_given_twice_lose_segments() {
    must_matter(Rule::W1SegmentIdOnce, Settings::FAILING);
}

#[test]
fn w2_a_commit_without_its_payload_is_taken_where_the_table_is_not_compared() {
    must_matter(Rule::W2PayloadTable, Settings::PLAIN);
}

#[test]
fn w3_a_segment_whose_name_is_not_synced_vanishes() {
    must_matter(Rule::W3DirectorySynced, Settings::PLAIN);
}

#[test]
fn w3_a_segment_that_is_written_on_after_an_open_loses_commits() {
    must_matter(Rule::W3NewSegmentAtOpen, Settings::FULL);
}

#[test]
fn w4_bytes_of_another_batch_are_served_where_a_read_does_not_compare() {
    let served = read_misdirected(BrokenRules::only(Rule::W4ReadCompares));
    assert!(served.expect_err("it is served").contains("key-50"));
}

#[test]
fn w5_a_sync_of_the_newest_segment_alone_loses_what_is_before_it() {
    must_matter(Rule::W5SyncCoversAll, Settings::PLAIN);
}

#[test]
fn w5_commits_that_came_during_a_sync_are_lost_where_it_counts_for_them() {
    must_matter(Rule::W5SyncedBeforeBegin, Settings::INTERLEAVED);
}

#[test]
fn w7_a_sync_that_succeeds_after_one_that_failed_acknowledges_what_is_lost() {
    must_matter(Rule::W7FailureIsFinal, Settings::FAILING);
}

#[test]
fn w7_of_two_syncs_at_once_one_hides_the_failure_of_the_other() {
    let what = sync_beside_one_that_fails(BrokenRules::only(Rule::W7OneSyncAtATime));
    assert!(what.expect_err("it is lost").contains("commits are there"));
}

#[test]
fn w8_without_the_bound_more_is_unsynced_than_was_promised() {
    must_matter(Rule::W8Bound, Settings::PLAIN);
}

#[test]
fn s4_an_index_that_is_flushed_before_the_log_is_synced_gets_ahead_of_it() {
    must_matter(Rule::S4SyncFirst, Settings::PLAIN);
}

#[test]
fn s4_commits_between_sync_and_flush_get_ahead_of_the_log() {
    must_matter(Rule::S4CheckpointUnderLock, Settings::INTERLEAVED);
}

#[test]
fn s6_an_engine_that_goes_on_after_its_store_failed_shows_what_is_not_there() {
    must_matter(Rule::S6HaltOnStoreError, Settings::STORE);
}

#[test]
fn s6_a_flush_at_the_end_of_a_halted_engine_gets_ahead_of_the_log() {
    for ends in [Ends::Closes, Ends::Drops, Ends::Panics] {
        let ended = end_halted(ends, false, BrokenRules::only(Rule::S6CloseWithoutFlush));
        assert!(ended.is_err(), "{ends:?}");
    }
}

#[test]
fn r3_a_damaged_header_drops_commits_where_it_counts_as_unfinished() {
    let what = open_after_header_damage(BrokenRules::only(Rule::R3BadHeaderWithFrames));
    let what = what.expect_err("it opens");
    assert!(!what.contains("no harm"), "{what}");
}

#[test]
fn r4_commits_that_only_the_cache_holds_vanish_from_below_those_that_follow() {
    must_matter(Rule::R4SyncBeforeRead, Settings::PLAIN);
}

#[test]
fn r6_what_lies_beyond_the_end_that_a_successor_states_is_taken_for_damage() {
    must_matter(Rule::R6SuccessorEnd, Settings::PLAIN);
}

#[test]
fn r7_damage_drops_commits_where_nobody_reads_beyond_it() {
    let what = open_after_damage(BrokenRules::only(Rule::R7LookBehind));
    assert!(what.expect_err("it opens").contains("commits are there"));
}

#[test]
fn r8_an_index_ahead_of_its_log_is_opened_where_nobody_compares() {
    let lose = |rules, seed| lose_what_was_flushed(true, seed, rules);
    let refused =
        |seed: &u64| lose(BrokenRules::NONE, *seed).is_err_and(|what| what.contains(AHEAD));
    let seeds: Vec<u64> = (0..20).filter(refused).collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        let what = lose(BrokenRules::only(Rule::R8AppliedInLog), seed).expect_err("it is wrong");
        assert!(!what.contains(AHEAD), "{what}");
    }
}

#[test]
fn r10_commits_after_a_header_that_is_not_synced_cannot_be_opened() {
    must_matter(Rule::R10NewHeader, Settings::STORE);
}

#[test]
fn e1_a_refused_commit_comes_back_where_the_truncation_is_not_synced() {
    let broken = BrokenRules::only(Rule::E1TruncationSynced);
    let back = (0..2000).find(|room| refuse_for_good(*room, broken).is_err());
    assert!(back.is_some(), "no refused commit came back");
}

#[test]
fn e2_a_full_disk_that_a_sync_reports_loses_commits_where_it_does_not_halt() {
    must_matter(Rule::E2SyncErrorHalts, Settings::FAILING);
}

#[test]
fn e3_a_halted_engine_that_takes_commits_loses_them() {
    must_matter(Rule::E3HaltRefuses, Settings::FAILING);
}

#[test]
fn e4_a_file_that_had_an_error_loses_what_is_written_there_again() {
    must_matter(Rule::E4NewFileAfterError, Settings::FULL);
}

#[test]
fn d1_a_topic_that_is_not_synced_is_taken_back() {
    must_matter(Rule::D1TopicsSynced, Settings::PLAIN);
}

#[test]
fn d2_one_epoch_and_offset_name_two_records_where_the_epoch_does_not_rise() {
    must_matter(Rule::D2EpochRises, Settings::PLAIN);
}
