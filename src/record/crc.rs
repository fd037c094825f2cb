//! CRC-32C combined, so that a changed header costs no look at the records.
//!
//! A checksum is a polynomial over GF(2) modulo the Castagnoli polynomial; zeros behind a text of
//! `n` bytes multiply it by x to the power of 8n. The powers x^(2^k) are a table made at compile
//! time, so a combination takes one multiplication for each bit that is set in the length.

/// The Castagnoli polynomial, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x to the power of 2^k, for each k.
const POWERS: [u32; 64] = {
    let mut powers = [0; 64];
    powers[0] = 1 << 30;
    let mut k = 1;
    while k < 64 {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// The product of two polynomials modulo [`POLYNOMIAL`].
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1u32 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 0 { b >> 1 } else { (b >> 1) ^ POLYNOMIAL };
        bit >>= 1;
    }
    product
}

/// The CRC-32C of two texts in a row, from the sum of each and the length of the second.
#[must_use]
pub fn combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    // A byte is eight bits, so bit k of the length stands for x^(2^(k + 3)).
    let mut shifted = first;
    let mut rest = second_bytes;
    let mut k = 3;
    while rest != 0 {
        if rest & 1 != 0 {
            shifted = multiply(POWERS[k], shifted);
        }
        rest >>= 1;
        k = (k + 1).min(POWERS.len() - 1);
    }
    shifted ^ second
}

/// The checksum of a text after its first part was exchanged for one of the same length: from the
/// sums of the old and the new first part, the old sum of all, and the length of what is behind.
pub(super) fn exchange(old_head: u32, new_head: u32, all: u32, behind_bytes: u64) -> u32 {
    // The sum is affine in the text, so the difference of the heads moves through the rest alone.
    combine(old_head ^ new_head, all, behind_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc_32c_is_right() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn combined_sums_are_those_of_the_whole_text() {
        let text: Vec<u8> = (0..70_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        for split in [0, 1, 7, 40, 61, 4096, 65_535, 65_536, 69_999, 70_000] {
            let (head, tail) = text.split_at(split);
            let combined = combine(crc32c::crc32c(head), crc32c::crc32c(tail), tail.len() as u64);
            assert_eq!(combined, crc32c::crc32c(&text), "split={split}");
        }
    }

    #[test]
    fn a_combination_agrees_with_the_crate_at_every_power_of_two() {
        // Not at length 0, where the crate gives the first sum and leaves the second out.
        for power in 1..40u32 {
            for length in [(1u64 << power) - 1, 1 << power, (1 << power) + 1] {
                let theirs = crc32c::crc32c_combine(0x1234_5678, 0x9abc_def0, length as usize);
                assert_eq!(combine(0x1234_5678, 0x9abc_def0, length), theirs, "length={length}");
            }
        }
    }

    #[test]
    fn an_exchanged_head_gives_the_sum_of_the_new_text() {
        let old = [vec![1u8; 40], vec![9u8; 1000]].concat();
        let new = [vec![2u8; 40], vec![9u8; 1000]].concat();
        let heads = (crc32c::crc32c(&old[..40]), crc32c::crc32c(&new[..40]));
        let exchanged = exchange(heads.0, heads.1, crc32c::crc32c(&old), 1000);
        assert_eq!(exchanged, crc32c::crc32c(&new));
    }
}
