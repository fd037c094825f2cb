//! Damage on the disk: each bit, each header, each file, and what the open says of it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use tidelog::error::{Place, StorageError};
use tidelog::internals::hash::HashKey;
use tidelog::internals::log::{
    CommitLog, LogIdentity, LogOptions, RecoveredLog, SEGMENT_HEADER_BYTES,
};
use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{PowerLoss, SimulatedDisk};
use tidelog::types::{AppliedCommit, CommitSequence, EngineId, SegmentId};

use crate::model::{Commit, DIRECTORY, LOG, append, batch, options, read_back, segment_path};

/// A log of synced commits on a disk whose process is gone.
struct Scene {
    disk: SimulatedDisk,
    first_place: AppliedCommit,
    commits: Vec<(Commit, AppliedCommit)>,
    /// What was known to be synced when each of them was written.
    synced: Vec<u64>,
}

/// Six commits in two segments, as they stand after a power loss. A sync follows each of those in
/// `synced_after`; the others are there all the same.
fn scene(synced_after: &[u64]) -> Scene {
    let disk = SimulatedDisk::new(5);
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    let log = CommitLog::create(files, directory, LOG, options(BrokenRules::NONE)).unwrap();
    let first_place = log.first_place();
    let (mut commits, mut synced) = (Vec::new(), Vec::new());
    for number in 1..=6 {
        let batches = match number {
            3 => Vec::new(),
            4 => vec![batch(4, 1900)],
            _ => vec![batch(number, 700), batch(number + 10, 61)],
        };
        let commit = Commit::new(number, batches);
        synced.push(log.synced().0);
        let place = append(&log, std::slice::from_ref(&commit)).unwrap()[0];
        commits.push((commit, place));
        if synced_after.contains(&number) {
            log.sync(log.written()).unwrap();
        }
    }
    assert_eq!(log.segments().len(), 2);
    disk.power_loss(PowerLoss::Everything);
    Scene { disk, first_place, commits, synced }
}

fn open(
    disk: &SimulatedDisk,
    applied: AppliedCommit,
) -> Result<(CommitLog, RecoveredLog), StorageError> {
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    let options = options(BrokenRules::NONE);
    CommitLog::open(files, directory, LOG, options, applied, &mut |_| Ok(()))
}

fn place_of(error: StorageError) -> Place {
    match error {
        StorageError::Corruption(corruption) => corruption.place,
        other => panic!("{other}"),
    }
}

fn all_files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let names = tidelog::testing::Files::list(disk, Path::new(DIRECTORY)).unwrap();
    let bytes = |name: &String| disk.contents(&Path::new(DIRECTORY).join(name)).unwrap();
    names.iter().map(|name| (name.clone(), bytes(name))).collect()
}

#[test]
fn one_flipped_bit_anywhere_in_a_commit_is_judged_by_what_lies_after_it() {
    for synced_after in [&[][..], &[2], &[1, 4], &[1, 2, 3, 4, 5, 6]] {
        let scene = scene(synced_after);
        for (at, (commit, place)) in scene.commits.iter().enumerate() {
            let number = at as u64 + 1;
            let head = 0..commit.payloads_at();
            let bodies: u64 = commit.batches.iter().map(|batch| batch.len() as u64).sum();
            // Bytes 0 to 16 of a batch are under no sum: the index has them.
            let body = if bodies > 0 { head.end + 17..head.end + 700 } else { 0..0 };
            let tail = if bodies > 0 { head.end + bodies - 40..head.end + bodies } else { 0..0 };
            for offset in head.chain(body.step_by(23)).chain(tail) {
                let disk = scene.disk.fork();
                let path = segment_path(place.segment);
                disk.flip_bit(&path, (place.position + offset) * 8 + offset % 8);
                // The bit is no proof of itself: only what lies behind it, and the headers.
                let behind = scene.synced[at + 1..].iter().max().copied().unwrap_or(0);
                let own = if offset >= commit.payloads_at() { scene.synced[at] } else { 0 };
                let proven = behind.max(own).max(header_synced(&scene, place.segment));
                let opened = open(&disk, scene.first_place);
                if proven >= number {
                    let found = place_of(opened.map(drop).unwrap_err());
                    let (first, last) = (CommitSequence(number), CommitSequence(proven));
                    assert_eq!(found, Place::Commits { first, last }, "offset {offset}");
                } else {
                    let (log, found) = opened.unwrap();
                    assert_eq!(found.last.sequence.0, number - 1, "offset {offset}");
                    assert!(found.torn_bytes >= commit.frame_bytes());
                    for (commit, place) in &scene.commits[..at] {
                        read_back(&log, commit, *place).unwrap();
                    }
                }
            }
        }
    }
}

/// What the header of a segment or of a later one says to be synced.
fn header_synced(scene: &Scene, segment: SegmentId) -> u64 {
    let last = scene.commits.last().expect("there are six").1.segment;
    let segments = (segment.0..=last.0).map(SegmentId);
    let synced = segments.map(|segment| {
        let bytes = scene.disk.contents(&segment_path(segment)).unwrap();
        u64::from_le_bytes(bytes[64..72].try_into().unwrap())
    });
    synced.max().expect("there is one")
}

#[test]
fn a_flipped_bit_in_the_header_of_a_segment_with_commits_is_damage() {
    let scene = scene(&[6]);
    for segment in [1, 2] {
        for byte in (0..80).chain([511, 512, 4095]) {
            let disk = scene.disk.fork();
            disk.flip_bit(&segment_path(SegmentId(segment)), byte * 8 + byte % 8);
            let before = all_files(&disk);
            let found = place_of(open(&disk, scene.first_place).map(drop).unwrap_err());
            let expected = Place::Segment { segment: SegmentId(segment), position: 0 };
            assert_eq!(found, expected, "byte {byte}");
            assert_eq!(all_files(&disk), before, "a refused open changes nothing");
        }
    }
}

#[test]
fn a_truncation_at_any_byte_gives_the_commits_before_it_or_names_what_is_lost() {
    for synced_after in [&[][..], &[5]] {
        let scene = scene(synced_after);
        let length = scene.disk.contents(&segment_path(SegmentId(2))).unwrap().len();
        for cut in 0..length {
            let disk = scene.disk.fork();
            disk.tamper(&segment_path(SegmentId(2)), |bytes| bytes.truncate(cut));
            let is_whole = |(commit, place): &&(Commit, AppliedCommit)| {
                place.segment == SegmentId(1) || place.position + commit.frame_bytes() <= cut as u64
            };
            let expected = scene.commits.iter().filter(is_whole).count();
            // Commit 6 carries the proof that the first five were synced: the cut took it too.
            let (log, found) = open(&disk, scene.first_place).unwrap();
            assert_eq!(found.last.sequence.0, expected as u64, "cut at {cut}");
            for (commit, place) in &scene.commits[..expected] {
                read_back(&log, commit, *place).unwrap();
            }
            // What an index knows is a proof, too.
            let applied = scene.commits[4].1;
            let opened = open(&scene.disk.fork_with_cut(cut), applied);
            assert_eq!(opened.is_ok(), expected >= 5, "cut at {cut}");
            // It can go on, and a second open finds the same.
            let more = Commit::new(99, vec![batch(99, 100)]);
            append(&log, std::slice::from_ref(&more)).unwrap();
            log.sync(log.written()).unwrap();
            disk.power_loss(PowerLoss::Nothing);
            let (_, found) = open(&disk, scene.first_place).unwrap();
            assert_eq!(found.last.sequence.0, expected as u64 + 1);
        }
    }
}

trait ForkWithCut {
    fn fork_with_cut(&self, cut: usize) -> SimulatedDisk;
}

impl ForkWithCut for SimulatedDisk {
    fn fork_with_cut(&self, cut: usize) -> SimulatedDisk {
        let disk = self.fork();
        disk.tamper(&segment_path(SegmentId(2)), |bytes| bytes.truncate(cut));
        disk
    }
}

#[test]
fn a_missing_segment_is_refused_where_a_later_one_comes_from_it() {
    let scene = scene(&[6]);
    for (segment, is_refused) in [(1, true), (2, false)] {
        let disk = scene.disk.fork();
        disk.vanish(&segment_path(SegmentId(segment)));
        let opened = open(&disk, scene.first_place);
        assert_eq!(opened.is_err(), is_refused, "segment {segment}");
    }
    // With an index that knows of it, the newest one cannot go missing either.
    let disk = scene.disk.fork();
    disk.vanish(&segment_path(SegmentId(2)));
    let found = place_of(open(&disk, scene.commits[5].1).map(drop).unwrap_err());
    assert_eq!(found, Place::Segment { segment: SegmentId(2), position: 0 });
    let none = SimulatedDisk::new(1);
    none.plant(&Path::new(DIRECTORY).join("notes.txt"), b"not ours".to_vec());
    assert!(open(&none, scene.first_place).is_err());
}

#[test]
fn unfinished_creations_are_removed_and_foreign_files_left_alone() {
    let scene = scene(&[6]);
    let disk = scene.disk.fork();
    disk.plant(&segment_path(SegmentId(3)), Vec::new());
    disk.plant(&segment_path(SegmentId(4)), vec![0; 4096]);
    disk.plant(&segment_path(SegmentId(7)), vec![0xa5; 9000]);
    let foreign: PathBuf = Path::new(DIRECTORY).join("7.log");
    disk.plant(&foreign, b"not ours".to_vec());
    let (log, found) = open(&disk, scene.first_place).unwrap();
    assert_eq!(found.last.sequence.0, 6);
    let ids: Vec<u64> = log.segments().iter().map(|segment| segment.id.0).collect();
    assert_eq!(ids, [1, 2, 8], "no id is given twice");
    assert_eq!(disk.contents(&foreign), Some(b"not ours".to_vec()));
    assert_eq!(disk.contents(&segment_path(SegmentId(7))), None);
}

#[test]
fn a_log_of_another_engine_or_a_newer_version_is_refused_untouched() {
    let scene = scene(&[6]);
    let (disk, directory) = (scene.disk.fork(), Path::new(DIRECTORY));
    let before = all_files(&disk);
    let (files, options) = (disk.process(), options(BrokenRules::NONE));
    let other = LogIdentity { engine: EngineId(LOG.engine.0 + 1), ..LOG };
    let applied = scene.first_place;
    let opened = CommitLog::open(files, directory, other, options, applied, &mut |_| Ok(()));
    assert!(matches!(place_of(opened.map(drop).unwrap_err()), Place::File { .. }));
    assert_eq!(all_files(&disk), before);
    // Also where nothing but the secret differs: a file FORMAT that is damaged.
    let (files, options) = (disk.process(), crate::model::options(BrokenRules::NONE));
    let other = LogIdentity { secret: HashKey([LOG.secret.0[0] ^ 1, LOG.secret.0[1]]), ..LOG };
    let opened = CommitLog::open(files, directory, other, options, applied, &mut |_| Ok(()));
    let error = opened.map(drop).unwrap_err();
    assert!(error.to_string().contains("secret"), "{error}");
    assert_eq!(all_files(&disk), before);

    disk.tamper(&segment_path(SegmentId(2)), |bytes| {
        bytes[12..16].copy_from_slice(&3u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[12..4096]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    });
    let before = all_files(&disk);
    let refused = open(&disk, scene.first_place).map(drop).unwrap_err();
    let StorageError::UnknownFormat { version: 3, path } = refused else { panic!("{refused}") };
    assert_eq!(path, segment_path(SegmentId(2)));
    assert_eq!(all_files(&disk), before);
}

#[test]
fn a_segment_under_the_name_of_another_is_refused() {
    let scene = scene(&[6]);
    let disk = scene.disk.fork();
    let bytes = disk.contents(&segment_path(SegmentId(2))).unwrap();
    disk.plant(&segment_path(SegmentId(5)), bytes);
    let found = place_of(open(&disk, scene.first_place).map(drop).unwrap_err());
    assert_eq!(found, Place::File { path: segment_path(SegmentId(5)) });
}

#[test]
fn an_error_of_the_device_or_of_the_replay_fails_the_open_and_changes_nothing() {
    use tidelog::testing::{EIO, Fault, FileCall};
    let scene = scene(&[6]);
    for operation in [FileCall::Read, FileCall::Sync] {
        for calls in 0.. {
            let disk = scene.disk.fork();
            let before = all_files(&disk);
            disk.plan(Fault::next(operation, EIO).after_calls(calls));
            let Err(error) = open(&disk, scene.first_place) else { break };
            assert!(matches!(error, StorageError::Io { .. }), "{error}");
            // At most the unfinished new segment is there too.
            let now = all_files(&disk);
            assert_eq!(now[..before.len()], before);
            disk.kill();
            assert_eq!(open(&disk, scene.first_place).unwrap().1.last.sequence.0, 6);
        }
    }
    let disk = scene.disk.fork();
    let before = all_files(&disk);
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    let mut replayed = 0;
    let mut replay = |_: tidelog::internals::log::ReplayedFrame<'_>| {
        replayed += 1;
        if replayed == 4 { Err(StorageError::store("write", "refused")) } else { Ok(()) }
    };
    let options = options(BrokenRules::NONE);
    let applied = scene.first_place;
    let opened = CommitLog::open(files, directory, LOG, options, applied, &mut replay);
    assert!(matches!(opened.map(drop), Err(StorageError::Store { .. })));
    assert_eq!(all_files(&disk), before);
}

#[test]
fn the_log_of_an_interrupted_creation_is_made_anew_and_one_with_commits_is_kept() {
    let disk = SimulatedDisk::new(1);
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    let create = |engine| {
        let options = options(BrokenRules::NONE);
        CommitLog::create(
            files.clone(),
            directory,
            LogIdentity { engine: EngineId(engine), ..LOG },
            options,
        )
    };
    create(7).unwrap();
    let log = create(8).unwrap();
    assert_eq!(log.segments().len(), 1);
    assert_eq!(log.first_place().segment, SegmentId(2), "no id is given twice");
    append(&log, &[Commit::new(1, Vec::new())]).unwrap();
    assert!(matches!(create(9), Err(StorageError::Corruption(_))));
}

#[test]
fn a_frame_that_proves_a_sync_is_found_wherever_it_lies_in_what_is_read_at_once() {
    // What is looked at in one piece; the search begins behind the segment's header.
    let piece = 256 * 1024;
    for (pieces, step) in (1..=2).flat_map(|pieces| (-12..=2).map(move |step| (pieces, step))) {
        let wanted = (SEGMENT_HEADER_BYTES + pieces * piece).strict_add_signed(step * 8);
        let disk = SimulatedDisk::new(5);
        let (files, directory) = (disk.process(), Path::new(DIRECTORY));
        let large = LogOptions { segment_bytes: 1 << 20, ..options(BrokenRules::NONE) };
        let log = CommitLog::create(files, directory, LOG, large).unwrap();
        let first_place = log.first_place();
        let with_bytes = |bytes| Commit::new(1, vec![vec![0; bytes]]).frame_bytes();
        let payload_bytes = wanted - SEGMENT_HEADER_BYTES - with_bytes(0);
        append(&log, &[Commit::new(1, vec![batch(1, payload_bytes as usize)])]).unwrap();
        log.sync(log.written()).unwrap();
        let last = append(&log, &[Commit::new(2, vec![batch(2, 61)])]).unwrap()[0];
        assert_eq!(last.position, wanted);
        disk.kill();
        disk.flip_bit(&segment_path(first_place.segment), (SEGMENT_HEADER_BYTES + 9) * 8);
        let place = place_of(open(&disk, first_place).map(drop).unwrap_err());
        let lost = CommitSequence(1);
        assert_eq!(place, Place::Commits { first: lost, last: lost }, "{pieces} {step}");
    }
}
