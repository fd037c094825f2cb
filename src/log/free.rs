//! Freed segments whose files are kept to be written over (rules F4, F5): a synced write over
//! blocks that were written before is much cheaper than one that makes a file longer.
//!
//! A file is taken only if nothing can be wrong with it or meant by it: all that is in it was
//! written while this log was open, without an error of any call on it; it has one name, since a
//! second one may be somebody's copy; it is no longer than a segment should be. Files that an
//! earlier open has kept were judged by that one, and are judged again as far as they show it.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::LogOptions;
use super::identity::LogIdentity;
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, file_name, free_name};
use crate::base::error::StorageError;
use crate::base::io::Files;
use crate::base::rules::{BrokenRules, Rule};
use crate::base::types::SegmentId;

/// What the log holds to be written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FreeSegments {
    /// Files of freed segments.
    pub count: u64,
    /// Bytes of them, of those that could not be removed yet, and of what lies after the end of
    /// the segment that is being written.
    pub bytes: u64,
    /// Files that nothing needs, and whose removal has failed; it is tried again.
    pub unremoved_count: u64,
    /// How many of the segments that were begun since the log was opened were written over a freed
    /// one.
    pub reused_count: u64,
}

/// A file that is no segment any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct FreeFile {
    pub(super) id: SegmentId,
    pub(super) length_bytes: u64,
}

/// A file that nothing needs and that could not be removed.
#[derive(Debug)]
struct Unremoved {
    /// The names one of which it has: a rename may have been made that said that it was not.
    paths: Vec<PathBuf>,
    length_bytes: u64,
}

/// How many removals that have failed before are tried in one round of maintenance.
const RETRIED_REMOVALS: usize = 16;

/// The files that are kept.
#[derive(Debug)]
pub(super) struct FreeFiles {
    files: Arc<dyn Files>,
    directory: PathBuf,
    max_count: usize,
    max_length_bytes: u64,
    broken: BrokenRules,
    /// Held over changes of names up to the sync of the directory that makes them durable: where
    /// that fails, it must not take what another has changed with it, whose own sync then succeeds.
    naming: Mutex<()>,
    kept: Mutex<Vec<FreeFile>>,
    /// Those that could not be removed, the next one to be tried in front. An open forgets them:
    /// what it finds under a segment's name it frees again, and the others it takes or removes.
    unremoved: Mutex<VecDeque<Unremoved>>,
    /// Bytes after the end of the segment that is being written.
    tail_bytes: AtomicU64,
    reused_count: AtomicU64,
    /// Segments that were begun since the last round of maintenance.
    begun_count: AtomicUsize,
    /// How many files are worth keeping, by how many segments were begun between rounds.
    wanted_count: AtomicUsize,
}

impl FreeFiles {
    pub(super) fn new(files: Arc<dyn Files>, directory: PathBuf, options: &LogOptions) -> Self {
        Self {
            files,
            directory,
            max_count: options.max_free_segments as usize,
            max_length_bytes: options.segment_bytes,
            broken: options.broken,
            naming: Mutex::new(()),
            kept: Mutex::default(),
            unremoved: Mutex::default(),
            tail_bytes: AtomicU64::new(0),
            reused_count: AtomicU64::new(0),
            begun_count: AtomicUsize::new(0),
            wanted_count: AtomicUsize::new(options.max_free_segments as usize),
        }
    }

    pub(super) fn state(&self) -> FreeSegments {
        let kept = self.kept.lock();
        let unremoved = self.unremoved.lock();
        assert!(kept.len() <= self.max_count, "no more files are kept than may be");
        let kept_bytes: u64 = kept.iter().map(|file| file.length_bytes).sum();
        let unremoved_bytes: u64 = unremoved.iter().map(|file| file.length_bytes).sum();
        FreeSegments {
            count: kept.len() as u64,
            bytes: kept_bytes + unremoved_bytes + self.tail_bytes.load(Ordering::Relaxed),
            unremoved_count: unremoved.len() as u64,
            reused_count: self.reused_count.load(Ordering::Relaxed),
        }
    }

    /// Tells that a segment was begun, in a new file or over a freed one.
    pub(super) fn count_begun(&self, is_reused: bool) {
        self.begun_count.fetch_add(1, Ordering::Relaxed);
        self.reused_count.fetch_add(is_reused.into(), Ordering::Relaxed);
    }

    /// How many files are kept now: twice as many as the log begins between two rounds, since they
    /// come and go in bursts.
    fn limit(&self) -> usize {
        let begun = self.begun_count.load(Ordering::Relaxed);
        let wanted = self.wanted_count.load(Ordering::Relaxed);
        self.max_count.min(wanted.max(begun.saturating_mul(2)))
    }

    /// Ends a round of maintenance: tries again to remove what could not be, and gives back the
    /// files that the log will not have begun by the next one, if it goes on as it did. One stays;
    /// where less is begun than before, one goes.
    pub(super) fn end_round(&self) -> Result<(), StorageError> {
        let begun = self.begun_count.swap(0, Ordering::Relaxed);
        let before = self.max_count.min(self.wanted_count.load(Ordering::Relaxed));
        let wanted = begun.saturating_mul(2).max(before.saturating_sub(1)).max(1);
        assert!(wanted > 0, "one file stays wanted");
        self.wanted_count.store(wanted, Ordering::Relaxed);
        let removed = self.remove_again();
        removed.and(self.release_beyond(self.max_count.min(wanted)))
    }

    /// Tries again to remove files whose removal has failed, durably; those that fail again come
    /// last the next time.
    fn remove_again(&self) -> Result<(), StorageError> {
        let _naming = self.naming();
        let mut unremoved = self.unremoved.lock();
        let count = unremoved.len().min(RETRIED_REMOVALS);
        let tried: Vec<Unremoved> = unremoved.drain(..count).collect();
        drop(unremoved);
        if tried.is_empty() {
            return Ok(());
        }
        let discard = |file: Unremoved| self.discard(file.paths, file.length_bytes);
        let removed = tried.into_iter().map(discard).fold(Ok(()), Result::and);
        removed.and(self.sync_directory())
    }

    /// Removes a file that nothing needs and that has one of these names; none is right too. Where
    /// that fails it counts as there, and each round of maintenance tries it again.
    pub(super) fn discard(
        &self,
        paths: Vec<PathBuf>,
        length_bytes: u64,
    ) -> Result<(), StorageError> {
        assert!(!paths.is_empty(), "a file has a name");
        for path in &paths {
            match self.files.remove(path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let error = StorageError::io("remove", path, error);
                    self.unremoved.lock().push_back(Unremoved { paths, length_bytes });
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Tells how many bytes lie after the end of the segment that is being written.
    pub(super) fn note_tail(&self, bytes: u64) {
        self.tail_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Takes those of the files that an earlier open has kept which may be written over, the
    /// longest first, as far as there is room for them. Gives the others, which are to be removed.
    /// Nothing is changed yet.
    pub(super) fn adopt(
        &self,
        identity: LogIdentity,
        found: &[SegmentId],
        first: SegmentId,
    ) -> Vec<SegmentId> {
        let judge = |&id: &SegmentId| {
            let length_bytes = self.judge(&self.path(id), Some((identity, id)))?;
            Some(FreeFile { id, length_bytes })
        };
        let mut taken: Vec<_> = found.iter().filter(|&&id| id < first).filter_map(judge).collect();
        taken.sort_by_key(|file| Reverse(file.length_bytes));
        taken.truncate(self.max_count);
        let is_refused = |id: &SegmentId| taken.iter().all(|file| file.id != *id);
        let refused = found.iter().copied().filter(is_refused).collect();
        debug_assert!(
            taken.iter().all(|file| file.id < first),
            "the log does not begin in them (F1)"
        );
        let before = std::mem::replace(&mut *self.kept.lock(), taken);
        assert!(before.is_empty(), "files are adopted once, at the open");
        refused
    }

    /// The length of a file that may be written over. Its header, where that is asked for, must be
    /// that of the segment which it was: a creation that does not finish shows it.
    fn judge(&self, path: &Path, header: Option<(LogIdentity, SegmentId)>) -> Option<u64> {
        let file = self.files.open(path).ok()?;
        let is_alone = self.broken.breaks(Rule::F5OneLink) || file.link_count().ok()? == 1;
        let length = file.length().ok()?;
        let is_legal = (SEGMENT_HEADER_BYTES..=self.max_length_bytes).contains(&length);
        if let Some((identity, id)) = header {
            let mut block = [0; SEGMENT_HEADER_BYTES as usize];
            file.read_at(0, &mut block).ok()?;
            SegmentHeader::decode(&block, identity, id).ok()?;
        }
        (is_alone && is_legal).then_some(length)
    }

    /// Takes out the longest file that still has one name only.
    pub(super) fn take(&self) -> Option<FreeFile> {
        assert!(self.naming.is_locked(), "names change one after the other");
        loop {
            let file = self.take_longest()?;
            if self.judge(&self.path(file.id), None).is_some() {
                return Some(file);
            }
            // The other name keeps what it shows.
            drop(self.remove(file));
        }
    }

    /// Removes files that an open has found and does not need, segments and freed ones, durably.
    /// One that stays does no harm: by the rules that found it dead it will be so again.
    pub(super) fn discard_found(
        &self,
        segments: &[SegmentId],
        free: &[SegmentId],
    ) -> Result<(), StorageError> {
        let segments = segments.iter().map(|&id| self.directory.join(file_name(id)));
        let paths: Vec<PathBuf> = segments.chain(free.iter().map(|&id| self.path(id))).collect();
        if paths.is_empty() {
            return Ok(());
        }
        let _naming = self.naming();
        for path in paths {
            let length = self.files.open(&path).and_then(|file| file.length());
            drop(self.discard(vec![path], length.unwrap_or(0)));
        }
        self.sync_directory()
    }

    fn take_longest(&self) -> Option<FreeFile> {
        let mut kept = self.kept.lock();
        let (at, _) = kept.iter().enumerate().max_by_key(|(_, file)| file.length_bytes)?;
        let longest = kept.swap_remove(at);
        debug_assert!(kept.iter().all(|file| file.length_bytes <= longest.length_bytes));
        Some(longest)
    }

    /// Excludes all others who change names in the directory, until the change is synced.
    pub(super) fn naming(&self) -> MutexGuard<'_, ()> {
        self.naming.lock()
    }

    /// Keeps the file of a freed segment to be written over, or removes it; durably.
    pub(super) fn keep_or_remove(
        &self,
        file: FreeFile,
        is_clean: bool,
    ) -> Result<(), StorageError> {
        let _naming = self.naming();
        if self.keep(file.id, is_clean)? {
            return Ok(());
        }
        let paths = vec![self.directory.join(file_name(file.id)), self.path(file.id)];
        self.discard(paths, file.length_bytes)?;
        self.sync_directory()
    }

    /// Keeps the file of a freed segment, durably, if it may be written over and there is room for
    /// it: a longer one takes the place of a shorter. Else `false`, and nothing was done with it.
    fn keep(&self, id: SegmentId, is_clean: bool) -> Result<bool, StorageError> {
        assert!(self.naming.is_locked(), "names change one after the other");
        if self.limit() == 0 || !(is_clean || self.broken.breaks(Rule::F5CleanFile)) {
            return Ok(false);
        }
        let path = self.directory.join(file_name(id));
        let Some(length_bytes) = self.judge(&path, None) else { return Ok(false) };
        if !self.make_room(length_bytes) {
            return Ok(false);
        }
        let free_path = self.path(id);
        if self.files.rename(&path, &free_path).is_err() {
            return Ok(false);
        }
        if let Err(error) = self.sync_directory() {
            // Under which name it comes back is not known, so nobody may build on it.
            drop(self.remove(FreeFile { id, length_bytes }));
            return Err(error);
        }
        let mut kept = self.kept.lock();
        debug_assert!(kept.iter().all(|file| file.id != id), "a segment is freed once");
        kept.push(FreeFile { id, length_bytes });
        assert!(kept.len() <= self.max_count, "no more files are kept than may be");
        Ok(true)
    }

    /// Whether there is room for a file, if need be in place of the shortest one.
    fn make_room(&self, length_bytes: u64) -> bool {
        let mut kept = self.kept.lock();
        if kept.len() < self.limit() {
            return true;
        }
        let shortest = kept.iter().enumerate().min_by_key(|(_, file)| file.length_bytes);
        let Some((at, _)) = shortest.filter(|(_, file)| file.length_bytes < length_bytes) else {
            return false;
        };
        let shortest = kept.swap_remove(at);
        drop(kept);
        // Where it cannot be removed the longer one goes, so that no more files are there.
        self.remove(shortest).is_ok()
    }

    /// Gives the space of all files back, durably.
    pub(super) fn release(&self) -> Result<(), StorageError> {
        self.release_beyond(0)
    }

    /// Gives the space of all files but the so many longest ones back, durably.
    fn release_beyond(&self, count: usize) -> Result<(), StorageError> {
        let _naming = self.naming();
        let mut kept = self.kept.lock();
        if kept.len() <= count {
            return Ok(());
        }
        kept.sort_by_key(|file| Reverse(file.length_bytes));
        let released = kept.split_off(count);
        assert!(!released.is_empty(), "there were more than are to stay");
        drop(kept);
        // One that cannot be removed keeps no other.
        let removed = released.iter().map(|file| self.remove(*file)).fold(Ok(()), Result::and);
        removed.and(self.sync_directory())
    }

    /// Removes a file that was kept.
    fn remove(&self, file: FreeFile) -> Result<(), StorageError> {
        self.discard(vec![self.path(file.id)], file.length_bytes)
    }

    fn sync_directory(&self) -> Result<(), StorageError> {
        assert!(self.naming.is_locked(), "a sync covers one change of names alone");
        let synced = self.files.sync_directory(&self.directory);
        synced.map_err(|error| StorageError::io("sync the directory", &self.directory, error))
    }

    pub(super) fn path(&self, id: SegmentId) -> PathBuf {
        self.directory.join(free_name(id))
    }
}
