//! The commit log on a simulated disk: nothing acknowledged is lost, nothing refused comes back,
//! and each of its rules matters.
#![cfg(feature = "test-util")]

mod broken_rules;
mod damage;
mod every_call;
mod failures;
mod found_damage;
mod groups;
mod kept;
mod model;
mod names;
mod reuse;
mod scene;
mod world;

use model::{SYNC_FULL, Settings};
use world::search;

fn must_hold(seeds: std::ops::Range<u64>, settings: Settings) {
    match search(seeds, settings) {
        Ok(survived) => {
            println!("{survived:?}");
            assert!(survived.reused_count > 100, "segments are written over: {survived:?}");
        }
        Err((seed, what)) => panic!("seed {seed}: {what}"),
    }
}

#[test]
fn crashes_at_any_call_lose_nothing_acknowledged() {
    must_hold(0..1100, Settings::PLAIN);
}

#[test]
fn frames_of_equal_size_and_content_are_never_taken_for_one_another() {
    must_hold(0..400, Settings { equal_frames: true, stale_bytes: true, ..Settings::PLAIN });
}

#[test]
fn a_sync_that_fails_once_halts_and_loses_nothing_acknowledged() {
    let settings = Settings { sync_fails_percent: 60, ..Settings::PLAIN };
    must_hold(0..500, settings);
    must_hold(500..700, Settings { sync_errno: SYNC_FULL, ..settings });
}

#[test]
fn a_full_disk_refuses_commits_for_good_and_loses_none() {
    // Nothing is appended in the middle of a sync: taking back what a full disk left would wait
    // for the sync that it stands in.
    let settings = Settings { interleave_percent: 0, write_back_percent: 60, ..Settings::PLAIN };
    must_hold(0..600, Settings { full_percent: 25, ..settings });
}

#[test]
fn a_flipped_bit_in_a_synced_commit_is_found_where_anything_proves_it() {
    must_hold(0..500, Settings { rot_percent: 50, ..Settings::PLAIN });
    must_hold(0..500, Settings { header_rot_percent: 50, ..Settings::PLAIN });
}
