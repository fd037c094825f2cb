//! What a topic is and holds: its settings, and the offsets and sizes of its partitions.

use std::sync::Arc;

use crate::catalog::{Partition, Topic};
use crate::config::TopicSettings;
use crate::shared::Shared;
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicId, TopicName, Visibility, Watermarks};

/// A topic, described.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: TopicName,
    /// Its id.
    pub id: TopicId,
    /// Its configuration.
    pub settings: Arc<TopicSettings>,
    /// Its partitions, in the order of their numbers.
    pub partitions: Vec<PartitionDescription>,
}

/// A partition, described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// Its number.
    pub index: i32,
    /// Its offsets, as of what is applied.
    pub watermarks: Watermarks,
    /// The offset below which everything survives power loss.
    pub synced_end: Offset,
    /// Bytes of its record batches.
    pub size_bytes: u64,
    /// Its record batches.
    pub batch_count: u64,
    /// The records in them.
    pub record_count: u64,
    /// The offset from which on the cleaner was not there yet; counts on compacted topics.
    pub first_dirty: Offset,
    /// When the first tombstone below that offset may go, if there is one.
    pub next_horizon: Option<TimestampMs>,
    /// Whether it could not be cleaned when that was last tried.
    pub is_uncleanable: bool,
    /// The greatest timestamp that was ever appended; `None` before the first record.
    pub max_timestamp: Option<TimestampMs>,
    /// The leader epoch of its newest batch; `None` before the first.
    pub newest_epoch: Option<LeaderEpoch>,
}

/// Describes a topic.
#[must_use]
pub fn describe(shared: &Shared, topic: &Topic) -> TopicDescription {
    let describe = |partition: &Partition| {
        let watermarks = shared.watermarks(partition, Visibility::Applied);
        let synced = shared.watermarks(partition, Visibility::Synced);
        partition.cell().read(|state| {
            let row = state.row();
            PartitionDescription {
                index: partition.index(),
                watermarks,
                synced_end: synced.high_watermark,
                size_bytes: row.size_bytes,
                batch_count: row.batch_count,
                record_count: row.record_count,
                first_dirty: row.first_dirty.max(row.log_start),
                next_horizon: (row.next_horizon < TimestampMs::MAX).then_some(row.next_horizon),
                is_uncleanable: shared.cleaning.failure(partition.cell().id()).is_some(),
                max_timestamp: state.newest_epoch().map(|_| row.running_max_timestamp),
                newest_epoch: state.newest_epoch(),
            }
        })
    };
    TopicDescription {
        name: topic.name().clone(),
        id: topic.id(),
        settings: topic.settings(),
        partitions: topic.partitions().iter().map(describe).collect(),
    }
}
