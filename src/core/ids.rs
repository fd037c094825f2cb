//! Ids that the engine gives: partition ids in their order, and random bits for all others.

use std::ops::Range;

use parking_lot::Mutex;

use crate::base::random::Random;

use crate::base::types::PartitionId;

/// The partition ids that are not given yet.
#[derive(Debug)]
pub struct PartitionIds {
    next: Mutex<PartitionId>,
}

impl PartitionIds {
    /// All from this one on.
    #[must_use]
    pub fn from(next: PartitionId) -> Self {
        Self { next: Mutex::new(next) }
    }

    /// Gives so many, each of them never again; nothing where not as many are left. REQUIRES:
    /// called by the committer, who makes the end of the range durable with what uses it.
    #[must_use]
    pub fn give(&self, count: u32) -> Option<Range<u32>> {
        let mut next = self.next.lock();
        // The greatest id is never given: no range of keys ends after it.
        let end = next.0.checked_add(count).filter(|end| *end < u32::MAX)?;
        let ids = next.0..end;
        assert!(ids.len() == count as usize, "as many are given as were asked for");
        next.0 = end;
        Some(ids)
    }
}

/// Random bits for ids, seeded once.
#[derive(Debug)]
pub struct RandomBits(Mutex<Random>);

impl RandomBits {
    /// The same bits for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Random::new(seed)))
    }

    /// The next 128 bits.
    #[must_use]
    pub fn next_pair(&self) -> [u64; 2] {
        let mut random = self.0.lock();
        [random.next_u64(), random.next_u64()]
    }
}
