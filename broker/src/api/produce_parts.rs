//! The parts of a Produce request, one a partition, in the order of the request; topics that are
//! there twice are one, partitions that are there twice are marked.

use std::collections::HashMap;

use bytes::Bytes;
use kafka_protocol::messages::{ProduceRequest, TopicName};
use tidelog::types::MAX_TOPIC_NAME_BYTES;
use uuid::Uuid;

use crate::profile::batch_bits;
use crate::wire::text::cut;

/// The first version that names topics by id.
const BY_ID: i16 = 13;

/// Whether this version names topics by id.
pub(super) fn by_id(version: i16) -> bool {
    version >= BY_ID
}

/// A topic of the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AskedTopic {
    pub(super) name: TopicName,
    pub(super) id: Uuid,
}

/// A partition of the request, and its record set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its topic's place in the list.
    pub(super) topic: usize,
    pub(super) index: i32,
    pub(super) records: Option<Bytes>,
    /// Whether the request has the partition more than once.
    pub(super) repeated: bool,
}

/// A whole request.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) topics: Vec<AskedTopic>,
    pub(super) list: Vec<Part>,
    /// The transactional id, where the request has one.
    pub(super) transactional_id: Option<String>,
}

impl Parts {
    /// How a message names a part; no topic has a name so long that its end is left out.
    pub(super) fn name(&self, at: usize) -> String {
        let part = &self.list[at];
        let topic = &self.topics[part.topic];
        if topic.id.is_nil() {
            let name = cut(topic.name.as_str().to_owned(), MAX_TOPIC_NAME_BYTES);
            format!("{name}-{}", part.index)
        } else {
            let id = tidelog::types::TopicId::from_bytes(topic.id.into_bytes());
            format!("{id}-{}", part.index)
        }
    }

    /// Whether any batch belongs to a producer transaction.
    pub(super) fn is_transactional(&self) -> bool {
        self.batches().any(batch_bits::is_transactional)
    }

    /// Whether any batch has a producer id.
    pub(super) fn has_producers(&self) -> bool {
        self.batches().any(|batch| batch_bits::producer_id(batch) >= 0)
    }

    /// Whether any batch is compressed.
    pub(super) fn has_compressed(&self) -> bool {
        self.batches().any(|batch| batch_bits::codec(batch) != 0)
    }

    fn batches(&self) -> impl Iterator<Item = &Bytes> {
        let records = self.list.iter().filter_map(|part| part.records.as_ref());
        records.filter(|records| batch_bits::is_readable(records))
    }

    /// Bytes of all record sets.
    pub(super) fn record_bytes(&self) -> usize {
        self.list.iter().filter_map(|part| part.records.as_ref()).map(Bytes::len).sum()
    }
}

/// Takes a request apart.
pub(super) fn of(version: i16, request: ProduceRequest) -> Parts {
    let transactional_id = request.transactional_id.map(|id| id.to_string());
    let mut parts = Parts { topics: Vec::new(), list: Vec::new(), transactional_id };
    let mut topics: HashMap<(TopicName, Uuid), usize> = HashMap::new();
    let mut places: HashMap<(usize, i32), usize> = HashMap::new();
    for topic in request.topic_data {
        let (name, id) = if by_id(version) {
            (TopicName::default(), topic.topic_id)
        } else {
            (topic.name, Uuid::nil())
        };
        let place = *topics.entry((name.clone(), id)).or_insert_with(|| {
            parts.topics.push(AskedTopic { name, id });
            parts.topics.len() - 1
        });
        for partition in topic.partition_data {
            let key = (place, partition.index);
            if let Some(&first) = places.get(&key) {
                parts.list[first].repeated = true;
                continue;
            }
            places.insert(key, parts.list.len());
            parts.list.push(Part {
                topic: place,
                index: partition.index,
                records: partition.records,
                repeated: false,
            });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::protocol::StrBytes;

    fn topic(name: &'static str, partitions: &[i32]) -> TopicProduceData {
        let data = partitions.iter().map(|&index| {
            PartitionProduceData::default().with_index(index).with_records(Some(Bytes::new()))
        });
        TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_static_str(name)))
            .with_partition_data(data.collect())
    }

    #[test]
    fn a_topic_twice_is_one_and_a_partition_twice_is_marked() {
        let data = vec![topic("t", &[1]), topic("u", &[]), topic("t", &[0, 1]), topic("v", &[1])];
        let parts = of(9, ProduceRequest::default().with_topic_data(data));
        let names: Vec<_> = parts.topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!(names, ["t", "u", "v"]);
        let list: Vec<_> =
            parts.list.iter().map(|part| (part.topic, part.index, part.repeated)).collect();
        assert_eq!(list, [(0, 1, true), (0, 0, false), (2, 1, false)]);
        assert_eq!(parts.name(1), "t-0");
    }
}
