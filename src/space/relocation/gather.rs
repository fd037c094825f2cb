//! What is alive in the chosen segments, in the order in which it will die.

use std::collections::{HashMap, VecDeque};

use crate::base::error::StorageError;
use crate::base::types::{PartitionId, SegmentId, TimestampMs};
use crate::config::EffectiveSettings;
use crate::core::{Move, Shared, live_in};
use crate::index::keyspace::BatchEntry;
use crate::state::catalog::Partition;

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
    let mut lifetimes: HashMap<PartitionId, Lifetime> = HashMap::new();
    let index = shared.snapshot();
    for &id in victims {
        if shared.pipeline.is_ending() {
            return Ok(VecDeque::new());
        }
        let Some(held) = live_in(&shared.pipeline, index.store(), id)? else {
            // What cannot be followed is not moved by this way.
            shared.space.damaged.insert(id);
            continue;
        };
        if held.is_empty() {
            // The hint was wrong: count anew.
            shared.pipeline.live.forget();
        }
        for (partition, located) in held {
            debug_assert_eq!(located.entry.location.segment, id, "it lies where it was looked for");
            let Some(handle) = partitions.get(&partition) else { continue };
            let lifetime = lifetimes.entry(partition);
            let lifetime = lifetime.or_insert_with(|| Lifetime::of(shared, handle));
            let expires_at = lifetime.expires_at(&located.entry);
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

/// How long batches of a partition live, as far as retention decides and it is known now. What the
/// cleaner will take gives no time, and counts as staying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lifetime {
    /// As `retention.ms` says.
    by_time_ms: Option<i64>,
    /// How long it takes to append as much as `retention.bytes`, at the pace at which what is there
    /// was appended.
    by_size_ms: Option<i64>,
}

impl Lifetime {
    fn of(shared: &Shared, partition: &Partition) -> Self {
        let settings = partition.topic().settings();
        let size_bytes = partition.cell().read(|state| state.row().size_bytes);
        let oldest = shared.oldest.get(partition.cell().id());
        let now = shared.clock.now_ms();
        let age_ms = oldest.map(|oldest| now.saturating_sub(oldest.written_at));
        Self::new(settings.effective(), size_bytes, age_ms)
    }

    /// For a partition of this size whose oldest batch has this age.
    fn new(settings: &EffectiveSettings, size_bytes: u64, age_ms: Option<i64>) -> Self {
        if !settings.cleanup_policy.delete {
            return Self { by_time_ms: None, by_size_ms: None };
        }
        let scaled = |(limit, age): (u64, i64)| {
            let time = u128::from(limit) * u128::from(age.unsigned_abs());
            i64::try_from(time / u128::from(size_bytes)).unwrap_or(i64::MAX)
        };
        let known_age = age_ms.filter(|age| *age > 0 && size_bytes > 0);
        let by_size_ms = settings.retention_bytes.zip(known_age).map(scaled);
        Self { by_time_ms: settings.retention_ms, by_size_ms }
    }

    /// When a batch goes.
    fn expires_at(&self, entry: &BatchEntry) -> TimestampMs {
        let by_time = self.by_time_ms.map(|limit| entry.written_at().saturating_add(limit));
        let by_size = self.by_size_ms.map(|limit| entry.append_time.saturating_add(limit));
        let earliest = by_time.into_iter().chain(by_size).min();
        earliest.unwrap_or(TimestampMs::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::PayloadLocation;
    use crate::config::TopicConfig;

    fn expires_at(
        settings: &[(&str, &str)],
        (size_bytes, age_ms): (u64, Option<i64>),
        append_time: TimestampMs,
    ) -> TimestampMs {
        let config = settings
            .iter()
            .fold(TopicConfig::new(1), |config, (name, value)| config.set(name, value).unwrap());
        let location = PayloadLocation { segment: SegmentId(1), position: 0, length_bytes: 70 };
        let entry = BatchEntry {
            base_offset: 0,
            record_count: 1,
            crc: 0,
            attributes: 0,
            max_timestamp: append_time,
            append_time,
            leader_epoch: 0,
            location,
        };
        Lifetime::new(config.settings().effective(), size_bytes, age_ms).expires_at(&entry)
    }

    #[test]
    fn a_batch_goes_when_as_much_as_the_limit_comes_after_it_at_the_pace_so_far() {
        let settings = [("retention.bytes", "1000"), ("retention.ms", "-1")];
        // Full after a minute: what was appended half a minute ago has another half.
        assert_eq!(expires_at(&settings, (1000, Some(60_000)), 130_000), 190_000);
        assert_eq!(expires_at(&settings, (500, Some(60_000)), 130_000), 250_000);
        assert_eq!(expires_at(&settings, (2000, Some(60_000)), 130_000), 160_000);
    }

    #[test]
    fn the_earlier_of_time_and_size_counts_and_what_is_not_known_stays() {
        let both = [("retention.bytes", "1000"), ("retention.ms", "5000")];
        assert_eq!(expires_at(&both, (1000, Some(60_000)), 100), 5_100);
        assert_eq!(expires_at(&both, (1000, Some(4_000)), 100), 4_100);
        assert_eq!(expires_at(&both, (1000, None), 100), 5_100);
        assert_eq!(expires_at(&both, (0, Some(4_000)), 100), 5_100);
        assert_eq!(expires_at(&both, (1000, Some(-1)), 100), 5_100);
        let size = [("retention.bytes", "1000"), ("retention.ms", "-1")];
        assert_eq!(expires_at(&size, (1000, None), 100), TimestampMs::MAX);
        assert_eq!(expires_at(&size, (1, Some(i64::MAX)), 100), TimestampMs::MAX);
        let none = [("retention.ms", "-1")];
        assert_eq!(expires_at(&none, (1000, Some(60_000)), 100), TimestampMs::MAX);
        let compact = [("cleanup.policy", "compact"), ("retention.bytes", "1000")];
        assert_eq!(expires_at(&compact, (1000, Some(60_000)), 100), TimestampMs::MAX);
    }
}
