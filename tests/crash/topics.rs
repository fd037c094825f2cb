//! Changes of topics in a world: each is answered once it survives power loss.

use std::collections::BTreeMap;

use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::{
    AddPartitionsError, AlterTopicError, CreateTopicError, DeleteRecordsError, DeleteTopicError,
    GroupError, GroupOffset, StorageError, TopicConfig,
};

use crate::model::{Effect, LOG_TIME, TIMESTAMP_TYPE};
use crate::operations::GROUP;
use crate::world::World;

impl World {
    pub fn create(&mut self, name: &str, count: u32, log_time: bool) -> Result<(), String> {
        // The clock takes steps of ten years, and what expires is another test's.
        let forever = ("retention.ms".to_owned(), "-1".to_owned());
        let config = TopicConfig::new(count).set(&forever.0, &forever.1);
        let mut config = config.map_err(|error| error.to_string())?;
        let mut settings = BTreeMap::from([forever]);
        if log_time {
            config = config.set(TIMESTAMP_TYPE, LOG_TIME).map_err(|error| error.to_string())?;
            settings.insert(TIMESTAMP_TYPE.to_owned(), LOG_TIME.to_owned());
        }
        let name_text = name.to_owned();
        let effect = Effect::Create { name: name_text, partition_count: count, settings, id: None };
        let number = self.model.attempt(effect);
        match self.engine().create_topic(name, config) {
            Ok(topic) => {
                let id = topic.id();
                self.topics_changed(number);
                self.model.name_topic(number, id);
                self.model.given.topic(id, number)
            }
            Err(CreateTopicError::Storage(error)) => self.not_changed(number, error),
            Err(CreateTopicError::OutcomeUnknown(error)) => self.expect_storage(Err(error)),
            Err(error) => Err(format!("topic {name} was not made: {error}")),
        }
    }

    pub fn delete(&mut self, name: &str) -> Result<(), String> {
        let number = self.model.attempt(Effect::Delete { name: name.to_owned() });
        match self.engine().delete_topic(name) {
            Ok(()) => {
                self.topics_changed(number);
                Ok(())
            }
            Err(DeleteTopicError::Storage(error)) => self.not_changed(number, error),
            Err(DeleteTopicError::OutcomeUnknown(error)) => self.expect_storage(Err(error)),
            Err(error) => Err(format!("topic {name} was not deleted: {error}")),
        }
    }

    pub fn grow(&mut self, name: &str, total_count: u32) -> Result<(), String> {
        let effect = Effect::Grow { name: name.to_owned(), total_count };
        let number = self.model.attempt(effect);
        match self.engine().topics().add_partitions(name, total_count) {
            Ok(_) => {
                self.topics_changed(number);
                Ok(())
            }
            Err(AddPartitionsError::Storage(error)) => self.not_changed(number, error),
            Err(AddPartitionsError::OutcomeUnknown(error)) => self.expect_storage(Err(error)),
            Err(error) => Err(format!("topic {name} did not grow: {error}")),
        }
    }

    pub fn alter(&mut self, name: &str, setting: &str, value: Option<&str>) -> Result<(), String> {
        let effect = Effect::Alter {
            name: name.to_owned(),
            setting: setting.to_owned(),
            value: value.map(str::to_owned),
        };
        let number = self.model.attempt(effect);
        let operation =
            value.map_or(ConfigOperation::Delete, |value| ConfigOperation::Set(value.into()));
        let change = ConfigChange { name: setting.to_owned(), operation };
        match self.engine().topics().alter(name, &[change]) {
            Ok(()) => {
                self.topics_changed(number);
                Ok(())
            }
            Err(AlterTopicError::Storage(error)) => self.not_changed(number, error),
            Err(AlterTopicError::OutcomeUnknown(error)) => self.expect_storage(Err(error)),
            Err(error) => Err(format!("topic {name} was not changed: {error}")),
        }
    }

    /// Deletes records; it is answered once that survives power loss, whether it moves anything or
    /// not.
    pub fn delete_records(
        &mut self,
        name: &str,
        partition: u32,
        offset: i64,
    ) -> Result<(), String> {
        let handle = crate::world::partition(self.engine(), name, partition)?;
        let start = self.model.state().topics[name].starts[partition as usize];
        let through = self.model.acked();
        let moves = offset > start;
        let effect = Effect::Trim { name: name.to_owned(), partition, offset };
        let number = if moves { self.model.attempt(effect) } else { through };
        match self.engine().delete_records(&handle, offset) {
            Ok(told) if told == start.max(offset) => {
                self.model.acknowledge(number);
                self.model.settle(number);
                Ok(())
            }
            Ok(told) => Err(format!("records below {offset} were deleted: {told} is the start")),
            Err(DeleteRecordsError::Storage(error)) => {
                if moves && !self.engine().metrics().halted {
                    self.model.withdraw(number);
                }
                self.expect_storage(Err(error))
            }
            Err(error) => Err(format!("records of {name} were not deleted: {error}")),
        }
    }

    /// The group commits an offset, buffered.
    pub fn commit_offset(&mut self, name: &str, partition: u32, offset: i64) -> Result<(), String> {
        let handle = crate::world::partition(self.engine(), name, partition)?;
        let effect = Effect::GroupOffset { name: name.to_owned(), partition, offset };
        let number = self.model.attempt(effect);
        let committed = GroupOffset::new(offset);
        match self.engine().group(GROUP).commit(vec![(handle, committed)]) {
            Ok(()) => {
                self.model.acknowledge(number);
                Ok(())
            }
            Err(GroupError::Storage(error)) => {
                if !self.engine().metrics().halted {
                    self.model.withdraw(number);
                }
                self.expect_storage(Err(error))
            }
            Err(error) => Err(format!("the offset was not committed: {error}")),
        }
    }

    /// A change of topics is answered once it survives power loss (rule D1).
    fn topics_changed(&mut self, number: usize) {
        self.model.acknowledge(number);
        self.model.settle(number);
    }

    /// Nothing of it exists, also where the engine has halted.
    fn not_changed(&mut self, number: usize, error: StorageError) -> Result<(), String> {
        self.model.withdraw(number);
        self.expect_storage(Err(error))
    }
}
