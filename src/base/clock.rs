//! Time comes in here and nowhere else: the system's clocks, and a manual one for tests.

use std::fmt;
use std::time::Duration;

use crate::base::types::TimestampMs;

/// Where the engine reads time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time of day. It may step in either direction; the engine stores it and decides nothing
    /// about the order of commits by it.
    fn now_ms(&self) -> TimestampMs;

    /// Time since some fixed moment, which never goes back. For waits and figures only.
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// A clock whose [`Clock::monotonic`] counts from now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now_ms(&self) -> TimestampMs {
        let now = std::time::SystemTime::now();
        match now.duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        }
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

#[cfg(any(test, feature = "test-util"))]
mod manual {
    use super::{Clock, Duration, TimestampMs};
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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
}

#[cfg(any(test, feature = "test-util"))]
pub use manual::ManualClock;
