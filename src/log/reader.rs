//! Random reads from segments, with a cache of open files.
//!
//! A read gives the bytes that lie at a place. Whether they are the batch that was meant is for
//! the caller to check against the index (rule W4).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::segment::{SEGMENT_HEADER_BYTES, file_name};
use crate::base::error::{Corruption, StorageError};
use crate::base::io::{File, Files};
use crate::base::types::{PayloadLocation, SegmentId};

/// A segment of the log, as the outside sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its id.
    pub id: SegmentId,
    /// The length of its file, header included.
    pub length_bytes: u64,
}

#[derive(Debug)]
struct KnownSegment {
    length_bytes: u64,
    /// It was written while this log was open, and no call on it has failed (F5).
    is_clean: bool,
    /// The open file, and when it was last used, in the cache's own count.
    open: Option<(Arc<dyn File>, u64)>,
}

/// An open segment and its length.
type OpenSegment = (Arc<dyn File>, u64);

#[derive(Debug, Default)]
struct Cache {
    segments: BTreeMap<SegmentId, KnownSegment>,
    open_count: usize,
    uses: u64,
}

/// All segments of the log that can be read.
#[derive(Debug)]
pub(super) struct Segments {
    files: Arc<dyn Files>,
    directory: PathBuf,
    /// How many segments are kept open at most.
    max_open: usize,
    cache: Mutex<Cache>,
    is_closed: AtomicBool,
}

impl Segments {
    pub(super) fn new(files: Arc<dyn Files>, directory: PathBuf, max_open: usize) -> Self {
        assert!(max_open > 0, "what is read is open");
        Self {
            files,
            directory,
            max_open,
            cache: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Makes a segment known that was found, or tells the new length of one.
    pub(super) fn set_length(&self, id: SegmentId, length_bytes: u64) {
        let mut cache = self.cache.lock();
        let found = KnownSegment { length_bytes, is_clean: false, open: None };
        cache.segments.entry(id).or_insert(found).length_bytes = length_bytes;
    }

    /// Makes a segment known that was made just now.
    pub(super) fn begin(&self, id: SegmentId) {
        let length_bytes = SEGMENT_HEADER_BYTES;
        let made = KnownSegment { length_bytes, is_clean: true, open: None };
        let mut cache = self.cache.lock();
        debug_assert!(cache.segments.keys().all(|known| *known < id), "ids of segments only rise");
        let before = cache.segments.insert(id, made);
        assert!(before.is_none(), "the id of a segment is given once (W1)");
    }

    /// Notes that a call on a segment's file has failed, or that it holds something else than was
    /// written: nothing is written there again.
    pub(super) fn distrust(&self, id: SegmentId) {
        if let Some(known) = self.cache.lock().segments.get_mut(&id) {
            known.is_clean = false;
        }
    }

    /// Drops a segment; tells its length, and whether nothing is wrong with it. Who reads it at
    /// this moment can go on. `None` if it is gone.
    pub(super) fn forget(&self, id: SegmentId) -> Option<(u64, bool)> {
        let mut cache = self.cache.lock();
        let known = cache.segments.remove(&id)?;
        cache.open_count -= usize::from(known.open.is_some());
        cache.assert_sound();
        Some((known.length_bytes, known.is_clean))
    }

    /// Lets go of every file: later reads fail, and what one reads at this moment does not count.
    pub(super) fn close(&self) {
        let mut cache = self.cache.lock();
        self.is_closed.store(true, Ordering::SeqCst);
        cache.segments.values_mut().for_each(|known| known.open = None);
        cache.open_count = 0;
        cache.assert_sound();
    }

    /// Whether a segment can be read.
    pub(super) fn knows(&self, id: SegmentId) -> bool {
        self.cache.lock().segments.contains_key(&id)
    }

    /// The segment after this one.
    pub(super) fn after(&self, id: SegmentId) -> Option<SegmentId> {
        let cache = self.cache.lock();
        let after = (Bound::Excluded(id), Bound::Unbounded);
        cache.segments.range(after).next().map(|(&id, _)| id)
    }

    pub(super) fn all(&self) -> Vec<SegmentInfo> {
        let cache = self.cache.lock();
        let info = |(&id, known): (&SegmentId, &KnownSegment)| SegmentInfo {
            id,
            length_bytes: known.length_bytes,
        };
        cache.segments.iter().map(info).collect()
    }

    pub(super) fn read(
        &self,
        location: PayloadLocation,
        buffer: &mut [u8],
    ) -> Result<(), StorageError> {
        assert_eq!(buffer.len(), location.length_bytes as usize, "the buffer has the batch's size");
        self.check_open()?;
        let PayloadLocation { segment, position, length_bytes } = location;
        let damage = |what| StorageError::from(Corruption::in_segment(segment, position, what));
        let Some((file, segment_bytes)) = self.file(segment)? else {
            return Err(damage("the segment is missing"));
        };
        let end = position.checked_add(u64::from(length_bytes));
        if position < SEGMENT_HEADER_BYTES || end.is_none_or(|end| end > segment_bytes) {
            return Err(damage("the segment does not reach as far as the batch"));
        }
        debug_assert!(position + u64::from(length_bytes) <= segment_bytes, "it lies in the file");
        let found = file.read_at(position, buffer);
        // Whoever opened the log anew may have written over the segment meanwhile.
        self.check_open()?;
        let found = found.map_err(|error| {
            self.distrust(segment);
            StorageError::io("read", &self.directory.join(file_name(segment)), error)
        })?;
        if found < buffer.len() {
            self.distrust(segment);
            return Err(damage("the segment ends before the batch does"));
        }
        Ok(())
    }

    fn check_open(&self) -> Result<(), StorageError> {
        if self.is_closed.load(Ordering::SeqCst) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// The open file of a segment and its length; `None` where there is no such segment.
    fn file(&self, id: SegmentId) -> Result<Option<OpenSegment>, StorageError> {
        match self.cache.lock().find(id) {
            None => return Ok(None),
            Some((Some(file), length_bytes)) => return Ok(Some((file, length_bytes))),
            Some((None, _)) => {}
        }
        // Opened without the lock, so that a slow disk holds up nobody else. Where the segment is
        // freed meanwhile it is not known any more, and what was opened is not kept.
        let path = self.directory.join(file_name(id));
        match self.files.open(&path) {
            Ok(file) => {
                let mut cache = self.cache.lock();
                self.check_open()?;
                Ok(cache.keep(id, file, self.max_open))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                self.distrust(id);
                Err(StorageError::io("open", &path, error))
            }
        }
    }
}

impl Cache {
    /// What every change of the cache leaves true.
    fn assert_sound(&self) {
        assert!(self.open_count <= self.segments.len(), "only what is known is open");
        debug_assert_eq!(
            self.open_count,
            self.segments.values().filter(|known| known.open.is_some()).count(),
            "the open files are counted"
        );
    }

    fn find(&mut self, id: SegmentId) -> Option<(Option<Arc<dyn File>>, u64)> {
        let known = self.segments.get_mut(&id)?;
        self.uses += 1;
        let file = known.open.as_mut().map(|(file, used)| {
            *used = self.uses;
            file.clone()
        });
        Some((file, known.length_bytes))
    }

    fn keep(&mut self, id: SegmentId, file: Arc<dyn File>, max_open: usize) -> Option<OpenSegment> {
        self.uses += 1;
        let known = self.segments.get_mut(&id)?;
        if known.open.replace((file.clone(), self.uses)).is_none() {
            self.open_count += 1;
        }
        let length_bytes = known.length_bytes;
        if self.open_count > max_open {
            self.close_oldest();
        }
        assert!(self.open_count <= max_open, "the open files are bounded");
        self.assert_sound();
        Some((file, length_bytes))
    }

    fn close_oldest(&mut self) {
        let last_use =
            |known: &&mut KnownSegment| known.open.as_ref().map_or(u64::MAX, |open| open.1);
        if let Some(oldest) = self.segments.values_mut().min_by_key(last_use) {
            let closed = oldest.open.take();
            assert!(closed.is_some(), "more are open than may be, so one is");
            self.open_count -= 1;
        }
    }
}
