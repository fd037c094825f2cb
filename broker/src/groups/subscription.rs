//! Which topics the members of a group read, by the subscriptions of Kafka's consumers.
//!
//! ```text
//! version i16 | topics: count i32, each length i16, bytes | user data: length i32, bytes | ...
//! ```

use std::collections::BTreeSet;

use bytes::Buf;

/// What the members of consumers' groups are.
pub(super) const CONSUMER: &str = "consumer";
/// The most names of topics that are looked at, over all members: as many as a generation can be
/// held up for, with the other groups behind it.
pub(super) const MAX_NAMES: usize = 1 << 20;
/// What a name costs in memory beside its bytes, about.
const NAME_BYTES: usize = 64;

/// What a group reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscribed {
    /// It is not known: a subscription that cannot be read, more names than are looked at, or no
    /// generation yet.
    Unknown,
    /// These topics, in order.
    Topics(Vec<String>),
}

impl Subscribed {
    /// What it costs in memory, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Topics(topics) => topics.iter().map(|topic| NAME_BYTES + topic.len()).sum(),
        }
    }
}

/// Reads the topics of a subscription, if there are not more than are left. Versions above those
/// known begin like those known.
pub(super) fn read(
    mut bytes: &[u8],
    left: &mut usize,
    topics: &mut BTreeSet<String>,
) -> Option<()> {
    let version = bytes.try_get_i16().ok()?;
    if version < 0 {
        return None;
    }
    let count = usize::try_from(bytes.try_get_i32().ok()?).ok()?;
    *left = left.checked_sub(count)?;
    for _ in 0..count {
        let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
        let name = std::str::from_utf8(bytes.get(..length)?).ok()?;
        if !topics.contains(name) {
            topics.insert(name.to_owned());
        }
        bytes.advance(length);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(topics: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 0, 0, u8::try_from(topics.len()).unwrap()];
        for topic in topics {
            bytes.extend([0, u8::try_from(topic.len()).unwrap()]);
            bytes.extend(topic.as_bytes());
        }
        bytes
    }

    fn read_all(bytes: &[u8]) -> Option<Vec<String>> {
        let mut topics = BTreeSet::new();
        read(bytes, &mut 2, &mut topics).map(|()| topics.into_iter().collect())
    }

    #[test]
    fn the_topics_of_a_subscription_are_read_whatever_stands_behind_them() {
        let mut bytes = subscription(&["a", "orders"]);
        let want = Some(vec!["a".to_owned(), "orders".to_owned()]);
        assert_eq!(read_all(&bytes), want);
        bytes.extend([0xff; 9]);
        assert_eq!(read_all(&bytes), want);
        assert_eq!(read_all(&subscription(&[])), Some(Vec::new()));
        assert_eq!(read_all(&subscription(&["b", "b"])), Some(vec!["b".to_owned()]));
        assert_eq!(read_all(&subscription(&["b", "b", "b"])), None, "more than are left");
    }

    #[test]
    fn a_subscription_cut_at_any_byte_cannot_be_read() {
        let bytes = subscription(&["a", "orders"]);
        for cut in 0..bytes.len() {
            assert_eq!(read_all(&bytes[..cut]), None, "cut={cut}");
        }
        assert_eq!(read_all(&[0xff, 0xff, 0, 0, 0, 0]), None);
        assert_eq!(read_all(&[0, 1, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(read_all(&[0, 1, 0x7f, 0xff, 0xff, 0xff]), None);
        assert_eq!(read_all(&[0, 1, 0, 0, 0, 1, 0, 1, 0xff]), None);
    }
}
