//! The rule by which batches expire: a function of their facts, the clock and the topic's settings.

use crate::base::types::{Offset, TimestampMs};
use crate::config::EffectiveSettings;
use crate::core::{Ahead, Oldest};
use crate::index::keyspace::BatchEntry;

/// Decides batch by batch, the oldest first, which of a partition expire.
///
/// As in Kafka time decides first, for as many as are too old, and then size; the first batch that
/// neither takes ends it.
#[derive(Debug)]
pub(super) struct Expiry {
    now: TimestampMs,
    retention_ms: Option<i64>,
    retention_bytes: Option<u64>,
    /// Bytes of the batches that were not taken so far.
    left_bytes: u64,
}

/// What of a batch decides whether it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aged {
    pub(super) written_at: TimestampMs,
    pub(super) length_bytes: u64,
}

impl Aged {
    pub(super) fn of(entry: &BatchEntry) -> Self {
        let length_bytes = u64::from(entry.location.length_bytes);
        Self { written_at: entry.written_at(), length_bytes }
    }

    /// The same, where one that was written beyond now counts as written when that was seen first,
    /// or now: a wrong clock does not hold retention back.
    pub(super) fn at_most(
        self,
        now: TimestampMs,
        ahead: Option<Ahead>,
        last_offset: Offset,
    ) -> Self {
        if self.written_at <= now {
            return self;
        }
        let seen = ahead.filter(|ahead| last_offset < ahead.below).map(|ahead| ahead.since);
        Self { written_at: seen.unwrap_or(now).min(now), ..self }
    }
}

impl From<&Oldest> for Aged {
    fn from(oldest: &Oldest) -> Self {
        Self { written_at: oldest.written_at, length_bytes: oldest.length_bytes }
    }
}

/// Why a batch expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Time,
    Size,
}

impl Expiry {
    /// The rule for a partition of this size; `None` where nothing ever expires.
    pub(super) fn new(
        settings: &EffectiveSettings,
        now: TimestampMs,
        size_bytes: u64,
    ) -> Option<Self> {
        let has_limit = settings.retention_ms.is_some() || settings.retention_bytes.is_some();
        (settings.cleanup_policy.delete && has_limit).then_some(Self {
            now,
            retention_ms: settings.retention_ms,
            retention_bytes: settings.retention_bytes,
            left_bytes: size_bytes,
        })
    }

    /// Whether the next batch expires, and why.
    pub(super) fn next(&mut self, batch: Aged) -> Option<Reason> {
        let left_bytes = self.left_bytes.saturating_sub(batch.length_bytes);
        let is_old = self
            .retention_ms
            .is_some_and(|limit| self.now.saturating_sub(batch.written_at) > limit);
        let reason = if is_old {
            Some(Reason::Time)
        } else {
            // Time is asked no more: what comes after a batch that is young enough waits for it.
            self.retention_ms = None;
            self.retention_bytes.filter(|limit| left_bytes >= *limit).map(|_| Reason::Size)
        };
        debug_assert!(left_bytes <= self.left_bytes, "what goes leaves less");
        if reason.is_some() {
            self.left_bytes = left_bytes;
        }
        reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::{PayloadLocation, SegmentId};
    use crate::config::TopicConfig;

    fn batch(max_timestamp: i64, append_time: i64, length_bytes: u32) -> BatchEntry {
        let location = PayloadLocation { segment: SegmentId(1), position: 4096, length_bytes };
        BatchEntry {
            base_offset: 0,
            record_count: 1,
            crc: 0,
            attributes: 0,
            max_timestamp,
            append_time,
            leader_epoch: 0,
            location,
        }
    }

    fn settings(set: &[(&str, &str)]) -> EffectiveSettings {
        let config = set
            .iter()
            .fold(TopicConfig::new(1), |config, (name, value)| config.set(name, value).unwrap());
        config.settings().effective().clone()
    }

    fn taken(set: &[(&str, &str)], now: i64, batches: &[BatchEntry]) -> Vec<Reason> {
        let size = batches.iter().map(|batch| u64::from(batch.location.length_bytes)).sum();
        let Some(mut expiry) = Expiry::new(&settings(set), now, size) else { return Vec::new() };
        batches.iter().map_while(|batch| expiry.next(Aged::of(batch))).collect()
    }

    #[test]
    fn a_batch_as_old_as_the_limit_stays_and_one_a_millisecond_older_goes() {
        let set = [("retention.ms", "10")];
        assert_eq!(taken(&set, 110, &[batch(100, 100, 70)]), []);
        assert_eq!(taken(&set, 111, &[batch(100, 100, 70)]), [Reason::Time]);
    }

    #[test]
    fn the_smaller_of_timestamp_and_append_time_counts_and_no_timestamp_is_no_age() {
        let set = [("retention.ms", "10")];
        assert_eq!(taken(&set, 111, &[batch(i64::MAX, 100, 70)]), [Reason::Time]);
        assert_eq!(taken(&set, 111, &[batch(5, 110, 70)]), [Reason::Time]);
        assert_eq!(taken(&set, 111, &[batch(-1, 101, 70)]), []);
        assert_eq!(taken(&set, 112, &[batch(-1, 101, 70)]), [Reason::Time]);
        assert_eq!(taken(&set, 111, &[batch(0, 111, 70)]), [Reason::Time]);
    }

    #[test]
    fn a_clock_that_steps_back_takes_nothing_and_extremes_do_not_overflow() {
        let set = [("retention.ms", "10")];
        assert_eq!(taken(&set, 50, &[batch(100, 100, 70)]), []);
        assert_eq!(taken(&set, i64::MIN, &[batch(100, 100, 70)]), []);
        assert_eq!(taken(&set, i64::MAX, &[batch(-1, i64::MIN, 70)]), [Reason::Time]);
    }

    #[test]
    fn the_oldest_go_first_and_a_young_one_holds_back_what_comes_after_it() {
        let set = [("retention.ms", "10")];
        let batches = [batch(1, 1, 70), batch(100, 100, 70), batch(1, 1, 70)];
        assert_eq!(taken(&set, 50, &batches), [Reason::Time]);
    }

    #[test]
    fn by_size_a_batch_goes_while_what_is_left_reaches_the_limit() {
        let batches = [batch(1, 1, 70), batch(1, 1, 70), batch(1, 1, 70)];
        let by_size = |limit: &str| {
            taken(&[("retention.ms", "-1"), ("retention.bytes", limit)], 1, &batches).len()
        };
        assert_eq!((by_size("141"), by_size("140"), by_size("70"), by_size("0")), (0, 1, 2, 3));
        assert_eq!(by_size("-1"), 0);
    }

    #[test]
    fn size_goes_on_where_time_ends() {
        let set = [("retention.ms", "10"), ("retention.bytes", "70")];
        let batches = [batch(1, 1, 70), batch(100, 100, 70), batch(1, 1, 70), batch(100, 100, 70)];
        assert_eq!(taken(&set, 50, &batches), [Reason::Time, Reason::Size, Reason::Size]);
    }

    #[test]
    fn only_the_policy_delete_lets_anything_expire() {
        for (policy, expected) in [("delete", 1), ("compact,delete", 1), ("compact", 0), ("", 0)] {
            let set = [("cleanup.policy", policy), ("retention.ms", "10")];
            assert_eq!(taken(&set, 500, &[batch(1, 1, 70)]).len(), expected, "{policy}");
        }
    }
}
