//! Every figure of [`Metrics`] by name, for whoever shows them all: an exporter is a loop.

use super::metrics::{HistogramValues, Metrics};

/// One figure of the engine: by [`Metrics::figures`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// Its name, as Prometheus wants names, without a prefix: a counter ends in `_total`.
    pub name: &'static str,
    /// How it moves.
    pub kind: FigureKind,
    /// What it counts.
    pub unit: FigureUnit,
    /// What it is, as a sentence.
    pub help: &'static str,
    /// Its value.
    pub value: FigureValue,
}

/// How a figure moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureKind {
    /// It only grows while the engine is open.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It is how long something took, how often.
    Histogram,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureUnit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Hundredths.
    Percent,
    /// Thousandths of a second.
    Milliseconds,
    /// Seconds.
    Seconds,
}

/// The value of a figure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FigureValue {
    /// A number.
    Number(i128),
    /// The values of a histogram, in microseconds.
    Histogram(Box<HistogramValues>),
}

impl FigureKind {
    /// Its name in the text format of Prometheus.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! figures {
    ($($field:ident $kind:ident $unit:ident $name:literal $help:literal;)*) => {
        impl Metrics {
            /// Every figure, with its name, kind, unit and help. One that the system does not
            /// report is not among them.
            ///
            /// ```
            /// use std::fmt::Write;
            /// use tidelog::{FigureValue, Metrics};
            ///
            /// let mut text = String::new();
            /// for figure in Metrics::default().figures() {
            ///     let (name, kind) = (figure.name, figure.kind.name());
            ///     writeln!(text, "# HELP my_{name} {}", figure.help)?;
            ///     writeln!(text, "# TYPE my_{name} {kind}")?;
            ///     match figure.value {
            ///         FigureValue::Number(number) => writeln!(text, "my_{name} {number}")?,
            ///         FigureValue::Histogram(values) => {
            ///             for (bound, count) in values.cumulative_seconds() {
            ///                 writeln!(text, "my_{name}_bucket{{le=\"{bound}\"}} {count}")?;
            ///             }
            ///             writeln!(text, "my_{name}_bucket{{le=\"+Inf\"}} {}", values.count())?;
            ///             writeln!(text, "my_{name}_sum {}", values.sum_seconds())?;
            ///             writeln!(text, "my_{name}_count {}", values.count())?;
            ///         }
            ///         _ => {}
            ///     }
            /// }
            /// assert!(text.contains("# TYPE my_commits_total counter\nmy_commits_total 0\n"));
            /// # Ok::<(), std::fmt::Error>(())
            /// ```
            #[must_use]
            pub fn figures(&self) -> Vec<Figure> {
                // Each field by name: one that is missing below does not compile.
                let Self { $($field),* } = self;
                let figures = [$((
                    $name, FigureKind::$kind, FigureUnit::$unit, $help, Value::value($field),
                )),*];
                let known = figures.into_iter().filter_map(|(name, kind, unit, help, value)| {
                    Some(Figure { name, kind, unit, help, value: value? })
                });
                known.collect()
            }
        }
    };
}

figures! {
    commits Counter Count "commits_total" "Commits that were applied.";
    refused_transactions Counter Count "refused_transactions_total"
        "Append transactions refused in the queue.";
    duplicate_batches Counter Count "duplicate_batches_total"
        "Batches sent again that were stored already.";
    committed_producer_transactions Counter Count "committed_producer_transactions_total"
        "Producer transactions that were committed.";
    aborted_producer_transactions Counter Count "aborted_producer_transactions_total"
        "Producer transactions that were aborted.";
    producer_count Gauge Count "producers" "Producers that partitions remember.";
    transactional_id_count Gauge Count "transactional_ids" "Transactional ids.";
    open_producer_transactions Gauge Count "open_producer_transactions"
        "Producer transactions that are open.";
    oldest_producer_transaction_ms Gauge Milliseconds "oldest_producer_transaction_ms"
        "Milliseconds for which the oldest open producer transaction is open.";
    unwritten_commits Counter Count "unwritten_commits_total"
        "Append transactions that came out of the queue unwritten.";
    commit_groups Counter Count "commit_groups_total"
        "Groups of commits that were written to the log with one call.";
    appended_batches Counter Count "appended_batches_total" "Record batches committed.";
    appended_records Counter Count "appended_records_total" "Records in committed record batches.";
    appended_bytes Counter Bytes "appended_bytes_total" "Bytes of committed record batches.";
    log_bytes Counter Bytes "log_bytes_total" "Bytes written to the commit log.";
    syncs Counter Count "syncs_total" "Syncs of the commit log.";
    checkpoints Counter Count "checkpoints_total" "Checkpoints completed.";
    removed_batches Counter Count "removed_batches_total"
        "Record batches that came to be below a log start.";
    removed_bytes Counter Bytes "removed_bytes_total"
        "Bytes of record batches that came to be below a log start.";
    freed_segments Counter Count "freed_segments_total"
        "Segments of the commit log that were freed.";
    freed_bytes Counter Bytes "freed_bytes_total" "Bytes of freed segments of the commit log.";
    reused_segments Counter Count "reused_segments_total"
        "Segments begun in the file of a freed one.";
    relocated_batches Counter Count "relocated_batches_total"
        "Batches moved out of mostly dead segments.";
    relocated_bytes Counter Bytes "relocated_bytes_total"
        "Bytes of batches moved out of mostly dead segments.";
    failed_maintenance Counter Count "failed_maintenance_total"
        "Rounds of maintenance, and removals of freed segments, that failed.";
    maintenance_rounds Counter Count "maintenance_rounds_total"
        "Rounds of maintenance that came to their end.";
    maintenance_time Histogram Seconds "maintenance_seconds" "Time of a round of maintenance.";
    fetches Counter Count "fetches_total" "Fetches answered.";
    fetched_bytes Counter Bytes "fetched_bytes_total" "Bytes of record batches fetched.";
    corruptions Counter Count "corruptions_total" "Times that damage was found on disk.";
    cleaner_passes Counter Count "cleaner_passes_total" "Passes of the cleaner.";
    cleaner_failures Counter Count "cleaner_failures_total" "Passes of the cleaner that failed.";
    cleaner_read_bytes Counter Bytes "cleaner_read_bytes_total" "Bytes the cleaner read.";
    cleaner_written_bytes Counter Bytes "cleaner_written_bytes_total" "Bytes the cleaner wrote.";
    cleaner_removed_records Counter Count "cleaner_removed_records_total"
        "Records the cleaner removed.";
    uncleanable_partitions Gauge Count "uncleanable_partitions"
        "Partitions that could not be cleaned.";
    dirty_offsets Gauge Count "dirty_offsets"
        "Offsets of compacted partitions that were not cleaned yet.";
    commit_group_time Histogram Seconds "commit_group_seconds"
        "Time to write, apply and publish a group of commits.";
    sync_time Histogram Seconds "sync_seconds" "Time of a sync of the commit log.";
    checkpoint_time Histogram Seconds "checkpoint_seconds" "Time of a checkpoint.";
    queued_bytes Gauge Bytes "queued_bytes" "Bytes in the commit queue.";
    unsynced_bytes Gauge Bytes "unsynced_bytes" "Bytes a power loss could take.";
    index_memory_bytes Gauge Bytes "index_memory_bytes" "Memory of what the index has not flushed.";
    log_size_bytes Gauge Bytes "log_size_bytes" "Bytes of all segments of the commit log.";
    segment_count Gauge Count "segments" "Segments of the commit log.";
    free_segment_count Gauge Count "free_segments"
        "Freed segments of the commit log that are kept to be reused.";
    free_segment_bytes Gauge Bytes "free_segment_bytes"
        "Bytes of freed segments that are kept to be reused.";
    live_bytes Gauge Bytes "live_bytes" "Bytes of all record batches that can be read.";
    disk_free_bytes Gauge Bytes "disk_free_bytes" "Free bytes of the disk of the commit log.";
    disk_reserve_bytes Gauge Bytes "disk_reserve_bytes"
        "Free bytes of the log's disk below which appends are refused.";
    unfreed_segments Gauge Count "unfreed_segments"
        "Dead segments that a pin holds or that could not be removed.";
    unmoved_batches Gauge Count "unmoved_batches"
        "Batches that are still to be moved out of mostly dead segments.";
    cleaner_max_dirty_percent Gauge Percent "cleaner_max_dirty_percent"
        "The greatest dirty part of a compacted partition.";
    cleaner_max_overdue_ms Gauge Milliseconds "cleaner_max_overdue_ms"
        "The most by which cleaning is later than max.compaction.lag.ms.";
    pin_count Gauge Count "pins" "Reads and snapshots under way.";
    topic_count Gauge Count "topics" "Topics.";
    partition_count Gauge Count "partitions" "Partitions of all topics.";
    leader_epoch Gauge Count "leader_epoch" "The leader epoch of appends.";
    halted Gauge Count "halted" "1 once a storage failure has stopped all writes.";
}

/// What a field of [`Metrics`] can be.
trait Value {
    fn value(&self) -> Option<FigureValue>;
}

macro_rules! numbers {
    ($($kind:ty),*) => {
        $(impl Value for $kind {
            fn value(&self) -> Option<FigureValue> {
                Some(FigureValue::Number((*self).into()))
            }
        })*
    };
}

numbers!(u64, u32, i32, bool);

impl Value for Option<u64> {
    fn value(&self) -> Option<FigureValue> {
        self.as_ref().and_then(Value::value)
    }
}

impl Value for HistogramValues {
    fn value(&self) -> Option<FigureValue> {
        Some(FigureValue::Histogram(Box::new(*self)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_figure_has_a_name_of_its_own_that_says_its_kind_and_unit() {
        let metrics = Metrics { disk_free_bytes: Some(7), ..Metrics::default() };
        let figures = metrics.figures();
        let names: BTreeSet<_> = figures.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), figures.len());
        for Figure { name, kind, unit, help, value } in figures {
            assert_eq!(name.ends_with("_total"), kind == FigureKind::Counter, "{name}");
            assert_eq!(name.contains("bytes"), unit == FigureUnit::Bytes, "{name}");
            assert_eq!(name.ends_with("_ms"), unit == FigureUnit::Milliseconds, "{name}");
            let is_histogram = matches!(value, FigureValue::Histogram(_));
            assert_eq!(is_histogram, kind == FigureKind::Histogram, "{name}");
            assert!(help.ends_with('.') && help.len() > 5, "{name}");
            // A dashboard shows each alone: it cannot lean on the text before it.
            let words = help.trim_end_matches('.').split(' ');
            for word in words.map(str::to_lowercase) {
                assert!(!["it", "its", "them", "they", "ones"].contains(&word.as_str()), "{help}");
            }
        }
    }

    #[test]
    fn a_figure_is_the_field_of_its_name_and_what_is_not_known_is_left_out() {
        let mut metrics = Metrics { commits: 3, halted: true, ..Metrics::default() };
        let value = |metrics: &Metrics, name| {
            let found = metrics.figures().into_iter().find(|figure| figure.name == name);
            found.map(|figure| figure.value)
        };
        assert_eq!(value(&metrics, "commits_total"), Some(FigureValue::Number(3)));
        assert_eq!(value(&metrics, "halted"), Some(FigureValue::Number(1)));
        assert_eq!(value(&metrics, "disk_free_bytes"), None);
        metrics.disk_free_bytes = Some(0);
        assert_eq!(value(&metrics, "disk_free_bytes"), Some(FigureValue::Number(0)));
    }

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative_and_in_seconds() {
        let mut values = HistogramValues::default();
        (values.buckets[0], values.buckets[2], values.buckets[26]) = (1, 2, 4);
        values.sum_us = 1_500_000;
        let buckets: Vec<(f64, u64)> = values.cumulative_seconds().collect();
        assert_eq!(buckets[..3], [(0.000_001, 1), (0.000_002, 1), (0.000_004, 3)]);
        assert_eq!(buckets.last(), Some(&(33.554_432, 3)));
        assert_eq!((values.count(), values.sum_seconds()), (7, 1.5));
    }
}
