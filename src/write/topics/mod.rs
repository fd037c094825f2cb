//! Topics come, go, grow and change their configuration: each one a sync commit of its own (rule D1).

mod change;
mod error;

pub use error::{AddPartitionsError, AlterTopicError, CreateTopicError, DeleteTopicError};

use std::sync::Arc;

pub(crate) use change::Alteration;
use change::{AlterTopic, CreateTopic, DeleteTopic, GrowTopic};
use error::Settled;

use crate::base::types::{TopicId, TopicName};
use crate::commit::Change;
use crate::config::TopicConfig;
use crate::core::Shared;
use crate::state::catalog::Topic;

/// Makes a topic with the partitions that its configuration says. It exists, and survives power
/// loss, once this returns.
///
/// # Errors
/// [`CreateTopicError`]: a name that is none or is taken, a limit, or the storage; after a failed
/// sync the outcome is unknown.
pub fn create_topic(
    shared: &Arc<Shared>,
    name: &str,
    config: TopicConfig,
) -> Result<Topic, CreateTopicError> {
    let name = check_new_topic(shared, name, &config)?;
    settle(shared, CreateTopic { shared: Arc::clone(shared), name, config })
}

/// The topic of this name; makes it where there is none, with this configuration. One that exists
/// is returned as it is.
///
/// # Errors
/// As [`create_topic`], but for a name that exists.
pub fn open_or_create_topic(
    shared: &Arc<Shared>,
    name: &str,
    config: &TopicConfig,
) -> Result<Topic, CreateTopicError> {
    loop {
        if let Some(topic) = shared.catalog.topic(name) {
            return Ok(topic);
        }
        match create_topic(shared, name, config.clone()) {
            // Another has made it meanwhile; it may even be gone again.
            Err(CreateTopicError::Exists { .. }) => {}
            settled => return settled,
        }
    }
}

/// What [`create_topic`] would refuse, without making anything.
///
/// # Errors
/// As [`create_topic`].
pub fn check_new_topic(
    shared: &Shared,
    name: &str,
    config: &TopicConfig,
) -> Result<TopicName, CreateTopicError> {
    let name = TopicName::new(name)?;
    if let Some(taken_by) = shared.catalog.taken_by(&name) {
        return Err(CreateTopicError::taken(&name, taken_by));
    }
    let limit = shared.config.max_partitions_per_topic;
    config.check_partition_count(limit).map_err(CreateTopicError::Config)?;
    change::check_totals(shared, 1, config.partition_count())?;
    Ok(name)
}

/// Removes a topic with all its records.
///
/// # Errors
/// [`DeleteTopicError`]: it does not exist, or the storage; after a failed sync the outcome is
/// unknown.
pub fn delete_topic(shared: &Arc<Shared>, name: &str) -> Result<(), DeleteTopicError> {
    let unknown = || DeleteTopicError::UnknownTopic { name: name.to_owned() };
    delete(shared, shared.catalog.topic(name).ok_or_else(unknown)?)
}

/// Removes this very topic, and none that was made under its name since.
///
/// # Errors
/// As [`delete_topic`].
pub fn delete_topic_by_id(shared: &Arc<Shared>, id: TopicId) -> Result<(), DeleteTopicError> {
    let unknown = || DeleteTopicError::UnknownTopic { name: id.to_string() };
    delete(shared, shared.catalog.topic_by_id(id).ok_or_else(unknown)?)
}

fn delete(shared: &Arc<Shared>, topic: Topic) -> Result<(), DeleteTopicError> {
    let deleted = settle(shared, DeleteTopic { shared: Arc::clone(shared), topic: topic.clone() });
    // Also where nobody knows whether that lasts: for readers of this engine it is gone.
    if topic.is_deleted() {
        for partition in topic.partitions() {
            partition.cell().notify();
        }
    }
    deleted
}

/// Adds partitions to a topic, up to this many in all.
///
/// # Errors
/// [`AddPartitionsError`]: it does not exist, has as many already, a limit, or the storage; after a
/// failed sync the outcome is unknown.
pub fn add_partitions(
    shared: &Arc<Shared>,
    name: &str,
    total_count: u32,
) -> Result<Topic, AddPartitionsError> {
    let topic = check_add_partitions(shared, name, total_count)?;
    settle(shared, GrowTopic { shared: Arc::clone(shared), topic, total_count })
}

/// What [`add_partitions`] would refuse, without adding anything.
///
/// # Errors
/// As [`add_partitions`].
pub fn check_add_partitions(
    shared: &Shared,
    name: &str,
    total_count: u32,
) -> Result<Topic, AddPartitionsError> {
    let unknown = || AddPartitionsError::UnknownTopic { name: name.to_owned() };
    let topic = shared.catalog.topic(name).ok_or_else(unknown)?;
    change::check_growth(shared, &topic, total_count)?;
    Ok(topic)
}

/// Changes a topic's configuration: all of the changes or, if anything is wrong, none.
///
/// # Errors
/// [`AlterTopicError`]: it does not exist, the configuration is not valid, or the storage; after a
/// failed sync the outcome is unknown.
pub fn alter_topic(
    shared: &Arc<Shared>,
    name: &str,
    alteration: Alteration,
) -> Result<(), AlterTopicError> {
    let unknown = || AlterTopicError::UnknownTopic { name: name.to_owned() };
    let topic = shared.catalog.topic(name).ok_or_else(unknown)?;
    alteration.of(&topic.settings()).map_err(AlterTopicError::Config)?;
    settle(shared, AlterTopic { shared: Arc::clone(shared), topic, alteration })
}

fn settle<T, E: Settled>(
    shared: &Shared,
    change: impl Change<Answer = Result<T, E>>,
) -> Result<T, E> {
    shared.commit(change).unwrap_or_else(|error| Err(E::not_written(error)))
}
