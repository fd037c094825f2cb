//! Aborted producer transactions of a stretch of a partition, and which batches belong to one.

use std::collections::BTreeMap;

use crate::base::types::{Offset, ProducerId};

/// An aborted producer transaction in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct AbortedTransaction {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// The offset of its first record here.
    pub first_offset: Offset,
    /// The offset of the marker that aborted it.
    pub marker_offset: Offset,
}

impl AbortedTransaction {
    /// A transaction from its first record to its marker.
    #[must_use]
    pub fn new(producer_id: ProducerId, first_offset: Offset, marker_offset: Offset) -> Self {
        Self { producer_id, first_offset, marker_offset }
    }
}

/// Tells which batches belong to an aborted transaction. Between the first record and the marker a
/// producer writes nothing else here.
#[derive(Debug, Clone, Default)]
pub struct AbortedSet {
    marker_offsets: BTreeMap<(ProducerId, Offset), Offset>,
}

impl AbortedSet {
    /// Whether a batch of a producer at this offset belongs to an aborted transaction.
    #[must_use]
    pub fn holds(&self, producer_id: ProducerId, base_offset: Offset) -> bool {
        let upto = (producer_id, Offset::MIN)..=(producer_id, base_offset);
        let last = self.marker_offsets.range(upto).next_back();
        last.is_some_and(|(_, marker_offset)| base_offset <= *marker_offset)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marker_offsets.is_empty()
    }
}

impl<'a> FromIterator<&'a AbortedTransaction> for AbortedSet {
    fn from_iter<I: IntoIterator<Item = &'a AbortedTransaction>>(transactions: I) -> Self {
        let transactions = transactions.into_iter().inspect(|transaction| {
            let is_legal = transaction.first_offset <= transaction.marker_offset;
            debug_assert!(is_legal, "a transaction ends after its begin");
        });
        let places = transactions.map(|t| ((t.producer_id, t.first_offset), t.marker_offset));
        Self { marker_offsets: places.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_aborted_from_the_first_record_of_the_transaction_to_its_marker() {
        let aborted = [
            AbortedTransaction::new(1, 10, 20),
            AbortedTransaction::new(2, 12, 15),
            AbortedTransaction::new(1, 30, 31),
        ];
        let set: AbortedSet = aborted.iter().collect();
        let held = |id, offsets: std::ops::Range<i64>| -> Vec<i64> {
            offsets.filter(|offset| set.holds(id, *offset)).collect()
        };
        let first: Vec<i64> = (10..=20).chain(30..=31).collect();
        assert_eq!(held(1, 0..40), first);
        assert_eq!(held(2, 0..40), (12..=15).collect::<Vec<_>>());
        assert!(held(3, 0..40).is_empty());
        assert!(!set.is_empty());
        assert!(AbortedSet::default().is_empty());
    }
}
