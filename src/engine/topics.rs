//! The engine about topics: making, deleting, growing, changing, finding. Delegates only.

use std::fmt;
use std::sync::Arc;

use super::Engine;
use crate::base::types::TopicId;
use crate::config::{ConfigChange, TopicConfig, TopicSettings};
use crate::core::Shared;
use crate::read::describe::{TopicDescription, describe};
use crate::state::catalog::Topic;
use crate::write::topics::{
    AddPartitionsError, AlterTopicError, Alteration, CreateTopicError, DeleteTopicError,
    add_partitions, alter_topic, check_add_partitions, check_new_topic, create_topic, delete_topic,
    delete_topic_by_id, open_or_create_topic,
};

impl Engine {
    /// Makes a topic. It survives power loss once this returns.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-create-topic-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{CreateTopicError, Engine, EngineConfig, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let config = TopicConfig::new(3).set("max.message.bytes", "2000000")?;
    /// let orders = engine.create_topic("orders", config)?;
    /// assert_eq!(orders.partition_count(), 3);
    /// assert_eq!(orders.settings().effective().max_message_bytes, 2_000_000);
    ///
    /// let again = engine.create_topic("orders", TopicConfig::new(1));
    /// assert!(matches!(again, Err(CreateTopicError::Exists { .. })));
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CreateTopicError`]: a name that is none or is taken, a limit, or the storage; after a
    /// failed sync the outcome is unknown.
    pub fn create_topic(
        &self,
        name: impl AsRef<str>,
        config: TopicConfig,
    ) -> Result<Topic, CreateTopicError> {
        create_topic(self.shared(), name.as_ref(), config)
    }

    /// The topic of this name; makes it where there is none. One that exists is returned as it is,
    /// whatever `config` says: so a program can begin the same way whenever it is run.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-open-or-create-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Engine, EngineConfig, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let orders = engine.open_or_create_topic("orders", TopicConfig::new(3))?;
    /// let again = engine.open_or_create_topic("orders", TopicConfig::new(5))?;
    /// assert_eq!(again.id(), orders.id());
    /// assert_eq!(again.partition_count(), 3);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Engine::create_topic`], but for a name that exists.
    pub fn open_or_create_topic(
        &self,
        name: impl AsRef<str>,
        config: TopicConfig,
    ) -> Result<Topic, CreateTopicError> {
        open_or_create_topic(self.shared(), name.as_ref(), &config)
    }

    /// Removes a topic with all its records. A topic made anew under the name is another one.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-delete-topic-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Engine, EngineConfig, FetchError, FetchOptions, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let old = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// engine.delete_topic("orders")?;
    ///
    /// // The name is free; a handle of the old topic never reaches the new one.
    /// engine.create_topic("orders", TopicConfig::new(1))?;
    /// let fetched = engine.fetch(&old, 0, FetchOptions::new());
    /// assert!(matches!(fetched, Err(FetchError::UnknownPartition { .. })));
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeleteTopicError`]: it does not exist, or the storage; after a failed sync the outcome is
    /// unknown.
    pub fn delete_topic(&self, name: impl AsRef<str>) -> Result<(), DeleteTopicError> {
        delete_topic(self.shared(), name.as_ref())
    }

    /// The topic of this name, if there is one.
    #[must_use]
    pub fn topic(&self, name: impl AsRef<str>) -> Option<Topic> {
        self.shared().catalog.topic(name.as_ref())
    }

    /// All topics: to list and describe them, to let them grow, to change their settings.
    #[must_use]
    pub fn topics(&self) -> Topics<'_> {
        Topics { shared: self.shared() }
    }
}

/// The topics of an engine, for whoever administers them: by [`Engine::topics`].
///
/// A topic is made, found by its name and deleted by its name at the engine itself.
#[derive(Clone, Copy)]
pub struct Topics<'a> {
    shared: &'a Arc<Shared>,
}

impl Topics<'_> {
    /// All topics, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Topic> {
        self.shared.catalog.topics()
    }

    /// The topic of this id, if there is one.
    #[must_use]
    pub fn by_id(&self, id: TopicId) -> Option<Topic> {
        self.shared.catalog.topic_by_id(id)
    }

    /// What a topic is and holds: its settings, and the offsets and sizes of its partitions.
    #[must_use]
    pub fn describe(&self, name: impl AsRef<str>) -> Option<TopicDescription> {
        Some(describe(self.shared, &self.shared.catalog.topic(name.as_ref())?))
    }

    /// Adds partitions to a topic, up to `total_count` in all. Keys may then belong elsewhere.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-add-partitions-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Engine, EngineConfig, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// engine.create_topic("orders", TopicConfig::new(3))?;
    /// let orders = engine.topics().add_partitions("orders", 6)?;
    /// assert_eq!(orders.partition_count(), 6);
    /// assert!(engine.topics().add_partitions("orders", 3).is_err(), "a topic can only grow");
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AddPartitionsError`]: it does not exist, has as many already, a limit, or the storage;
    /// after a failed sync the outcome is unknown.
    pub fn add_partitions(
        &self,
        name: impl AsRef<str>,
        total_count: u32,
    ) -> Result<Topic, AddPartitionsError> {
        add_partitions(self.shared, name.as_ref(), total_count)
    }

    /// Changes settings of a topic: all of the changes or, if anything is wrong, none. They hold
    /// for what is appended from now on.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-alter-topic-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Engine, EngineConfig, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// use tidelog::config::{ConfigChange, ConfigOperation};
    ///
    /// let orders = engine.create_topic("orders", TopicConfig::new(1))?;
    /// let compact = ConfigChange {
    ///     name: "cleanup.policy".to_owned(),
    ///     operation: ConfigOperation::Set("compact".to_owned()),
    /// };
    /// engine.topics().alter("orders", &[compact])?;
    /// assert!(orders.settings().effective().cleanup_policy.compact);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AlterTopicError`]: it does not exist, a setting is not valid, or the storage; after a
    /// failed sync the outcome is unknown.
    pub fn alter(
        &self,
        name: impl AsRef<str>,
        changes: &[ConfigChange],
    ) -> Result<(), AlterTopicError> {
        alter_topic(self.shared, name.as_ref(), Alteration::Changes(changes.to_vec()))
    }

    /// Gives a topic these settings and no others.
    ///
    /// # Errors
    /// As [`Topics::alter`].
    pub fn replace_settings(
        &self,
        name: impl AsRef<str>,
        settings: TopicSettings,
    ) -> Result<(), AlterTopicError> {
        alter_topic(self.shared, name.as_ref(), Alteration::Replace(settings))
    }

    /// Removes this very topic, and none that was made under its name since.
    ///
    /// # Errors
    /// As [`Engine::delete_topic`].
    pub fn delete_by_id(&self, id: TopicId) -> Result<(), DeleteTopicError> {
        delete_topic_by_id(self.shared, id)
    }

    /// What [`Engine::create_topic`] would refuse, without making anything.
    ///
    /// # Errors
    /// As [`Engine::create_topic`].
    pub fn validate_create(
        &self,
        name: impl AsRef<str>,
        config: &TopicConfig,
    ) -> Result<(), CreateTopicError> {
        check_new_topic(self.shared, name.as_ref(), config).map(|_| ())
    }

    /// What [`Topics::add_partitions`] would refuse, without adding anything.
    ///
    /// # Errors
    /// As [`Topics::add_partitions`].
    pub fn validate_add_partitions(
        &self,
        name: impl AsRef<str>,
        total_count: u32,
    ) -> Result<(), AddPartitionsError> {
        check_add_partitions(self.shared, name.as_ref(), total_count).map(|_| ())
    }
}

impl fmt::Debug for Topics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Topics")
    }
}
