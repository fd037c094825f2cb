//! When the engine's own work is due: rounds at an interval, and bytes at a rate, by the injected clock.

use std::time::Duration;

use parking_lot::Mutex;

/// When retention is checked first, at the latest: an engine that is opened often must come to it.
const FIRST_RETENTION: Duration = Duration::from_secs(30);

/// When the next round is due, and how many bytes may be moved and cleaned now.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    next_round: Mutex<Duration>,
    retention_interval: Duration,
    next_retention: Mutex<Duration>,
    /// What relocation may move.
    pub relocation: Rate,
    /// What the cleaner may read and write.
    pub cleaner: Rate,
}

impl Schedule {
    /// A schedule whose first round is due at once.
    #[must_use]
    pub fn new(interval: Duration, relocation: Rate, cleaner: Rate) -> Self {
        Self {
            interval,
            next_round: Mutex::default(),
            retention_interval: Duration::ZERO,
            next_retention: Mutex::default(),
            relocation,
            cleaner,
        }
    }

    /// The same, with retention checked in rounds that are so far apart.
    #[must_use]
    pub fn retention_interval(mut self, interval: Duration) -> Self {
        let first = interval.min(FIRST_RETENTION);
        (self.retention_interval, self.next_retention) = (interval, Mutex::new(first));
        self
    }

    /// Whether a round checks retention; if so, the next check is an interval later.
    pub fn begin_retention(&self, now: Duration) -> bool {
        let mut next = self.next_retention.lock();
        let is_due = now >= *next;
        if is_due {
            *next = now.saturating_add(self.retention_interval);
        }
        is_due
    }

    /// Whether a round is due; if so, the next one is an interval later.
    pub fn begin_round(&self, now: Duration) -> bool {
        let mut next_round = self.next_round.lock();
        let is_due = now >= *next_round;
        if is_due {
            *next_round = now.saturating_add(self.interval);
        }
        is_due
    }

    /// Makes the next round due at once: there is more to do.
    pub fn hurry(&self, now: Duration) {
        *self.next_round.lock() = now;
    }

    /// How long it is until the next round.
    #[must_use]
    pub fn until_round(&self, now: Duration) -> Duration {
        self.next_round.lock().saturating_sub(now)
    }
}

/// Bytes at a rate. What is not spent waits, up to a burst; what is spent beyond it is owed.
#[derive(Debug)]
pub struct Rate {
    bytes_per_second: u64,
    burst: Duration,
    state: Mutex<Balance>,
}

#[derive(Debug)]
struct Balance {
    /// Below zero for what is owed.
    bytes: i128,
    filled_at: Duration,
}

impl Rate {
    /// So many bytes a second, of which those of a burst can be spent at once.
    #[must_use]
    pub fn new(bytes_per_second: u64, burst: Duration) -> Self {
        let bytes = most(bytes_per_second, burst);
        let state = Mutex::new(Balance { bytes, filled_at: Duration::ZERO });
        Self { bytes_per_second, burst, state }
    }

    /// The bytes that may be spent now.
    #[must_use]
    pub fn allowance(&self, now: Duration) -> u64 {
        u64::try_from(self.fill(now).max(0)).unwrap_or(u64::MAX)
    }

    /// How long it is until bytes may be spent.
    #[must_use]
    pub fn wait(&self, now: Duration) -> Duration {
        let owed = u128::try_from(1 - self.fill(now)).unwrap_or(0);
        let micros = (owed * 1_000_000).div_ceil(u128::from(self.bytes_per_second.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// So many bytes were spent.
    pub fn spend(&self, bytes: u64) {
        self.state.lock().bytes -= i128::from(bytes);
    }

    fn fill(&self, now: Duration) -> i128 {
        let state = &mut *self.state.lock();
        let passed = now.saturating_sub(state.filled_at);
        let most = most(self.bytes_per_second, self.burst);
        let earned = earned(self.bytes_per_second, passed);
        if earned > 0 {
            // Else the time goes on to count: looking often loses nothing.
            state.bytes = (state.bytes + earned).min(most);
            state.filled_at = now;
        }
        assert!(state.bytes <= most, "no more than a burst waits to be spent");
        state.bytes
    }
}

/// What may wait to be spent: a byte at least, or nothing could ever be.
fn most(bytes_per_second: u64, burst: Duration) -> i128 {
    earned(bytes_per_second, burst).max(1)
}

fn earned(bytes_per_second: u64, time: Duration) -> i128 {
    // Microseconds of a Duration take 84 bits at most; those of any real uptime leave room.
    let micros = time.as_micros().min(u128::from(u64::MAX));
    let bytes = micros * u128::from(bytes_per_second) / 1_000_000;
    i128::try_from(bytes).unwrap_or(i128::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn rate(bytes_per_second: u64) -> Rate {
        Rate::new(bytes_per_second, ms(2000))
    }

    #[test]
    fn a_round_is_due_at_first_and_then_an_interval_after_the_last_or_when_hurried() {
        let schedule = Schedule::new(ms(100), rate(1), rate(1));
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
    fn retention_is_checked_at_its_interval_and_first_within_half_a_minute() {
        let schedule = || Schedule::new(ms(100), rate(1), rate(1));
        let each = schedule();
        assert!((0..3).all(|_| each.begin_retention(ms(0))), "every round");
        let minutes = schedule().retention_interval(ms(300_000));
        assert!(!minutes.begin_retention(ms(29_999)));
        assert!(minutes.begin_retention(ms(30_000)));
        assert!(!minutes.begin_retention(ms(329_999)));
        assert!(minutes.begin_retention(ms(330_000)));
        let second = schedule().retention_interval(ms(1000));
        assert!(!second.begin_retention(ms(999)) && second.begin_retention(ms(1000)));
    }

    #[test]
    fn bytes_come_at_their_rate_and_no_more_than_a_burst_of_it_waits() {
        let rate = rate(1000);
        assert_eq!(rate.allowance(ms(0)), 2000);
        rate.spend(2000);
        assert_eq!(rate.allowance(ms(0)), 0);
        assert_eq!(rate.allowance(ms(250)), 250);
        rate.spend(250);
        assert_eq!(rate.allowance(ms(250)), 0);
        assert_eq!(rate.allowance(ms(1_000_000)), 2000);
    }

    #[test]
    fn what_is_spent_beyond_the_burst_is_owed_and_waited_for() {
        let rate = rate(1000);
        assert_eq!(rate.wait(ms(0)), ms(0));
        rate.spend(3000);
        assert_eq!((rate.allowance(ms(0)), rate.wait(ms(0))), (0, ms(1001)));
        assert_eq!((rate.allowance(ms(1000)), rate.wait(ms(1000))), (0, ms(1)));
        assert_eq!((rate.allowance(ms(1001)), rate.wait(ms(1001))), (1, ms(0)));
    }

    #[test]
    fn the_least_rate_gives_a_byte_in_its_time_however_short_the_burst() {
        for bytes_per_second in [1, 19, 20] {
            let rate = Rate::new(bytes_per_second, ms(50));
            let mut now = ms(0);
            for _ in 0..3 {
                assert_eq!((rate.allowance(now), rate.wait(now)), (1, ms(0)), "{bytes_per_second}");
                rate.spend(1);
                assert_eq!(rate.allowance(now), 0);
                now += rate.wait(now);
            }
        }
    }

    #[test]
    fn the_greatest_numbers_do_not_overflow() {
        let rate = Rate::new(u64::MAX, Duration::MAX);
        rate.spend(u64::MAX);
        assert!(rate.allowance(Duration::MAX) > 0);
        assert_eq!(rate.wait(Duration::MAX), ms(0));
    }
}
