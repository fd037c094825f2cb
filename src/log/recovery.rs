//! Making a log, and opening one after anything that may have happened to it (rules R3 to R10).
//!
//! Opening changes nothing in the log until the frames that count have been replayed, and then
//! makes one thing: a new segment whose header tells where the log ends. What stops it before
//! leaves all as it was, and it starts again from the beginning.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::chain::{Chain, ChainSource, Link};
use super::create::{CreateFailure, Creator};
use super::directory::{Listed, list, remove};
use super::frame::{FRAME_ALIGNMENT, FrameHeader};
use super::free::FreeFiles;
use super::identity::LogIdentity;
use super::reader::Segments;
use super::replay::{FrameReader, ReplayedFrame, Window};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use super::sync::SyncProgress;
use super::writer::Writer;
use super::{CommitLog, LogOptions};
use crate::base::error::{Corruption, Place, StorageError};
use crate::base::io::Files;
use crate::base::rules::Rule;
use crate::base::types::{AppliedCommit, CommitSequence, SegmentId};

/// What was found when the log was opened.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RecoveredLog {
    /// The last commit that counts.
    pub last: AppliedCommit,
    /// The epoch of this open, higher than any before.
    pub epoch: u32,
    /// How many commits were replayed.
    pub replayed_count: u64,
    /// Bytes of their frames.
    pub replayed_bytes: u64,
    /// Bytes after the end of the log that do not count: what a crash left half written. In a file
    /// that was written over, as far as frames of this use can be seen.
    pub torn_bytes: u64,
    /// Whole commits among them: they lie beyond one that is torn or damaged, and are dropped. That
    /// they were synced is not told by anything.
    pub dropped_count: u64,
    /// Bytes of their frames.
    pub dropped_bytes: u64,
}

/// What lies at and after a place in the log, read as if nothing were known of it.
struct Traces {
    /// The highest commit that is proven to have been synced.
    synced: CommitSequence,
    /// Where the last thing ends in the newest segment that is a frame of it.
    end: u64,
    whole_count: u64,
    whole_bytes: u64,
}

/// Where the log ends.
#[derive(Clone, Copy)]
struct End {
    last: AppliedCommit,
    segment: SegmentId,
    position: u64,
}

struct Recovery<'a> {
    files: Arc<dyn Files>,
    directory: &'a Path,
    identity: LogIdentity,
    options: LogOptions,
    applied: AppliedCommit,
    reader: FrameReader,
    found: RecoveredLog,
}

impl CommitLog {
    /// Makes the log of a new engine in a directory, which is made if it is not there. What an
    /// earlier try left is removed.
    ///
    /// # Errors
    /// [`StorageError::Corruption`] if the directory holds a log with commits, and what the
    /// system says.
    pub fn create(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
        options: LogOptions,
    ) -> Result<Self, StorageError> {
        let made = files.create_directory(directory);
        made.map_err(|error| StorageError::io("create", directory, error))?;
        let existing = list(&*files, directory)?;
        for &id in &existing.segments {
            let segment = Segment::open(&*files, directory, id)?;
            if segment.length()? > SEGMENT_HEADER_BYTES {
                let place = Place::File { path: segment.path };
                let what = "a commit log without an index holds commits";
                return Err(Corruption { place, what }.into());
            }
        }
        remove(&*files, directory, &existing.segments, &existing.free)?;
        let header = SegmentHeader {
            identity,
            id: SegmentId(existing.newest().map_or(1, |id| id.0 + 1)),
            epoch: 1,
            previous_crc: 0,
            previous_segment: SegmentId(0),
            previous_end: 0,
            previous_sequence: CommitSequence::NONE,
            synced: CommitSequence::NONE,
            reused_bytes: 0,
        };
        let free = FreeFiles::new(files.clone(), directory.to_owned(), &options);
        let creator = Creator { files: &*files, directory, free: &free, broken: options.broken };
        let segment = creator.make(header).map_err(CreateFailure::into_error)?;
        let max_open = options.max_open_segments;
        let segments = Segments::new(files.clone(), directory.to_owned(), max_open);
        segments.begin(segment.id);
        let start = Start { segment, position: SEGMENT_HEADER_BYTES, header, free };
        Ok(Self::start(files, directory.to_owned(), identity, options, start, segments))
    }

    /// Opens a log: replays the commits after `applied` in their order, decides where the log
    /// ends, and starts a new segment there. From then on it takes appends.
    ///
    /// # Errors
    /// [`StorageError::Corruption`] where acknowledged commits are damaged or missing, naming
    /// them; where a segment is missing; where the log is another engine's.
    /// [`StorageError::UnknownFormat`] where a newer version wrote it. What `replay` answers, and
    /// what the system says. In each case the log is as it was.
    pub fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
        options: LogOptions,
        applied: AppliedCommit,
        replay: &mut dyn FnMut(ReplayedFrame<'_>) -> Result<(), StorageError>,
    ) -> Result<(Self, RecoveredLog), StorageError> {
        let found = RecoveredLog {
            last: applied,
            epoch: 0,
            replayed_count: 0,
            replayed_bytes: 0,
            torn_bytes: 0,
            dropped_count: 0,
            dropped_bytes: 0,
        };
        let reader = FrameReader::new(identity.secret, options.broken);
        let recovery = Recovery { files, directory, identity, options, applied, reader, found };
        recovery.run(replay)
    }

    /// The log as it is once its newest segment can take frames.
    fn start(
        files: Arc<dyn Files>,
        directory: PathBuf,
        identity: LogIdentity,
        options: LogOptions,
        start: Start,
        segments: Segments,
    ) -> Self {
        let Start { segment, position, header, free } = start;
        let segment = Arc::new(segment);
        free.note_tail(segment.reused_bytes.saturating_sub(position));
        let last_sequence = header.previous_sequence;
        let progress = SyncProgress::new(last_sequence, segment.clone(), options.broken);
        let writer = Writer {
            stale_end: segment.reused_bytes,
            segment,
            position,
            last_sequence,
            last_crc: header.previous_crc,
            told: header.synced,
            proof: CommitSequence::NONE,
            epoch: header.epoch,
            next_id: SegmentId(header.id.0 + 1),
            must_leave: false,
            placed_bytes: None,
            unchecked_bytes: 0,
            heads: Vec::new(),
        };
        writer.assert_sound();
        let first_place = AppliedCommit {
            sequence: CommitSequence::NONE,
            segment: header.id,
            position: SEGMENT_HEADER_BYTES,
            frame_crc: 0,
        };
        Self {
            files,
            directory,
            identity,
            options,
            first_place,
            writer: Mutex::new(writer),
            progress,
            segments,
            free,
        }
    }
}

/// The segment that a log starts to write, the place in it, and what it has to write over next.
struct Start {
    segment: Segment,
    position: u64,
    header: SegmentHeader,
    free: FreeFiles,
}

impl Recovery<'_> {
    fn run(
        mut self,
        replay: &mut dyn FnMut(ReplayedFrame<'_>) -> Result<(), StorageError>,
    ) -> Result<(CommitLog, RecoveredLog), StorageError> {
        let listed = list(&*self.files, self.directory)?;
        let ids = &listed.segments;
        let source = ChainSource {
            files: &*self.files,
            directory: self.directory,
            identity: self.identity,
            broken: self.options.broken,
            reader: &self.reader,
        };
        let Chain { links: chain, epoch } = source.find(ids, self.applied.segment)?;
        let end = self.replay(&chain, replay)?;
        let replayed = end.last.sequence.0.checked_sub(self.applied.sequence.0);
        assert_eq!(replayed, Some(self.found.replayed_count), "commits are replayed without a gap");
        assert!(chain.iter().any(|link| link.id == end.segment), "the log ends in it");
        self.found.last = end.last;
        self.found.epoch = epoch.checked_add(1).ok_or_else(|| {
            Corruption::in_segment(
                end.segment,
                0,
                "a header tells the last epoch that there can be",
            )
        })?;

        let max_open = self.options.max_open_segments;
        let segments = Segments::new(self.files.clone(), self.directory.to_owned(), max_open);
        let chained: Vec<SegmentId> =
            chain.iter().map(|link| link.id).filter(|&id| id <= end.segment).collect();
        let free = FreeFiles::new(self.files.clone(), self.directory.to_owned(), &self.options);
        let refused = free.adopt(self.identity, &listed.free, self.applied.segment);
        let start = self.start_segment(&listed, &chain, end, free)?;
        let is_dead = |id: &&SegmentId| **id >= self.applied.segment && !chained.contains(id);
        let dead: Vec<SegmentId> =
            ids.iter().filter(is_dead).copied().filter(|&id| id != start.segment.id).collect();
        debug_assert!(dead.iter().all(|id| !chained.contains(id)), "what counts stays");
        assert!(!dead.contains(&end.segment), "the log ends in a segment that stays");
        start.free.discard_found(&dead, &refused)?;

        for &id in ids.iter().filter(|id| !dead.contains(id)) {
            let segment = Segment::open(&*self.files, self.directory, id)?;
            segments.set_length(id, segment.length()?);
        }
        if ids.contains(&start.segment.id) {
            segments.set_length(start.segment.id, start.position);
        } else {
            segments.begin(start.segment.id);
        }
        let directory = self.directory.to_owned();
        let log =
            CommitLog::start(self.files, directory, self.identity, self.options, start, segments);
        Ok((log, self.found))
    }

    fn open_link(&self, link: &Link) -> Result<Segment, StorageError> {
        Segment::open(&*self.files, self.directory, link.id)
    }

    /// R6 to R9: replays what counts, and says where the log ends.
    fn replay(
        &mut self,
        chain: &[Link],
        replay: &mut dyn FnMut(ReplayedFrame<'_>) -> Result<(), StorageError>,
    ) -> Result<End, StorageError> {
        let mut end = self.begin(chain)?;
        for (index, link) in chain.iter().enumerate() {
            let stop = link.end.filter(|_| !self.options.broken.breaks(Rule::R6SuccessorEnd));
            let segment = self.open_link(link)?;
            let mut window = Window::new(&segment, stop.unwrap_or(u64::MAX))?;
            let mut position = if index == 0 { end.position } else { SEGMENT_HEADER_BYTES };
            self.check_joint(link, index, &end)?;
            while let Some(counted) = self.reader.next(&mut window, position, &end.last)? {
                replay(counted.frame)?;
                let last = counted.frame.applied;
                assert_eq!(last.sequence, end.last.sequence.next(), "commits have no gaps (R6)");
                assert_eq!((last.segment, last.position), (link.id, position));
                assert!(counted.end > position, "each frame takes the reading on");
                self.found.replayed_count += 1;
                self.found.replayed_bytes += counted.end - position;
                position = counted.end;
                end = End { last, segment: link.id, position };
            }
            // Also a file that is shorter than its successor says has lost something.
            let is_whole = position == stop.unwrap_or_else(|| window.end().max(position));
            if !is_whole {
                self.judge(&chain[index..], position, &end)?;
                return Ok(end);
            }
        }
        Ok(end)
    }

    /// R8: the frame of the applied commit is where the index says; reading starts after it.
    fn begin(&mut self, chain: &[Link]) -> Result<End, StorageError> {
        let applied = self.applied;
        let first = &chain[0];
        assert_eq!(first.id, applied.segment, "reading starts where the index ends (R5)");
        if applied.sequence == CommitSequence::NONE {
            let crc = first.header.previous_crc;
            let last = AppliedCommit { frame_crc: crc, ..applied };
            return Ok(End { last, segment: applied.segment, position: SEGMENT_HEADER_BYTES });
        }
        let segment = self.open_link(first)?;
        let mut window = Window::new(&segment, first.end.unwrap_or(u64::MAX))?;
        let head = self.reader.head(&mut window, applied.position)?;
        let is_it = |header: &FrameHeader| {
            header.sequence == applied.sequence && header.crc == applied.frame_crc
        };
        match head.filter(is_it) {
            Some(header) => {
                let frame_bytes = header.frame_bytes().expect("a head that checks is legal");
                let position = applied.position + frame_bytes;
                Ok(End { last: applied, segment: applied.segment, position })
            }
            None if self.options.broken.breaks(Rule::R8AppliedInLog) => {
                let position = applied.position;
                Ok(End { last: applied, segment: applied.segment, position })
            }
            None => {
                let after = self.traces_after(chain, SEGMENT_HEADER_BYTES, applied.sequence)?;
                let what = "the index knows commits that the log lost";
                Err(lost(applied.sequence, after.synced, what))
            }
        }
    }

    /// A successor must go on where the frames before it end.
    fn check_joint(&self, link: &Link, index: usize, end: &End) -> Result<(), StorageError> {
        let header = &link.header;
        let goes_on = header.previous_sequence == end.last.sequence
            && header.previous_crc == end.last.frame_crc;
        if index == 0 || goes_on {
            return Ok(());
        }
        let what = "the header tells another end of the log than the frames before it";
        Err(Corruption::in_segment(link.id, 0, what).into())
    }

    /// R7: at the first frame that does not count, what lies at and after it decides between a
    /// torn tail, where the log ends, and damage to commits that were acknowledged.
    fn judge(&mut self, rest: &[Link], position: u64, end: &End) -> Result<(), StorageError> {
        let first_lost = end.last.sequence.next();
        let traces = self.traces_after(rest, position, self.applied.sequence)?;
        for (index, link) in rest.iter().enumerate() {
            let from = if index == 0 { position } else { SEGMENT_HEADER_BYTES };
            let length = self.open_link(link)?.length()?;
            let end = match link.end {
                Some(end) => end.min(length),
                // The file is no longer than it was when its use began: what is not seen to be of
                // this use may be of the one before.
                None if length <= link.header.reused_bytes => traces.end.min(length),
                None => length,
            };
            self.found.torn_bytes += end.saturating_sub(from);
        }
        self.found.dropped_count = traces.whole_count;
        self.found.dropped_bytes = traces.whole_bytes;
        if self.options.broken.breaks(Rule::R7LookBehind) {
            return Ok(());
        }
        if traces.synced >= first_lost {
            return Err(lost(first_lost, traces.synced, "they were synced and do not check"));
        }
        Ok(())
    }

    /// What is known to be synced by `known`, a header, or a sealed frame at or after a place, and
    /// what lies there. Whole frames are passed over as such; where one is not, the search goes on
    /// within it, since a part of it may have been written over.
    fn traces_after(
        &mut self,
        rest: &[Link],
        position: u64,
        known: CommitSequence,
    ) -> Result<Traces, StorageError> {
        let synced = rest.iter().map(|link| link.header.synced).fold(known, CommitSequence::max);
        let mut traces = Traces { synced, end: 0, whole_count: 0, whole_bytes: 0 };
        for (index, link) in rest.iter().enumerate() {
            let mut from = if index == 0 { position } else { SEGMENT_HEADER_BYTES };
            let segment = self.open_link(link)?;
            let mut window = Window::new(&segment, link.end.unwrap_or(u64::MAX))?;
            // One of its own, so that reading a large frame does not move the one that searches.
            let mut frame_window = Window::new(&segment, window.end())?;
            traces.end = from;
            while let Some(header) = self.reader.find(&mut window, from)? {
                assert!(header.position >= from, "the search only goes on");
                let frame_bytes = header.frame_bytes().unwrap_or(0);
                traces.end = traces.end.max(header.position.saturating_add(frame_bytes));
                traces.synced = traces.synced.max(header.synced);
                from = header.position + FRAME_ALIGNMENT;
                if self.reader.is_whole(&mut frame_window, &header)? {
                    traces.whole_count += 1;
                    traces.whole_bytes += frame_bytes;
                    from = header.position + frame_bytes;
                }
            }
        }
        assert!(traces.synced >= known, "no proof is forgotten");
        Ok(traces)
    }

    /// R10: a new segment whose header tells where the log ends; all up to there is synced (R4).
    fn start_segment(
        &self,
        listed: &Listed,
        chain: &[Link],
        end: End,
        free: FreeFiles,
    ) -> Result<Start, StorageError> {
        let broken = self.options.broken;
        let newest = match broken.breaks(Rule::W1SegmentIdOnce) {
            true => chain.last().map(|link| link.id),
            false => listed.newest(),
        };
        let header = SegmentHeader {
            identity: self.identity,
            id: SegmentId(newest.unwrap_or(self.applied.segment).0 + 1),
            epoch: self.found.epoch,
            previous_crc: end.last.frame_crc,
            previous_segment: end.segment,
            previous_end: end.position,
            previous_sequence: end.last.sequence,
            synced: end.last.sequence,
            reused_bytes: 0,
        };
        let is_new = listed.segments.iter().chain(&listed.free).all(|id| *id < header.id);
        assert!(is_new || broken.breaks(Rule::W1SegmentIdOnce), "an id is given once (W1)");
        if broken.breaks(Rule::W3NewSegmentAtOpen) {
            let current = chain.iter().find(|link| link.id == end.segment);
            let segment = self.open_link(current.expect("the log ends in a segment of it"))?;
            return Ok(Start { segment, position: end.position, header, free });
        }
        let creator =
            Creator { files: &*self.files, directory: self.directory, free: &free, broken };
        let made = match broken.breaks(Rule::R10NewHeader) {
            true => creator.make_unsynced(header),
            false => creator.make(header),
        };
        let segment = made.map_err(CreateFailure::into_error)?;
        Ok(Start { segment, position: SEGMENT_HEADER_BYTES, header, free })
    }
}

fn lost(first: CommitSequence, last: CommitSequence, what: &'static str) -> StorageError {
    Corruption { place: Place::Commits { first, last }, what }.into()
}
