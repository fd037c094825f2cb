//! What the first reading of the dirty part learned of each batch, so that most are not read again.

use crate::types::Offset;

/// What is known of one batch of the dirty part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    last_offset: Offset,
    /// Its records that go: a newer one supersedes them, or they have no key.
    superseded: u32,
    /// More than that decides about the others: tombstones, records that the map does not know.
    is_open: bool,
}

/// Memory for one batch.
pub(super) const BYTES_PER_BATCH: u64 = 16;

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
    pub(super) fn begin(&mut self, last_offset: Offset) {
        if self.notes.len() < self.limit {
            self.notes.push(Note { last_offset, superseded: 0, is_open: false });
        }
    }

    /// The batch that began last has to be read again.
    pub(super) fn open(&mut self, last_offset: Offset) {
        if let Some(note) = self.notes.last_mut().filter(|note| note.last_offset == last_offset) {
            note.is_open = true;
        }
    }

    /// The record at this offset goes.
    pub(super) fn supersede(&mut self, offset: Offset) {
        let at = self.notes.partition_point(|note| note.last_offset < offset);
        // Offsets behind the last note are of batches for which there was no room.
        if let Some(note) = self.notes.get_mut(at) {
            note.superseded += 1;
        }
    }

    /// What is known of a batch.
    pub(super) fn known(&self, last_offset: Offset, record_count: u32) -> Known {
        let at = self.notes.binary_search_by_key(&last_offset, |note| note.last_offset);
        match at.ok().map(|at| self.notes[at]) {
            Some(note) if note.superseded == record_count => Known::Superseded,
            Some(note) if note.is_open => Known::Open,
            Some(note) if note.superseded == 0 => Known::Whole,
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
        for (last_offset, superseded) in [(1, &[][..]), (4, &[0, 1]), (9, &[2]), (10, &[])] {
            dirty.begin(last_offset);
            superseded.iter().for_each(|offset| dirty.supersede(*offset));
        }
        dirty.open(10);
        dirty.begin(12);
        dirty.supersede(12);
        dirty.open(12);
        assert_eq!(dirty.known(1, 2), Known::Superseded);
        assert_eq!(dirty.known(4, 3), Known::Open);
        assert_eq!(dirty.known(9, 5), Known::Whole);
        assert_eq!(dirty.known(10, 1), Known::Open);
        assert_eq!(dirty.known(12, 1), Known::Open, "there was no room for it");
        assert_eq!(dirty.known(5, 1), Known::Open, "it was never noted");
        assert_eq!(size_of::<Note>() as u64, BYTES_PER_BATCH);
    }

    #[test]
    fn a_batch_without_records_is_superseded() {
        let mut dirty = DirtyBatches::new(1);
        dirty.begin(3);
        assert_eq!(dirty.known(3, 0), Known::Superseded);
    }
}
