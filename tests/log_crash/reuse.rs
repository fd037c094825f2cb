//! Freed segments that are written over: nothing of their earlier use is taken for anything.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use tidelog::error::{Place, StorageError};
use tidelog::internals::log::{AppendFailure, LogOptions, NewFrame, SEGMENT_HEADER_BYTES};
use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::testing::{EIO, ENOSPC, Fault, FileCall, Files, PowerLoss, SimulatedDisk};
use tidelog::types::{AppliedCommit, PayloadLocation, SegmentId};

use crate::model::{
    Commit, DIRECTORY, append, batch, free_path, options, read_back, segment_path, used_bytes,
};
use crate::scene::{
    Scene, append_one, big, breaking, free_names, length_of, names, open, open_with, small,
};

#[test]
fn a_freed_segment_becomes_the_next_one_and_its_old_id_reads_nothing() {
    let scene = Scene::new(0);
    let (disk, log) = (&scene.disk, &scene.log);
    // Its descriptor is in the cache of open files.
    read_back(log, &big(1), scene.places[0]).unwrap();
    assert_eq!(
        log.free_segment(SegmentId(1)).unwrap(),
        scene.places[0].position + big(1).frame_bytes()
    );
    assert_eq!(free_names(disk), ["00000000000000000001.free"]);
    assert!(read_back(log, &big(1), scene.places[0]).is_err());
    let length = length_of(disk, &free_path(SegmentId(1)));
    let free = log.free_segments();
    assert_eq!((free.count, free.bytes, free.reused_count), (1, length, 0));
    let place = append_one(log, &big(5));
    assert_eq!(place.segment, SegmentId(5));
    assert_eq!(length_of(disk, &segment_path(SegmentId(5))), length, "no byte was added");
    assert!(free_names(disk).is_empty());
    assert_eq!(log.free_segments().reused_count, 1);
    read_back(log, &big(5), place).unwrap();
    assert!(read_back(log, &big(1), scene.places[0]).is_err());
    assert_eq!(log.free_segment(SegmentId(1)).unwrap(), 0, "it is gone already");
    log.sync(log.written()).unwrap();
    let applied = scene.applied();
    disk.power_loss(PowerLoss::Nothing);
    let (log, found) = open(disk, applied);
    assert_eq!(found.last, place);
    read_back(&log, &big(5), place).unwrap();
}

#[test]
fn what_an_earlier_use_left_is_not_torn_and_what_this_one_left_is() {
    let scene = Scene::new(1);
    let place = append_one(&scene.log, &small(5));
    let end = place.position + small(5).frame_bytes();
    let tail = length_of(&scene.disk, &segment_path(place.segment)) - end;
    assert_eq!(scene.log.free_segments().bytes, tail);
    scene.log.sync(scene.log.written()).unwrap();
    let torn = append_one(&scene.log, &small(6));
    let (disk, applied) = scene.killed();
    let (_, found) = open(&disk.fork(), applied);
    assert_eq!((found.last, found.torn_bytes), (torn, 0));
    // One bit of the payload of the last commit.
    let middle = torn.position + small(6).payloads_at() + 100;
    disk.flip_bit(&segment_path(torn.segment), middle * 8);
    let (_, found) = open(&disk, applied);
    assert_eq!((found.last, found.torn_bytes), (place, small(6).frame_bytes()));
}

#[test]
fn a_file_that_has_grown_since_it_was_reused_holds_nothing_old() {
    let scene = Scene::new(0);
    append_one(&scene.log, &small(5));
    let applied = append_one(&scene.log, &big(6));
    scene.log.sync(scene.log.written()).unwrap();
    scene.log.free_segment(SegmentId(5)).unwrap();
    let place = append_one(&scene.log, &big(7));
    assert_eq!(scene.log.free_segments().reused_count, 1);
    let (disk, _) = scene.killed();
    disk.flip_bit(&segment_path(place.segment), (place.position + 1) * 8);
    let (_, found) = open(&disk, applied);
    assert_eq!((found.last.sequence.0, found.torn_bytes), (6, big(7).frame_bytes()));
}

#[test]
fn what_lies_beyond_the_end_is_truncated_when_the_segment_is_left_or_the_log_closed() {
    let scene = Scene::new(2);
    let (disk, log) = (&scene.disk, &scene.log);
    let place = append_one(log, &small(5));
    log.sync(log.written()).unwrap();
    log.leave_segment();
    let next = append_one(log, &small(6));
    let end = place.position + small(5).frame_bytes();
    assert_eq!(length_of(disk, &segment_path(place.segment)), end);
    log.sync(log.written()).unwrap();
    for (loss, trims) in [(PowerLoss::Nothing, false), (PowerLoss::Everything, true)] {
        let disk = disk.fork();
        disk.power_loss(loss);
        // The cut was lost, or it was not; either way the log is the same.
        let (log, found) = open(&disk, scene.applied());
        assert_eq!((found.last, found.torn_bytes), (next, 0));
        read_back(&log, &small(5), place).unwrap();
        if trims {
            let mut batches = 0;
            assert!(log.walk(place.segment, &mut |_| batches += 1).unwrap());
            assert_eq!(batches, 1);
        }
    }
    log.trim();
    let end = next.position + small(6).frame_bytes();
    assert_eq!(length_of(disk, &segment_path(next.segment)), end);
    assert_eq!(log.free_segments().bytes, 0);
    let used: u64 =
        names(disk).iter().map(|n| length_of(disk, &Path::new(DIRECTORY).join(n))).sum();
    assert_eq!(used, used_bytes(log));
}

#[test]
fn a_segment_that_a_crash_left_before_its_stale_end_can_be_followed() {
    let scene = Scene::new(1);
    let place = append_one(&scene.log, &small(5));
    let (disk, applied) = scene.killed();
    let (log, _) = open(&disk, applied);
    let mut batches = 0;
    assert!(log.walk(place.segment, &mut |_| batches += 1).unwrap());
    assert_eq!(batches, 1);
    assert!(length_of(&disk, &segment_path(place.segment)) > 7000, "nothing cut it");
    // Damage is still told.
    disk.flip_bit(&segment_path(place.segment), (place.position + 9) * 8);
    assert!(!log.walk(place.segment, &mut |_| ()).unwrap());
}

/// A disk whose freed segment 1 holds, in its frames, the commit that would come next: with its
/// number, its predecessor and its place, and another segment's id. Also what such an open finds.
fn with_the_next_commit_in_a_free_file() -> (SimulatedDisk, AppliedCommit, Commit) {
    let (disk, applied) = Scene::new(1).killed();
    let next = big(5);
    let future = disk.fork();
    // There the next segment has another id.
    future.plant(&segment_path(SegmentId(8)), Vec::new());
    let (log, _) = open(&future, applied);
    let place = append_one(&log, &next);
    assert_eq!((place.segment, place.position), (SegmentId(9), SEGMENT_HEADER_BYTES));
    let frames = future.contents(&segment_path(SegmentId(9))).unwrap();
    let header = SEGMENT_HEADER_BYTES as usize;
    disk.tamper(&free_path(SegmentId(1)), |bytes| {
        assert_eq!(bytes.len(), frames.len());
        bytes[header..].copy_from_slice(&frames[header..]);
    });
    (disk, applied, next)
}

#[test]
fn a_stale_frame_that_carries_exactly_the_next_number_is_no_commit() {
    let (disk, applied, _) = with_the_next_commit_in_a_free_file();
    let opened_twice = |options: LogOptions| {
        let disk = disk.fork();
        let (log, _) = open_with(&disk, applied, options.clone()).unwrap();
        assert_eq!(log.first_place().segment, SegmentId(5));
        assert_eq!(log.free_segments().reused_count, 1);
        disk.kill();
        open_with(&disk, applied, options).unwrap().1
    };
    let found = opened_twice(options(BrokenRules::NONE));
    assert_eq!((found.last, found.torn_bytes), (applied, 0));
    let found = opened_twice(breaking(Rule::W2SegmentInFrame));
    assert_eq!(found.last.sequence.0, 5, "a commit that nobody has made");
}

/// What a power loss leaves of a commit over a stale one of the same size and base offset: whether
/// the commit is there, and whether its bytes are its own.
fn write_over(seed: u64, broken: BrokenRules) -> Option<bool> {
    let (disk, applied, stale) = with_the_next_commit_in_a_free_file();
    let mut own = Commit::new(5, vec![batch(77, 3500)]);
    own.batches[0][..17].copy_from_slice(&stale.batches[0][..17]);
    let (log, _) = open_with(&disk, applied, options(broken)).unwrap();
    let place = append_one(&log, &own);
    disk.power_loss(PowerLoss::Random(seed));
    let (log, found) = open_with(&disk, applied, options(broken)).unwrap();
    assert!(found.last == applied || found.last == place, "{found:?}");
    (found.last == place).then(|| read_back(&log, &own, place).is_ok())
}

#[test]
fn a_torn_commit_over_a_stale_one_of_the_same_size_never_shows_the_bytes_of_that() {
    let seen: Vec<_> = (0..60).map(|seed| write_over(seed, BrokenRules::NONE)).collect();
    assert!(seen.contains(&None));
    assert!(!seen.contains(&Some(false)));
    let broken = BrokenRules::only(Rule::W2PayloadTable);
    assert!((0..60).any(|seed| write_over(seed, broken) == Some(false)));
}

#[test]
fn a_disk_that_is_full_at_any_byte_of_a_reused_file_leaves_nothing_of_the_group() {
    for room in (0..=small(6).frame_bytes()).step_by(8) {
        let scene = Scene::new(1);
        let (disk, log) = (&scene.disk, &scene.log);
        disk.set_write_back(50);
        let place = append_one(log, &small(5));
        disk.plan(Fault::next(FileCall::Write, ENOSPC).after_bytes(room));
        let refused = append(log, &[small(6)]);
        let AppendFailure::NotWritten(StorageError::DiskFull { .. }) = refused.unwrap_err() else {
            panic!("room {room}");
        };
        let end = place.position + small(5).frame_bytes();
        assert_eq!(length_of(disk, &segment_path(place.segment)), end, "the cut takes it all");
        assert_eq!(log.free_segments().bytes, 0);
        for seed in 0..4 {
            let disk = disk.fork();
            disk.power_loss(PowerLoss::Random(seed));
            let (_, found) = open(&disk, scene.applied());
            assert_eq!((found.last, found.torn_bytes), (place, 0), "room {room}");
        }
        // It goes on in a new file; the one that had the error is never written over.
        let next = append_one(log, &small(7));
        assert_eq!((next.sequence.0, next.segment.0), (6, 6));
        log.sync(log.written()).unwrap();
        log.free_segment(place.segment).unwrap();
        assert!(free_names(disk).is_empty());
    }
}

/// A log whose newest segment was made of a freed one, with commit 5 in it, and which then got the
/// header of its earlier use again.
fn with_the_old_header() -> (SimulatedDisk, AppliedCommit) {
    let scene = Scene::new(1);
    let old = scene.disk.contents(&free_path(SegmentId(1))).unwrap();
    let place = append_one(&scene.log, &big(5));
    scene.log.sync(scene.log.written()).unwrap();
    let (disk, applied) = scene.killed();
    let header = SEGMENT_HEADER_BYTES as usize;
    disk.tamper(&segment_path(place.segment), |bytes| {
        bytes[..header].copy_from_slice(&old[..header]);
    });
    (disk, applied)
}

#[test]
fn r3_the_header_of_an_earlier_use_before_commits_of_this_one_is_damage() {
    let (disk, applied) = with_the_old_header();
    let refused = open_with(&disk.fork(), applied, options(BrokenRules::NONE)).map(drop);
    let StorageError::Corruption(found) = refused.unwrap_err() else { panic!("it is told") };
    assert_eq!(found.place, Place::Segment { segment: SegmentId(5), position: 0 });
    // Taken for a creation that never finished, it takes a synced commit with it.
    let opened = open_with(&disk, applied, breaking(Rule::R3BadHeaderWithFrames)).unwrap();
    assert_eq!(opened.1.last, applied);
}

#[test]
fn r3_the_header_of_an_earlier_use_without_commits_of_this_one_is_an_unfinished_creation() {
    // Renamed, its directory synced, and nothing more.
    let (disk, applied) = Scene::new(1).killed();
    disk.rename(&free_path(SegmentId(1)), &segment_path(SegmentId(5))).unwrap();
    disk.sync_directory(Path::new(DIRECTORY)).unwrap();
    let (log, found) = open(&disk.fork(), applied);
    assert_eq!((found.last, found.torn_bytes), (applied, 0));
    assert_eq!(log.first_place().segment, SegmentId(6), "no id is given twice");
    assert!(!names(&disk.fork()).contains(&"00000000000000000006.log".to_owned()));
    let refused = open_with(&disk, applied, breaking(Rule::R3OldHeader)).map(drop);
    assert!(matches!(refused, Err(StorageError::Corruption(_))));
}

#[test]
fn a_segment_of_the_log_under_another_name_is_refused_and_not_taken_for_a_freed_one() {
    let scene = Scene::new(1);
    append_one(&scene.log, &big(5));
    scene.log.sync(scene.log.written()).unwrap();
    let (disk, applied) = scene.killed();
    for id in [4, 5] {
        let disk = disk.fork();
        let bytes = disk.contents(&segment_path(SegmentId(id))).unwrap();
        disk.plant(&segment_path(SegmentId(7)), bytes);
        let refused = open_with(&disk, applied, options(BrokenRules::NONE)).map(drop);
        let StorageError::Corruption(found) = refused.unwrap_err() else { panic!("it is told") };
        assert_eq!(found.place, Place::File { path: segment_path(SegmentId(7)) });
    }
}

#[test]
fn a_truncation_of_a_reused_file_that_fails_halts_where_a_commit_depends_on_it_and_else_does_not() {
    for operation in [FileCall::SetLength, FileCall::Sync] {
        let scene = Scene::new(1);
        let place = append_one(&scene.log, &small(5));
        scene.log.sync(scene.log.written()).unwrap();
        scene.disk.plan(Fault::next(FileCall::Write, ENOSPC).after_bytes(200));
        scene.disk.plan(Fault::next(operation, EIO));
        let failed = append(&scene.log, &[small(6)]).unwrap_err();
        assert!(matches!(failed, AppendFailure::Unknown(_)), "{operation:?}");
        assert!(scene.log.is_halted());
        let applied = scene.applied();
        scene.disk.power_loss(PowerLoss::Random(9));
        assert_eq!(open(&scene.disk, applied).1.last, place);
    }
    // What is stale behind the end of a segment that is left may stay there.
    let scene = Scene::new(1);
    let place = append_one(&scene.log, &small(5));
    scene.log.leave_segment();
    scene.disk.plan(Fault::next(FileCall::SetLength, EIO));
    let next = append_one(&scene.log, &big(6));
    assert!(length_of(&scene.disk, &segment_path(place.segment)) > 7000);
    assert!(scene.log.walk(place.segment, &mut |_| ()).unwrap());
    scene.log.sync(scene.log.written()).unwrap();
    // But that file is not written over again.
    scene.log.free_segment(place.segment).unwrap();
    assert!(free_names(&scene.disk).is_empty());
    let applied = scene.applied();
    assert_eq!((next.segment.0, applied.segment.0), (6, 4));
}

#[test]
fn e4_a_reused_segment_whose_rest_cannot_be_given_back_gets_no_more_commits() {
    let reserve_bytes = 5000;
    for is_short in [false, true] {
        let options = LogOptions { reserve_bytes, ..options(BrokenRules::NONE) };
        let scene = Scene::with(options, 1);
        let (disk, log) = (&scene.disk, &scene.log);
        let place = append_one(log, &small(5));
        disk.plan(Fault::next(FileCall::SetLength, EIO));
        if is_short {
            disk.set_capacity(Some(used_bytes(log) + reserve_bytes));
            log.place_group(17 << 20, false).unwrap_err();
            disk.set_capacity(None);
        } else {
            log.release_free(false).unwrap();
        }
        let next = append_one(log, &small(6));
        assert_eq!((place.segment.0, next.segment.0), (5, 6), "{is_short}");
        log.sync(log.written()).unwrap();
        let applied = scene.applied();
        disk.power_loss(PowerLoss::Nothing);
        assert_eq!(open(disk, applied).1.last, next);
    }
}

#[test]
fn a_full_disk_takes_commits_in_freed_segments() {
    let scene = Scene::new(2);
    scene.disk.set_capacity(Some(used_bytes(&scene.log)));
    for number in [5, 6] {
        let place = append_one(&scene.log, &big(number));
        read_back(&scene.log, &big(number), place).unwrap();
    }
    assert!(append(&scene.log, &[big(7)]).is_err());
    assert!(!scene.log.is_halted());
}

#[test]
fn a_read_beyond_the_frames_of_a_reused_segment_finds_no_stale_bytes() {
    let scene = Scene::new(1);
    let place = append_one(&scene.log, &small(5));
    let position = place.position + small(5).frame_bytes();
    let location = PayloadLocation { segment: place.segment, position, length_bytes: 100 };
    assert!(scene.log.read(location, &mut [0; 100]).is_err());
}

/// Whether a synced commit is there that went to the old segment, because the header of the next
/// one, in a freed file, did not fit.
fn is_there_after_a_header_that_did_not_fit(bytes: u64, is_removed: bool, loss: PowerLoss) -> bool {
    let scene = Scene::new(1);
    scene.disk.plan(Fault::next(FileCall::Write, ENOSPC).after_bytes(bytes));
    if !is_removed {
        scene.disk.plan(Fault::next(FileCall::Remove, EIO));
    }
    let refused = append(&scene.log, &[big(5)]).unwrap_err();
    assert!(matches!(refused, AppendFailure::NotWritten(StorageError::DiskFull { .. })));
    assert!(!scene.log.is_halted());
    let tiny = Commit::new(5, vec![batch(5, 100)]);
    let place = append_one(&scene.log, &tiny);
    scene.log.sync(scene.log.written()).unwrap();
    let applied = scene.applied();
    scene.disk.power_loss(loss);
    open(&scene.disk, applied).1.last == place
}

#[test]
fn a_header_that_did_not_fit_into_a_freed_file_never_ends_the_log_before_commits_after_it() {
    // The rest of a header is zeros, as in the file already.
    for bytes in [0, 79, 80, 512, 4095] {
        for is_removed in [true, false] {
            let losses = (0..20).map(PowerLoss::Random);
            for loss in losses.chain([PowerLoss::Nothing, PowerLoss::Everything]) {
                let is_there = is_there_after_a_header_that_did_not_fit(bytes, is_removed, loss);
                assert!(is_there, "bytes={bytes} removed={is_removed} {loss:?}");
            }
        }
    }
}

#[test]
fn e4_the_rest_of_a_segment_is_not_truncated_between_the_place_of_a_group_and_its_write() {
    let scene = Scene::new(1);
    let log = &scene.log;
    let first = append_one(log, &small(5));
    let (commit, tail) = (small(6), log.free_segments().bytes);
    let group = log.place_group(commit.frame_bytes(), false).unwrap();
    scene.disk.plan(Fault::next(FileCall::SetLength, EIO));
    log.release_free(false).unwrap();
    assert_eq!(log.free_segments().bytes, tail, "what is being written waits");
    let (sequence, payloads) = (log.written().next(), commit.payloads());
    let write_batch = &commit.write_batch;
    let frame = NewFrame { sequence, append_time_ms: 7, write_batch, payloads: &payloads };
    log.append_group(&[frame]).unwrap();
    assert_eq!(group.segment, first.segment);
    // Now it fails, and nothing more is written there.
    log.release_free(false).unwrap();
    assert_eq!(log.free_segments().bytes, 0);
    assert_eq!(append_one(log, &small(7)).segment.0, first.segment.0 + 1);
}
