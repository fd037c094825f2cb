//! Reads the batches of a partition for a pass, at the pace that it is given, and checks each.

use std::ops::{ControlFlow, Range};

use super::Pace;
use super::error::{CleanError, Stop};
use crate::base::error::{Corruption, Place, StorageError};
use crate::base::types::Offset;
use crate::core::{Located, Pin, Shared, aborted_transactions, locate, read_spans_into};
use crate::record::{Attributes, BatchHeader, BatchView, UnpackedBatch};
use crate::state::catalog::Partition;
use crate::state::producer::AbortedSet;

/// Bytes that are read at a time, unless a batch is larger.
pub(super) const READ_BYTES: u64 = 256 << 10;

/// Bytes of index entries' batches that are looked at a time, unless one is larger.
pub(super) const LOCATE_BYTES: u64 = 4 << 20;

/// What is done with each batch that was read and checked.
pub(super) type Look<'l> =
    dyn FnMut(&Located, &UnpackedBatch<'_>) -> Result<ControlFlow<()>, CleanError> + 'l;

/// Reads a partition for the cleaner.
pub(super) struct Reader<'a> {
    pub shared: &'a Shared,
    pub partition: &'a Partition,
    pub read_bytes: u64,
    pace: &'a mut Pace<'a>,
    buffer: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        partition: &'a Partition,
        pace: &'a mut Pace<'a>,
    ) -> Self {
        Self { shared, partition, read_bytes: 0, pace, buffer: Vec::new() }
    }

    /// Asks whether the pass may go on, after so many bytes.
    pub(super) fn keep_pace(&mut self, bytes: u64) -> Result<(), Stop> {
        if self.shared.cleaning.is_paused() || self.shared.check_open().is_err() {
            return Err(Stop::Asked);
        }
        match (self.pace)(bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Asked),
        }
    }

    /// The next batches below an offset, as many as make up `max_bytes`, with a pin: they can be
    /// read while it is held. A pass may take long, and holds up the freeing of segments only for
    /// as long as it reads them.
    pub(super) fn locate(
        &self,
        from: Offset,
        bound: Offset,
        max_bytes: u64,
    ) -> Result<(Pin, Vec<Located>), StorageError> {
        let pin = self.shared.pin();
        let store = &*self.shared.pipeline.store;
        let id = self.partition.cell().id();
        let located = locate(store, id, from, bound, (max_bytes, true))?;
        debug_assert!(
            located.windows(2).all(|pair| pair[0].last_offset < pair[1].last_offset),
            "batches come in the order of offsets"
        );
        debug_assert!(located.last().is_none_or(|last| last.last_offset < bound), "it is bounded");
        Ok((pin, located))
    }

    /// The aborted transactions of which any of these batches may be.
    pub(super) fn aborted_in(&self, batches: &[Located]) -> Result<AbortedSet, StorageError> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            return Ok(AbortedSet::default());
        };
        if !batches.iter().any(|located| attributes(located).is_transactional()) {
            return Ok(AbortedSet::default());
        }
        let store = &*self.shared.pipeline.store;
        let id = self.partition.cell().id();
        let (from, end) = (first.entry.base_offset, last.last_offset + 1);
        Ok(aborted_transactions(store, id, from, end)?.iter().collect())
    }

    /// Reads these batches, checks each and shows it, until it is asked to end.
    pub(super) fn read(
        &mut self,
        batches: &[Located],
        look: &mut Look<'_>,
    ) -> Result<ControlFlow<()>, Stop> {
        let mut rest = batches;
        while !rest.is_empty() {
            let (run, after) = rest.split_at(run_of(rest.iter()));
            let places = self.fetch(run)?;
            for (located, place) in run.iter().zip(places) {
                if look(located, &self.open(located, place)?)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            rest = after;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads these batches; tells where each lies, for [`Reader::open`].
    pub(super) fn fetch(&mut self, run: &[Located]) -> Result<Vec<Range<usize>>, Stop> {
        let id = self.partition.cell().id();
        let places = read_spans_into(&self.shared.pipeline, id, run, &mut self.buffer)?;
        assert_eq!(places.len(), run.len(), "each batch has its place");
        let bytes = places.iter().map(|place| place.len() as u64).sum();
        self.read_bytes += bytes;
        self.keep_pace(bytes)?;
        Ok(places)
    }

    /// Checks one of the batches that were fetched last.
    pub(super) fn open(
        &self,
        located: &Located,
        place: Range<usize>,
    ) -> Result<UnpackedBatch<'_>, StorageError> {
        let damaged = |_| {
            // F5: what is found damaged is never written over.
            self.shared.pipeline.log.distrust(located.entry.location.segment);
            damaged(self.partition, located)
        };
        let view = BatchView::parse(&self.buffer[place]).map_err(damaged)?;
        view.verify_crc().map_err(damaged)?;
        if !is_as_indexed(located, view.header()) {
            return Err(self::damaged(self.partition, located));
        }
        view.unpack().map_err(damaged)
    }
}

/// Whether a batch is what the index says of it, by which a pass has chosen its way.
fn is_as_indexed(located: &Located, header: &BatchHeader) -> bool {
    let Located { last_offset, entry } = located;
    header.last_offset() == *last_offset
        && header.attributes().bits() == entry.attributes
        && header.record_count().unsigned_abs() == entry.record_count
        && header.max_timestamp() == entry.max_timestamp
}

/// What the index says of the batch's attributes.
pub(super) fn attributes(located: &Located) -> Attributes {
    Attributes::from_bits(located.entry.attributes)
}

/// How many of the batches are read at once; one at least.
pub(super) fn run_of<'b>(batches: impl Iterator<Item = &'b Located>) -> usize {
    let mut bytes = 0;
    let fits = |located: &&Located| {
        bytes += u64::from(located.entry.location.length_bytes);
        bytes <= READ_BYTES
    };
    batches.take_while(fits).count().max(1)
}

/// The damage of a batch whose bytes are not what was written.
pub(super) fn damaged(partition: &Partition, located: &Located) -> StorageError {
    let place =
        Place::Batch { partition: partition.cell().id(), offset: located.entry.base_offset };
    let what = "its checksum or its records are not right, so it is not cleaned";
    Corruption { place, what }.into()
}
