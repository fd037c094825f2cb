//! Random bits: from the system where they must not be guessed, and a small generator for ids that all may see.

use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// Where random bits come from.
#[derive(Debug, Clone, Copy)]
pub enum Randomness {
    /// The system: nobody can guess them.
    System,
    /// A seed, for tests that must run the same every time.
    #[cfg_attr(
        not(any(test, feature = "test-util")),
        expect(dead_code, reason = "tests alone choose a seed")
    )]
    Seed(u64),
}

impl Randomness {
    /// 64 bits. Those of the system tell nothing of any others.
    #[must_use]
    pub fn bits(self) -> u64 {
        match self {
            Self::System => system_bits(),
            Self::Seed(seed) => Random::new(seed).next_u64(),
        }
    }
}

/// Gives keys that nobody outside may learn, such as those of hashes over what clients send.
///
/// They come from the system one by one. None comes from a generator that also gives ids: whoever
/// sees an id of a generator as small as [`Random`] knows all that it gives afterwards.
#[derive(Debug)]
pub struct Secrets(Option<Mutex<Random>>);

impl Secrets {
    /// Keys from this source.
    #[must_use]
    pub fn new(from: Randomness) -> Self {
        match from {
            Randomness::System => Self(None),
            // Other bits than those of the ids that come from the same seed.
            Randomness::Seed(seed) => Self(Some(Mutex::new(Random::new(!seed)))),
        }
    }

    /// A key that was never given before.
    #[must_use]
    pub fn key(&self) -> [u64; 2] {
        match &self.0 {
            None => [system_bits(), system_bits()],
            Some(seeded) => {
                let mut random = seeded.lock();
                [random.next_u64(), random.next_u64()]
            }
        }
    }
}

/// 64 bits from the system.
fn system_bits() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut bits = [0; 8];
        let filled = rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty());
        if filled == Ok(bits.len()) {
            return u64::from_ne_bytes(bits);
        }
    }
    // The keys of the standard library's hash maps come from the system too; a hash under a new
    // pair of them shows neither.
    RandomState::new().hash_one(0_u64)
}

/// A small generator of random bits for ids (SplitMix64): spread well, and no secret.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same bits for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_bits_again_and_the_system_gives_others() {
        assert_eq!(Randomness::Seed(7).bits(), Randomness::Seed(7).bits());
        assert_ne!(Randomness::System.bits(), Randomness::System.bits());
        let keys = |from| Secrets::new(from).key();
        assert_eq!(keys(Randomness::Seed(7)), keys(Randomness::Seed(7)));
        assert_ne!(keys(Randomness::System), keys(Randomness::System));
    }

    #[test]
    fn no_key_is_given_twice_and_none_is_among_the_ids_of_the_same_seed() {
        for from in [Randomness::System, Randomness::Seed(7)] {
            let secrets = Secrets::new(from);
            assert_ne!(secrets.key(), secrets.key());
        }
        let mut ids = Random::new(7);
        let ids: Vec<u64> = (0..100).map(|_| ids.next_u64()).collect();
        let key = Secrets::new(Randomness::Seed(7)).key();
        assert!(key.iter().all(|word| !ids.contains(word)));
    }
}
