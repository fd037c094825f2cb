//! The table of all options: help, bounds, defaults, keys of the file and of the environment.

use std::borrow::Cow;

use tidelog::EngineConfig;
use toml::Value;

use super::kind::{Kind, Unit};

/// What holds where an option is not given.
#[derive(Debug, Clone, PartialEq)]
pub enum Fallback {
    /// This value.
    Value(Value),
    /// What follows from something else, in words.
    Follows(&'static str),
}

/// One option, by its long name.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name: `max-connections`, with two dashes before it on the command line.
    pub name: Cow<'static, str>,
    /// The values that it takes.
    pub kind: Kind,
    /// What holds where it is not given.
    pub fallback: Fallback,
    /// What it is for, in one or two sentences.
    pub help: Cow<'static, str>,
    /// Whether it is a limit of the engine.
    pub is_of_engine: bool,
}

impl Row {
    /// The variable of the environment that sets it.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(&self.name)
    }

    /// What holds where it is not given, in words.
    #[must_use]
    pub fn default_text(&self) -> String {
        match &self.fallback {
            Fallback::Value(value) => self.kind.shown(value),
            Fallback::Follows(text) => (*text).to_owned(),
        }
    }
}

/// The variable of the environment that sets an option.
#[must_use]
pub fn variable(name: &str) -> String {
    format!("TIDELOG_{}", name.to_uppercase().replace('-', "_"))
}

/// Limits of the engine that are no options: `max_request_bytes` sets the first.
const NO_OPTIONS: [&str; 1] = ["max_transaction_bytes"];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const DAY_MS: u64 = 86_400_000;

/// All options, in the order in which they are documented.
#[must_use]
pub fn table() -> Vec<Row> {
    let mut rows = places();
    rows.extend(security());
    rows.extend(broker_limits());
    rows.extend(groups());
    rows.extend(operation());
    rows.extend(EngineConfig::default().limits().into_iter().filter_map(|(limit, _)| {
        let unit = match limit.name {
            name if name.contains("_bytes") => Unit::Bytes,
            name if name.ends_with("_ms") => Unit::Ms,
            name if name.ends_with("_percent") => Unit::Percent,
            _ => Unit::Count,
        };
        let follows = match limit.name {
            "index_memory_limit_bytes" => "4 times `--checkpoint-index-bytes`",
            "disk_reserve_bytes" => "2 segments and twice the memory of the index: 1 GiB",
            _ => "",
        };
        let fallback = match limit.name {
            // A request is one append transaction, which has to fit into the queue.
            "commit_queue_bytes" => Fallback::Follows("64 MiB, or `--max-request-bytes` if more"),
            // Kafka's default is the profile's.
            "retention_check_interval_ms" => {
                Fallback::Follows("300,000 in the profile `kafka`, 0 in `event-broker`")
            }
            _ => limit
                .default
                .and_then(|default| i64::try_from(default).ok())
                .map_or(Fallback::Follows(follows), |default| {
                    Fallback::Value(Value::Integer(default))
                }),
        };
        (!NO_OPTIONS.contains(&limit.name)).then(|| Row {
            name: Cow::Owned(limit.name.replace('_', "-")),
            kind: Kind::Integer { unit, least: limit.least, greatest: limit.greatest },
            fallback,
            help: Cow::Owned(first_sentence(limit.reason)),
            is_of_engine: true,
        })
    }));
    rows
}

fn places() -> Vec<Row> {
    vec![
        text(
            "data-dir",
            Kind::Path,
            "tidelog-data",
            "The folder of the data; it is made, for its owner alone, if it is not there.",
        ),
        none(
            "log-dir",
            Kind::Path,
            "`log` in the data folder",
            "The folder of the commit log, where it is to be on another disk.",
        ),
        text("listen", Kind::Address, "127.0.0.1:9092", "Where clients connect."),
        none(
            "advertise",
            Kind::HostPort,
            "the address of `--listen`",
            "The address that clients are given to connect to.",
        ),
        text(
            "profile",
            Kind::Word(&["kafka", "event-broker"]),
            "kafka",
            "The rules of producing and reading.",
        ),
        flag(
            "independent-partitions",
            "Let each partition of a Produce request stand or fall by itself, as in Kafka.",
        ),
        none(
            "acks1",
            Kind::Word(&["buffered", "sync"]),
            "by profile: `buffered` for kafka, `sync` for event-broker",
            "What a producer with acks=1 waits for.",
        ),
    ]
}

fn security() -> Vec<Row> {
    vec![
        none(
            "users",
            Kind::Path,
            "nobody logs in",
            "Want a login by SASL/PLAIN; the file has a line `name:hash` for each user.",
        ),
        none(
            "grants",
            Kind::Path,
            "users may do everything",
            "Refuse what no line `USER ACTION NAME` of this file allows; wants `--users`.",
        ),
        none(
            "tls-cert",
            Kind::Path,
            "no TLS",
            "Serve TLS with the certificate chain of this PEM file; wants `--tls-key`.",
        ),
        none("tls-key", Kind::Path, "no TLS", "The private key of `--tls-cert`, PEM."),
        flag("insecure", "Allow an address that others can reach although nobody has to log in."),
        none(
            "audit-log",
            Kind::Path,
            "none",
            "A file for a JSON line of each login, refusal and change; `stderr` writes it there.",
        ),
    ]
}

fn broker_limits() -> Vec<Row> {
    vec![
        number(
            "max-request-bytes",
            Unit::Bytes,
            100 * MIB,
            16 * KIB,
            GIB,
            "The largest request, and the largest append transaction.",
        ),
        number(
            "max-memory-bytes",
            Unit::Bytes,
            512 * MIB,
            MIB,
            16 * TIB,
            "What all requests and answers together may hold in memory.",
        ),
        number(
            "max-connections",
            Unit::Count,
            4096,
            1,
            1_000_000,
            "Connections at a time; more are closed at once. Few open files lower the default.",
        ),
        row(
            "max-connections-per-address",
            count(1, 1_000_000),
            Fallback::Follows("half of `--max-connections`"),
            "Connections from one address at a time; more are closed at once.",
        ),
        number(
            "connections-max-idle-ms",
            Unit::Ms,
            600_000,
            1000,
            DAY_MS,
            "How long a connection may be silent between two requests.",
        ),
        number(
            "shutdown-timeout-ms",
            Unit::Ms,
            10_000,
            0,
            3_600_000,
            "How long requests under way may take once the broker is to stop.",
        ),
    ]
}

fn groups() -> Vec<Row> {
    vec![
        number(
            "group-initial-rebalance-delay-ms",
            Unit::Ms,
            3000,
            0,
            3_600_000,
            "How long the first members of an empty group wait for others.",
        ),
        number(
            "group-min-session-timeout-ms",
            Unit::Ms,
            6000,
            1,
            DAY_MS,
            "The shortest session that a member may ask for.",
        ),
        number("group-max-session-timeout-ms", Unit::Ms, 1_800_000, 1, DAY_MS, "The longest."),
        number("group-max-members", Unit::Count, 10_000, 1, 1_000_000, "Members of a group."),
        number(
            "group-max-metadata-bytes",
            Unit::Bytes,
            MIB,
            KIB,
            GIB,
            "What a member may say of itself when it joins.",
        ),
        number(
            "max-group-memory-bytes",
            Unit::Bytes,
            256 * MIB,
            MIB,
            TIB,
            "What all groups together may hold in memory.",
        ),
        number(
            "offsets-retention-minutes",
            Unit::Minutes,
            10_080,
            1,
            2_147_483_647,
            "How long committed offsets are kept once their group is empty.",
        ),
    ]
}

fn operation() -> Vec<Row> {
    vec![
        none(
            "metrics-listen",
            Kind::Address,
            "nowhere",
            "Where `/metrics`, `/livez` and `/readyz` are served.",
        ),
        number(
            "metrics-max-connections",
            Unit::Count,
            16,
            1,
            1024,
            "Connections there at a time; one more closes the one that has been silent longest.",
        ),
        number(
            "metrics-timeout-ms",
            Unit::Ms,
            10_000,
            100,
            600_000,
            "How long such a connection may take from its beginning to its end.",
        ),
        flag(
            "stay-when-halted",
            "Go on serving what can be read once the engine has halted, and end nothing.",
        ),
        text(
            "log-format",
            Kind::Word(&["text", "json"]),
            "text",
            "The form of the logs, which go to standard error.",
        ),
        text(
            "log-level",
            Kind::Word(&["error", "warn", "info", "debug", "trace"]),
            "info",
            "The least important messages that are logged.",
        ),
    ]
}

fn row(name: &'static str, kind: Kind, fallback: Fallback, help: &'static str) -> Row {
    let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
    Row { name, kind, fallback, help, is_of_engine: false }
}

fn text(name: &'static str, kind: Kind, default: &str, help: &'static str) -> Row {
    row(name, kind, Fallback::Value(Value::String(default.to_owned())), help)
}

fn none(name: &'static str, kind: Kind, follows: &'static str, help: &'static str) -> Row {
    row(name, kind, Fallback::Follows(follows), help)
}

fn flag(name: &'static str, help: &'static str) -> Row {
    row(name, Kind::Flag, Fallback::Value(Value::Boolean(false)), help)
}

const fn count(least: u64, greatest: u64) -> Kind {
    Kind::Integer { unit: Unit::Count, least, greatest }
}

fn number(
    name: &'static str,
    unit: Unit,
    default: u64,
    least: u64,
    greatest: u64,
    help: &'static str,
) -> Row {
    let default = i64::try_from(default).expect("a default is far below the greatest number");
    let fallback = Fallback::Value(Value::Integer(default));
    row(name, Kind::Integer { unit, least, greatest }, fallback, help)
}

fn first_sentence(reason: &str) -> String {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = reason.find(". ").map_or(reason.len(), |at| at + 1);
    reason[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_name_is_there_once_and_each_default_is_within_its_bounds() {
        let mut names = HashSet::new();
        for row in table() {
            assert!(names.insert(row.name.clone()), "{} is there twice", row.name);
            if let Fallback::Value(value) = &row.fallback {
                assert_eq!(row.kind.check(value), Ok(()), "{}", row.name);
            }
            assert!(!row.default_text().is_empty() && row.help.ends_with('.'), "{}", row.name);
        }
    }
}
