//! Damage to what is on the disk, and whether anything proves that it hit a synced commit.

use tidelog::internals::log::SEGMENT_HEADER_BYTES;
use tidelog::types::{AppliedCommit, SegmentId};

use crate::model::{Made, segment_path};
use crate::world::World;

impl World {
    /// A place of a commit that the index does not hold and that is synced.
    pub(crate) fn acked_place(&mut self) -> Option<(u64, Made)> {
        let timeline = self.timeline.lock();
        let first = self.applied.sequence.0 + 1;
        if timeline.acked < first {
            return None;
        }
        let hit = first + self.random.below(timeline.acked - first + 1);
        Some((hit, timeline.made[hit as usize - 1].clone()))
    }

    /// Flips a bit in a synced commit, in bytes that a sum covers.
    pub(crate) fn rot_a_frame(&mut self) -> Option<(u64, bool)> {
        let (hit, made) = self.acked_place()?;
        let place = made.place?;
        let head_bytes = made.commit.payloads_at();
        let mut offset = self.random.below(head_bytes);
        if let Some(first) = made.commit.batches.first().filter(|_| self.random.chance(50)) {
            offset = head_bytes + 17 + self.random.below(first.len() as u64 - 17);
        }
        let path = segment_path(place.segment);
        let is_proven = self.is_proven(hit, place);
        self.disk.flip_bit(&path, (place.position + offset) * 8 + self.random.below(8));
        Some((hit, is_proven))
    }

    /// Flips a bit in the header of a segment with a synced commit.
    pub(crate) fn rot_a_header(&mut self) -> Option<(u64, bool)> {
        let (_, made) = self.acked_place()?;
        let segment = made.place?.segment;
        let timeline = self.timeline.lock();
        let is_in = |made: &&Made| made.place.is_some_and(|place| place.segment == segment);
        let first = timeline.made.iter().find(is_in)?.place?;
        let bit = self.random.below(SEGMENT_HEADER_BYTES * 8);
        self.disk.flip_bit(&segment_path(segment), bit);
        Some((first.sequence.0, true))
    }

    /// Whether a synced frame behind a commit, or the header of its segment or a later one, says
    /// that the commit was synced. Unsynced ones may say so too; then the log may refuse or not.
    fn is_proven(&self, hit: u64, place: AppliedCommit) -> bool {
        let timeline = self.timeline.lock();
        let synced_of = |segment: SegmentId, at: u64| {
            let bytes = self.disk.contents(&segment_path(segment)).expect("it holds commits");
            u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().expect("8 bytes"))
        };
        let behind = timeline.made[hit as usize..timeline.acked as usize].iter();
        let mut places = behind.clone().filter_map(|made| made.place);
        places.any(|place| synced_of(place.segment, place.position + 16) >= hit)
            || behind
                .filter_map(|made| made.place.map(|place| place.segment))
                .chain([place.segment])
                .any(|segment| synced_of(segment, 64) >= hit)
    }
}
