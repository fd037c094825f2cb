//! Ids: of the engine, of topics, of partitions. None is ever given twice.

use std::fmt;
use std::str::FromStr;

/// A topic's id, 128 random bits; a topic made anew under an old name has another one.
///
/// It is shown as Kafka shows it: 22 characters of URL-safe base64 without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId([u8; 16]);

/// The engine's own number of a partition, over all topics. It is never used twice, so a topic
/// made anew can never see an older one's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

/// A random number that ties a commit log to its index. It is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EngineId(pub u64);

/// A string that is no topic id: not 22 characters of URL-safe base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseTopicIdError;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TEXT_LEN: usize = 22;

impl TopicId {
    /// The id with these 16 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes, as the Kafka protocol sends them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        for index in 0..TEXT_LEN {
            // 22 digits of 6 bits are 132: the last digit has four bits of padding.
            let shift = 122 - 6 * index as i32;
            let digit = if shift >= 0 { bits >> shift } else { bits << -shift } & 63;
            write!(f, "{}", ALPHABET[digit as usize] as char)?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

impl FromStr for TopicId {
    type Err = ParseTopicIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != TEXT_LEN {
            return Err(ParseTopicIdError);
        }
        let mut bits = 0u128;
        for (index, byte) in text.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|&a| a == byte).ok_or(ParseTopicIdError)? as u128;
            if index == TEXT_LEN - 1 {
                if digit & 15 != 0 {
                    return Err(ParseTopicIdError);
                }
                bits = (bits << 2) | (digit >> 4);
            } else {
                bits = (bits << 6) | digit;
            }
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

impl fmt::Display for ParseTopicIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a topic id is {TEXT_LEN} characters of URL-safe base64")
    }
}

impl std::error::Error for ParseTopicIdError {}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_is_shown_as_kafka_shows_it_and_read_back() {
        // Kafka shows its Uuid.ONE_UUID and METADATA_TOPIC_ID as "AAAAAAAAAAAAAAAAAAAAAQ".
        let mut one = [0; 16];
        one[15] = 1;
        assert_eq!(TopicId::from_bytes(one).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        for bytes in [one, [255; 16], [0; 16], *b"sixteen bytes :)"] {
            let id = TopicId::from_bytes(bytes);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn text_that_is_no_topic_id_is_refused() {
        for text in
            ["", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAA+Q"]
        {
            assert_eq!(text.parse::<TopicId>(), Err(ParseTopicIdError), "{text}");
        }
    }
}
