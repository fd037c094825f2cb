//! Pins: who reads holds back the freeing of segments that an index as old as the pin may name (rule F3).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::types::CommitSequence;

/// The pins that are held.
#[derive(Default)]
pub struct Pins {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By age, then by number; each with the monotonic time when it was taken.
    held: BTreeMap<(CommitSequence, u64), Duration>,
    last_number: u64,
}

/// Holds every segment that an index of its age or later names. Dropping it lets go.
pub struct Pin {
    pins: Arc<Pins>,
    key: (CommitSequence, u64),
}

impl Pins {
    /// Takes a pin. What is read under it must be the index as it is after this call or later.
    #[must_use]
    pub fn take(self: &Arc<Self>, applied: CommitSequence, now: Duration) -> Pin {
        let mut state = self.state.lock();
        state.last_number += 1;
        let key = (applied, state.last_number);
        let before = state.held.insert(key, now);
        assert!(before.is_none(), "each pin has a number of its own");
        Pin { pins: Arc::clone(self), key }
    }

    /// Takes a pin that does not expire, for work that ends by itself.
    #[must_use]
    pub fn hold(self: &Arc<Self>, applied: CommitSequence) -> Pin {
        self.take(applied, Duration::MAX)
    }

    /// The age of the oldest pin.
    #[must_use]
    pub fn oldest(&self) -> Option<CommitSequence> {
        self.state.lock().held.first_key_value().map(|((applied, _), _)| *applied)
    }

    /// How many are held.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.state.lock().held.len() as u64
    }

    /// Lets go of those that were taken before this time; who holds them finds out.
    pub fn expire(&self, taken_before: Duration) {
        self.state.lock().held.retain(|_, taken| *taken >= taken_before);
    }
}

impl Pin {
    /// Whether it holds nothing any more, because it got too old.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        !self.pins.state.lock().held.contains_key(&self.key)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.state.lock().held.remove(&self.key);
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").field("applied", &self.key.0).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pin_counts_until_it_is_dropped_or_expires() {
        let pins = Arc::new(Pins::default());
        let take = |applied, ms| pins.take(CommitSequence(applied), Duration::from_millis(ms));
        assert_eq!(pins.oldest(), None);
        let (second, first, twin) = (take(7, 20), take(5, 10), take(5, 30));
        assert_eq!((pins.oldest(), pins.count()), (Some(CommitSequence(5)), 3));
        drop(first);
        assert_eq!(pins.oldest(), Some(CommitSequence(5)));
        drop(twin);
        assert_eq!(pins.oldest(), Some(CommitSequence(7)));
        pins.expire(Duration::from_millis(20));
        assert!(!second.is_expired());
        let working = pins.hold(CommitSequence(9));
        pins.expire(Duration::from_millis(21));
        assert!(second.is_expired());
        pins.expire(Duration::from_secs(1 << 40));
        assert!(!working.is_expired(), "who works is waited for");
        assert_eq!(pins.oldest(), Some(CommitSequence(9)));
        drop(working);
        assert_eq!((pins.oldest(), pins.count()), (None, 0));
    }
}
