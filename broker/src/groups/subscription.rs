//! Which topics the members of a group read, by the subscriptions of Kafka's consumers.
//!
//! ```text
//! version i16 | topics: count i32, each length i16, bytes | user data: length i32, bytes | ...
//! ```

use bytes::Buf;

use super::group::Group;

/// What the members of consumers' groups are.
const CONSUMER: &str = "consumer";

/// What a group reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscribed {
    /// It cannot be known: a subscription that cannot be read, or no generation yet.
    Unknown,
    /// These topics, in order.
    Topics(Vec<String>),
}

impl Group {
    /// Whether its members are consumers.
    #[must_use]
    pub fn is_of_consumers(&self) -> bool {
        self.protocol_type() == Some(CONSUMER)
    }

    /// What its members read.
    #[must_use]
    pub fn subscribed(&self) -> &Subscribed {
        &self.subscribed
    }

    /// Whether a member reads this topic, or may, for all that is known.
    #[must_use]
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Subscribed::Unknown => self.is_of_consumers(),
            Subscribed::Topics(topics) => {
                topics.binary_search_by(|one| one.as_str().cmp(topic)).is_ok()
            }
        }
    }

    pub(super) fn read_subscriptions(&self) -> Subscribed {
        let Some(protocol) = self.protocol.as_deref().filter(|_| self.is_of_consumers()) else {
            return Subscribed::Unknown;
        };
        let mut topics = Vec::new();
        for member in self.members.values() {
            let Some(read) = read(&member.metadata(protocol)) else { return Subscribed::Unknown };
            topics.extend(read);
        }
        topics.sort_unstable();
        topics.dedup();
        Subscribed::Topics(topics)
    }
}

/// The topics of a subscription. Versions above those known begin like those known.
fn read(mut bytes: &[u8]) -> Option<Vec<String>> {
    let version = bytes.try_get_i16().ok()?;
    if version < 0 {
        return None;
    }
    let count = usize::try_from(bytes.try_get_i32().ok()?).ok()?;
    let mut topics = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
        let name = bytes.get(..length)?;
        topics.push(std::str::from_utf8(name).ok()?.to_owned());
        bytes.advance(length);
    }
    Some(topics)
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

    #[test]
    fn the_topics_of_a_subscription_are_read_whatever_stands_behind_them() {
        let mut bytes = subscription(&["a", "orders"]);
        let want = Some(vec!["a".to_owned(), "orders".to_owned()]);
        assert_eq!(read(&bytes), want);
        bytes.extend([0xff; 9]);
        assert_eq!(read(&bytes), want);
        assert_eq!(read(&subscription(&[])), Some(Vec::new()));
    }

    #[test]
    fn a_subscription_cut_at_any_byte_cannot_be_read() {
        let bytes = subscription(&["a", "orders"]);
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), None, "cut={cut}");
        }
        assert_eq!(read(&[0xff, 0xff, 0, 0, 0, 0]), None);
        assert_eq!(read(&[0, 1, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(read(&[0, 1, 0x7f, 0xff, 0xff, 0xff]), None);
        assert_eq!(read(&[0, 1, 0, 0, 0, 1, 0, 1, 0xff]), None);
    }
}
