//! Which freed segments are kept to be written over, for how long, and which are removed.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use tidelog::error::StorageError;
use tidelog::internals::log::{AppendFailure, CommitLog, LogOptions, SEGMENT_HEADER_BYTES};
use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::testing::{EIO, ENOSPC, Fault, FileCall, PowerLoss, SimulatedDisk};
use tidelog::types::{CommitSequence, SegmentId};

use crate::model::{
    Commit, DIRECTORY, LOG, append, batch, free_path, options, read_back, segment_path, used_bytes,
};
use crate::scene::{Scene, append_one, big, free_names, length_of, names, open, open_with, small};

#[test]
fn only_files_that_nothing_is_wrong_with_are_kept() {
    let odd = Commit::new(5, vec![batch(5, 9000)]);
    let full = options(BrokenRules::NONE).segment_bytes;
    let is_kept = |prepare: &dyn Fn(&Scene), id: u64| {
        let scene = Scene::new(0);
        prepare(&scene);
        scene.log.free_segment(SegmentId(id)).unwrap();
        assert!(!names(&scene.disk).contains(&format!("{id:020}.log")));
        !free_names(&scene.disk).is_empty()
    };
    assert!(is_kept(&|_| (), 1));
    let copy = Path::new(DIRECTORY).join("copy");
    assert!(!is_kept(&|scene| scene.disk.link(&segment_path(SegmentId(1)), &copy), 1));
    let append_odd = |scene: &Scene| {
        append_one(&scene.log, &odd);
        append_one(&scene.log, &big(6));
    };
    assert!(!is_kept(&append_odd, 5), "longer than a segment");
    let exact = Commit::new(5, vec![batch(5, 3884)]);
    assert_eq!(SEGMENT_HEADER_BYTES + exact.frame_bytes(), full);
    let append_exact = |scene: &Scene| {
        append_one(&scene.log, &exact);
        append_one(&scene.log, &big(6));
    };
    assert!(is_kept(&append_exact, 5), "as long as a segment may be");
    let fail_read = |scene: &Scene| {
        scene.disk.plan(Fault::next(FileCall::Read, EIO));
        assert!(read_back(&scene.log, &big(1), scene.places[0]).is_err());
    };
    assert!(!is_kept(&fail_read, 1));
    assert!(is_kept(&fail_read, 2));
    assert!(!is_kept(&|scene| scene.log.distrust(SegmentId(1)), 1));
    let cut = |scene: &Scene| {
        scene.disk.tamper(&segment_path(SegmentId(1)), |bytes| bytes.truncate(5000));
        assert!(read_back(&scene.log, &big(1), scene.places[0]).is_err());
    };
    assert!(!is_kept(&cut, 1));
    let damage = |scene: &Scene| {
        scene.disk.flip_bit(&segment_path(SegmentId(1)), (SEGMENT_HEADER_BYTES + 9) * 8);
        assert!(!scene.log.walk(SegmentId(1), &mut |_| ()).unwrap());
    };
    assert!(!is_kept(&damage, 1));
}

#[test]
fn a_segment_of_an_earlier_open_is_removed() {
    let (disk, applied) = Scene::new(0).killed();
    let (log, _) = open(&disk, applied);
    log.free_segment(SegmentId(1)).unwrap();
    assert!(free_names(&disk).is_empty());
    assert!(!names(&disk).contains(&"00000000000000000001.log".to_owned()));
}

#[test]
fn a_halted_log_frees_nothing_and_keeps_what_it_has() {
    let scene = Scene::new(1);
    let before = names(&scene.disk);
    scene.log.halt(StorageError::Closed);
    assert!(scene.log.free_segment(SegmentId(2)).is_err());
    assert!(scene.log.release_free(false).is_err());
    scene.log.trim();
    assert_eq!(names(&scene.disk), before);
    read_back(&scene.log, &big(2), scene.places[1]).unwrap();
}

#[test]
fn more_than_the_limit_are_not_kept_and_a_longer_file_takes_the_place_of_a_shorter() {
    let scene = Scene::new(3);
    assert_eq!(free_names(&scene.disk), ["00000000000000000001.free", "00000000000000000002.free"]);
    for limit in 0..3 {
        let scene =
            Scene::with(LogOptions { max_free_segments: limit, ..options(BrokenRules::NONE) }, 3);
        assert_eq!(scene.log.free_segments().count, u64::from(limit));
        assert_eq!(free_names(&scene.disk).len(), limit as usize);
        assert_eq!(names(&scene.disk).len(), limit as usize + 1);
    }
    let scene = Scene::new(0);
    append_one(&scene.log, &small(5));
    append_one(&scene.log, &big(6));
    scene.log.sync(scene.log.written()).unwrap();
    for (freed, kept) in [(5, vec![5]), (1, vec![1, 5]), (2, vec![1, 2]), (3, vec![1, 2])] {
        scene.log.free_segment(SegmentId(freed)).unwrap();
        let kept: Vec<_> = kept.iter().map(|id| format!("{id:020}.free")).collect();
        assert_eq!(free_names(&scene.disk), kept);
    }
}

#[test]
fn what_an_earlier_open_has_kept_is_used_up_to_the_limit_and_the_rest_removed() {
    let (disk, applied) = Scene::new(2).killed();
    let planted: Vec<u64> = (0..3).collect();
    let bytes = disk.contents(&free_path(SegmentId(1))).unwrap();
    for limit in [0, 1, 2, 3] {
        let disk = disk.fork();
        let options = LogOptions { max_free_segments: limit, ..options(BrokenRules::NONE) };
        let (log, found) = open_with(&disk, applied, options).unwrap();
        // One of them has become the new segment.
        assert_eq!(log.free_segments().reused_count, u64::from(limit.min(1)));
        assert_eq!(log.free_segments().count, u64::from(limit.clamp(1, 2) - 1));
        assert_eq!(free_names(&disk).len(), limit.clamp(1, 2) as usize - 1);
        assert_eq!((found.last, found.torn_bytes), (applied, 0));
        let place = append_one(&log, &big(5));
        assert_eq!(place.segment, SegmentId(5));
        log.sync(log.written()).unwrap();
        disk.power_loss(PowerLoss::Nothing);
        assert_eq!(open(&disk, applied).1.last, place);
    }
    // Files that are not what they should be are removed, and no id of theirs is given again.
    let mut foreign = bytes.clone();
    foreign[16] ^= 1;
    let crc = crc32c::crc32c(&foreign[12..4096]);
    foreign[8..12].copy_from_slice(&crc.to_le_bytes());
    let long = [&bytes[..], &[0; 4000]].concat();
    let bad: [(u64, Vec<u8>); 5] =
        [(1, foreign), (1, long), (2, bytes.clone()), (1, bytes[..4000].to_vec()), (9, bytes)];
    for (id, bytes) in bad {
        let disk = disk.fork();
        for known in planted.iter().filter(|id| [1, 2].contains(*id)) {
            disk.vanish(&free_path(SegmentId(*known)));
        }
        disk.plant(&free_path(SegmentId(id)), bytes);
        let (log, _) = open(&disk, applied);
        assert_eq!(log.free_segments(), Default::default(), "{id}");
        assert!(free_names(&disk).is_empty(), "{id}");
        assert_eq!(log.first_place().segment.0, id.max(4) + 1);
    }
}

#[test]
fn of_more_files_than_are_kept_an_open_takes_the_longest() {
    let scene = Scene::new(0);
    append_one(&scene.log, &small(5));
    append_one(&scene.log, &big(6));
    let applied = append_one(&scene.log, &big(7));
    scene.log.sync(scene.log.written()).unwrap();
    for id in [5, 6] {
        scene.log.free_segment(SegmentId(id)).unwrap();
    }
    let (disk, _) = scene.killed();
    let long = length_of(&disk, &free_path(SegmentId(6)));
    assert!(length_of(&disk, &free_path(SegmentId(5))) < long);
    let one = LogOptions { max_free_segments: 1, ..options(BrokenRules::NONE) };
    let (log, _) = open_with(&disk, applied, one).unwrap();
    assert_eq!(length_of(&disk, &segment_path(log.first_place().segment)), long);
    assert!(free_names(&disk).is_empty());
}

#[test]
fn one_file_that_cannot_be_removed_keeps_no_other_from_being_given_back() {
    for after_calls in 0..2 {
        let scene = Scene::new(2);
        scene.disk.plan(Fault::next(FileCall::Remove, EIO).after_calls(after_calls));
        assert!(scene.log.release_free(false).is_err());
        assert_eq!(free_names(&scene.disk).len(), 1);
        let left = length_of(&scene.disk, &free_path(SegmentId(1 + u64::from(after_calls == 1))));
        let free = scene.log.free_segments();
        assert_eq!((free.count, free.bytes, free.unremoved_count), (0, left, 1));
        let forked = scene.disk.fork();
        // The end of the next round removes it, durably.
        scene.log.release_free(true).unwrap();
        assert_eq!(scene.log.free_segments(), Default::default());
        scene.disk.power_loss(PowerLoss::Nothing);
        assert!(free_names(&scene.disk).is_empty());
        // And so does the next open: it takes it.
        let (disk, applied) = (forked, scene.applied());
        assert_eq!(open(&disk, applied).0.free_segments().reused_count, 1);
        assert!(free_names(&disk).is_empty());
    }
}

#[test]
fn the_limit_may_be_changed_between_two_opens() {
    let (disk, applied) = Scene::new(2).killed();
    let none = LogOptions { max_free_segments: 0, ..options(BrokenRules::NONE) };
    let (log, _) = open_with(&disk, applied, none).unwrap();
    let place = append_one(&log, &big(5));
    log.sync(log.written()).unwrap();
    assert!(free_names(&disk).is_empty());
    disk.kill();
    let (log, found) = open(&disk, applied);
    assert_eq!(found.last, place);
    for number in 6..=7 {
        append_one(&log, &big(number));
    }
    log.sync(log.written()).unwrap();
    log.free_segment(log.first_place().segment).unwrap();
    assert_eq!(free_names(&disk).len(), 1);
    append_one(&log, &big(8));
    assert_eq!(log.free_segments().reused_count, 1);
}

/// What a second name of a freed file shows after it might have been written over.
fn written_over_by_a_link(broken: BrokenRules, reopens: bool) -> bool {
    let copy: PathBuf = Path::new(DIRECTORY).join("copy");
    let scene = Scene::with(options(broken), 1);
    scene.disk.link(&free_path(SegmentId(1)), &copy);
    let before = scene.disk.contents(&copy).unwrap();
    let (disk, applied) = (scene.disk.clone(), scene.applied());
    let log = if reopens {
        disk.kill();
        open_with(&disk, applied, options(broken)).unwrap().0
    } else {
        scene.log
    };
    append_one(&log, &big(5));
    assert!(free_names(&disk).is_empty());
    disk.contents(&copy).unwrap() != before
}

#[test]
fn f5_a_file_that_got_a_second_name_is_not_written_over() {
    for reopens in [false, true] {
        assert!(!written_over_by_a_link(BrokenRules::NONE, reopens));
        assert!(written_over_by_a_link(BrokenRules::only(Rule::F5OneLink), reopens));
    }
}

#[test]
fn a_new_log_removes_what_lies_there_to_be_written_over() {
    let disk = SimulatedDisk::new(1);
    disk.plant(&free_path(SegmentId(7)), vec![7; 5000]);
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    let options = options(BrokenRules::NONE);
    let log = CommitLog::create(files, directory, LOG, options).unwrap();
    assert_eq!(names(&disk), ["00000000000000000008.log"]);
    assert_eq!(log.free_segments(), Default::default());
}

#[test]
fn a_freed_segment_that_cannot_be_made_the_next_one_refuses_the_group_or_halts() {
    for (operation, errno, halts) in [
        (FileCall::Rename, EIO, false),
        (FileCall::Write, ENOSPC, false),
        (FileCall::Write, EIO, true),
        (FileCall::SyncDirectory, EIO, true),
        (FileCall::Sync, EIO, true),
    ] {
        let scene = Scene::new(1);
        scene.disk.plan(Fault::next(operation, errno));
        let refused = append(&scene.log, &[big(5)]).unwrap_err();
        assert!(matches!(refused, AppendFailure::NotWritten(_)), "{operation:?}");
        assert_eq!(scene.log.is_halted(), halts, "{operation:?}");
        assert!(free_names(&scene.disk).is_empty(), "no file is there that nobody knows of");
        let goes_on = !halts;
        if goes_on {
            let place = append_one(&scene.log, &big(5));
            assert_eq!((place.sequence.0, place.segment.0), (5, 6));
        }
        scene.log.sync(CommitSequence(4)).unwrap();
        let applied = scene.applied();
        scene.disk.kill();
        let (_, found) = open(&scene.disk, applied);
        assert_eq!(found.last.sequence.0, 4 + u64::from(goes_on), "{operation:?}");
    }
}

#[test]
fn a_freed_segment_that_cannot_be_kept_is_removed_or_reported() {
    let scene = Scene::new(0);
    scene.disk.plan(Fault::next(FileCall::Rename, EIO));
    scene.log.free_segment(SegmentId(1)).unwrap();
    assert_eq!(names(&scene.disk).len(), 3);
    scene.disk.plan(Fault::next(FileCall::SyncDirectory, EIO));
    assert!(scene.log.free_segment(SegmentId(2)).is_err());
    assert!(free_names(&scene.disk).is_empty(), "nobody builds on a name that may be lost");
    assert_eq!(scene.log.free_segments(), Default::default());
    assert!(!scene.log.is_halted());
    let applied = scene.applied();
    append_one(&scene.log, &big(5));
    scene.disk.power_loss(PowerLoss::Nothing);
    assert_eq!(open(&scene.disk, applied).1.last, applied);
}

#[test]
fn where_space_is_short_what_is_kept_goes_before_an_append_is_refused() {
    let reserve_bytes = 5000;
    let options = LogOptions { reserve_bytes, ..options(BrokenRules::NONE) };
    let (disk, applied) = Scene::new(2).killed();
    let (log, _) = open_with(&disk, applied, options).unwrap();
    // One has become the new segment, whose rest is kept too.
    let before = log.free_segments();
    assert_eq!(before.count, 1);
    let leave = |free_bytes| disk.set_capacity(Some(used_bytes(&log) + free_bytes));
    leave(reserve_bytes);
    log.release_free(true).unwrap();
    assert_eq!(log.free_segments(), before, "space is not short");
    leave(reserve_bytes + 99);
    log.place_group(100, false).unwrap();
    assert_eq!((log.free_segments().count, log.free_segments().bytes), (0, 0));
    assert!(free_names(&disk).is_empty());
    leave(reserve_bytes + 99);
    let refused = log.place_group(20_000, false).unwrap_err();
    assert!(matches!(refused, AppendFailure::NotWritten(StorageError::DiskFull { .. })));
    log.release_free(false).unwrap();
}

#[test]
fn what_is_kept_is_given_back_when_it_is_asked_for_or_space_is_short() {
    let reserve_bytes = 5000;
    for only_if_short in [false, true] {
        let options = LogOptions { reserve_bytes, ..options(BrokenRules::NONE) };
        let scene = Scene::with(options, 2);
        let missing = u64::from(only_if_short);
        scene.disk.set_capacity(Some(used_bytes(&scene.log) + reserve_bytes - missing));
        scene.log.release_free(only_if_short).unwrap();
        assert_eq!(scene.log.free_segments().bytes, 0);
        assert!(free_names(&scene.disk).is_empty());
        scene.disk.power_loss(PowerLoss::Nothing);
        assert!(free_names(&scene.disk).is_empty());
    }
}

/// A log that begins a segment, where what it would be made of has to go and cannot be removed.
fn with_a_file_that_stays(prepare: &dyn Fn(&Scene)) -> Scene {
    let scene = Scene::new(1);
    prepare(&scene);
    scene.disk.plan(Fault::next(FileCall::Remove, EIO));
    drop(append(&scene.log, &[big(5)]));
    assert!(!scene.log.is_halted());
    scene
}

#[test]
fn a_file_that_could_become_no_segment_and_stays_is_reported_and_removed_later() {
    let fail =
        |operation, errno| move |scene: &Scene| scene.disk.plan(Fault::next(operation, errno));
    let link = |scene: &Scene| {
        let copy = Path::new("/data/copy");
        scene.disk.link(&free_path(SegmentId(1)), copy);
    };
    let open_late =
        |scene: &Scene| scene.disk.plan(Fault::next(FileCall::Open, EIO).after_calls(1));
    let prepared: [&dyn Fn(&Scene); 4] =
        [&fail(FileCall::Rename, EIO), &open_late, &fail(FileCall::Write, ENOSPC), &link];
    for (case, prepare) in prepared.into_iter().enumerate() {
        let scene = with_a_file_that_stays(prepare);
        let free = scene.log.free_segments();
        assert_eq!((free.count, free.unremoved_count), (0, 1), "{case}");
        let on_disk = |scene: &Scene| -> u64 {
            let names = names(&scene.disk);
            names.iter().map(|n| length_of(&scene.disk, &Path::new(DIRECTORY).join(n))).sum()
        };
        let log_bytes =
            |log: &CommitLog| log.segments().iter().map(|s| s.length_bytes).sum::<u64>();
        assert_eq!(log_bytes(&scene.log) + free.bytes, on_disk(&scene), "{case}");
        scene.log.release_free(true).unwrap();
        assert_eq!(scene.log.free_segments(), Default::default(), "{case}");
        assert_eq!(log_bytes(&scene.log), on_disk(&scene), "{case}");
        append_one(&scene.log, &big(if case == 3 { 6 } else { 5 }));
        scene.log.sync(scene.log.written()).unwrap();
        let applied = scene.applied();
        scene.disk.power_loss(PowerLoss::Nothing);
        let last = open(&scene.disk, applied).1.last;
        assert_eq!(last.sequence.0, if case == 3 { 6 } else { 5 });
    }
}

#[test]
fn files_that_an_open_does_not_need_and_cannot_remove_keep_it_from_nothing() {
    let (disk, applied) = Scene::new(2).killed();
    // A creation that never finished, and a file that is not what it should be.
    disk.plant(&segment_path(SegmentId(9)), vec![7; 5000]);
    disk.plant(&free_path(SegmentId(3)), vec![7; 6000]);
    for fails in [0, 1, 2] {
        let disk = disk.fork();
        for _ in 0..fails {
            disk.plan(Fault::next(FileCall::Remove, EIO));
        }
        let (log, found) = open(&disk, applied);
        assert_eq!(found.last, applied);
        let free = log.free_segments();
        assert_eq!((free.count, free.unremoved_count), (1, fails));
        let on_disk: u64 =
            names(&disk).iter().map(|n| length_of(&disk, &Path::new(DIRECTORY).join(n))).sum();
        let log_bytes: u64 = log.segments().iter().map(|segment| segment.length_bytes).sum();
        assert_eq!(log_bytes + free.bytes, on_disk);
        let place = append_one(&log, &big(5));
        log.sync(log.written()).unwrap();
        let again = disk.fork();
        again.power_loss(PowerLoss::Nothing);
        assert_eq!(open(&again, applied).1.last, place, "it is dead again");
        assert!(again.contents(&segment_path(SegmentId(9))).is_none());
        log.release_free(true).unwrap();
        assert_eq!(log.free_segments().unremoved_count, 0);
        disk.power_loss(PowerLoss::Nothing);
        assert_eq!(open(&disk, applied).1.last, place);
    }
}
