//! Which segments make the log (rules R3 to R5): each header names the one that it comes from.
//!
//! Files outside of the chain are dead: creations that never finished, of new files or of freed
//! segments, and what an earlier recovery left after the end of the log.

use std::collections::BTreeMap;
use std::path::Path;

use super::identity::LogIdentity;
use super::replay::{FrameReader, Window};
use super::segment::{HeaderFault, SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use crate::base::error::{Corruption, Place, StorageError};
use crate::base::io::Files;
use crate::base::rules::{BrokenRules, Rule};
use crate::base::types::SegmentId;

/// A segment that will be read, and where the log leaves it; `None` for the newest. It is opened
/// when its turn comes: there may be more of them than files that may be open.
pub(super) struct Link {
    pub(super) id: SegmentId,
    pub(super) header: SegmentHeader,
    pub(super) end: Option<u64>,
}

/// The segments of the log from the applied commit's on, in their order.
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    /// The highest epoch that any readable header tells.
    pub(super) epoch: u32,
}

/// Where a chain is looked for.
pub(super) struct ChainSource<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) directory: &'a Path,
    pub(super) identity: LogIdentity,
    pub(super) broken: BrokenRules,
    pub(super) reader: &'a FrameReader,
}

impl ChainSource<'_> {
    /// R5: the chain from the newest readable header back to the segment of the applied commit.
    pub(super) fn find(&self, ids: &[SegmentId], first: SegmentId) -> Result<Chain, StorageError> {
        let mut readable = BTreeMap::new();
        for &id in ids.iter().filter(|&&id| id >= first) {
            let segment = Segment::open(self.files, self.directory, id)?;
            self.settle(&segment)?;
            if let Some(header) = self.header(&segment, first)? {
                readable.insert(id, header);
            }
        }
        let epoch = readable.values().map(|header| header.epoch).max().unwrap_or(0);
        let mut links = Vec::new();
        let mut next = readable.last_key_value().map(|(&id, _)| id);
        let mut end = None;
        while let Some((id, header)) = next.and_then(|id| readable.remove_entry(&id)) {
            links.push(Link { id, header, end });
            end = Some(header.previous_end);
            next = (id > first && header.previous_segment < id).then_some(header.previous_segment);
        }
        links.reverse();
        debug_assert!(
            links
                .windows(2)
                .all(|pair| pair[0].id < pair[1].id
                    && pair[0].end == Some(pair[1].header.previous_end)),
            "segments stand in the order of their ids, and each ends where the next one says"
        );
        if links.first().is_some_and(|link| link.id == first) {
            assert!(links.iter().all(|link| link.header.epoch <= epoch), "no epoch is left out");
            return Ok(Chain { links, epoch });
        }
        let missing = next.map_or(first, |id| id.max(first));
        Err(Corruption::in_segment(missing, 0, "a segment of the log is missing").into())
    }

    /// R4: what is read is durable, and comes from the device: what only the page cache holds
    /// could vanish after commits that are acknowledged later.
    fn settle(&self, segment: &Segment) -> Result<(), StorageError> {
        if self.broken.breaks(Rule::R4SyncBeforeRead) {
            return Ok(());
        }
        segment.sync()?;
        let dropped = segment.file.drop_cache();
        dropped.map_err(|error| StorageError::io("drop the cache of", &segment.path, error))
    }

    /// The header of a segment; `None` for a creation that never finished.
    fn header(
        &self,
        segment: &Segment,
        first: SegmentId,
    ) -> Result<Option<SegmentHeader>, StorageError> {
        let mut window = Window::new(segment, SEGMENT_HEADER_BYTES)?;
        let block = window.get(0, SEGMENT_HEADER_BYTES as usize)?.unwrap_or_default();
        let of_file = |what| {
            let place = Place::File { path: segment.path.clone() };
            Err(StorageError::from(Corruption { place, what }))
        };
        // A creation that never finished may show what a removed file held in these blocks.
        let may_have_frames = segment.length()? > SEGMENT_HEADER_BYTES;
        match SegmentHeader::decode(block, self.identity, segment.id) {
            Ok(header) => Ok(Some(header)),
            Err(
                HeaderFault::OtherEngine | HeaderFault::OtherSecret | HeaderFault::OtherSegment(_),
            ) if !may_have_frames => Ok(None),
            Err(HeaderFault::OtherEngine) => of_file("the segment is of another engine"),
            Err(HeaderFault::OtherSecret) => {
                of_file("the segment has another secret than the file FORMAT tells")
            }
            // A freed segment that was to become this one has kept its header. Only one from
            // before the log's begin can have been freed (F1).
            Err(HeaderFault::OtherSegment(old))
                if old < first && !self.broken.breaks(Rule::R3OldHeader) =>
            {
                self.refuse_frames(segment).map(|()| None)
            }
            Err(HeaderFault::OtherSegment(_)) => of_file("the segment has the name of another"),
            Err(HeaderFault::UnknownVersion(version)) => {
                Err(StorageError::UnknownFormat { path: segment.path.clone(), version })
            }
            Err(HeaderFault::Unreadable) => self.refuse_frames(segment).map(|()| None),
        }
    }

    /// R3: frames after a header that cannot be read are damage, not an unfinished creation.
    fn refuse_frames(&self, segment: &Segment) -> Result<(), StorageError> {
        if self.broken.breaks(Rule::R3BadHeaderWithFrames) {
            return Ok(());
        }
        let mut window = Window::new(segment, u64::MAX)?;
        match self.reader.find(&mut window, SEGMENT_HEADER_BYTES)? {
            None => Ok(()),
            Some(_) => {
                let what = "the header of a segment with commits is damaged";
                Err(Corruption::in_segment(segment.id, 0, what).into())
            }
        }
    }
}
