//! The engine's own figures as Prometheus wants them: names begin with `tidelog_`.

use std::fmt::Write;

use tidelog::Metrics;
use tidelog::metrics::HistogramValues;

/// All figures of the engine.
#[must_use]
pub fn text(metrics: &Metrics) -> String {
    let mut out = String::new();
    for (name, help, value) in
        counters(metrics).into_iter().chain(removals(metrics)).chain(producers(metrics))
    {
        single(&mut out, &format!("{name}_total"), "counter", help, value);
    }
    for (name, help, value) in
        gauges(metrics).into_iter().chain(disk(metrics)).chain(space(metrics)).chain(open(metrics))
    {
        single(&mut out, name, "gauge", help, value);
    }
    let histograms = [
        ("group_seconds", "Time to write, apply and publish a group.", &metrics.group_time),
        ("sync_seconds", "Time of a sync of the log.", &metrics.sync_time),
        ("checkpoint_seconds", "Time of a checkpoint.", &metrics.checkpoint_time),
        ("maintenance_seconds", "Time of a round of maintenance.", &metrics.maintenance_time),
    ];
    for (name, help, values) in histograms {
        histogram(&mut out, name, help, values);
    }
    out
}

type Figure = (&'static str, &'static str, i128);

fn counters(metrics: &Metrics) -> [Figure; 13] {
    [
        ("commits", "Commits that were applied.", metrics.commits.into()),
        (
            "refused_transactions",
            "Append transactions refused in the queue.",
            metrics.refused_transactions.into(),
        ),
        ("unwritten_commits", "Commits that were not written.", metrics.unwritten_commits.into()),
        ("groups", "Groups of commits written with one call.", metrics.groups.into()),
        ("appended_batches", "Record batches committed.", metrics.appended_batches.into()),
        ("appended_records", "Records in them.", metrics.appended_records.into()),
        ("appended_bytes", "Bytes of them.", metrics.appended_bytes.into()),
        ("log_bytes", "Bytes written to the commit log.", metrics.log_bytes.into()),
        ("syncs", "Syncs of the log.", metrics.syncs.into()),
        ("checkpoints", "Checkpoints completed.", metrics.checkpoints.into()),
        ("fetches", "Fetches answered.", metrics.fetches.into()),
        ("fetched_bytes", "Bytes of record batches fetched.", metrics.fetched_bytes.into()),
        ("corruptions", "Times that damage was found on disk.", metrics.corruptions.into()),
    ]
}

/// What removes records, and gives their space back.
fn removals(metrics: &Metrics) -> [Figure; 13] {
    [
        ("removed_batches", "Record batches below log starts.", metrics.removed_batches.into()),
        ("removed_bytes", "Bytes of them.", metrics.removed_bytes.into()),
        ("cleaner_passes", "Passes of the cleaner.", metrics.cleaner_passes.into()),
        ("cleaner_failures", "Passes that failed.", metrics.cleaner_failures.into()),
        ("cleaner_read_bytes", "Bytes the cleaner read.", metrics.cleaner_read_bytes.into()),
        ("cleaner_written_bytes", "Bytes it wrote.", metrics.cleaner_written_bytes.into()),
        (
            "cleaner_removed_records",
            "Records the cleaner removed.",
            metrics.cleaner_removed_records.into(),
        ),
        ("freed_segments", "Segments of the log freed.", metrics.freed_segments.into()),
        ("freed_bytes", "Bytes of them.", metrics.freed_bytes.into()),
        (
            "reused_segments",
            "Segments begun in the file of a freed one.",
            metrics.reused_segments.into(),
        ),
        (
            "relocated_batches",
            "Batches moved out of mostly dead segments.",
            metrics.relocated_batches.into(),
        ),
        ("relocated_bytes", "Bytes of them.", metrics.relocated_bytes.into()),
        (
            "failed_maintenance",
            "Rounds of maintenance, and removals of freed segments, that failed.",
            metrics.failed_maintenance.into(),
        ),
    ]
}

/// What producers with ids have done.
fn producers(metrics: &Metrics) -> [Figure; 3] {
    [
        (
            "duplicate_batches",
            "Batches that were stored already when they were sent again.",
            metrics.duplicate_batches.into(),
        ),
        (
            "committed_producer_transactions",
            "Producer transactions that were committed.",
            metrics.committed_producer_transactions.into(),
        ),
        (
            "aborted_producer_transactions",
            "Producer transactions that were aborted.",
            metrics.aborted_producer_transactions.into(),
        ),
    ]
}

/// What is known of producers with ids.
fn open(metrics: &Metrics) -> [Figure; 4] {
    [
        ("producers", "Producers that partitions remember.", metrics.producer_count.into()),
        ("transactional_ids", "Transactional ids.", metrics.transactional_id_count.into()),
        (
            "open_producer_transactions",
            "Producer transactions that are open.",
            metrics.open_producer_transactions.into(),
        ),
        (
            "oldest_producer_transaction_ms",
            "For how long the oldest of them is open.",
            metrics.oldest_producer_transaction_ms.into(),
        ),
    ]
}

/// What the disk of the log has left; no figure for what the system does not tell.
fn disk(metrics: &Metrics) -> impl Iterator<Item = Figure> {
    let free = metrics.disk_free_bytes;
    let free = free.map(|bytes| ("disk_free_bytes", "Free bytes of the log's disk.", bytes.into()));
    let reserve = metrics.disk_reserve_bytes.into();
    let help = "Free bytes of it below which appends are refused.";
    free.into_iter().chain([("disk_reserve_bytes", help, reserve)])
}

/// How far removal is behind.
fn space(metrics: &Metrics) -> [Figure; 7] {
    [
        ("dirty_offsets", "Offsets that were not cleaned yet.", metrics.dirty_offsets.into()),
        (
            "cleaner_max_dirty_percent",
            "The greatest dirty part of a compacted partition.",
            metrics.cleaner_max_dirty_percent.into(),
        ),
        (
            "cleaner_max_overdue_ms",
            "The most by which cleaning is later than max.compaction.lag.ms.",
            metrics.cleaner_max_overdue_ms.into(),
        ),
        (
            "uncleanable_partitions",
            "Partitions that could not be cleaned.",
            metrics.uncleanable_partitions.into(),
        ),
        ("unmoved_batches", "Batches that are still to be moved.", metrics.unmoved_batches.into()),
        (
            "unfreed_segments",
            "Dead segments that a pin holds or that could not be removed.",
            metrics.unfreed_segments.into(),
        ),
        ("pins", "Reads and snapshots under way.", metrics.pin_count.into()),
    ]
}

fn gauges(metrics: &Metrics) -> [Figure; 12] {
    [
        ("queued_bytes", "Bytes in the commit queue.", metrics.queued_bytes.into()),
        ("unsynced_bytes", "Bytes a power loss could take.", metrics.unsynced_bytes.into()),
        ("index_memory_bytes", "Memory of the unflushed index.", metrics.index_memory_bytes.into()),
        ("log_size_bytes", "Bytes of all segments.", metrics.log_size_bytes.into()),
        ("segments", "Segments of the commit log.", metrics.segment_count.into()),
        ("free_segments", "Freed ones kept to be reused.", metrics.free_segment_count.into()),
        ("free_segment_bytes", "Bytes kept to be reused.", metrics.free_segment_bytes.into()),
        ("live_bytes", "Bytes of all readable batches.", metrics.live_bytes.into()),
        ("topics", "Topics.", metrics.topic_count.into()),
        ("partitions", "Partitions of all topics.", metrics.partition_count.into()),
        ("leader_epoch", "The leader epoch of appends.", metrics.leader_epoch.into()),
        ("halted", "1 once a storage failure has stopped all writes.", metrics.halted.into()),
    ]
}

fn single(out: &mut String, name: &str, kind: &str, help: &str, value: i128) {
    put(out, format_args!("# HELP tidelog_{name} {help}\n# TYPE tidelog_{name} {kind}\n"));
    put(out, format_args!("tidelog_{name} {value}\n"));
}

fn histogram(out: &mut String, name: &str, help: &str, values: &HistogramValues) {
    put(out, format_args!("# HELP tidelog_{name} {help}\n# TYPE tidelog_{name} histogram\n"));
    let mut below = 0;
    let bounded = values.buckets.len() - 1;
    for (power, count) in (0..).zip(&values.buckets[..bounded]) {
        below += count;
        let bound = f64::from(1u32 << power) / 1e6;
        put(out, format_args!("tidelog_{name}_bucket{{le=\"{bound}\"}} {below}\n"));
    }
    let count = values.count();
    put(out, format_args!("tidelog_{name}_bucket{{le=\"+Inf\"}} {count}\n"));
    put(out, format_args!("tidelog_{name}_sum {}\n", super::seconds(values.sum_us)));
    put(out, format_args!("tidelog_{name}_count {count}\n"));
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("a string takes every line");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_on_the_disk_is_told_beside_what_is_reserved_of_it() {
        let mut metrics = Metrics::default();
        (metrics.disk_free_bytes, metrics.disk_reserve_bytes) = (Some(0), 7);
        let text = text(&metrics);
        for expected in [
            "# HELP tidelog_disk_free_bytes Free bytes of the log's disk.\n\
             # TYPE tidelog_disk_free_bytes gauge\ntidelog_disk_free_bytes 0\n",
            "# TYPE tidelog_disk_reserve_bytes gauge\ntidelog_disk_reserve_bytes 7\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn a_histogram_is_cumulative_and_every_name_has_its_kind() {
        let mut metrics = Metrics::default();
        (metrics.commits, metrics.halted) = (3, true);
        (metrics.sync_time.buckets[0], metrics.sync_time.buckets[26]) = (1, 2);
        metrics.sync_time.sum_us = 1_500_000;
        let text = text(&metrics);
        for expected in [
            "# TYPE tidelog_commits_total counter\ntidelog_commits_total 3\n",
            "# TYPE tidelog_halted gauge\ntidelog_halted 1\n",
            "tidelog_sync_seconds_bucket{le=\"0.000001\"} 1\n",
            "tidelog_sync_seconds_bucket{le=\"33.554432\"} 1\n",
            "tidelog_sync_seconds_bucket{le=\"+Inf\"} 3\ntidelog_sync_seconds_sum 1.5\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains("tidelog_disk_free_bytes"), "the system has not told them");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        for sample in samples {
            let name = sample.split(['{', ' ']).next().unwrap();
            let family = name.trim_end_matches("_bucket").trim_end_matches("_sum");
            let family = family.trim_end_matches("_count");
            assert!(text.contains(&format!("# TYPE {family} ")), "{sample}");
        }
    }
}
