//! The memory that all connections together may hold in requests and answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes that one permit of the semaphore stands for: it counts in 32 bits only.
const UNIT_BYTES: usize = 1024;

/// What costs nothing, so that short requests and answers do not wait for long ones.
pub const FREE_BYTES: usize = 64 * 1024;
/// The most that is taken from the budget in one step, so that nobody waits behind a large part.
pub(super) const STEP_BYTES: usize = 1024 * 1024;
/// How many may wait for a part of what they have in hand.
const WAITING_AT_A_TIME: usize = 64;

/// A bound on the bytes that connections hold, shared by all of them.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    total_bytes: usize,
    /// Turns to wait for a part with something in hand that counts for nobody yet.
    waiting: Arc<Semaphore>,
    /// How many wait for a part.
    wants: Arc<AtomicUsize>,
}

/// Counts somebody who waits, until it is dropped.
struct Wants<'a>(&'a AtomicUsize);

impl<'a> Wants<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Wants<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part of the budget; dropping it gives it back.
#[derive(Debug, Default)]
pub struct Held {
    permit: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    /// A budget of so many bytes, rounded down to whole KiB, at least one.
    #[must_use]
    pub fn new(total_bytes: usize) -> Self {
        let units = (total_bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS >> 1);
        Self {
            units: Arc::new(Semaphore::new(units)),
            total_bytes: units * UNIT_BYTES,
            waiting: Arc::new(Semaphore::new(WAITING_AT_A_TIME)),
            wants: Arc::default(),
        }
    }

    /// All of it.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// What nobody holds now.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.units.available_permits() * UNIT_BYTES
    }

    /// Takes a part, and waits for it where others hold too much. A request for more than there
    /// is at all takes all.
    pub async fn take(&self, bytes: usize) -> Held {
        let units = u32::try_from(bytes.min(self.total_bytes).div_ceil(UNIT_BYTES))
            .expect("a budget has fewer units than 32 bits can count");
        if let Ok(permit) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Held { permit: Some(permit) };
        }
        let _wants = Wants::one_more(&self.wants);
        let permit = Arc::clone(&self.units).acquire_many_owned(units).await;
        Held { permit: Some(permit.expect("the semaphore is never closed")) }
    }

    /// Whether anybody waits for a part.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wants.load(Ordering::Relaxed) > 0
    }

    /// Takes a part for what is there already, or soon will be, and cannot wait for long: small
    /// parts cost nothing, a large one is taken step by step, and none counts for more than half of
    /// the budget. `None` where others hold too much for this time, or too many wait already.
    pub async fn take_within(&self, bytes: usize, time: Duration) -> Option<Held> {
        let mut held = Held::default();
        if bytes <= FREE_BYTES {
            return Some(held);
        }
        let bytes = bytes.min(self.total_bytes / 2);
        if let (all, taken) = self.take_up_to(bytes)
            && taken == bytes
        {
            return Some(all);
        }
        let _turn = self.waiting.try_acquire().ok()?;
        let steps = async {
            while held.bytes() < bytes {
                held.merge(self.take((bytes - held.bytes()).min(STEP_BYTES)).await);
            }
        };
        timeout(time, steps).await.ok().map(|()| held)
    }

    /// Takes as much of `bytes` as is free now, without waiting, and says how much that is.
    #[must_use]
    pub fn take_up_to(&self, bytes: usize) -> (Held, usize) {
        let mut wanted = bytes.min(self.free_bytes()).div_ceil(UNIT_BYTES);
        while wanted > 0 {
            let units = u32::try_from(wanted).unwrap_or(u32::MAX);
            if let Ok(permit) = Arc::clone(&self.units).try_acquire_many_owned(units) {
                let bytes = bytes.min(units as usize * UNIT_BYTES);
                return (Held { permit: Some(permit) }, bytes);
            }
            wanted /= 2;
        }
        (Held::default(), 0)
    }
}

impl Held {
    /// How much it is, in whole KiB.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.permit.as_ref().map_or(0, |permit| permit.num_permits() * UNIT_BYTES)
    }

    /// Gives back what is above so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let Some(permit) = &mut self.permit else { return };
        let above = permit.num_permits().saturating_sub(bytes.div_ceil(UNIT_BYTES));
        drop(permit.split(above));
    }

    /// Adds what `other` holds to this one.
    pub fn merge(&mut self, other: Self) {
        match (&mut self.permit, other.permit) {
            (Some(mine), Some(others)) => mine.merge(others),
            (None, others) => self.permit = others,
            (Some(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_dropped_is_free_again() {
        let budget = MemoryBudget::new(10 * 1024);
        let mut held = budget.take(3000).await;
        assert_eq!(budget.free_bytes(), 7 * 1024);
        held.merge(budget.take(1).await);
        assert_eq!(budget.free_bytes(), 6 * 1024);
        drop(held);
        assert_eq!(budget.free_bytes(), budget.total_bytes());
    }

    #[tokio::test]
    async fn more_than_there_is_takes_all_and_does_not_wait_for_ever() {
        let budget = MemoryBudget::new(4096);
        let held = budget.take(1 << 40).await;
        assert_eq!(budget.free_bytes(), 0);
        drop(held);
    }

    #[tokio::test]
    async fn taking_up_to_an_amount_gives_what_is_left() {
        let budget = MemoryBudget::new(4096);
        let (first, bytes) = budget.take_up_to(3000);
        assert_eq!(bytes, 3000);
        let (_second, bytes) = budget.take_up_to(3000);
        assert_eq!(bytes, 1024);
        let (_third, bytes) = budget.take_up_to(3000);
        assert_eq!(bytes, 0);
        drop(first);
        assert_eq!(budget.free_bytes(), 3072);
    }

    #[tokio::test]
    async fn shrinking_gives_back_the_rest_and_never_takes_more() {
        let budget = MemoryBudget::new(4096);
        let mut held = budget.take(4096).await;
        held.shrink_to(1025);
        assert_eq!(budget.free_bytes(), 2048);
        held.shrink_to(1 << 30);
        assert_eq!(budget.free_bytes(), 2048);
        held.shrink_to(0);
        assert_eq!(budget.free_bytes(), 4096);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_part_waits_for_its_time_and_a_small_one_costs_nothing() {
        let (mib, time) = (1 << 20, Duration::from_secs(30));
        let budget = MemoryBudget::new(8 * mib);
        let one = budget.take_within(3 * mib, time).await.unwrap();
        let other = budget.take_within(100 * mib, time).await.unwrap();
        assert_eq!((one.bytes(), other.bytes()), (3 * mib, 4 * mib));
        assert!(budget.take_within(2 * mib, time).await.is_none());
        assert_eq!(budget.free_bytes(), mib, "who has waited in vain holds nothing");
        assert_eq!(budget.take_within(FREE_BYTES, Duration::ZERO).await.unwrap().bytes(), 0);
        assert!(!budget.is_wanted());
        let (waited, ()) = tokio::join!(budget.take_within(4 * mib, time), async {
            assert!(budget.is_wanted());
            drop(one);
        });
        assert!(!budget.is_wanted());
        assert_eq!((waited.unwrap().bytes(), budget.free_bytes()), (4 * mib, 0));
    }
}
