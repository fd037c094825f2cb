//! The engine's own figures as Prometheus wants them: names begin with `tidelog_`.

use std::fmt::Write;

use tidelog::metrics::HistogramValues;
use tidelog::{FigureValue, Metrics};

/// All figures of the engine.
#[must_use]
pub fn text(metrics: &Metrics) -> String {
    let mut out = String::new();
    for figure in metrics.figures() {
        let (name, kind, help) = (figure.name, figure.kind.name(), figure.help);
        put(&mut out, format_args!("# HELP tidelog_{name} {help}\n# TYPE tidelog_{name} {kind}\n"));
        match &figure.value {
            FigureValue::Number(value) => put(&mut out, format_args!("tidelog_{name} {value}\n")),
            FigureValue::Histogram(values) => histogram(&mut out, name, values),
            // A kind of figure that a later engine has: it says nothing here.
            _ => {}
        }
    }
    out
}

fn histogram(out: &mut String, name: &str, values: &HistogramValues) {
    for (bound, count) in values.cumulative_seconds() {
        put(out, format_args!("tidelog_{name}_bucket{{le=\"{bound}\"}} {count}\n"));
    }
    let count = values.count();
    put(out, format_args!("tidelog_{name}_bucket{{le=\"+Inf\"}} {count}\n"));
    put(out, format_args!("tidelog_{name}_sum {}\n", values.sum_seconds()));
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
            "# HELP tidelog_disk_free_bytes Free bytes of the disk of the commit log.\n\
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
