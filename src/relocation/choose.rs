//! Which segments are relocated: the emptiest, and no more than it takes to keep dead space bounded.

use crate::log::SEGMENT_HEADER_BYTES;
use crate::shared::{Live, Shared};
use crate::types::SegmentId;

/// What a batch costs in a frame beside its own bytes, about: its index entry and its place in
/// the payload table.
const BATCH_OVERHEAD_BYTES: u64 = 96;

/// Segments whose worth may be moved in one burst: the more, the better it is sorted by the life
/// that is left; the fewer, the less space it takes before it gives any back.
const BURST_SEGMENTS: u64 = 16;

/// A burst gains this part of a segment at least, or all that is to be gained. Each takes two new
/// segments and a checkpoint, and makes small segments: if what it leaves behind were enough for
/// the next one, none would be the last.
const LEAST_GAIN_PART: u64 = 16;

/// Batches of one burst: each is held in memory, in some 100 bytes.
const BURST_BATCHES: u64 = 1 << 20;

/// A segment that may be relocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    id: SegmentId,
    /// All behind the header, which the segment of the survivors has too.
    frames_bytes: u64,
    live: Live,
}

impl Candidate {
    /// What freeing it gives, less what its survivors take elsewhere.
    fn gain_bytes(&self) -> u64 {
        let kept = self.live.bytes + self.live.batch_count * BATCH_OVERHEAD_BYTES;
        self.frames_bytes.saturating_sub(kept)
    }

    /// Whether it is worth the copying: a tenth of it is gained at least.
    fn is_worth_it(&self) -> bool {
        self.gain_bytes() * 10 >= self.frames_bytes
    }
}

/// How much of the log may be dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    segment_bytes: u64,
    max_dead_percent: u64,
}

impl Bounds {
    /// The bytes to gain, if the dead ones are above their bound: two segments, one that is written
    /// and one that is about to go, and a share of what is alive. That share is gained beyond the
    /// bound, so that bursts are few and large, and what they sort is much.
    fn excess_bytes(&self, total_bytes: u64, live_bytes: u64) -> u64 {
        let share = live_bytes.saturating_mul(self.max_dead_percent) / 100;
        let allowed = (2 * self.segment_bytes).saturating_add(share);
        let dead = total_bytes.saturating_sub(live_bytes);
        if dead > allowed { dead - allowed + share } else { 0 }
    }
}

/// The segments to relocate now.
pub(super) fn victims(shared: &Shared) -> Vec<SegmentId> {
    let pipeline = &shared.pipeline;
    let Some(live) = pipeline.space.live() else { return Vec::new() };
    let newest = pipeline.applied().segment;
    let damaged = pipeline.space.damaged.lock();
    let mut total_bytes = 0;
    let mut candidates = Vec::new();
    for segment in pipeline.log.segments() {
        let found = live.get(&segment.id).copied();
        if found.is_some() || segment.id >= newest {
            total_bytes += segment.length_bytes;
        }
        if let Some(live) = found.filter(|_| segment.id < newest && !damaged.contains(&segment.id))
        {
            let frames_bytes = segment.length_bytes.saturating_sub(SEGMENT_HEADER_BYTES);
            candidates.push(Candidate { id: segment.id, frames_bytes, live });
        }
    }
    let live_bytes = live.values().map(|live| live.bytes).sum();
    let bounds = Bounds {
        segment_bytes: shared.config.segment_bytes,
        max_dead_percent: u64::from(shared.config.max_dead_percent),
    };
    choose(candidates, bounds.excess_bytes(total_bytes, live_bytes), bounds.segment_bytes)
}

fn choose(mut candidates: Vec<Candidate>, excess_bytes: u64, segment_bytes: u64) -> Vec<SegmentId> {
    candidates.retain(Candidate::is_worth_it);
    // The share that is gained, the greatest first; exact in 128 bits.
    candidates.sort_by(|a, b| {
        let left = u128::from(b.gain_bytes()) * u128::from(a.frames_bytes);
        left.cmp(&(u128::from(a.gain_bytes()) * u128::from(b.frames_bytes))).then(a.id.cmp(&b.id))
    });
    let (mut gained, mut moved_bytes, mut moved_batches) = (0u64, 0u64, 0u64);
    let mut chosen = Vec::new();
    for candidate in candidates {
        let is_full = moved_bytes >= BURST_SEGMENTS.saturating_mul(segment_bytes)
            || moved_batches >= BURST_BATCHES;
        if gained >= excess_bytes || is_full {
            break;
        }
        gained += candidate.gain_bytes();
        moved_bytes += candidate.live.bytes;
        moved_batches += candidate.live.batch_count;
        chosen.push(candidate.id);
    }
    let least = excess_bytes.min(segment_bytes / LEAST_GAIN_PART);
    if gained < least { Vec::new() } else { chosen }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u64, frames_bytes: u64, live_bytes: u64) -> Candidate {
        let live = Live { bytes: live_bytes, batch_count: 1 };
        Candidate { id: SegmentId(id), frames_bytes, live }
    }

    fn chosen(candidates: &[Candidate], excess_bytes: u64) -> Vec<u64> {
        choose(candidates.to_vec(), excess_bytes, 1000).iter().map(|id| id.0).collect()
    }

    #[test]
    fn nothing_is_in_excess_up_to_the_bound_and_the_whole_share_beyond_it() {
        let bounds = Bounds { segment_bytes: 1000, max_dead_percent: 30 };
        assert_eq!(bounds.excess_bytes(10_000 + 3_000 + 2_000, 10_000), 0);
        assert_eq!(bounds.excess_bytes(10_000 + 3_000 + 2_001, 10_000), 3_001);
        assert_eq!(bounds.excess_bytes(2_000, 0), 0);
        assert_eq!(bounds.excess_bytes(2_001, 0), 1);
        assert_eq!(bounds.excess_bytes(5, 10), 0);
    }

    #[test]
    fn the_emptiest_go_first_and_no_more_than_are_needed() {
        let all = [candidate(1, 1000, 500), candidate(2, 1000, 100), candidate(3, 500, 10)];
        assert_eq!(chosen(&all, 0), Vec::<u64>::new());
        assert_eq!(chosen(&all, 804), [2]);
        assert_eq!(chosen(&all, 805), [2, 3]);
        assert_eq!(chosen(&all, 1 << 40), [2, 3, 1]);
    }

    #[test]
    fn a_segment_that_gains_less_than_a_tenth_stays() {
        assert_eq!(chosen(&[candidate(1, 1000, 804)], 1), [1]);
        assert_eq!(chosen(&[candidate(1, 1000, 805)], 1), Vec::<u64>::new());
        let many_small = Live { bytes: 100, batch_count: 9 };
        let segment = Candidate { id: SegmentId(1), frames_bytes: 1000, live: many_small };
        assert_eq!(chosen(&[segment], 1), Vec::<u64>::new());
    }

    #[test]
    fn a_burst_that_gains_hardly_anything_of_what_is_in_excess_is_not_begun() {
        // Two gain 62 together, a sixteenth of a segment.
        let all = [candidate(1, 200, 73), candidate(2, 200, 73)];
        assert_eq!(chosen(&all, 1 << 40), [1, 2]);
        let less = [candidate(1, 200, 73), candidate(2, 200, 74)];
        assert_eq!(chosen(&less, 1 << 40), Vec::<u64>::new());
        assert_eq!(chosen(&less, 61), [1, 2], "it is all that is to be gained");
        assert_eq!(chosen(&less, 31), [1]);
    }

    #[test]
    fn a_burst_is_bounded() {
        let all: Vec<_> = (0..100).map(|id| candidate(id, 1000, 700)).collect();
        assert_eq!(chosen(&all, u64::MAX).len(), 23);
    }
}
