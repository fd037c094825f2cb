//! A topic's configuration: what was set, kept as it was written, and the typed values in effect.
//!
//! Only what was set is stored, by Kafka's names and as text, so a stored topic is read by any
//! version that knows its settings. A stored setting that this version does not know is refused
//! and never dropped: it may decide how the topic's records are to be treated.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::keys::{CleanupPolicy, ConfigKey, TOPIC_CONFIG_KEYS, Value, list_items};
use super::topic_error::{ConfigProblem, TopicConfigError};
use crate::record::TimestampType;

/// The longest text of a value: none that has a meaning comes near, and stored topics stay small.
pub const MAX_CONFIG_VALUE_BYTES: usize = 1024;

/// What a topic is made with.
///
/// ```
/// use tidelog::config::TopicConfig;
///
/// let config = TopicConfig::new(3).set("max.message.bytes", "2000000")?;
/// assert_eq!(config.settings().effective().max_message_bytes, 2_000_000);
/// # Ok::<(), tidelog::config::TopicConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicConfig {
    partition_count: u32,
    #[serde(default)]
    settings: TopicSettings,
}

/// The settings of a topic: those that were set, and what is in effect.
///
/// It is written by serde as a map of what was set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct TopicSettings {
    overrides: BTreeMap<&'static str, String>,
    effective: EffectiveSettings,
}

/// The values in effect of all settings that are followed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EffectiveSettings {
    /// `max.message.bytes`
    pub max_message_bytes: u32,
    /// `max.decompressed.message.bytes`
    pub max_decompressed_message_bytes: u32,
    /// `cleanup.policy`
    pub cleanup_policy: CleanupPolicy,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    /// `retention.ms`, `None` for no limit.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`, `None` for no limit.
    pub retention_bytes: Option<u64>,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
    /// `min.cleanable.dirty.ratio`
    pub min_cleanable_dirty_ratio: f64,
}

/// One change of a topic's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// The setting's name.
    pub name: String,
    /// What to do with it.
    pub operation: ConfigOperation,
}

/// What to do with a setting, as Kafka's IncrementalAlterConfigs names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Give it this value.
    Set(String),
    /// Give it back its default.
    Delete,
    /// Add these words to the list, those that it does not hold.
    Append(String),
    /// Take these words out of the list.
    Subtract(String),
}

impl TopicConfig {
    /// A topic of this many partitions, with every setting at its default.
    #[must_use]
    pub fn new(partition_count: u32) -> Self {
        Self { partition_count, settings: TopicSettings::default() }
    }

    /// A topic of this many partitions with these settings.
    #[must_use]
    pub fn with_settings(partition_count: u32, settings: TopicSettings) -> Self {
        Self { partition_count, settings }
    }

    /// Gives a setting a value.
    ///
    /// # Errors
    /// [`TopicConfigError`] if there is no such setting, if the value is outside of its domain, or
    /// if it contradicts another setting.
    pub fn set(self, name: &str, value: &str) -> Result<Self, TopicConfigError> {
        let operation = ConfigOperation::Set(value.to_owned());
        let settings = self.settings.alter(&[ConfigChange { name: name.to_owned(), operation }])?;
        Ok(Self { settings, ..self })
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        self.partition_count
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &TopicSettings {
        &self.settings
    }

    /// Whether the number of partitions is one that the engine takes.
    ///
    /// # Errors
    /// [`ConfigProblem::PartitionCount`].
    pub fn check_partition_count(&self, limit: u32) -> Result<(), TopicConfigError> {
        let count = self.partition_count;
        if count == 0 || count > limit {
            return Err(ConfigProblem::PartitionCount { count, limit }.into());
        }
        Ok(())
    }
}

impl TopicSettings {
    /// The settings with these values and the rest at their defaults. The last value of a name
    /// that is given more than once counts, as in Kafka.
    ///
    /// # Errors
    /// [`TopicConfigError`] with everything that is wrong.
    pub fn from_values<'a>(
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, TopicConfigError> {
        let last: BTreeMap<_, _> = values.into_iter().collect();
        let mut settings = Self::default();
        let mut problems = Vec::new();
        for (name, value) in last {
            match ConfigKey::find(name) {
                None => problems.push(ConfigProblem::unknown(name)),
                Some(key) => settings.assign(key, value.to_owned(), &mut problems),
            }
        }
        settings.checked(problems)
    }

    /// These settings after some changes: all of them or, if anything is wrong, none.
    ///
    /// # Errors
    /// [`TopicConfigError`] with everything that is wrong.
    pub fn alter(&self, changes: &[ConfigChange]) -> Result<Self, TopicConfigError> {
        let mut altered = self.clone();
        let mut problems = Vec::new();
        let mut seen = Vec::new();
        for change in changes {
            let Some(key) = ConfigKey::find(&change.name) else {
                problems.push(ConfigProblem::unknown(&change.name));
                continue;
            };
            if seen.contains(&key.name) {
                problems.push(ConfigProblem::NamedTwice { key });
                continue;
            }
            seen.push(key.name);
            altered.change(key, &change.operation, &mut problems);
        }
        altered.checked(problems)
    }

    fn change(
        &mut self,
        key: &'static ConfigKey,
        operation: &ConfigOperation,
        problems: &mut Vec<ConfigProblem>,
    ) {
        match operation {
            ConfigOperation::Set(value) => self.assign(key, value.clone(), problems),
            ConfigOperation::Delete => {
                self.overrides.remove(key.name);
                let default = key.read(key.default).expect("the table's defaults are legal");
                self.effective.assign(key, default);
            }
            ConfigOperation::Append(_) | ConfigOperation::Subtract(_) if !key.is_list() => {
                problems.push(ConfigProblem::NotAList { key });
            }
            ConfigOperation::Append(words) => {
                let mut items: Vec<_> = list_items(self.value(key).0).collect();
                list_items(words).for_each(|word| {
                    if !items.contains(&word) {
                        items.push(word);
                    }
                });
                self.assign(key, items.join(","), problems);
            }
            ConfigOperation::Subtract(words) => {
                let mut items: Vec<_> = list_items(self.value(key).0).collect();
                items.retain(|item| list_items(words).all(|word| word != *item));
                self.assign(key, items.join(","), problems);
            }
        }
    }

    fn assign(
        &mut self,
        key: &'static ConfigKey,
        value: String,
        problems: &mut Vec<ConfigProblem>,
    ) {
        if value.len() > MAX_CONFIG_VALUE_BYTES {
            problems.push(ConfigProblem::ValueTooLong { key, length_bytes: value.len() });
            return;
        }
        match key.read(&value) {
            None => problems.push(ConfigProblem::IllegalValue { key, value }),
            Some(read) => {
                self.effective.assign(key, read);
                self.overrides.insert(key.name, value);
            }
        }
    }

    fn checked(self, mut problems: Vec<ConfigProblem>) -> Result<Self, TopicConfigError> {
        let (min_ms, max_ms) =
            (self.effective.min_compaction_lag_ms, self.effective.max_compaction_lag_ms);
        if min_ms > max_ms {
            problems.push(ConfigProblem::LagsContradict { min_ms, max_ms });
        }
        TopicConfigError::check(problems).map(|()| self)
    }

    /// The values in effect.
    #[must_use]
    pub fn effective(&self) -> &EffectiveSettings {
        &self.effective
    }

    /// The value of a setting as text, and whether it is the default because none was set.
    #[must_use]
    pub fn value(&self, key: &'static ConfigKey) -> (&str, bool) {
        match self.overrides.get(key.name) {
            Some(value) => (value, false),
            None => (key.default, true),
        }
    }

    /// What was set, by name, as it was written.
    pub fn overrides(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.overrides.iter().map(|(&name, value)| (name, &value[..]))
    }
}

impl EffectiveSettings {
    fn assign(&mut self, key: &ConfigKey, value: Value) {
        match (key.name, value) {
            ("max.message.bytes", Value::Integer(bytes)) => self.max_message_bytes = int(bytes),
            ("max.decompressed.message.bytes", Value::Integer(bytes)) => {
                self.max_decompressed_message_bytes = int(bytes);
            }
            ("cleanup.policy", Value::Words(bits)) => {
                self.cleanup_policy = CleanupPolicy::from_bits(bits);
            }
            ("message.timestamp.type", Value::Word(index)) => {
                self.timestamp_type = match index {
                    0 => TimestampType::CreateTime,
                    _ => TimestampType::LogAppendTime,
                };
            }
            ("message.timestamp.before.max.ms", Value::Integer(ms)) => {
                self.timestamp_before_max_ms = ms;
            }
            ("message.timestamp.after.max.ms", Value::Integer(ms)) => {
                self.timestamp_after_max_ms = ms;
            }
            ("retention.ms", Value::Integer(ms)) => self.retention_ms = (ms >= 0).then_some(ms),
            ("retention.bytes", Value::Integer(bytes)) => {
                self.retention_bytes = u64::try_from(bytes).ok();
            }
            ("min.compaction.lag.ms", Value::Integer(ms)) => self.min_compaction_lag_ms = ms,
            ("max.compaction.lag.ms", Value::Integer(ms)) => self.max_compaction_lag_ms = ms,
            ("delete.retention.ms", Value::Integer(ms)) => self.delete_retention_ms = ms,
            ("min.cleanable.dirty.ratio", Value::Ratio(ratio)) => {
                self.min_cleanable_dirty_ratio = ratio;
            }
            // The rest has no effect, or one value only.
            _ => {}
        }
    }
}

fn int(value: i64) -> u32 {
    u32::try_from(value).expect("the setting's domain is that of a non-negative int")
}

impl Default for EffectiveSettings {
    fn default() -> Self {
        let mut effective = Self {
            max_message_bytes: 0,
            max_decompressed_message_bytes: 0,
            cleanup_policy: CleanupPolicy::from_bits(0),
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: 0,
            timestamp_after_max_ms: 0,
            retention_ms: None,
            retention_bytes: None,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: 0,
            delete_retention_ms: 0,
            min_cleanable_dirty_ratio: 0.0,
        };
        for key in TOPIC_CONFIG_KEYS {
            let value = key.read(key.default).expect("the table's defaults are legal");
            effective.assign(key, value);
        }
        effective
    }
}

impl From<TopicSettings> for BTreeMap<String, String> {
    fn from(settings: TopicSettings) -> Self {
        settings.overrides.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl TryFrom<BTreeMap<String, String>> for TopicSettings {
    type Error = TopicConfigError;

    fn try_from(stored: BTreeMap<String, String>) -> Result<Self, TopicConfigError> {
        Self::from_values(stored.iter().map(|(name, value)| (&name[..], &value[..])))
    }
}
