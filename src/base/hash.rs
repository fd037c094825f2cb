//! SipHash with 128 bits out: what nobody can foretell who does not know its key.
//!
//! The algorithm is that of Aumasson and Bernstein (2012). With one round a word and three at the
//! end, as hash tables take it, it tells record keys apart without keeping them: two keys with one
//! hash would lose a record, and are found by chance only, which for a pair in a billion keys is
//! below 2^-68. With two and four, as its authors want it for what is shown to others, it seals
//! what is written to disk.

use std::fmt;

/// The secret of hashes that belong together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey(pub [u64; 2]);

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// The hash of a record's key.
pub type Hash = [u64; 2];

struct State([u64; 4]);

impl State {
    #[inline(always)]
    fn round(&mut self) {
        let [v0, v1, v2, v3] = &mut self.0;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v1);
        *v0 = v0.wrapping_add(*v3);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }

    #[inline(always)]
    fn take<const ROUNDS: usize>(&mut self, word: u64) {
        self.0[3] ^= word;
        (0..ROUNDS).for_each(|_| self.round());
        self.0[0] ^= word;
    }

    #[inline(always)]
    fn finish<const ROUNDS: usize>(&mut self) -> u64 {
        (0..ROUNDS).for_each(|_| self.round());
        self.0.iter().fold(0, |sum, word| sum ^ word)
    }
}

/// Hashes the bytes of a record's key.
#[inline(always)]
#[must_use]
pub fn hash(secret: HashKey, bytes: &[u8]) -> Hash {
    sip::<1, 3>(secret, bytes)
}

/// Seals bytes: 64 bits that cannot be made for any bytes without the secret, also by who has seen
/// the seals of others.
#[must_use]
pub fn seal(secret: HashKey, bytes: &[u8]) -> u64 {
    sip::<2, 4>(secret, bytes)[0]
}

/// The last bytes, fewer than eight, as a number.
#[inline(always)]
fn tail(bytes: &[u8], count: usize) -> u64 {
    match bytes.last_chunk::<8>() {
        _ if count == 0 => 0,
        // One read, of which the bytes before are shifted out.
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * count),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The hash with so many rounds a word and at the end.
#[inline(always)]
fn sip<const A_WORD: usize, const AT_END: usize>(secret: HashKey, bytes: &[u8]) -> Hash {
    let HashKey([k0, k1]) = secret;
    let mut state = State([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        state.take::<A_WORD>(u64::from_le_bytes(word.try_into().expect("it has eight bytes")));
    }
    state.take::<A_WORD>((bytes.len() as u64) << 56 | tail(bytes, words.remainder().len()));
    state.0[2] ^= 0xee;
    let low = state.finish::<AT_END>();
    state.0[1] ^= 0xdd;
    let high = state.finish::<AT_END>();
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_two_and_four_rounds_the_published_vectors_come_out() {
        let key: [u8; 16] = std::array::from_fn(|index| index as u8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap());
        let secret = HashKey([word(&key[..8]), word(&key[8..])]);
        let text = |hash: Hash| {
            let bytes = hash.iter().flat_map(|word| word.to_le_bytes());
            bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let input: Vec<u8> = (0..64).collect();
        assert_eq!(text(sip::<2, 4>(secret, &input[..0])), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(text(sip::<2, 4>(secret, &input[..1])), "da87c1d86b99af44347659119b22fc45");
    }

    #[test]
    fn every_length_and_every_secret_gives_another_hash() {
        let zeros = [0; 40];
        let mut seen = std::collections::BTreeSet::new();
        for length in 0..=zeros.len() {
            for secret in [[0, 0], [1, 0], [0, 1]] {
                assert!(seen.insert(hash(HashKey(secret), &zeros[..length])));
            }
        }
    }
}
