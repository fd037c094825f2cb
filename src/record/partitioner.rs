//! The key hashes of Kafka's clients, so that records appended in process land where clients put
//! the same key.
//!
//! Pure functions of a key and a number of partitions. Only a record that its partitioner spreads
//! (mostly: one without a key) needs a choice, and the caller's generator makes it.

/// How a client turns a record's key into a partition.
///
/// ```
/// use tidelog::partitioner::Partitioner;
///
/// // Where librdkafka, with its default, would put this key.
/// assert_eq!(Partitioner::Crc32Random.partition(Some(b"customer-9"), 3), 0);
///
/// // A record without a key goes where the caller's generator says.
/// let mut state = 1u32;
/// let mut generator = || { state = state.wrapping_mul(1_664_525).wrapping_add(1); state };
/// let home = Partitioner::Crc32Random.partition_with(None, 3, &mut generator);
/// assert!((0..3).contains(&home));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Partitioner {
    /// librdkafka's default, `consistent_random`: CRC-32; empty and null keys are spread.
    #[default]
    Crc32Random,
    /// librdkafka's `consistent`: CRC-32; empty and null keys go to partition 0.
    Crc32,
    /// librdkafka's `murmur2_random`: Java's hash; null keys are spread.
    Murmur2Random,
    /// librdkafka's `murmur2`: Java's hash; null keys hash as empty.
    Murmur2,
    /// librdkafka's `fnv1a_random`, Sarama's default: FNV-1a; null keys are spread.
    Fnv1aRandom,
    /// librdkafka's `fnv1a`: FNV-1a; null keys hash as empty.
    Fnv1a,
    /// The Java client's default, kafka-python's too: murmur2; null keys are spread.
    Java,
}

impl Partitioner {
    /// All partitioners.
    pub const ALL: [Self; 7] = [
        Self::Crc32Random,
        Self::Crc32,
        Self::Murmur2Random,
        Self::Murmur2,
        Self::Fnv1aRandom,
        Self::Fnv1a,
        Self::Java,
    ];

    /// The name in librdkafka's setting `partitioner`; `java` for Java's own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32Random => "consistent_random",
            Self::Crc32 => "consistent",
            Self::Murmur2Random => "murmur2_random",
            Self::Murmur2 => "murmur2",
            Self::Fnv1aRandom => "fnv1a_random",
            Self::Fnv1a => "fnv1a",
            Self::Java => "java",
        }
    }

    /// Whether records with this key have no home and are spread over all partitions.
    #[must_use]
    pub fn spreads(self, key: Option<&[u8]>) -> bool {
        match self {
            Self::Crc32Random => key.is_none_or(<[u8]>::is_empty),
            Self::Murmur2Random | Self::Fnv1aRandom | Self::Java => key.is_none(),
            Self::Crc32 | Self::Murmur2 | Self::Fnv1a => false,
        }
    }

    /// The partition of a key among `partition_count`, the same at every call.
    ///
    /// A key that the partitioner [spreads](Self::spreads) comes out where the variant that does
    /// not spread puts it; [`Partitioner::partition_with`] spreads it.
    ///
    /// # Panics
    /// If `partition_count` is 0 or above 2^31 - 1: no topic has so many.
    #[must_use]
    pub fn partition(self, key: Option<&[u8]>, partition_count: u32) -> i32 {
        let count = checked_count(partition_count);
        let key = key.unwrap_or_default();
        let hash = match self {
            Self::Crc32Random | Self::Crc32 => crc32(key),
            Self::Murmur2Random | Self::Murmur2 | Self::Java => murmur2(key) & 0x7fff_ffff,
            // librdkafka takes the absolute value, which 2^31 does not have as an i32: it goes on
            // with 2^31 itself.
            Self::Fnv1aRandom | Self::Fnv1a => fnv1a(key).cast_signed().unsigned_abs(),
        };
        (hash % count).cast_signed()
    }

    /// The partition of a key among `partition_count`; one that `generator` chooses, evenly, where
    /// the partitioner [spreads](Self::spreads) the key. It is asked once, or not at all.
    ///
    /// # Panics
    /// If `partition_count` is 0 or above 2^31 - 1: no topic has so many.
    #[must_use]
    pub fn partition_with(
        self,
        key: Option<&[u8]>,
        partition_count: u32,
        generator: &mut impl FnMut() -> u32,
    ) -> i32 {
        if !self.spreads(key) {
            return self.partition(key, partition_count);
        }
        let count = checked_count(partition_count);
        let scaled = (u64::from(generator()) * u64::from(count)) >> 32;
        i32::try_from(scaled).expect("below the number of partitions, which fits")
    }
}

fn checked_count(partition_count: u32) -> u32 {
    assert!(partition_count > 0, "a topic has a partition");
    assert!(i32::try_from(partition_count).is_ok(), "partitions are numbered in 31 bits");
    partition_count
}

/// CRC-32 as in zlib: the polynomial 0x04c11db7, lowest bit first.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 0 { value >> 1 } else { (value >> 1) ^ 0xedb8_8320 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// MurmurHash2 of 32 bits with the seed of Kafka's Java client.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        let mut tail = [0; 4];
        tail[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(tail)).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// FNV-1a of 32 bits.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_those_that_clients_compute() {
        let known = [
            ("kafka", 0x5bbc_7517, 0xd067_cf64, 0x0d33_c4e1),
            ("customer-0", 0x9ce8_eceb, 0xf73f_75fb, 0x114f_b084),
            ("customer-1", 0xebef_dc7d, 0x739b_e9c1, 0x124f_b217),
            ("customer-2", 0x72e6_8dc7, 0x758a_1886, 0x134f_b3aa),
            ("customer-3", 0x05e1_bd51, 0x20cd_6a2a, 0x144f_b53d),
            ("customer-9", 0xe534_544f, 0x9592_e44b, 0x0a4f_a57f),
            ("", 0, 0x106e_08d9, 0x7ee3_623b),
        ];
        for (key, crc, murmur, fnv) in known {
            assert_eq!(crc32(key.as_bytes()), crc, "crc32 of {key:?}");
            assert_eq!(murmur2(key.as_bytes()), murmur, "murmur2 of {key:?}");
            assert_eq!(fnv1a(key.as_bytes()).cast_signed().unsigned_abs(), fnv, "fnv1a of {key:?}");
        }
    }

    #[test]
    fn only_the_variants_that_spread_ask_the_generator() {
        let asked = |partitioner: Partitioner, key: Option<&[u8]>| {
            let mut times = 0;
            let mut generator = || {
                times += 1;
                u32::MAX
            };
            let home = partitioner.partition_with(key, 5, &mut generator);
            if times > 0 {
                assert_eq!(home, 4, "the greatest number is the last partition");
            }
            times
        };
        use Partitioner::*;
        for partitioner in [Crc32Random, Murmur2Random, Fnv1aRandom, Java] {
            assert_eq!(asked(partitioner, None), 1, "{partitioner:?}");
        }
        assert_eq!(asked(Crc32Random, Some(b"")), 1);
        for partitioner in [Murmur2Random, Fnv1aRandom, Java, Crc32, Murmur2, Fnv1a] {
            assert_eq!(asked(partitioner, Some(b"")), 0, "{partitioner:?}");
        }
        for partitioner in [Crc32, Murmur2, Fnv1a] {
            assert_eq!(asked(partitioner, None), 0, "{partitioner:?}");
        }
    }

    #[test]
    fn a_generator_that_counts_evenly_fills_partitions_evenly() {
        let mut filled = [0; 7];
        for step in 0..7000u32 {
            let mut generator = || (u64::from(step) * (1 << 32) / 7000) as u32;
            filled[Partitioner::Java.partition_with(None, 7, &mut generator) as usize] += 1;
        }
        assert!(filled.iter().all(|&count| (999..=1001).contains(&count)), "{filled:?}");
    }

    #[test]
    #[should_panic(expected = "a topic has a partition")]
    fn no_partition_at_all_is_a_mistake_of_the_caller() {
        let _ = Partitioner::Java.partition(Some(b"k"), 0);
    }
}
