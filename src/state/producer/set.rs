//! All producers of a partition, and where the oldest of their open transactions begins.

use std::collections::{BTreeMap, BTreeSet};

use super::sequences::ProducerState;
use crate::base::types::{Offset, ProducerId, TimestampMs};

/// All producers that a partition knows. An empty one allocates nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Producers {
    states: BTreeMap<ProducerId, ProducerState>,
    open: BTreeSet<(Offset, ProducerId)>,
}

impl Producers {
    /// What is known of a producer.
    #[must_use]
    pub fn get(&self, producer_id: ProducerId) -> Option<&ProducerState> {
        self.states.get(&producer_id)
    }

    /// Sets what is known of a producer, or forgets it; returns what was known.
    pub fn set(
        &mut self,
        producer_id: ProducerId,
        state: Option<ProducerState>,
    ) -> Option<ProducerState> {
        let open = state.and_then(|state| state.row().open_first_offset);
        let before = match state {
            Some(state) => self.states.insert(producer_id, state),
            None => self.states.remove(&producer_id),
        };
        let was_open = before.and_then(|before| before.row().open_first_offset);
        if was_open != open {
            if let Some(offset) = was_open {
                let is_gone = self.open.remove(&(offset, producer_id));
                assert!(is_gone, "each open transaction is listed");
            }
            if let Some(offset) = open {
                let is_new = self.open.insert((offset, producer_id));
                assert!(is_new, "a producer has one open transaction");
            }
        }
        assert!(self.open.len() <= self.states.len(), "a producer has one open transaction");
        before
    }

    /// Lets times beyond now count as now: they were read from a wrong clock, and their producers
    /// would never be forgotten.
    pub fn limit_times(&mut self, now_ms: TimestampMs) {
        for state in self.states.values_mut() {
            *state = state.at_most(now_ms);
        }
    }

    /// The first offset of the oldest open producer transaction, if one is open.
    #[must_use]
    pub fn first_unstable(&self) -> Option<Offset> {
        self.open.first().map(|(offset, _)| *offset)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// All of them, by their ids.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerState)> {
        self.states.iter().map(|(id, state)| (*id, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::keyspace::ProducerRow;

    fn open_at(offset: Option<Offset>) -> ProducerState {
        let mut row = ProducerRow::new(0, 0);
        row.open_first_offset = offset;
        ProducerState::new(row)
    }

    #[test]
    fn the_oldest_open_transaction_holds_the_last_stable_offset_back_and_the_next_one_after_it() {
        let mut producers = Producers::default();
        assert_eq!(producers.first_unstable(), None);
        producers.set(1, Some(open_at(Some(10))));
        producers.set(2, Some(open_at(Some(4))));
        producers.set(3, Some(open_at(None)));
        assert_eq!(producers.first_unstable(), Some(4));
        assert_eq!(producers.set(2, Some(open_at(None))), Some(open_at(Some(4))));
        assert_eq!(producers.first_unstable(), Some(10));
        assert_eq!(producers.set(1, None), Some(open_at(Some(10))));
        assert_eq!(producers.first_unstable(), None);
        assert_eq!(producers.iter().map(|(id, _)| id).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((producers.len(), producers.is_empty()), (2, false));
    }
}
