//! Topics that come, go, grow and change: each must be refused exactly where the model says so.

use std::sync::Arc;

use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::error::StorageError;
use tidelog::types::TopicName;
use tidelog::{
    AddPartitionsError, AlterTopicError, CreateTopicError, DeleteTopicError, TopicConfig,
};

use super::input::{MAX_PARTITIONS, MAX_PARTITIONS_PER_TOPIC, MAX_TOPICS, Name, Setting};
use super::life::Runner;
use super::world::{TopicModel, World};

/// How a change of topics ended.
enum Ended {
    Done,
    Refused,
    NotWritten(StorageError),
    Unknown(StorageError),
}

fn logs(count: u32) -> Vec<super::world::Log> {
    (0..count).map(|_| Arc::default()).collect()
}

impl Runner {
    pub(super) fn create_topic(&mut self, name: &Name, partitions: u32, setting: Option<&Setting>) {
        let settings = tidelog::config::TopicSettings::default();
        // The model keeps all records: nothing is ever old enough to be cleaned or to expire.
        let kept = [("min.compaction.lag.ms", i64::MAX), ("retention.ms", -1)];
        let kept = kept.map(|(name, value)| ConfigChange {
            name: name.to_owned(),
            operation: ConfigOperation::Set(value.to_string()),
        });
        let mut changes = kept.to_vec();
        changes.extend(setting.iter().map(|setting| setting.0.clone()));
        let Ok(settings) = settings.alter(&changes) else { return };
        let config = TopicConfig::with_settings(partitions, settings.clone());
        let was_halted = self.is_halted();
        let created = self.engine().create_topic(name.0, config);
        self.settle_waiting(false);
        let mut world = self.history.last().clone();
        let can_be_made = can_create(&world, name.0, partitions);
        let (ended, id) = match created {
            Ok(topic) => {
                assert_eq!(topic.partition_count(), partitions);
                (Ended::Done, Some(topic.id()))
            }
            Err(CreateTopicError::Storage(error)) => (Ended::NotWritten(error), None),
            Err(CreateTopicError::OutcomeUnknown(error)) => (Ended::Unknown(error), None),
            Err(_) => (Ended::Refused, None),
        };
        let topic = TopicModel { id, settings, partitions: logs(partitions) };
        world.topics.insert(name.0.to_owned(), topic);
        self.note_change(ended, was_halted, can_be_made.then_some(world));
    }

    pub(super) fn delete_topic(&mut self, name: &Name) {
        let was_halted = self.is_halted();
        let ended = match self.engine().delete_topic(name.0) {
            Ok(()) => Ended::Done,
            Err(DeleteTopicError::Storage(error)) => Ended::NotWritten(error),
            Err(DeleteTopicError::OutcomeUnknown(error)) => Ended::Unknown(error),
            Err(_) => Ended::Refused,
        };
        self.settle_waiting(false);
        let mut world = self.history.last().clone();
        let was_there = world.topics.remove(name.0).is_some();
        self.note_change(ended, was_halted, was_there.then_some(world));
    }

    pub(super) fn add_partitions(&mut self, name: &Name, total: u32) {
        let was_halted = self.is_halted();
        let ended = match self.engine().topics().add_partitions(name.0, total) {
            Ok(topic) => {
                assert_eq!(topic.partition_count(), total);
                Ended::Done
            }
            Err(
                AddPartitionsError::Storage(error)
                | AddPartitionsError::Limit(CreateTopicError::Storage(error)),
            ) => Ended::NotWritten(error),
            Err(AddPartitionsError::OutcomeUnknown(error)) => Ended::Unknown(error),
            Err(_) => Ended::Refused,
        };
        self.settle_waiting(false);
        let mut world = self.history.last().clone();
        let others = world.partition_count();
        let after = world.topics.get_mut(name.0).and_then(|topic| {
            let before = topic.partitions.len() as u32;
            let is_legal = before < total && total <= MAX_PARTITIONS_PER_TOPIC;
            let all = others as u32 + total.checked_sub(before)?;
            topic.partitions.extend(logs(total - before));
            (is_legal && all <= MAX_PARTITIONS).then_some(())
        });
        self.note_change(ended, was_halted, after.map(|()| world));
    }

    pub(super) fn alter_topic(&mut self, name: &Name, setting: &Setting) {
        let was_halted = self.is_halted();
        let changes = [setting.0.clone()];
        let ended = match self.engine().topics().alter(name.0, &changes) {
            Ok(()) => Ended::Done,
            Err(AlterTopicError::Storage(error)) => Ended::NotWritten(error),
            Err(AlterTopicError::OutcomeUnknown(error)) => Ended::Unknown(error),
            Err(_) => Ended::Refused,
        };
        self.settle_waiting(false);
        let mut world = self.history.last().clone();
        let after = world.topics.get_mut(name.0).and_then(|topic| {
            topic.settings = topic.settings.alter(&changes).ok()?;
            Some(())
        });
        self.note_change(ended, was_halted, after.map(|()| world));
    }

    /// Takes the end of a change that makes this world, or must be refused.
    fn note_change(&mut self, ended: Ended, was_halted: bool, after: Option<World>) {
        // An engine that has halted may show another world than the newest that is possible.
        let is_known = self.history.is_certain();
        match ended {
            Ended::Done => {
                assert!(!was_halted, "an engine that has halted takes no change");
                let place = self.history.push(after.expect("a change that is not legal was made"));
                self.history.sync_through(place);
            }
            Ended::Refused => assert!(after.is_none() || !is_known, "a legal change was refused"),
            Ended::NotWritten(error) => {
                self.excuse(&error);
                assert!(after.is_some() || !is_known, "a change that is not legal was tried");
            }
            Ended::Unknown(error) => {
                assert!(!was_halted, "an engine that has halted writes nothing");
                self.excuse(&error);
                match after {
                    Some(world) => self.history.push_unknown(world),
                    None => assert!(!is_known, "a change that is not legal was tried"),
                }
            }
        }
    }
}

fn can_create(world: &World, name: &str, partitions: u32) -> bool {
    let Ok(legal) = TopicName::new(name) else { return false };
    let is_taken = world.topics.keys().any(|taken| {
        let taken = TopicName::new(taken).expect("topics have legal names");
        taken.collision_key() == legal.collision_key()
    });
    !is_taken
        && (1..=MAX_PARTITIONS_PER_TOPIC).contains(&partitions)
        && world.topics.len() < MAX_TOPICS as usize
        && world.partition_count() as u32 + partitions <= MAX_PARTITIONS
}
