//! What a topic is and holds, and what the log takes: settings, offsets, sizes, space.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::types::{
    LeaderEpoch, Offset, TimestampMs, TopicId, TopicName, Visibility, Watermarks,
};
use crate::config::TopicSettings;
use crate::core::{CleanerLag, Shared};
use crate::state::catalog::{Partition, Topic};

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
    /// When the first tombstone or marker below that offset may go, if there is one.
    pub next_horizon: Option<TimestampMs>,
    /// How far cleaning was behind when maintenance last looked; counts on compacted topics.
    pub cleaner_lag: CleanerLag,
    /// Whether it could not be cleaned when that was last tried.
    pub is_uncleanable: bool,
    /// The greatest timestamp that was ever appended; `None` before the first record.
    pub max_timestamp: Option<TimestampMs>,
    /// The leader epoch of its newest batch; `None` before the first.
    pub newest_epoch: Option<LeaderEpoch>,
}

/// What the commit log takes of its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSpace {
    /// The directory of its segments.
    pub directory: PathBuf,
    /// Bytes of all segments.
    pub size_bytes: u64,
    /// Freed segments whose files are kept to be written over.
    pub free_segment_count: u64,
    /// Bytes of them, of those that could not be removed yet, and of what an earlier use has left
    /// behind the end of the segment that is being written.
    pub free_segment_bytes: u64,
    /// Bytes of all record batches that can be read.
    pub live_bytes: u64,
    /// Bytes that can still be written to the file system.
    pub free_bytes: u64,
    /// Bytes of the file system.
    pub total_bytes: u64,
}

/// Describes what the log takes.
///
/// # Errors
/// What the system says of its disk.
pub fn log_space(shared: &Shared) -> Result<LogSpace, StorageError> {
    let log = &shared.pipeline.log;
    let (free_bytes, total_bytes) = log.free_and_total_bytes()?;
    let free = log.free_segments();
    Ok(LogSpace {
        free_segment_count: free.count,
        free_segment_bytes: free.bytes,
        directory: log.directory().to_owned(),
        size_bytes: log.segments().iter().map(|segment| segment.length_bytes).sum(),
        live_bytes: shared.live_bytes(),
        free_bytes,
        total_bytes,
    })
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
                cleaner_lag: shared.cleaning.lag(partition.cell().id()),
                is_uncleanable: shared.cleaning.failure(partition.cell().id()).is_some(),
                max_timestamp: state.newest_epoch().map(|_| row.running_max_timestamp),
                newest_epoch: state.newest_epoch(),
            }
        })
    };
    let partitions: Vec<_> = topic.partitions().iter().map(describe).collect();
    debug_assert!(partitions.iter().zip(0..).all(|(one, index)| one.index == index), "by number");
    let (name, id) = (topic.name().clone(), topic.id());
    TopicDescription { name, id, settings: topic.settings(), partitions }
}
