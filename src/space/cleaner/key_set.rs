//! Keys that were seen, newest record first, in memory of a fixed size: 32 bytes a key, however long keys are.
//!
//! An open table of hashes that is half full at most. Four hashes share a cache line and fill it in
//! their order; a line that is full goes on in the next one. So a key costs one line of memory in
//! nearly all cases, and that is asked for before it is needed. Nothing is ever taken out.

use super::key_map::BYTES_PER_KEY;
use crate::base::hash::{Hash, HashKey, hash};

const PER_LINE: usize = 4;

/// The hash that no key has.
pub(super) const NO_KEY: Hash = [0; 2];

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([Hash; PER_LINE]);

/// What a key was when it was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// New: this record is its newest.
    First,
    /// There already: there is a newer record.
    Before,
    /// New, and there is no room for it.
    Full,
}

/// The keys of all records that are newer than the next one.
#[derive(Debug)]
pub(super) struct KeySet {
    secret: HashKey,
    lines: Vec<Line>,
    key_count: u64,
    capacity: u64,
}

impl KeySet {
    /// A set for this many keys.
    pub(super) fn new(capacity: u64, secret: HashKey) -> Self {
        let line_bytes = size_of::<Line>() as u64;
        // One line more, so that one always has a free slot.
        let line_count = usize::try_from(capacity * BYTES_PER_KEY / line_bytes + 1);
        let lines = vec![Line([NO_KEY; PER_LINE]); line_count.expect("it fits memory")];
        Self { secret, lines, key_count: 0, capacity }
    }

    /// How many keys it holds.
    pub(super) fn key_count(&self) -> u64 {
        self.key_count
    }

    /// The hash of a key, by which it is put and looked up.
    #[inline(always)]
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        let hash = hash(self.secret, key);
        if hash == NO_KEY { [1, 0] } else { hash }
    }

    /// Brings the lines of these hashes near, all at a time: one after the other each would be
    /// waited for, since a large set is in no cache.
    pub(super) fn bring_near(&self, hashes: &[Hash]) {
        let words = hashes.iter().map(|hash| self.lines[self.first_line(*hash)].0[0][0]);
        std::hint::black_box(words.fold(0, |sum, word| sum ^ word));
    }

    /// Puts the key of the next older record.
    pub(super) fn put(&mut self, hash: Hash) -> Seen {
        debug_assert_ne!(hash, NO_KEY, "a record without a key is no key's");
        let mut at = self.first_line(hash);
        loop {
            let line = &mut self.lines[at].0;
            // Without a branch for each slot: how many are taken is as good as random.
            let (mut taken, mut is_there) = (0, false);
            for slot in line.iter() {
                taken += usize::from(*slot != NO_KEY);
                is_there |= *slot == hash;
            }
            if is_there {
                return Seen::Before;
            }
            if taken < PER_LINE {
                if self.key_count == self.capacity {
                    return Seen::Full;
                }
                debug_assert_eq!(line[taken], NO_KEY, "slots fill in their order");
                line[taken] = hash;
                self.key_count += 1;
                assert!(self.key_count <= self.capacity, "a slot stays free, which ends a search");
                return Seen::First;
            }
            at = self.next_line(at);
        }
    }

    /// Whether a key was put.
    pub(super) fn holds(&self, hash: Hash) -> bool {
        let mut at = self.first_line(hash);
        loop {
            let line = &self.lines[at].0;
            if line.contains(&hash) {
                return true;
            }
            if line.contains(&NO_KEY) {
                return false;
            }
            at = self.next_line(at);
        }
    }

    fn first_line(&self, hash: Hash) -> usize {
        ((u128::from(hash[0]) * self.lines.len() as u128) >> 64) as usize
    }

    fn next_line(&self, at: usize) -> usize {
        if at + 1 == self.lines.len() { 0 } else { at + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(set: &mut KeySet, key: &[u8]) -> Seen {
        let hash = set.hash(key);
        set.bring_near(&[hash]);
        set.put(hash)
    }

    #[test]
    fn it_knows_every_key_up_to_its_capacity_and_no_other() {
        for capacity in [0, 1, 2, 7, 100, 5000] {
            let mut set = KeySet::new(capacity, HashKey([1, 2]));
            let key = |index: u64| index.to_string();
            for index in 0..capacity {
                assert!(!set.holds(set.hash(key(index).as_bytes())));
                assert_eq!(put(&mut set, key(index).as_bytes()), Seen::First);
                assert_eq!(put(&mut set, key(index).as_bytes()), Seen::Before);
            }
            assert_eq!(put(&mut set, b"one more"), Seen::Full);
            assert_eq!(set.key_count(), capacity);
            for index in 0..capacity {
                assert!(set.holds(set.hash(key(index).as_bytes())));
            }
            assert!(!set.holds(set.hash(b"one more")));
        }
    }

    #[test]
    fn keys_of_one_line_go_on_in_the_next_and_after_the_last_in_the_first() {
        let mut set = KeySet::new(16, HashKey([1, 2]));
        assert_eq!(set.lines.len(), 9);
        let all = |low: u64| [u64::MAX, low];
        for low in 0..16 {
            assert_eq!(set.put(all(low)), Seen::First);
        }
        assert_eq!(set.put(all(16)), Seen::Full);
        for low in 0..16 {
            assert_eq!(set.put(all(low)), Seen::Before);
            assert!(set.holds(all(low)));
        }
        assert!(!set.holds(all(16)));
        assert_eq!(set.lines[0].0[0], all(4));
    }

    #[test]
    fn a_key_takes_the_memory_that_is_said() {
        assert_eq!(size_of::<Line>(), 64);
        let lines = KeySet::new(3_000, HashKey([1, 2])).lines.len() as u64 * 64;
        assert!(lines <= 3_000 * BYTES_PER_KEY + 64);
    }
}
