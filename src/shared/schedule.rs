//! When the engine's own work is due: rounds at an interval, and bytes at a rate, by the injected clock.

use std::time::Duration;

use parking_lot::Mutex;

/// The bytes that a rate gives in advance, in time: so much may be moved at once.
const BURST: Duration = Duration::from_secs(2);

/// When the next round is due, and how many bytes may be moved now.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    bytes_per_second: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_round: Duration,
    allowance_bytes: u64,
    filled_at: Duration,
}

impl Schedule {
    /// A schedule whose first round is due at once.
    #[must_use]
    pub fn new(interval: Duration, bytes_per_second: u64) -> Self {
        let allowance_bytes = Self::most(bytes_per_second);
        let state = State { allowance_bytes, ..State::default() };
        Self { interval, bytes_per_second, state: Mutex::new(state) }
    }

    fn most(bytes_per_second: u64) -> u64 {
        bytes_per_second.saturating_mul(BURST.as_secs())
    }

    /// Whether a round is due; if so, the next one is an interval later.
    pub fn begin_round(&self, now: Duration) -> bool {
        let mut state = self.state.lock();
        let is_due = now >= state.next_round;
        if is_due {
            state.next_round = now.saturating_add(self.interval);
        }
        is_due
    }

    /// Makes the next round due at once: there is more to do.
    pub fn hurry(&self, now: Duration) {
        self.state.lock().next_round = now;
    }

    /// How long it is until the next round.
    #[must_use]
    pub fn until_round(&self, now: Duration) -> Duration {
        self.state.lock().next_round.saturating_sub(now)
    }

    /// The bytes that may be moved now.
    #[must_use]
    pub fn allowance(&self, now: Duration) -> u64 {
        let state = &mut *self.state.lock();
        let passed = now.saturating_sub(state.filled_at).min(BURST);
        let earned = passed.as_micros().saturating_mul(u128::from(self.bytes_per_second));
        let earned = u64::try_from(earned / 1_000_000).unwrap_or(u64::MAX);
        let sum = state.allowance_bytes.saturating_add(earned);
        state.allowance_bytes = sum.min(Self::most(self.bytes_per_second));
        state.filled_at = now;
        state.allowance_bytes
    }

    /// So many bytes were moved.
    pub fn spend(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.allowance_bytes = state.allowance_bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_round_is_due_at_first_and_then_an_interval_after_the_last_or_when_hurried() {
        let schedule = Schedule::new(ms(100), 1);
        assert!(schedule.begin_round(ms(0)));
        assert!(!schedule.begin_round(ms(99)));
        assert_eq!(schedule.until_round(ms(99)), ms(1));
        assert!(schedule.begin_round(ms(100)));
        schedule.hurry(ms(101));
        assert!(schedule.begin_round(ms(101)));
        assert!(!schedule.begin_round(ms(200)));
        assert!(schedule.begin_round(ms(201)));
    }

    #[test]
    fn bytes_come_at_their_rate_and_no_more_than_two_seconds_of_it_wait() {
        let schedule = Schedule::new(ms(100), 1000);
        assert_eq!(schedule.allowance(ms(0)), 2000);
        schedule.spend(2000);
        assert_eq!(schedule.allowance(ms(0)), 0);
        assert_eq!(schedule.allowance(ms(250)), 250);
        schedule.spend(1000);
        assert_eq!(schedule.allowance(ms(250)), 0);
        assert_eq!(schedule.allowance(ms(1_000_000)), 2000);
    }
}
