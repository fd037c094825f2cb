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
