//! The command line: what `tidelog-broker` is told, and what it makes of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::groups::Settings;
use crate::profile::{Acks1, Profile};

/// The Kafka protocol over tidelog, an embedded storage engine for transactional partition logs.
#[derive(Debug, Parser)]
#[command(name = "tidelog-broker", version, args_conflicts_with_subcommands = true)]
pub struct Command {
    /// What is to be done instead of serving.
    #[command(subcommand)]
    pub other: Option<Other>,
    /// How to serve.
    #[command(flatten)]
    pub serve: Serve,
}

/// What can be done instead of serving.
#[derive(Debug, Subcommand)]
pub enum Other {
    /// Read a password from standard input and print its salted hash, for a line `name:hash` of
    /// --users.
    HashPassword,
}

/// How to serve.
#[derive(Debug, Args)]
pub struct Serve {
    /// The folder of the data; it is made if it is not there.
    #[arg(long, default_value = "tidelog-data")]
    pub data_dir: PathBuf,
    /// Where clients connect.
    #[arg(long, default_value = "127.0.0.1:9092")]
    pub listen: SocketAddr,
    /// The HOST:PORT that clients are told to connect to; by default the address of --listen.
    #[arg(long, value_parser = host_and_port)]
    pub advertise: Option<(String, u16)>,
    /// The rules of producing and reading.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,
    /// Let each partition of a Produce request stand or fall by itself, as in Kafka.
    #[arg(long)]
    pub independent_partitions: bool,
    /// What a producer with acks=1 waits for; by default buffered in the profile kafka, sync in the
    /// other.
    #[arg(long, value_enum)]
    pub acks1: Option<Acks1>,
    /// Want a login by SASL/PLAIN; the file has a line `name:hash` for each user.
    #[arg(long)]
    pub users: Option<PathBuf>,
    /// Refuse what no line `USER ACTION NAME` of this file allows.
    #[arg(long, requires = "users")]
    pub grants: Option<PathBuf>,
    /// Serve TLS with the certificate chain of this PEM file.
    #[arg(long, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, PEM.
    #[arg(long, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Allow an address that others can reach although nobody has to log in.
    #[arg(long)]
    pub insecure: bool,
    /// Where `/metrics` is served for Prometheus; nowhere by default.
    #[arg(long)]
    pub metrics_listen: Option<SocketAddr>,
    /// The largest request.
    #[arg(long, value_name = "BYTES", default_value_t = 100 * 1024 * 1024)]
    pub max_request_bytes: usize,
    /// What all requests and answers together may hold in memory.
    #[arg(long, value_name = "BYTES", default_value_t = 512 * 1024 * 1024)]
    pub max_memory_bytes: usize,
    /// Connections at a time; more are closed at once.
    #[arg(long, value_name = "COUNT", default_value_t = 4096)]
    pub max_connections: usize,
    /// Connections from one address at a time; more are closed at once. By default half of
    /// --max-connections.
    #[arg(long, value_name = "COUNT")]
    pub max_connections_per_address: Option<usize>,
    /// What holds for consumer groups.
    #[command(flatten)]
    pub groups: Groups,
    /// Go on serving what can be read once the engine has halted, and do not end the process.
    #[arg(long)]
    pub stay_when_halted: bool,
    /// The form of the logs, which go to standard error.
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// The least important messages that are logged: error, warn, info, debug or trace.
    #[arg(long, default_value = "info")]
    pub log_level: tracing::level_filters::LevelFilter,
}

/// What holds for consumer groups.
#[derive(Debug, Args)]
pub struct Groups {
    /// How long the first members of an empty group wait for others.
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    pub group_initial_rebalance_delay_ms: u64,
    /// The shortest session that a member may ask for.
    #[arg(long, value_name = "MS", default_value_t = 6000)]
    pub group_min_session_timeout_ms: u64,
    /// The longest.
    #[arg(long, value_name = "MS", default_value_t = 1_800_000)]
    pub group_max_session_timeout_ms: u64,
    /// Members of a group.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub group_max_members: usize,
    /// What a member may say of itself when it joins.
    #[arg(long, value_name = "BYTES", default_value_t = 1024 * 1024)]
    pub group_max_metadata_bytes: usize,
    /// What all groups together may hold in memory.
    #[arg(long, value_name = "BYTES", default_value_t = 256 * 1024 * 1024)]
    pub max_group_memory_bytes: usize,
    /// How long committed offsets are kept once their group is empty.
    #[arg(long, value_name = "MINUTES", default_value_t = 10_080)]
    pub offsets_retention_minutes: u64,
}

impl Groups {
    /// As the coordinator wants it.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            initial_delay: Duration::from_millis(self.group_initial_rebalance_delay_ms),
            min_session: Duration::from_millis(self.group_min_session_timeout_ms),
            max_session: Duration::from_millis(self.group_max_session_timeout_ms),
            max_members: self.group_max_members,
            max_metadata_bytes: self.group_max_metadata_bytes,
            max_total_bytes: self.max_group_memory_bytes,
            offsets_retention: Duration::from_secs(
                self.offsets_retention_minutes.saturating_mul(60),
            ),
            ..Settings::default()
        }
    }
}

/// The form of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// A line of text with fields behind it.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("an address is HOST:PORT")?;
    let port = port.parse().map_err(|_| "the port is no number from 0 to 65535")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_a_kafka_on_loopback() {
        let command = Command::try_parse_from(["tidelog-broker"]).unwrap();
        assert!(command.other.is_none());
        assert_eq!(command.serve.profile, Profile::Kafka);
        assert!(command.serve.listen.ip().is_loopback());
        assert_eq!(command.serve.acks1, None);
    }

    #[test]
    fn grants_want_users_and_a_certificate_wants_its_key() {
        for wrong in [&["--grants", "g"][..], &["--tls-cert", "c"], &["--tls-key", "k"]] {
            let words = ["tidelog-broker"].iter().chain(wrong);
            assert!(Command::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_advertised_address_is_a_host_and_a_port() {
        assert_eq!(host_and_port("broker.example:9092"), Ok(("broker.example".to_owned(), 9092)));
        assert_eq!(host_and_port("[::1]:9"), Ok(("::1".to_owned(), 9)));
        for wrong in ["", "host", ":9092", "host:", "host:70000"] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }
}
