//! Configuration entries on the wire: where a value comes from, its type, and the code for one that
//! is refused.

use std::collections::HashMap;
use std::hash::Hash;

use kafka_protocol::error::ResponseError;
use tidelog::TopicSettings;
use tidelog::config::{ConfigKey, ConfigProblem, Domain, TOPIC_CONFIG_KEYS, TopicConfigError};

use crate::fault::Fault;

/// The type of a resource that is a topic.
pub(super) const TOPIC: i8 = 2;
/// The type of a resource that is a broker.
pub(super) const BROKER: i8 = 4;

/// Where a value comes from: set for the topic.
const SET: i8 = 1;
/// The default.
const DEFAULT: i8 = 5;

/// An entry of a topic's configuration.
pub(super) struct Entry<'a> {
    pub(super) key: &'static ConfigKey,
    pub(super) value: &'a str,
    pub(super) source: i8,
}

/// Every entry, by name.
pub(super) fn entries(settings: &TopicSettings) -> impl Iterator<Item = Entry<'_>> {
    TOPIC_CONFIG_KEYS.iter().map(|key| {
        let (value, is_default) = settings.value(key);
        Entry { key, value, source: if is_default { DEFAULT } else { SET } }
    })
}

/// An entry's type, as the protocol says it.
pub(super) fn kind(key: &ConfigKey) -> i8 {
    kind_of(key.domain)
}

fn kind_of(domain: Domain) -> i8 {
    match domain {
        Domain::Boolean => 1,
        Domain::Word(_) => 2,
        Domain::Int { .. } => 3,
        Domain::Long { .. } => 5,
        Domain::Ratio => 6,
        Domain::Words(_) => 7,
        Domain::Only { of, .. } => kind_of(*of),
        _ => 0,
    }
}

/// Where an entry's value could come from, the source in effect first: name, value, source.
pub(super) fn synonyms<'e>(entry: &Entry<'e>) -> Vec<(&'static str, &'e str, i8)> {
    let set = (entry.source == SET).then_some((entry.key.name, entry.value, SET));
    let broker = broker_name(entry.key.name).map(|name| (name, entry.key.default, DEFAULT));
    set.into_iter().chain(broker).collect()
}

/// The entry of a broker's configuration that gives a topic's its default in Kafka, where that is
/// one of the same unit.
fn broker_name(name: &'static str) -> Option<&'static str> {
    Some(match name {
        "cleanup.policy" => "log.cleanup.policy",
        "delete.retention.ms" => "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms" => "log.segment.delete.delay.ms",
        "flush.messages" => "log.flush.interval.messages",
        "index.interval.bytes" => "log.index.interval.bytes",
        "local.retention.bytes" => "log.local.retention.bytes",
        "local.retention.ms" => "log.local.retention.ms",
        "max.compaction.lag.ms" => "log.cleaner.max.compaction.lag.ms",
        "max.message.bytes" => "message.max.bytes",
        "message.timestamp.after.max.ms" => "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms" => "log.message.timestamp.before.max.ms",
        "message.timestamp.type" => "log.message.timestamp.type",
        "min.cleanable.dirty.ratio" => "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms" => "log.cleaner.min.compaction.lag.ms",
        "preallocate" => "log.preallocate",
        "remote.copy.lag.bytes" => "log.remote.copy.lag.bytes",
        "remote.copy.lag.ms" => "log.remote.copy.lag.ms",
        "retention.bytes" => "log.retention.bytes",
        "segment.bytes" => "log.segment.bytes",
        "segment.index.bytes" => "log.index.size.max.bytes",
        "compression.gzip.level"
        | "compression.lz4.level"
        | "compression.type"
        | "compression.zstd.level"
        | "max.decompressed.message.bytes"
        | "min.insync.replicas"
        | "unclean.leader.election.enable" => name,
        _ => return None,
    })
}

/// What a client is told of a configuration that is not taken.
pub(super) fn fault(error: &TopicConfigError) -> Fault {
    let code = error.problems().iter().find_map(|problem| match problem {
        ConfigProblem::NamedTwice { .. } => Some(ResponseError::InvalidRequest),
        ConfigProblem::PartitionCount { .. } => Some(ResponseError::InvalidPartitions),
        _ => None,
    });
    Fault::new(code.unwrap_or(ResponseError::InvalidConfig), error.to_string())
}

/// Alters each resource of a request, in its order. One that is there more than once is refused,
/// every time.
pub(super) fn alter_each<'r, R>(
    resources: &'r [R],
    key: impl Fn(&'r R) -> (i8, &'r str),
    mut alter: impl FnMut(&'r R) -> Result<(), Fault>,
) -> impl Iterator<Item = (&'r R, Result<(), Fault>)> {
    let times = times_of(resources.iter().map(&key));
    resources.iter().map(move |resource| match times.get(&key(resource)) {
        Some(1) => (resource, alter(resource)),
        _ => (resource, Err(Fault::invalid_request("the resource is there twice"))),
    })
}

/// Refuses entries of which one is there more than once.
pub(super) fn check_named_once<'r>(names: impl Iterator<Item = &'r str>) -> Result<(), Fault> {
    match times_of(names).into_iter().find(|&(_, times)| times > 1) {
        None => Ok(()),
        Some((name, _)) => {
            Err(Fault::invalid_request(format!("the entry is there twice: name={name}")))
        }
    }
}

fn times_of<K: Eq + Hash>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut times = HashMap::new();
    keys.for_each(|key| *times.entry(key).or_default() += 1);
    times
}

/// What a client is told where an entry needs a value and has none.
pub(super) fn null_value(name: &str) -> Fault {
    Fault::invalid_request(format!("a value must not be null: name={name}"))
}
