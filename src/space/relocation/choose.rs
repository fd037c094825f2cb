//! Which segments are relocated: the emptiest, and no more than it takes to keep dead space bounded.

use crate::base::error::StorageError;
use crate::base::types::SegmentId;
use crate::commit::Live;
use crate::core::Shared;
use crate::log::SEGMENT_HEADER_BYTES;

/// What a batch costs in a frame beside its own bytes, about: its index entry and its place in
/// the payload table.
const BATCH_OVERHEAD_BYTES: u64 = 96;

/// Segments whose worth may be moved in one burst: the more, the better it is sorted by the life
/// that is left; the fewer, the less space it takes before it gives any back.
const BURST_SEGMENTS: u64 = 16;

/// A burst gains this part of a segment at least, or all that is to be gained. Each takes two new
/// segments and a checkpoint, and makes small segments: if what it leaves were enough for
/// the next one, none would be the last.
const LEAST_GAIN_PART: u64 = 16;

/// Batches of one burst: each is held in memory, in some 100 bytes.
const BURST_BATCHES: u64 = 1 << 20;

/// A segment that may be relocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    id: SegmentId,
    /// All after the header, which the segment of the survivors has too.
    frames_bytes: u64,
    live: Live,
}

impl Candidate {
    /// What its survivors take elsewhere.
    fn kept_bytes(&self) -> u64 {
        self.live.bytes + self.live.batch_count * BATCH_OVERHEAD_BYTES
    }

    /// What freeing it gives, less that.
    fn gain_bytes(&self) -> u64 {
        self.frames_bytes.saturating_sub(self.kept_bytes())
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

/// What one burst is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Aim {
    excess_bytes: u64,
    segment_bytes: u64,
    /// What it may write before it gives anything back.
    room_bytes: u64,
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

/// Bytes that relocation may write before it has to give some back: of what is free above half of
/// the reserve the half, since others write too. What is kept to be written over is free for it.
fn room_bytes(shared: &Shared) -> Result<u64, StorageError> {
    let log = &shared.pipeline.log;
    let (free_bytes, _) = log.free_and_total_bytes()?;
    let free_bytes = free_bytes.saturating_add(log.free_segments().bytes);
    Ok(free_bytes.saturating_sub(floor_bytes(shared)) / 2)
}

/// Free space below which nothing is relocated.
fn floor_bytes(shared: &Shared) -> u64 {
    shared.config.effective_disk_reserve_bytes() / 2
}

/// Fails where there is no room for so many bytes: since the burst was chosen, others have written.
pub(super) fn check_room(shared: &Shared, bytes: u64) -> Result<(), StorageError> {
    let room_bytes = room_bytes(shared)?;
    if bytes <= room_bytes {
        return Ok(());
    }
    let reserve_bytes = floor_bytes(shared);
    let free_bytes = room_bytes.saturating_mul(2).saturating_add(reserve_bytes);
    Err(StorageError::DiskFull { free_bytes, reserve_bytes })
}

/// The segments to relocate now.
pub(super) fn victims(shared: &Shared) -> Result<Vec<SegmentId>, StorageError> {
    let pipeline = &shared.pipeline;
    let Some(live) = pipeline.live.get() else { return Ok(Vec::new()) };
    let newest = pipeline.applied().segment;
    let damaged = shared.space.damaged.ids();
    let mut total_bytes = 0;
    let mut candidates = Vec::new();
    for segment in pipeline.log.segments() {
        let found = live.get(&segment.id).copied();
        if found.is_some() || segment.id >= newest {
            total_bytes += segment.length_bytes;
        }
        debug_assert!(
            found.is_none_or(|live| live != Live::default()),
            "only what lives is listed"
        );
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
    let excess_bytes = bounds.excess_bytes(total_bytes, live_bytes);
    if excess_bytes == 0 {
        return Ok(Vec::new());
    }
    let segment_bytes = bounds.segment_bytes;
    let room_bytes = room_bytes(shared)?;
    Ok(choose(candidates, Aim { excess_bytes, segment_bytes, room_bytes }))
}

fn choose(mut candidates: Vec<Candidate>, aim: Aim) -> Vec<SegmentId> {
    let Aim { excess_bytes, segment_bytes, room_bytes } = aim;
    candidates.retain(Candidate::is_worth_it);
    // The share that is gained, the greatest first; exact in 128 bits.
    candidates.sort_by(|a, b| {
        let left = u128::from(b.gain_bytes()) * u128::from(a.frames_bytes);
        left.cmp(&(u128::from(a.gain_bytes()) * u128::from(b.frames_bytes))).then(a.id.cmp(&b.id))
    });
    let (mut gained, mut moved_bytes, mut moved_batches) = (0u64, 0u64, 0u64);
    let mut written = 0u64;
    let mut chosen = Vec::new();
    for candidate in candidates {
        let is_full = moved_bytes >= BURST_SEGMENTS.saturating_mul(segment_bytes)
            || moved_batches >= BURST_BATCHES;
        if gained >= excess_bytes || is_full {
            break;
        }
        if written + candidate.kept_bytes() > room_bytes {
            continue;
        }
        written += candidate.kept_bytes();
        gained += candidate.gain_bytes();
        moved_bytes += candidate.live.bytes;
        moved_batches += candidate.live.batch_count;
        chosen.push(candidate.id);
    }
    assert!(written <= room_bytes, "no more is written than there is room for");
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

    fn chosen_in(candidates: &[Candidate], excess_bytes: u64, room_bytes: u64) -> Vec<u64> {
        let aim = Aim { excess_bytes, segment_bytes: 1000, room_bytes };
        choose(candidates.to_vec(), aim).iter().map(|id| id.0).collect()
    }

    fn chosen(candidates: &[Candidate], excess_bytes: u64) -> Vec<u64> {
        chosen_in(candidates, excess_bytes, u64::MAX)
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
    fn a_burst_writes_no_more_than_there_is_room_for() {
        // With the index entry 196, 696 and 346.
        let all = [candidate(1, 1000, 100), candidate(2, 2000, 600), candidate(3, 700, 250)];
        let excess_bytes = 1 << 40;
        assert_eq!(chosen_in(&all, excess_bytes, 195), Vec::<u64>::new());
        assert_eq!(chosen_in(&all, excess_bytes, 196), [1]);
        assert_eq!(chosen_in(&all, excess_bytes, 196 + 345), [1]);
        assert_eq!(chosen_in(&all, excess_bytes, 196 + 346), [1, 3]);
        assert_eq!(chosen_in(&all, excess_bytes, 196 + 696), [1, 2]);
        assert_eq!(chosen_in(&all, excess_bytes, 196 + 696 + 346), [1, 2, 3]);
    }

    #[test]
    fn a_burst_is_bounded() {
        let all: Vec<_> = (0..100).map(|id| candidate(id, 1000, 700)).collect();
        assert_eq!(chosen(&all, u64::MAX).len(), 23);
    }
}
