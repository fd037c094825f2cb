//! What is alive in the chosen segments, in the order in which it will die.

use std::collections::{HashMap, VecDeque};

use crate::catalog::Partition;
use crate::config::EffectiveSettings;
use crate::error::StorageError;
use crate::keyspace::BatchEntry;
use crate::shared::{Move, Shared, live_in};
use crate::types::{PartitionId, SegmentId, TimestampMs};

/// The partitions that exist.
fn partitions(shared: &Shared) -> HashMap<PartitionId, Partition> {
    let topics = shared.catalog.topics();
    let all = topics.iter().flat_map(|topic| topic.partitions());
    all.map(|partition| (partition.cell().id(), partition)).collect()
}

/// The batches that live in these segments, those that die first in front.
pub(super) fn survivors(
    shared: &Shared,
    victims: &[SegmentId],
) -> Result<VecDeque<Move>, StorageError> {
    let mut moves: Vec<Move> = Vec::new();
    if victims.is_empty() {
        return Ok(moves.into());
    }
    let partitions = partitions(shared);
    let index = shared.snapshot();
    for &id in victims {
        if shared.pipeline.is_ending() {
            return Ok(VecDeque::new());
        }
        let Some(held) = live_in(&shared.pipeline, index.store(), id)? else {
            // What cannot be followed is not moved by this way.
            shared.pipeline.space.damaged.lock().insert(id);
            continue;
        };
        if held.is_empty() {
            // The hint was wrong: count anew.
            shared.pipeline.space.forget();
        }
        for (partition, located) in held {
            let Some(handle) = partitions.get(&partition) else { continue };
            let settings = handle.topic().settings();
            let expires_at = expires_at(settings.effective(), &located.entry);
            let (last_offset, entry) = (located.last_offset, located.entry);
            let partition = handle.clone();
            moves.push(Move { partition, last_offset, entry, expires_at });
        }
    }
    // Among those of one time, and of none, neighbours stay together: they are read together.
    let order = |one: &Move| (one.expires_at, one.partition.cell().id(), one.last_offset);
    moves.sort_unstable_by_key(order);
    Ok(moves.into())
}

/// When retention by time will take a batch, as far as that is known now. Size and cleaning give
/// no time: what they will take counts as staying.
fn expires_at(settings: &EffectiveSettings, entry: &BatchEntry) -> TimestampMs {
    let limit = settings.retention_ms.filter(|_| settings.cleanup_policy.delete);
    limit.map_or(TimestampMs::MAX, |limit| entry.written_at().saturating_add(limit))
}
