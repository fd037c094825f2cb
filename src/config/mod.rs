//! What can be set: a topic's configuration by Kafka's names, and the engine's own limits.

mod engine;
mod keys;
mod limits;
mod topic;
mod topic_error;

pub use engine::{EngineConfig, Maintenance};
pub use keys::{CleanupPolicy, ConfigKey, Domain, Effect, TOPIC_CONFIG_KEYS};
pub use limits::{EngineConfigError, Limit, LimitProblem};
pub use topic::{
    ConfigChange, ConfigOperation, EffectiveSettings, MAX_CONFIG_VALUE_BYTES, TopicConfig,
    TopicSettings,
};
pub use topic_error::{ConfigProblem, TopicConfigError};
