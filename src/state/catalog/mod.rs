//! The topics and partitions that exist: in memory, loaded from the index store, and the handles that callers hold.
//!
//! The catalog changes only when the committer publishes a commit that changes it, so it always
//! shows what is applied.

mod cell;
mod producers;
mod topic;

pub use cell::{Listener, PartitionCell};
pub use topic::{Partition, Topic, UnknownPartition};

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::base::error::{Corruption, StorageError};
use crate::base::types::{PartitionId, TopicId, TopicName};
use crate::config::TopicSettings;
use crate::index::keyspace::{PartitionRow, TopicRow, decode_partition_key};
use crate::index::store::{Direction, Read, Visit};
use crate::index::write_batch::{Family, MAX_KEY_BYTES};
use crate::state::partition::PartitionState;

/// The topics that exist.
#[derive(Debug, Default)]
pub struct Catalog {
    topics: RwLock<Topics>,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: BTreeMap<TopicName, Topic>,
    by_id: HashMap<TopicId, Topic>,
    /// Names by what Kafka lets only one topic have: [`TopicName::collision_key`].
    by_collision_key: HashMap<String, TopicName>,
    partition_count: u64,
}

impl Topics {
    /// What every change of the topics leaves true.
    fn assert_sound(&self) {
        assert_eq!(self.by_name.len(), self.by_id.len(), "each topic has one name and one id");
        assert_eq!(self.by_name.len(), self.by_collision_key.len(), "no two names are similar");
    }
}

impl Catalog {
    /// The catalog that the index store holds.
    ///
    /// # Errors
    /// [`StorageError`] if the store cannot be read, or what it holds does not fit together.
    pub fn load(store: &dyn Read) -> Result<Self, StorageError> {
        let mut rows = load_partitions(store)?;
        let mut producers = producers::load(store)?;
        let catalog = Self::default();
        for (name, row) in load_topics(store)? {
            let mut cells = Vec::with_capacity(row.partitions.len());
            for (index, id) in row.partitions.iter().enumerate() {
                let state = rows.remove(id).ok_or_else(|| {
                    let key = name.as_str().as_bytes();
                    let what = "a partition of the topic has no row";
                    Corruption::in_store(Family::Topics.name(), key, what)
                })?;
                let index = i32::try_from(index).expect("a topic's partitions are limited");
                let known = producers.remove(id).unwrap_or_default();
                let state = PartitionState::new(state);
                producers::compare(*id, &state, &known)?;
                cells.push(Arc::new(PartitionCell::new(*id, index, state, known)));
            }
            let values = row.config.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let settings = TopicSettings::from_values(values).map_err(|_| {
                let what = "the topic's configuration is not valid";
                Corruption::in_store(Family::Topics.name(), name.as_str().as_bytes(), what)
            })?;
            if catalog.taken_by(&name).is_some() || catalog.topic_by_id(row.id).is_some() {
                let what = "another topic has its id, or a name that is too similar";
                let key = name.as_str().as_bytes();
                return Err(Corruption::in_store(Family::Topics.name(), key, what).into());
            }
            catalog.insert(Topic::new(name, row.id, settings, cells));
        }
        if let Some(id) = rows.keys().next() {
            let (key, what) = (id.0.to_be_bytes(), "the partition belongs to no topic");
            return Err(Corruption::in_store(Family::Partitions.name(), &key, what).into());
        }
        if let Some(id) = producers.keys().next() {
            let (key, what) = (id.0.to_be_bytes(), "a producer wrote to no partition that exists");
            return Err(Corruption::in_store(Family::Producers.name(), &key, what).into());
        }
        Ok(catalog)
    }

    /// The topic of this name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<Topic> {
        self.topics.read().by_name.get(name).cloned()
    }

    /// The topic of this id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<Topic> {
        self.topics.read().by_id.get(&id).cloned()
    }

    /// Whether this very topic exists: it was not deleted, and is not of another engine.
    #[must_use]
    pub fn holds(&self, topic: &Topic) -> bool {
        self.topics.read().by_id.get(&topic.id()).is_some_and(|held| held.is_same(topic))
    }

    /// All topics, by name.
    #[must_use]
    pub fn topics(&self) -> Vec<Topic> {
        self.topics.read().by_name.values().cloned().collect()
    }

    /// The topic that keeps this name from being used: the one that has it, or one whose name
    /// differs from it only in `.` and `_`.
    #[must_use]
    pub fn taken_by(&self, name: &TopicName) -> Option<TopicName> {
        self.topics.read().by_collision_key.get(&name.collision_key()).cloned()
    }

    /// How many topics there are, and how many partitions they have together.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let topics = self.topics.read();
        (topics.by_name.len() as u64, topics.partition_count)
    }

    /// Adds a topic. REQUIRES: its name is not taken.
    pub fn insert(&self, topic: Topic) {
        let mut topics = self.topics.write();
        let name = topic.name().clone();
        topics.partition_count += u64::from(topic.partition_count());
        let same_id = topics.by_id.insert(topic.id(), topic.clone());
        assert!(same_id.is_none(), "the id of a new topic is not taken");
        let similar = topics.by_collision_key.insert(name.collision_key(), name.clone());
        assert!(similar.is_none(), "no other name is too similar to that of a new topic");
        let before = topics.by_name.insert(name, topic);
        assert!(before.is_none(), "the name of a new topic is not taken");
        topics.assert_sound();
    }

    /// Removes a topic; its handles fail from now on.
    pub fn remove(&self, topic: &Topic) {
        let mut topics = self.topics.write();
        let held = topics.by_name.remove(topic.name().as_str());
        assert!(held.is_some_and(|held| held.is_same(topic)), "only a topic that exists goes");
        assert!(topics.by_id.remove(&topic.id()).is_some(), "each topic has its id");
        let similar = topics.by_collision_key.remove(&topic.name().collision_key());
        assert!(similar.is_some(), "each topic has its name");
        topics.partition_count -= u64::from(topic.partition_count());
        topic.mark_deleted();
        topics.assert_sound();
    }

    /// How many producers the partitions remember together.
    #[must_use]
    pub fn producer_count(&self) -> u64 {
        let topics = self.topics.read();
        let cells = topics.by_id.values().flat_map(|topic| topic.cells().to_vec());
        cells.map(|cell| cell.producers().len() as u64).sum()
    }

    /// All partitions by the engine's numbers of them: made anew at each call.
    #[must_use]
    pub fn partitions_by_id(&self) -> HashMap<PartitionId, Partition> {
        let topics = self.topics.read();
        let partitions = topics.by_id.values().flat_map(Topic::partitions);
        partitions.map(|partition| (partition.cell().id(), partition)).collect()
    }

    /// Adds partitions to a topic.
    pub fn grow(&self, topic: &Topic, cells: Vec<Arc<PartitionCell>>) {
        let mut topics = self.topics.write();
        assert!(!topic.is_deleted(), "only a topic that exists grows");
        topics.partition_count += cells.len() as u64;
        topic.grow(cells);
        topics.assert_sound();
    }
}

fn load_partitions(store: &dyn Read) -> Result<HashMap<PartitionId, PartitionRow>, StorageError> {
    let mut rows = HashMap::new();
    let mut damage = None;
    scan_all(store, Family::Partitions, &mut |key, value| {
        let row = decode_partition_key(key)
            .and_then(|id| PartitionRow::decode(key, value).map(|row| (id, row)));
        keep(row, &mut damage, |(id, row)| {
            rows.insert(id, row);
        })
    })?;
    damage.map_or(Ok(rows), |damage: Corruption| Err(damage.into()))
}

fn load_topics(store: &dyn Read) -> Result<Vec<(TopicName, TopicRow)>, StorageError> {
    let mut rows = Vec::new();
    let mut damage = None;
    scan_all(store, Family::Topics, &mut |key, value| {
        keep(TopicRow::decode(key, value), &mut damage, |row| rows.push(row))
    })?;
    damage.map_or(Ok(rows), |damage: Corruption| Err(damage.into()))
}

fn scan_all(store: &dyn Read, family: Family, visit: &mut Visit<'_>) -> Result<(), StorageError> {
    // No key is longer than MAX_KEY_BYTES, and none consists of that many greatest bytes.
    let end = vec![0xff; MAX_KEY_BYTES];
    store.scan(family, &[], &end, Direction::Forward, visit)
}

fn keep<T>(
    decoded: Result<T, Corruption>,
    damage: &mut Option<Corruption>,
    take: impl FnOnce(T),
) -> ControlFlow<()> {
    match decoded {
        Ok(value) => {
            take(value);
            ControlFlow::Continue(())
        }
        Err(corruption) => {
            *damage = Some(corruption);
            ControlFlow::Break(())
        }
    }
}
