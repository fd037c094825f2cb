//! Family `topics`: what exists, by name, as JSON, so that fields can be added.

use serde::{Deserialize, Serialize};

use crate::base::error::Corruption;
use crate::base::types::{PartitionId, TopicId, TopicName};
use crate::index::write_batch::Family;

const VERSION: u32 = 1;

/// A stored topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRow {
    /// Its id.
    pub id: TopicId,
    /// Its partitions' ids, in the order of their numbers.
    pub partitions: Vec<PartitionId>,
    /// What was set of its configuration: names and values, as strings.
    pub config: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    id: String,
    partitions: Vec<u32>,
    config: std::collections::BTreeMap<String, String>,
}

impl TopicRow {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let stored = Stored {
            version: VERSION,
            id: self.id.to_string(),
            partitions: self.partitions.iter().map(|partition| partition.0).collect(),
            config: self.config.iter().cloned().collect(),
        };
        serde_json::to_vec(&stored).expect("strings and numbers are always valid JSON")
    }

    /// Reads a key and its value. Fields that are not known are passed over.
    ///
    /// # Errors
    /// [`Corruption`] for a name that is none, for what is no JSON of this shape, and for a
    /// version that is not known.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<(TopicName, Self), Corruption> {
        let corrupt = |what| Corruption::in_store(Family::Topics.name(), key, what);
        let name = std::str::from_utf8(key).ok().and_then(|name| TopicName::new(name).ok());
        let name = name.ok_or_else(|| corrupt("its key is no topic name"))?;
        let stored: Stored =
            serde_json::from_slice(value).map_err(|_| corrupt("its value is no topic"))?;
        if stored.version != VERSION {
            return Err(corrupt("its version is not known"));
        }
        let row = Self {
            id: stored.id.parse().map_err(|_| corrupt("its topic id is malformed"))?,
            partitions: stored.partitions.into_iter().map(PartitionId).collect(),
            config: stored.config.into_iter().collect(),
        };
        Ok((name, row))
    }
}

/// The key of a topic.
#[must_use]
pub fn topic_key(name: &TopicName) -> &[u8] {
    name.as_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_decoded_as_it_was_encoded_and_unknown_fields_are_passed_over() {
        let name = TopicName::new("orders").unwrap();
        let row = TopicRow {
            id: TopicId::from_bytes([3; 16]),
            partitions: vec![PartitionId(4), PartitionId(9)],
            config: vec![("cleanup.policy".into(), "compact".into())],
        };
        let decoded = TopicRow::decode(topic_key(&name), &row.encode());
        assert_eq!(decoded, Ok((name.clone(), row.clone())));
        let text = String::from_utf8(row.encode()).unwrap();
        let longer = text.replacen('{', "{\"new\":[1],", 1);
        assert_eq!(TopicRow::decode(topic_key(&name), longer.as_bytes()), Ok((name.clone(), row)));
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert!(TopicRow::decode(topic_key(&name), newer.as_bytes()).is_err());
        assert!(TopicRow::decode(b"a/b", text.as_bytes()).is_err());
        assert!(TopicRow::decode(topic_key(&name), b"{").is_err());
    }
}
