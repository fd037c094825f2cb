//! A log with freed segments, for the tests of what becomes of them.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use tidelog::error::StorageError;
use tidelog::internals::log::{CommitLog, LogOptions, RecoveredLog};
use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::testing::{Files, SimulatedDisk};
use tidelog::types::{AppliedCommit, SegmentId};

use crate::model::{Commit, DIRECTORY, LOG, append, batch, options};

/// A commit that fills most of a segment, so that the next one has another.
pub(crate) fn big(number: u64) -> Commit {
    Commit::new(number, vec![batch(number, 3500)])
}

pub(crate) fn small(number: u64) -> Commit {
    Commit::new(number, vec![batch(number, 300)])
}

pub(crate) fn append_one(log: &CommitLog, commit: &Commit) -> AppliedCommit {
    append(log, std::slice::from_ref(commit)).unwrap()[0]
}

/// A log with big commits in segments 1 to 4, all synced, of which the first `freed` were freed.
pub(crate) struct Scene {
    pub(crate) disk: SimulatedDisk,
    pub(crate) log: CommitLog,
    pub(crate) places: Vec<AppliedCommit>,
}

impl Scene {
    pub(crate) fn with(options: LogOptions, freed: u64) -> Self {
        let disk = SimulatedDisk::new(3);
        let log = CommitLog::create(disk.process(), Path::new(DIRECTORY), LOG, options).unwrap();
        let places: Vec<_> = (1..=4).map(|number| append_one(&log, &big(number))).collect();
        log.sync(log.written()).unwrap();
        for id in 1..=freed {
            log.free_segment(SegmentId(id)).unwrap();
        }
        Self { disk, log, places }
    }

    pub(crate) fn new(freed: u64) -> Self {
        Self::with(options(BrokenRules::NONE), freed)
    }

    /// What an index keeps that has all four commits.
    pub(crate) fn applied(&self) -> AppliedCommit {
        self.places[3]
    }

    /// The disk after the process was killed.
    pub(crate) fn killed(self) -> (SimulatedDisk, AppliedCommit) {
        let applied = self.applied();
        self.disk.kill();
        (self.disk, applied)
    }
}

pub(crate) type Opened = Result<(CommitLog, RecoveredLog), StorageError>;

pub(crate) fn open_with(
    disk: &SimulatedDisk,
    applied: AppliedCommit,
    options: LogOptions,
) -> Opened {
    let (files, directory) = (disk.process(), Path::new(DIRECTORY));
    CommitLog::open(files, directory, LOG, options, applied, &mut |_| Ok(()))
}

pub(crate) fn open(disk: &SimulatedDisk, applied: AppliedCommit) -> (CommitLog, RecoveredLog) {
    open_with(disk, applied, options(BrokenRules::NONE)).unwrap()
}

pub(crate) fn breaking(rule: Rule) -> LogOptions {
    options(BrokenRules::only(rule))
}

/// The names in the directory of the log.
pub(crate) fn names(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.list(Path::new(DIRECTORY)).unwrap();
    names.sort();
    names
}

pub(crate) fn free_names(disk: &SimulatedDisk) -> Vec<String> {
    names(disk).into_iter().filter(|name| name.ends_with(".free")).collect()
}

pub(crate) fn length_of(disk: &SimulatedDisk, path: &Path) -> u64 {
    disk.contents(path).unwrap().len() as u64
}
