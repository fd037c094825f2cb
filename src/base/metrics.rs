//! What the engine counts: plain counters and histograms, read as one plain struct.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        // Relaxed: a counter orders nothing.
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper bounds of a histogram's buckets double, from 1 microsecond to about 67 seconds.
pub const BUCKET_COUNT: usize = 27;

/// How long something took, how often.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum_us: AtomicU64,
}

/// A histogram as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistogramValues {
    /// How many fell into each bucket; bucket `i` holds what took at most 2^i microseconds and
    /// more than the one before it. The last one has no upper bound.
    pub buckets: [u64; BUCKET_COUNT],
    /// The sum of all, in microseconds.
    pub sum_us: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // The bits of us - 1 are the least power of two at or above us.
        let bucket = (u64::BITS - us.saturating_sub(1).leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKET_COUNT - 1)].fetch_add(1, Ordering::Relaxed);
        let sum = self.sum_us.load(Ordering::Relaxed).saturating_add(us);
        // A sum that two threads write at once may miss one of them: it is a figure, no account.
        self.sum_us.store(sum, Ordering::Relaxed);
    }

    /// Its values now.
    #[must_use]
    pub fn values(&self) -> HistogramValues {
        let mut values = HistogramValues::default();
        for (value, bucket) in values.buckets.iter_mut().zip(&self.buckets) {
            *value = bucket.load(Ordering::Relaxed);
        }
        values.sum_us = self.sum_us.load(Ordering::Relaxed);
        values
    }
}

impl HistogramValues {
    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The upper bound of each bucket that has one, in seconds, with how many durations were at
    /// most so long: what a histogram of Prometheus is made of.
    pub fn cumulative_seconds(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounded = (0..).zip(&self.buckets[..BUCKET_COUNT - 1]);
        bounded.scan(0, |below, (power, count)| {
            *below += count;
            Some((f64::from(1u32 << power) / 1e6, *below))
        })
    }

    /// The sum of all, in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_us as f64 / 1e6
    }

    /// The upper bound, in microseconds, of the bucket in which this share of all lies; `None`
    /// before the first.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(|bucket| 1 << bucket)
    }
}

/// The engine's counters, each named in [`Metrics`].
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "each field is explained in `Metrics`")]
pub struct Counters {
    pub commits: Counter,
    pub refused_transactions: Counter,
    /// Batches that were stored already when their producer sent them again.
    pub duplicate_batches: Counter,
    /// Producer transactions that were committed.
    pub committed_producer_transactions: Counter,
    /// Producer transactions that were aborted, for whatever reason.
    pub aborted_producer_transactions: Counter,
    pub unwritten_commits: Counter,
    pub commit_groups: Counter,
    pub appended_batches: Counter,
    pub appended_records: Counter,
    pub appended_bytes: Counter,
    pub log_bytes: Counter,
    pub syncs: Counter,
    pub checkpoints: Counter,
    pub removed_batches: Counter,
    pub removed_bytes: Counter,
    pub freed_segments: Counter,
    pub freed_bytes: Counter,
    pub relocated_batches: Counter,
    pub relocated_bytes: Counter,
    pub failed_maintenance: Counter,
    pub maintenance_rounds: Counter,
    pub fetches: Counter,
    pub fetched_bytes: Counter,
    pub corruptions: Counter,
    pub cleaner_passes: Counter,
    pub cleaner_failures: Counter,
    pub cleaner_read_bytes: Counter,
    pub cleaner_written_bytes: Counter,
    pub cleaner_removed_records: Counter,
    pub commit_group_time: Histogram,
    pub sync_time: Histogram,
    pub checkpoint_time: Histogram,
    pub maintenance_time: Histogram,
}

/// What the engine counted since it was opened, and what it holds now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Commits that were applied, of every kind.
    pub commits: u64,
    /// Append transactions that were refused in the queue.
    pub refused_transactions: u64,
    /// Batches that were stored already when their producer sent them again.
    pub duplicate_batches: u64,
    /// Producer transactions that were committed.
    pub committed_producer_transactions: u64,
    /// Producer transactions that were aborted, for whatever reason.
    pub aborted_producer_transactions: u64,
    /// Producers that partitions remember, each partition's counted.
    pub producer_count: u64,
    /// Transactional ids that are known.
    pub transactional_id_count: u64,
    /// Producer transactions that are open.
    pub open_producer_transactions: u64,
    /// For how long the oldest of them is open: it holds back the last stable offset.
    pub oldest_producer_transaction_ms: u64,
    /// Append transactions that came out of the queue unwritten: nothing of them exists.
    pub unwritten_commits: u64,
    /// Groups of commits that were written with one call.
    pub commit_groups: u64,
    /// Record batches in committed append transactions.
    pub appended_batches: u64,
    /// Records in them.
    pub appended_records: u64,
    /// Bytes of them, as sent.
    pub appended_bytes: u64,
    /// Bytes written to the commit log.
    pub log_bytes: u64,
    /// How often the log was synced.
    pub syncs: u64,
    /// Checkpoints that were completed.
    pub checkpoints: u64,
    /// Record batches that retention and `delete_records` removed.
    pub removed_batches: u64,
    /// Bytes of them.
    pub removed_bytes: u64,
    /// Segments of the commit log that were freed because nothing in them was alive.
    pub freed_segments: u64,
    /// Bytes of them.
    pub freed_bytes: u64,
    /// Segments that were begun in the file of a freed one.
    pub reused_segments: u64,
    /// Record batches that were moved out of segments that were mostly dead.
    pub relocated_batches: u64,
    /// Bytes of them.
    pub relocated_bytes: u64,
    /// Rounds of maintenance that failed, and removals of the files of freed segments: both are
    /// tried again.
    pub failed_maintenance: u64,
    /// Rounds of maintenance that came to their end.
    pub maintenance_rounds: u64,
    /// How long they took.
    pub maintenance_time: HistogramValues,
    /// Fetches that were answered.
    pub fetches: u64,
    /// Bytes of record batches that they returned.
    pub fetched_bytes: u64,
    /// How often damage was found on disk.
    pub corruptions: u64,
    /// Passes of the cleaner that were finished.
    pub cleaner_passes: u64,
    /// Passes of the cleaner that failed.
    pub cleaner_failures: u64,
    /// Bytes of record batches that passes have read.
    pub cleaner_read_bytes: u64,
    /// Bytes of record batches that they have written again.
    pub cleaner_written_bytes: u64,
    /// Records that they have removed.
    pub cleaner_removed_records: u64,
    /// Partitions that could not be cleaned when that was last tried.
    pub uncleanable_partitions: u64,
    /// Offsets of compacted partitions that were not cleaned yet.
    pub dirty_offsets: u64,
    /// How long a group took to be written, applied and published.
    pub commit_group_time: HistogramValues,
    /// How long a sync of the log took.
    pub sync_time: HistogramValues,
    /// How long a checkpoint took.
    pub checkpoint_time: HistogramValues,
    /// Bytes that wait in the commit queue.
    pub queued_bytes: u64,
    /// Bytes in the log that a power loss could take.
    pub unsynced_bytes: u64,
    /// Bytes of memory that the unflushed part of the index holds.
    pub index_memory_bytes: u64,
    /// Bytes of all segments of the commit log.
    pub log_size_bytes: u64,
    /// Segments of the commit log.
    pub segment_count: u64,
    /// Freed segments whose files are kept to be written over.
    pub free_segment_count: u64,
    /// Bytes of them, of those that could not be removed yet, and of what an earlier use has left
    /// beyond the end of the segment that is being written: what the log takes of its disk beside
    /// `log_size_bytes`.
    pub free_segment_bytes: u64,
    /// Bytes of all record batches that can be read.
    pub live_bytes: u64,
    /// Bytes that can still be written to the disk of the log; `None` where the system does not
    /// tell.
    pub disk_free_bytes: Option<u64>,
    /// Free bytes of that disk below which appends are refused.
    pub disk_reserve_bytes: u64,
    /// Segments of which nothing is alive, and which a pin still holds or whose file could not be
    /// removed yet.
    pub unfreed_segments: u64,
    /// Batches that relocation has still to move.
    pub unmoved_batches: u64,
    /// The greatest part of a compacted partition that was dirty when maintenance last looked, in
    /// percent of what could be cleaned.
    pub cleaner_max_dirty_percent: u32,
    /// The greatest time by which cleaning is later than `max.compaction.lag.ms` allows.
    pub cleaner_max_overdue_ms: u64,
    /// Reads and snapshots under way: they hold back the removal of segments.
    pub pin_count: u64,
    /// Topics.
    pub topic_count: u64,
    /// Partitions of all topics.
    pub partition_count: u64,
    /// The leader epoch that appends get.
    pub leader_epoch: i32,
    /// Whether a storage failure has stopped all writes.
    pub halted: bool,
}

impl Counters {
    /// The counted part of [`Metrics`].
    #[must_use]
    pub fn read(&self) -> Metrics {
        Metrics {
            commits: self.commits.get(),
            refused_transactions: self.refused_transactions.get(),
            duplicate_batches: self.duplicate_batches.get(),
            committed_producer_transactions: self.committed_producer_transactions.get(),
            aborted_producer_transactions: self.aborted_producer_transactions.get(),
            unwritten_commits: self.unwritten_commits.get(),
            commit_groups: self.commit_groups.get(),
            appended_batches: self.appended_batches.get(),
            appended_records: self.appended_records.get(),
            appended_bytes: self.appended_bytes.get(),
            log_bytes: self.log_bytes.get(),
            syncs: self.syncs.get(),
            checkpoints: self.checkpoints.get(),
            removed_batches: self.removed_batches.get(),
            removed_bytes: self.removed_bytes.get(),
            freed_segments: self.freed_segments.get(),
            freed_bytes: self.freed_bytes.get(),
            relocated_batches: self.relocated_batches.get(),
            relocated_bytes: self.relocated_bytes.get(),
            failed_maintenance: self.failed_maintenance.get(),
            maintenance_rounds: self.maintenance_rounds.get(),
            maintenance_time: self.maintenance_time.values(),
            fetches: self.fetches.get(),
            fetched_bytes: self.fetched_bytes.get(),
            corruptions: self.corruptions.get(),
            cleaner_passes: self.cleaner_passes.get(),
            cleaner_failures: self.cleaner_failures.get(),
            cleaner_read_bytes: self.cleaner_read_bytes.get(),
            cleaner_written_bytes: self.cleaner_written_bytes.get(),
            cleaner_removed_records: self.cleaner_removed_records.get(),
            commit_group_time: self.commit_group_time.values(),
            sync_time: self.sync_time.values(),
            checkpoint_time: self.checkpoint_time.values(),
            ..Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_bucket_that_bounds_it() {
        let histogram = Histogram::default();
        for us in [0, 1, 2, 3, 4, 5, u64::MAX] {
            histogram.record(Duration::from_micros(us));
        }
        let values = histogram.values();
        assert_eq!(values.buckets[..4], [2, 1, 2, 1]);
        assert_eq!(values.buckets[BUCKET_COUNT - 1], 1);
        assert_eq!(values.count(), 7);
    }

    #[test]
    fn a_quantile_is_the_bound_of_the_bucket_that_reaches_it() {
        let histogram = Histogram::default();
        assert_eq!(histogram.values().quantile_us(0.5), None);
        for _ in 0..99 {
            histogram.record(Duration::from_micros(3));
        }
        histogram.record(Duration::from_micros(900));
        assert_eq!(histogram.values().quantile_us(0.5), Some(4));
        assert_eq!(histogram.values().quantile_us(0.99), Some(4));
        assert_eq!(histogram.values().quantile_us(1.0), Some(1024));
    }
}
