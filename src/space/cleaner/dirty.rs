//! What the first reading of the dirty part learned of each batch, so that most are not read again.

use crate::base::types::Offset;

/// What is known of one batch of the dirty part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    last_offset: Offset,
    /// Its records that go: a newer one supersedes them, or they have no key. One bit each, the
    /// last offset's the lowest; of a batch with more offsets than bits, how many.
    superseded: u32,
    has_bits: bool,
    /// More than that decides about the others: there are tombstones.
    is_open: bool,
    /// There are records that are not noted.
    looks_again: bool,
}

/// Memory for one batch.
pub(super) const BYTES_PER_BATCH: u64 = 16;

/// Which records of a batch go because of newer ones, or because they have no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superseded {
    last_offset: Offset,
    bits: u32,
}

impl Superseded {
    /// Whether the record at this offset goes.
    pub(super) fn has(&self, offset: Offset) -> bool {
        self.bits & bit(self.last_offset, offset) != 0
    }
}

/// The bit of an offset in a batch; 0 for one that has none.
fn bit(last_offset: Offset, offset: Offset) -> u32 {
    let distance = u32::try_from(last_offset.abs_diff(offset)).unwrap_or(u32::MAX);
    1u32.checked_shl(distance).unwrap_or(0)
}

/// What is to be done with a batch, as far as it is known without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Each of its records is its key's newest, and has a value.
    Whole,
    /// None of its records stays.
    Superseded,
    /// It has to be read.
    Open,
}

/// Batches of the dirty part, in the order of offsets; as many as its memory holds.
#[derive(Debug)]
pub(super) struct DirtyBatches {
    notes: Vec<Note>,
    limit: usize,
}

impl DirtyBatches {
    /// Room for this many batches.
    pub(super) fn new(limit: u64) -> Self {
        Self { notes: Vec::new(), limit: usize::try_from(limit).unwrap_or(usize::MAX) }
    }

    /// A batch begins. One for which there is no room has to be read again.
    pub(super) fn begin(&mut self, base_offset: Offset, last_offset: Offset) {
        assert!(base_offset <= last_offset, "a batch ends after its begin");
        let count = self.notes.len();
        let newest = self.notes.last().map(|note| note.last_offset);
        debug_assert!(newest < Some(base_offset), "batches come in the order of offsets");
        if count < self.limit {
            if count == self.notes.capacity() {
                // Twice as many, as a list does by itself, but none above the limit.
                self.notes.reserve_exact(count.max(64).min(self.limit - count));
            }
            let has_bits = bit(last_offset, base_offset) != 0;
            assert!(self.notes.capacity() <= self.limit, "memory is bounded");
            let (superseded, is_open, looks_again) = (0, false, false);
            self.notes.push(Note { last_offset, superseded, has_bits, is_open, looks_again });
        }
    }

    /// The batch that began last has to be read again, because of its tombstones.
    pub(super) fn open(&mut self, last_offset: Offset) {
        if let Some(note) = self.newest(last_offset) {
            note.is_open = true;
        }
    }

    /// The batch that holds this offset, and all after it, have to be read again, and each of
    /// their keys to be looked up.
    pub(super) fn look_again_from(&mut self, offset: Offset) {
        let after = self.notes.iter_mut().rev().take_while(|note| note.last_offset >= offset);
        after.for_each(|note| note.looks_again = true);
    }

    fn newest(&mut self, last_offset: Offset) -> Option<&mut Note> {
        self.notes.last_mut().filter(|note| note.last_offset == last_offset)
    }

    /// The record at this offset goes.
    pub(super) fn supersede(&mut self, offset: Offset) {
        let at = self.notes.partition_point(|note| note.last_offset < offset);
        // Offsets after the last note are of batches for which there was no room.
        if let Some(note) = self.notes.get_mut(at) {
            match note.has_bits {
                true => note.superseded |= bit(note.last_offset, offset),
                false => note.superseded += 1,
            }
        }
    }

    fn find(&self, last_offset: Offset) -> Option<&Note> {
        let at = self.notes.binary_search_by_key(&last_offset, |note| note.last_offset);
        at.ok().map(|at| &self.notes[at])
    }

    /// Which records of a batch go, where that is known of each.
    pub(super) fn superseded(&self, last_offset: Offset) -> Option<Superseded> {
        let note = self.find(last_offset).filter(|note| note.has_bits && !note.looks_again)?;
        Some(Superseded { last_offset, bits: note.superseded })
    }

    /// What is known of a batch.
    pub(super) fn known(&self, last_offset: Offset, record_count: u32) -> Known {
        let Some(note) = self.find(last_offset) else { return Known::Open };
        let superseded = if note.has_bits { note.superseded.count_ones() } else { note.superseded };
        match superseded {
            _ if note.looks_again => Known::Open,
            count if count == record_count => Known::Superseded,
            0 if !note.is_open => Known::Whole,
            _ => Known::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_whole_superseded_or_open_by_what_was_noted() {
        let mut dirty = DirtyBatches::new(4);
        for (base, last, superseded) in
            [(0, 1, &[][..]), (2, 4, &[2, 3]), (5, 9, &[5]), (10, 10, &[])]
        {
            dirty.begin(base, last);
            superseded.iter().for_each(|offset| dirty.supersede(*offset));
        }
        dirty.open(10);
        dirty.begin(11, 12);
        dirty.supersede(12);
        dirty.open(12);
        dirty.supersede(1);
        dirty.supersede(0);
        assert_eq!(dirty.known(1, 2), Known::Superseded);
        assert_eq!(dirty.known(4, 3), Known::Open);
        assert_eq!(dirty.known(4, 2), Known::Superseded, "it has a gap");
        assert_eq!(dirty.known(9, 5), Known::Open);
        assert_eq!(dirty.known(10, 1), Known::Open);
        dirty.supersede(10);
        assert_eq!(dirty.known(10, 1), Known::Superseded, "its tombstone goes too");
        assert_eq!(dirty.known(12, 1), Known::Open, "there was no room for it");
        assert_eq!(dirty.known(5, 1), Known::Open, "it was never noted");
        assert_eq!(size_of::<Note>() as u64, BYTES_PER_BATCH);
    }

    #[test]
    fn each_record_is_known_in_a_batch_of_up_to_32_offsets_and_their_count_in_a_larger_one() {
        let mut dirty = DirtyBatches::new(9);
        dirty.begin(100, 131);
        dirty.begin(200, 232);
        for offset in [100, 131, 200, 232] {
            dirty.supersede(offset);
        }
        let superseded = dirty.superseded(131).unwrap();
        let gone: Vec<i64> = (100..132).filter(|offset| superseded.has(*offset)).collect();
        assert_eq!(gone, [100, 131]);
        assert_eq!(dirty.superseded(232), None);
        assert_eq!(
            (dirty.known(131, 2), dirty.known(232, 2)),
            (Known::Superseded, Known::Superseded)
        );
        assert_eq!((dirty.known(131, 3), dirty.known(232, 3)), (Known::Open, Known::Open));
        dirty.begin(300, 301);
        assert_eq!(dirty.known(301, 2), Known::Whole);
        dirty.look_again_from(300);
        assert_eq!((dirty.known(301, 2), dirty.superseded(301)), (Known::Open, None));
    }

    #[test]
    fn its_memory_is_what_its_limit_says_at_most() {
        for limit in [0, 1, 63, 65, 1000, 4097] {
            let mut dirty = DirtyBatches::new(limit);
            for offset in 0..5000 {
                dirty.begin(offset, offset);
                assert!(dirty.notes.capacity() as u64 <= limit, "{limit}");
            }
            assert_eq!(dirty.notes.len() as u64, limit);
        }
    }

    #[test]
    fn a_batch_without_records_is_superseded() {
        let mut dirty = DirtyBatches::new(1);
        dirty.begin(0, 3);
        assert_eq!(dirty.known(3, 0), Known::Superseded);
    }
}
