//! A world: the topics, partitions and records that there are after some commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelog::config::TopicSettings;
use tidelog::record::Batches;
use tidelog::{Engine, FetchOptions, Partition, Record, TopicId};

use super::batches::Planned;

/// All that a reader could see.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    pub(super) topics: BTreeMap<String, TopicModel>,
}

#[derive(Debug, Clone)]
pub(super) struct TopicModel {
    /// Not known while nobody was told that the topic exists.
    pub(super) id: Option<TopicId>,
    pub(super) settings: TopicSettings,
    pub(super) partitions: Vec<Log>,
}

/// The records of a partition, by their offsets.
pub(super) type Log = Arc<Vec<Kept>>;

/// A record that is there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    pub(super) leader_epoch: i32,
    pub(super) append_time: i64,
    /// With its offset, and the timestamp with which it is read.
    pub(super) record: Record,
}

impl World {
    /// How many partitions all topics have.
    pub(super) fn partition_count(&self) -> usize {
        self.topics.values().map(|topic| topic.partitions.len()).sum()
    }

    pub(super) fn log(&self, name: &str, id: TopicId, index: usize) -> Option<&Log> {
        let topic = self.topics.get(name)?;
        if topic.id.is_some_and(|known| known != id) {
            return None;
        }
        topic.partitions.get(index)
    }

    /// This world after an append; nothing if a topic of it is gone.
    pub(super) fn after(
        &self,
        parts: &[Planned],
        append_time: i64,
        leader_epoch: i32,
    ) -> Option<Self> {
        let mut world = self.clone();
        for part in parts {
            world.log(part.name, part.id, part.index)?;
            let topic = world.topics.get_mut(part.name).expect("its log was found");
            let log = Arc::make_mut(&mut topic.partitions[part.index]);
            for record in &part.records {
                let timestamp = if part.has_log_time { append_time } else { record.timestamp };
                let record = Record { offset: log.len() as i64, timestamp, ..record.clone() };
                log.push(Kept { leader_epoch, append_time, record });
            }
        }
        Some(world)
    }

    /// Whether this is the world that was read; ids that are not known fit any.
    pub(super) fn is(&self, read: &Self) -> bool {
        self.topics.len() == read.topics.len()
            && self.topics.iter().zip(&read.topics).all(|((name, topic), (other_name, other))| {
                name == other_name
                    && (topic.id.is_none() || topic.id == other.id)
                    && topic.settings == other.settings
                    && topic.partitions == other.partitions
            })
    }
}

/// Reads everything that an engine has.
pub(super) fn read_world(engine: &Engine) -> World {
    let snapshot = engine.snapshot();
    let mut world = World::default();
    for topic in engine.topics().list() {
        let mut partitions: Vec<Vec<Kept>> =
            topic.partitions().iter().map(|partition| read_log(engine, partition)).collect();
        let mut next = vec![0; partitions.len()];
        for scanned in snapshot.scan(&topic) {
            let scanned = scanned.expect("what can be fetched can be scanned");
            let index = scanned.partition as usize;
            let kept = &mut partitions[index][next[index]];
            assert_eq!(kept.record, scanned.record, "a scan shows what a fetch shows");
            kept.append_time = scanned.append_time;
            next[index] += 1;
        }
        assert!(next.iter().zip(&partitions).all(|(&next, log)| next == log.len()));
        let model = TopicModel {
            id: Some(topic.id()),
            settings: (*topic.settings()).clone(),
            partitions: partitions.into_iter().map(Arc::new).collect(),
        };
        world.topics.insert(topic.name().to_string(), model);
    }
    world
}

fn read_log(engine: &Engine, partition: &Partition) -> Vec<Kept> {
    let marks = engine.watermarks(partition).expect("the partition exists");
    assert_eq!(marks.log_start, 0, "nothing moves the log start");
    assert_eq!((marks.last_stable, marks.high_watermark), (marks.log_end, marks.log_end));
    let mut log = Vec::new();
    let mut offset = 0;
    while offset < marks.log_end {
        let fetched = engine.fetch(partition, offset, FetchOptions::new());
        let fetched = fetched.expect("what is below the log end can be fetched");
        assert!(fetched.next_offset > offset, "a fetch makes progress");
        offset = fetched.next_offset;
        log.extend(decode(fetched.bytes));
    }
    assert_eq!(log.len() as i64, marks.log_end, "offsets are dense");
    log
}

/// The records in fetched bytes; when they were appended is not told there.
pub(super) fn decode(bytes: bytes::Bytes) -> Vec<Kept> {
    let mut log = Vec::new();
    for batch in Batches::new(bytes) {
        let batch = batch.expect("what is fetched is whole batches");
        let leader_epoch = batch.header().leader_epoch();
        for record in batch.records() {
            let record = record.expect("what is stored can be decoded");
            log.push(Kept { leader_epoch, append_time: 0, record });
        }
    }
    log
}
