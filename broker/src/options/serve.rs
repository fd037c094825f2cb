//! The options as the process wants them: typed, and checked against one another.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tidelog::EngineConfig;
use tidelog::config::LimitProblem;
use toml::{Table, Value};

use super::kind::host_and_port;
use super::sources::{Problems, Values};
use super::table::table;
use crate::context::Limits;
use crate::groups::Settings;
use crate::profile::{Acks1, Profile};

/// The options that are none of the engine's, by their names.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(missing_docs, reason = "the table of options says what each is for")]
pub struct Serve {
    pub data_dir: PathBuf,
    pub log_dir: Option<PathBuf>,
    pub listen: SocketAddr,
    #[serde(default, deserialize_with = "advertised")]
    pub advertise: Option<(String, u16)>,
    #[serde(deserialize_with = "word")]
    pub profile: Profile,
    pub independent_partitions: bool,
    #[serde(default, deserialize_with = "word_or_none")]
    pub acks1: Option<Acks1>,
    pub users: Option<PathBuf>,
    pub grants: Option<PathBuf>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub insecure: bool,
    pub audit_log: Option<PathBuf>,
    pub max_request_bytes: usize,
    pub max_memory_bytes: usize,
    pub max_connections: usize,
    pub max_connections_per_address: Option<usize>,
    pub connections_max_idle_ms: u64,
    pub shutdown_timeout_ms: u64,
    #[serde(rename = "group-initial-rebalance-delay-ms")]
    pub group_initial_delay_ms: u64,
    pub group_min_session_timeout_ms: u64,
    pub group_max_session_timeout_ms: u64,
    pub group_max_members: usize,
    pub group_max_metadata_bytes: usize,
    pub max_group_memory_bytes: usize,
    pub offsets_retention_minutes: u64,
    pub metrics_listen: Option<SocketAddr>,
    pub metrics_max_connections: usize,
    pub metrics_timeout_ms: u64,
    pub stay_when_halted: bool,
    #[serde(deserialize_with = "word")]
    pub log_format: LogFormat,
    #[serde(deserialize_with = "level")]
    pub log_level: tracing::level_filters::LevelFilter,
}

/// The form of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// A line of text that ends with fields.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Pairs of options of which the first must not be above the second.
const ORDERED: [(&str, &str); 4] = [
    ("max-request-bytes", "max-memory-bytes"),
    ("max-connections-per-address", "max-connections"),
    ("group-min-session-timeout-ms", "group-max-session-timeout-ms"),
    ("group-max-metadata-bytes", "max-group-memory-bytes"),
];

/// Options that mean nothing without another.
const WANTED: [(&str, &str); 3] =
    [("grants", "users"), ("tls-cert", "tls-key"), ("tls-key", "tls-cert")];

/// The options of the process, and the limits of its engine.
///
/// # Errors
/// All options that contradict one another.
pub fn settle(values: &Values) -> Result<(Serve, EngineConfig), Problems> {
    let mut problems = Vec::new();
    for (low, high) in ORDERED {
        if let (Some(least), Some(most)) = (values.number(low), values.number(high))
            && least > most
        {
            problems.push(above(values, low, high));
        }
    }
    for (option, wanted) in WANTED {
        if values.get(option).is_some() && values.get(wanted).is_none() {
            problems.push(format!("{} wants {wanted}, too", values.shown(option)));
        }
    }
    let (mut own, mut engine) = (Table::new(), Table::new());
    for row in table() {
        let Some(value) = values.get(&row.name).cloned() else { continue };
        if row.is_of_engine {
            engine.insert(row.name.replace('-', "_"), value);
        } else {
            own.insert(row.name.into_owned(), value);
        }
    }
    let serve: Serve = own.try_into().map_err(|error| Problems(vec![error.to_string()]))?;
    let engine: EngineConfig =
        engine.try_into().map_err(|error| Problems(vec![error.to_string()]))?;
    let engine = with_profile(with_requests(engine, &serve, values), &serve, values);
    if let Err(error) = engine.validate() {
        problems.extend(error.problems().iter().map(|problem| match problem {
            LimitProblem::Above { name, bound, .. } => {
                above(values, &option_of(name), &option_of(bound))
            }
            problem => problem.to_string(),
        }));
    }
    if problems.is_empty() { Ok((serve, engine)) } else { Err(Problems(problems)) }
}

/// A request is one append transaction, so the engine takes as large ones as the broker.
fn with_requests(engine: EngineConfig, serve: &Serve, values: &Values) -> EngineConfig {
    let request_bytes = serve.max_request_bytes as u64;
    let engine = engine.max_transaction_bytes(request_bytes);
    if values.get("commit-queue-bytes").is_some() {
        return engine;
    }
    let queue_bytes = engine.commit_queue_bytes.max(request_bytes);
    engine.commit_queue_bytes(queue_bytes)
}

/// Retention is checked as often as the profile has it, unless the option says otherwise.
fn with_profile(engine: EngineConfig, serve: &Serve, values: &Values) -> EngineConfig {
    if values.get("retention-check-interval-ms").is_some() {
        return engine;
    }
    engine.retention_check_interval_ms(serve.profile.retention_check_interval_ms())
}

/// The option that sets a limit of the engine.
fn option_of(limit: &str) -> String {
    match limit {
        "max_transaction_bytes" => "max-request-bytes".to_owned(),
        _ => limit.replace('_', "-"),
    }
}

fn above(values: &Values, low: &str, high: &str) -> String {
    format!("{} must not be above {}", values.shown(low), values.shown(high))
}

impl Serve {
    /// The limits of the broker, with room for so many connections.
    #[must_use]
    pub fn limits(&self, max_connections: usize) -> Limits {
        let of_address = self.max_connections_per_address.unwrap_or(max_connections.div_ceil(2));
        Limits {
            max_request_bytes: self.max_request_bytes,
            max_memory_bytes: self.max_memory_bytes,
            max_connections,
            max_connections_per_address: of_address,
            idle: Duration::from_millis(self.connections_max_idle_ms),
            drain: Duration::from_millis(self.shutdown_timeout_ms),
            metrics_connections: self.metrics_max_connections,
            metrics_timeout: Duration::from_millis(self.metrics_timeout_ms),
            groups: self.groups(),
            ..Limits::default()
        }
    }

    fn groups(&self) -> Settings {
        Settings {
            initial_delay: Duration::from_millis(self.group_initial_delay_ms),
            min_session: Duration::from_millis(self.group_min_session_timeout_ms),
            max_session: Duration::from_millis(self.group_max_session_timeout_ms),
            max_members: self.group_max_members,
            max_metadata_bytes: self.group_max_metadata_bytes,
            max_total_bytes: self.max_group_memory_bytes,
            offsets_retention: Duration::from_secs(self.offsets_retention_minutes * 60),
            ..Settings::default()
        }
    }
}

fn word<'de, D: Deserializer<'de>, T: ValueEnum>(from: D) -> Result<T, D::Error> {
    T::from_str(&String::deserialize(from)?, false).map_err(D::Error::custom)
}

fn word_or_none<'de, D: Deserializer<'de>, T: ValueEnum>(from: D) -> Result<Option<T>, D::Error> {
    word(from).map(Some)
}

fn level<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<tracing::level_filters::LevelFilter, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

fn advertised<'de, D: Deserializer<'de>>(from: D) -> Result<Option<(String, u16)>, D::Error> {
    let Value::String(text) = Value::deserialize(from)? else {
        return Err(D::Error::custom("an address is a text"));
    };
    host_and_port(&text).map(Some).ok_or_else(|| D::Error::custom("an address is HOST:PORT"))
}
