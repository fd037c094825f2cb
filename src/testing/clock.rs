//! A clock that a test moves.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::types::TimestampMs;

/// A clock that stands still until a test moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that shows this time of day.
    #[must_use]
    pub fn new(now_ms: TimestampMs) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), monotonic_ms: AtomicU64::new(0) }
    }

    /// Sets the time of day, in either direction; the monotonic clock does not move.
    pub fn set_ms(&self, now_ms: TimestampMs) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Moves both clocks forward.
    pub fn advance_ms(&self, by_ms: u64) {
        self.now_ms.fetch_add(i64::try_from(by_ms).unwrap_or(i64::MAX), Ordering::SeqCst);
        self.monotonic_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> TimestampMs {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms.load(Ordering::SeqCst))
    }
}
