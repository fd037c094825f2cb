//! The newest offset of each key, in memory of a fixed size: 32 bytes a key, however long keys are.
//!
//! An open table of hashes with linear probing, filled to three quarters at most. Nothing is ever
//! taken out of it, and offsets come in rising order.

use crate::base::hash::{Hash, HashKey, hash};
use crate::base::types::Offset;

/// Memory for one key: a slot of 24 bytes, and a third of one that stays free.
pub(super) const BYTES_PER_KEY: u64 = 32;

#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: Hash,
    /// The offset and one; 0 in a free slot.
    offset_and_one: u64,
}

/// What became of a key that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It was not there before.
    New,
    /// It was there with this offset, which is older.
    Replaced(Offset),
    /// Nothing: the map holds as many keys as it may.
    Full,
}

/// Keys and the newest offset of each.
#[derive(Debug)]
pub(super) struct KeyMap {
    secret: HashKey,
    slots: Vec<Slot>,
    key_count: u64,
    capacity: u64,
}

impl KeyMap {
    /// A map for this many keys.
    pub(super) fn new(capacity: u64, secret: HashKey) -> Self {
        let slot_count = usize::try_from(capacity + capacity / 3 + 1).expect("it fits memory");
        let free = Slot { hash: [0; 2], offset_and_one: 0 };
        assert!(slot_count as u64 > capacity, "a slot stays free, which ends each search");
        Self { secret, slots: vec![free; slot_count], key_count: 0, capacity }
    }

    /// How many keys it holds.
    pub(super) fn key_count(&self) -> u64 {
        self.key_count
    }

    /// The hash of a key, by which it is put and looked up.
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        hash(self.secret, key)
    }

    /// Brings the slots of these hashes near, all at a time: one after the other each would be
    /// waited for, since a large map is in no cache.
    pub(super) fn bring_near(&self, hashes: &[Hash]) {
        let offsets = hashes.iter().map(|hash| self.slots[self.first_place(*hash)].offset_and_one);
        std::hint::black_box(offsets.fold(0, |sum, offset| sum ^ offset));
    }

    /// Notes that the newest record of a key so far has this offset. A full map takes nothing, as
    /// Kafka's: where a round ends decides when tombstones get their horizons.
    pub(super) fn put(&mut self, hash: Hash, offset: Offset) -> Put {
        if self.key_count == self.capacity {
            return Put::Full;
        }
        let at = self.find(hash);
        let offset_and_one = u64::try_from(offset).expect("offsets are never negative") + 1;
        let slot = &mut self.slots[at];
        if slot.offset_and_one != 0 {
            let before = slot.offset_and_one - 1;
            debug_assert!(before < offset_and_one - 1, "offsets come in rising order");
            slot.offset_and_one = offset_and_one;
            return Put::Replaced(Offset::try_from(before).expect("it was put as an offset"));
        }
        *slot = Slot { hash, offset_and_one };
        self.key_count += 1;
        assert!(self.key_count <= self.capacity, "a slot stays free, which ends each search");
        Put::New
    }

    /// Whether a record of this key is known whose offset is greater than this one.
    pub(super) fn has_newer(&self, hash: Hash, offset: Offset) -> bool {
        let slot = &self.slots[self.find(hash)];
        slot.offset_and_one > u64::try_from(offset).expect("offsets are never negative") + 1
    }

    fn first_place(&self, hash: Hash) -> usize {
        ((u128::from(hash[0]) * self.slots.len() as u128) >> 64) as usize
    }

    /// The slot that holds the hash, or the free one where it belongs.
    fn find(&self, hash: Hash) -> usize {
        let slots = &self.slots[..];
        let mut at = self.first_place(hash);
        // A free slot ends the search: there always is one, because the map is never filled up.
        loop {
            let slot = &slots[at];
            if slot.offset_and_one == 0 || slot.hash == hash {
                return at;
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(capacity: u64) -> KeyMap {
        KeyMap::new(capacity, HashKey([1, 2]))
    }

    fn has_newer(map: &KeyMap, key: &[u8], offset: Offset) -> bool {
        map.has_newer(map.hash(key), offset)
    }

    fn put(map: &mut KeyMap, key: &[u8], offset: Offset) -> Put {
        let hash = map.hash(key);
        map.bring_near(&[hash]);
        map.put(hash, offset)
    }

    #[test]
    fn it_knows_the_newest_offset_of_every_key_up_to_its_capacity() {
        for capacity in [2, 3, 100, 5000] {
            let mut map = map(capacity);
            let key = |index: u64| index.to_string();
            for index in 0..capacity - 1 {
                assert_eq!(put(&mut map, key(index).as_bytes(), index as i64), Put::New);
            }
            for index in 0..capacity - 1 {
                let newer = (capacity + index) as i64;
                let put = put(&mut map, key(index).as_bytes(), newer);
                assert_eq!(put, Put::Replaced(index as i64));
                assert!(has_newer(&map, key(index).as_bytes(), newer - 1));
                assert!(!has_newer(&map, key(index).as_bytes(), newer));
                assert!(!has_newer(&map, key(index).as_bytes(), newer + 1));
            }
            assert!(!has_newer(&map, b"one more", 0));
            assert_eq!(put(&mut map, b"one more", i64::MAX), Put::New);
            assert_eq!(map.key_count(), capacity);
            for full in ["yet another", "0"] {
                assert_eq!(put(&mut map, full.as_bytes(), i64::MAX), Put::Full);
            }
            assert!(!has_newer(&map, b"yet another", 0));
        }
    }

    #[test]
    fn an_empty_key_and_the_greatest_offset_are_like_any_other() {
        let mut map = map(3);
        assert_eq!(put(&mut map, b"", 0), Put::New);
        assert_eq!(put(&mut map, b"\0", 1), Put::New);
        assert_eq!(put(&mut map, b"", i64::MAX), Put::Replaced(0));
        assert!(has_newer(&map, b"", i64::MAX - 1));
        assert!(!has_newer(&map, b"\0", 1));
    }

    #[test]
    fn a_key_takes_the_memory_that_is_said() {
        assert_eq!(size_of::<Slot>(), 24);
        let slots = map(3_000).slots.len() as u64 * 24;
        assert!(slots <= 3_000 * BYTES_PER_KEY + 24);
    }
}
