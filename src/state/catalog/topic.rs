//! Handles of topics and partitions. They stay valid as values, and fail cleanly once their topic is gone.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::cell::PartitionCell;
use crate::base::types::{TopicId, TopicName};
use crate::config::TopicSettings;

/// A topic that existed when the handle was made. Cheap to clone.
///
/// Once the topic is deleted every operation with the handle fails, even if the name exists again.
#[derive(Clone)]
pub struct Topic {
    state: Arc<TopicState>,
}

struct TopicState {
    name: TopicName,
    id: TopicId,
    settings: RwLock<Arc<TopicSettings>>,
    partitions: RwLock<Arc<[Arc<PartitionCell>]>>,
    deleted: AtomicBool,
}

/// A partition of a topic. Cheap to clone.
#[derive(Clone)]
pub struct Partition {
    topic: Topic,
    cell: Arc<PartitionCell>,
}

/// A topic has no partition of this number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPartition {
    /// The topic.
    pub topic: TopicName,
    /// The number that was asked for.
    pub index: i32,
    /// The numbers below this one exist.
    pub partition_count: u32,
}

impl Topic {
    pub(crate) fn new(
        name: TopicName,
        id: TopicId,
        settings: TopicSettings,
        cells: Vec<Arc<PartitionCell>>,
    ) -> Self {
        debug_assert!(is_dense(&cells), "a topic numbers its partitions from 0, without a gap");
        let state = TopicState {
            name,
            id,
            settings: RwLock::new(Arc::new(settings)),
            partitions: RwLock::new(cells.into()),
            deleted: AtomicBool::new(false),
        };
        Self { state: Arc::new(state) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.state.name
    }

    /// Its id, which no other topic ever has.
    #[must_use]
    pub fn id(&self) -> TopicId {
        self.state.id
    }

    /// How many partitions it has now.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        self.state.partitions.read().len() as u32
    }

    /// A partition by its number, from 0.
    ///
    /// # Errors
    /// [`UnknownPartition`] if the topic has fewer.
    pub fn partition(&self, index: i32) -> Result<Partition, UnknownPartition> {
        let partitions = self.state.partitions.read();
        let cell = usize::try_from(index).ok().and_then(|index| partitions.get(index));
        match cell {
            Some(cell) => Ok(Partition { topic: self.clone(), cell: Arc::clone(cell) }),
            None => Err(UnknownPartition {
                topic: self.state.name.clone(),
                index,
                partition_count: partitions.len() as u32,
            }),
        }
    }

    /// All partitions, in the order of their numbers.
    #[must_use]
    pub fn partitions(&self) -> Vec<Partition> {
        let cells = self.cells();
        let handle =
            |cell: &Arc<PartitionCell>| Partition { topic: self.clone(), cell: Arc::clone(cell) };
        cells.iter().map(handle).collect()
    }

    /// Its configuration now.
    #[must_use]
    pub fn settings(&self) -> Arc<TopicSettings> {
        Arc::clone(&self.state.settings.read())
    }

    /// Whether it was deleted since the handle was made.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.state.deleted.load(Ordering::Acquire)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    pub(crate) fn cells(&self) -> Arc<[Arc<PartitionCell>]> {
        Arc::clone(&self.state.partitions.read())
    }

    pub(crate) fn set_settings(&self, settings: TopicSettings) {
        *self.state.settings.write() = Arc::new(settings);
    }

    pub(super) fn mark_deleted(&self) {
        self.state.deleted.store(true, Ordering::Release);
    }

    pub(super) fn grow(&self, cells: Vec<Arc<PartitionCell>>) {
        let mut partitions = self.state.partitions.write();
        *partitions = partitions.iter().cloned().chain(cells).collect();
        debug_assert!(is_dense(&partitions), "new partitions go on where the old ones end");
    }
}

/// Whether partitions stand at their numbers.
fn is_dense(cells: &[Arc<PartitionCell>]) -> bool {
    (0..).zip(cells).all(|(index, cell)| cell.index() == index)
}

impl Partition {
    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Its number in the topic, from 0.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.cell.index()
    }

    pub(crate) fn cell(&self) -> &Arc<PartitionCell> {
        &self.cell
    }
}

impl PartialEq for Topic {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Topic {}

impl PartialEq for Partition {
    fn eq(&self, other: &Self) -> bool {
        self.cell.id() == other.cell.id()
    }
}

impl Eq for Partition {}

impl Hash for Partition {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.cell.id().hash(hasher);
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("name", self.name())
            .field("id", &self.id())
            .field("partition_count", &self.partition_count())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic.name(), self.index())
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partition({self})")
    }
}

impl fmt::Display for UnknownPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the topic has no such partition: topic={} partition={} partition_count={}",
            self.topic, self.index, self.partition_count
        )
    }
}

impl std::error::Error for UnknownPartition {}
