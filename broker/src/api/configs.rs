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
    match key.domain {
        Domain::Boolean => 1,
        Domain::Word(_) => 2,
        Domain::Int { .. } => 3,
        Domain::Long { .. } => 5,
        Domain::Ratio => 6,
        Domain::Words(_) => 7,
        _ => 0,
    }
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
