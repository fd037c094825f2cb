//! Figures of the broker: plain counters, and their text for Prometheus.

pub mod engine;
pub mod http;

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kafka_protocol::messages::ApiKey;

/// Keys of APIs below this are counted by themselves.
const KEYS: usize = 100;
/// Upper bounds of the buckets of request times, in microseconds.
const BOUNDS_US: [u64; 8] = [100, 500, 1_000, 5_000, 25_000, 100_000, 500_000, 2_500_000];

/// Counters, added to from every connection.
#[derive(Debug)]
pub struct Metrics {
    /// Bytes of requests, with their lengths.
    pub bytes_in: Counter,
    /// Bytes of answers, with their lengths.
    pub bytes_out: Counter,
    /// Connections that are open.
    pub connections: Counter,
    /// Connections that were ever accepted.
    pub accepted: Counter,
    /// Connections closed at once because there were too many.
    pub refused: Counter,
    /// Connections closed because of what came on them.
    pub broken: Counter,
    /// Logins that failed.
    pub failed_logins: Counter,
    /// Those of them that were not tried, since too many from the address had failed.
    pub refused_logins: Counter,
    /// Fetches that wait for data.
    pub waiting_fetches: Counter,
    /// Produce requests that were refused, wholly or in part.
    pub refused_produces: Counter,
    /// 1 while the disk has less free than its reserve.
    pub disk_below_reserve: Counter,
    /// 1 while the engine refuses appends.
    pub appends_refused: Counter,
    apis: Box<[Api; KEYS]>,
}

/// A number that many add to; it may go down where it counts what is there now.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

#[derive(Debug, Default)]
struct Api {
    requests: Counter,
    time_us: Counter,
    buckets: [Counter; BOUNDS_US.len()],
}

impl Counter {
    /// Adds one.
    pub fn up(&self) {
        self.add(1);
    }

    /// Takes one away.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds so many.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Makes it this number.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            connections: Counter::default(),
            accepted: Counter::default(),
            refused: Counter::default(),
            broken: Counter::default(),
            failed_logins: Counter::default(),
            refused_logins: Counter::default(),
            waiting_fetches: Counter::default(),
            refused_produces: Counter::default(),
            disk_below_reserve: Counter::default(),
            appends_refused: Counter::default(),
            apis: Box::new(std::array::from_fn(|_| Api::default())),
        }
    }
}

impl Metrics {
    /// Counts a request of this API that took so long.
    pub fn answered(&self, api_key: i16, took: Duration) {
        let Some(api) = usize::try_from(api_key).ok().and_then(|key| self.apis.get(key)) else {
            return;
        };
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        api.requests.up();
        api.time_us.add(us);
        if let Some(at) = BOUNDS_US.iter().position(|&bound| us <= bound) {
            api.buckets[at].up();
        }
    }

    /// All figures as Prometheus wants them.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let plain = [
            ("bytes_in_total", "counter", "Bytes of requests.", &self.bytes_in),
            ("bytes_out_total", "counter", "Bytes of answers.", &self.bytes_out),
            (
                "logins_refused_total",
                "counter",
                "Logins not tried after too many failures.",
                &self.refused_logins,
            ),
            ("connections", "gauge", "Open connections.", &self.connections),
            ("connections_accepted_total", "counter", "Connections accepted.", &self.accepted),
            ("connections_refused_total", "counter", "Connections above the limit.", &self.refused),
            (
                "connections_broken_total",
                "counter",
                "Connections closed for a fault.",
                &self.broken,
            ),
            ("failed_logins_total", "counter", "Logins that failed.", &self.failed_logins),
            ("waiting_fetches", "gauge", "Fetches that wait for data.", &self.waiting_fetches),
            (
                "refused_produces_total",
                "counter",
                "Produce requests refused, wholly or in part.",
                &self.refused_produces,
            ),
            (
                "disk_below_reserve",
                "gauge",
                "Whether the disk has less free than its reserve.",
                &self.disk_below_reserve,
            ),
            (
                "appends_refused",
                "gauge",
                "Whether the engine refuses appends.",
                &self.appends_refused,
            ),
        ];
        for (name, kind, help, counter) in plain {
            family(&mut out, name, kind, help);
            line(&mut out, name, "", counter.get());
        }
        self.write_requests(&mut out);
        out
    }

    fn write_requests(&self, out: &mut String) {
        let name = "request_duration_seconds";
        family(out, name, "histogram", "Time from a whole request to its answer, by API.");
        for (key, api) in self.apis.iter().enumerate() {
            let requests = api.requests.get();
            let known = i16::try_from(key).ok().and_then(|key| ApiKey::try_from(key).ok());
            let Some(known) = known.filter(|_| requests > 0) else { continue };
            let mut below = 0;
            for (bucket, bound_us) in api.buckets.iter().zip(BOUNDS_US) {
                below += bucket.get();
                let label = format!("{{api=\"{known:?}\",le=\"{}\"}}", seconds(bound_us));
                line(out, &format!("{name}_bucket"), &label, below);
            }
            let api_label = format!("{{api=\"{known:?}\"}}");
            let label = format!("{{api=\"{known:?}\",le=\"+Inf\"}}");
            line(out, &format!("{name}_bucket"), &label, requests);
            line(out, &format!("{name}_sum"), &api_label, seconds(api.time_us.get()));
            line(out, &format!("{name}_count"), &api_label, requests);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a chart")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// How many lines of the audit log were dropped.
#[must_use]
pub fn audit_text(dropped: u64) -> String {
    let (mut out, name) = (String::new(), "audit_lines_dropped_total");
    family(&mut out, name, "counter", "Lines of the audit log that were dropped.");
    line(&mut out, name, "", dropped);
    out
}

/// Writes the two lines above the samples of a name.
pub fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP tidelog_broker_{name} {help}\n# TYPE tidelog_broker_{name} {kind}")
        .expect("a string takes every line");
}

/// Writes one sample.
pub fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    writeln!(out, "tidelog_broker_{name}{labels} {value}").expect("a string takes every line");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_every_counter_and_cumulative_buckets() {
        let metrics = Metrics::default();
        metrics.bytes_in.add(7);
        for us in [100, 101, 3_000_000] {
            metrics.answered(3, Duration::from_micros(us));
        }
        metrics.answered(-1, Duration::ZERO);
        metrics.answered(i16::MAX, Duration::ZERO);
        let text = metrics.text();
        for expected in [
            "# TYPE tidelog_broker_bytes_in_total counter\ntidelog_broker_bytes_in_total 7\n",
            "duration_seconds_bucket{api=\"Metadata\",le=\"0.0001\"} 1\n",
            "duration_seconds_bucket{api=\"Metadata\",le=\"2.5\"} 2\n",
            "duration_seconds_bucket{api=\"Metadata\",le=\"+Inf\"} 3\n",
            "duration_seconds_count{api=\"Metadata\"} 3\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }
}
