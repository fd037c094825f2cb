//! The frame that a change plans: its write batch, and the record batches that the write batch points to.

use crate::base::types::{CommitSequence, PayloadLocation, SegmentId, TimestampMs};
use crate::index::keyspace::BatchEntry;
use crate::index::write_batch::{Family, ValueAt, WriteBatch};
use crate::log::{FrameLayout, Payload, frame_layout};

/// When a commit is made.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The number that the commit gets if it is planned.
    pub sequence: CommitSequence,
    /// The engine's clock when its group was formed.
    pub append_time: TimestampMs,
}

/// A frame before it has its place in the log.
#[derive(Debug)]
pub struct FramePlan {
    /// The changes of the index.
    pub write_batch: WriteBatch,
    moment: Moment,
    payloads: Vec<Payload>,
    payload_bytes: u64,
    entries: Vec<ValueAt>,
    dead: Vec<(SegmentId, u64, u64)>,
    may_use_reserve: bool,
}

impl FramePlan {
    /// A frame without changes.
    #[must_use]
    pub fn new(moment: Moment) -> Self {
        Self {
            write_batch: WriteBatch::new(),
            moment,
            payloads: Vec::new(),
            payload_bytes: 0,
            entries: Vec::new(),
            dead: Vec::new(),
            may_use_reserve: false,
        }
    }

    /// Adds a record batch with the entry that points to it. Segment and position of the entry
    /// are filled in once the frame has its place.
    pub fn add_batch(&mut self, key: &[u8], entry: &BatchEntry, payload: Payload) {
        let length_bytes = (payload.head.len() + payload.body.len()) as u64;
        assert!(
            length_bytes == u64::from(entry.location.length_bytes),
            "an entry says the length of its batch"
        );
        self.entries.push(self.write_batch.put(Family::Batches, key, &entry.encode()));
        self.payload_bytes += length_bytes;
        self.payloads.push(payload);
    }

    /// Notes batches in a segment that the index does not name any more once this is applied,
    /// because their entries are deleted or replaced: their bytes are dead then.
    pub fn note_dead(&mut self, segment: SegmentId, bytes: u64, batch_count: u64) {
        assert!(batch_count > 0, "what is noted as dead was alive");
        self.dead.push((segment, bytes, batch_count));
    }

    /// What dies: segments, each with bytes and batches.
    #[must_use]
    pub fn dead(&self) -> &[(SegmentId, u64, u64)] {
        &self.dead
    }

    /// Lets it use the space that is held back for what gives space back.
    pub fn allow_reserve(&mut self) {
        self.may_use_reserve = true;
    }

    /// Whether it may use that space.
    #[must_use]
    pub fn may_use_reserve(&self) -> bool {
        self.may_use_reserve
    }

    /// When it is made.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.moment
    }

    /// The record batches, in their order.
    #[must_use]
    pub fn payloads(&self) -> &[Payload] {
        &self.payloads
    }

    /// How long the frame is, and where in it the record batches start.
    #[must_use]
    pub fn layout(&self) -> FrameLayout {
        let write_batch_bytes = self.write_batch.encoded().len();
        frame_layout(write_batch_bytes, self.payloads.len(), self.payload_bytes)
    }

    /// Gives the frame its place, and every entry the place of its record batch.
    pub fn place(&mut self, segment: SegmentId, position: u64) {
        assert!(self.payloads.len() == self.entries.len(), "each record batch has its entry");
        let mut at = position + self.layout().payloads_at;
        for (payload, entry) in self.payloads.iter().zip(&self.entries) {
            let location = BatchEntry::encode_location(segment, at);
            self.write_batch.patch(*entry, BatchEntry::LOCATION_AT, &location);
            at += (payload.head.len() + payload.body.len()) as u64;
        }
        debug_assert!(at <= position + self.layout().frame_bytes, "the batches lie in the frame");
    }
}

/// A location that [`FramePlan::place`] fills in.
#[must_use]
pub fn unplaced(length_bytes: u32) -> PayloadLocation {
    PayloadLocation { segment: SegmentId(0), position: 0, length_bytes }
}
