//! What a fuzzer does with topic settings: any text is refused, or is what it says it is.

use crate::config::{
    ConfigChange, ConfigOperation, MAX_CONFIG_VALUE_BYTES, TOPIC_CONFIG_KEYS, TopicSettings,
};

/// Takes each line as a change, `name=value`, or with `-`, `+=` or `-=` at the front of the value
/// for the other operations, and makes them both at once and one by one.
///
/// # Panics
/// If settings are not what was set, do not survive being stored, or contradict themselves.
pub fn topic_settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let pairs: Vec<_> = text.split('\n').filter_map(|line| line.split_once('=')).collect();
    if let Ok(settings) = TopicSettings::from_values(pairs.iter().copied()) {
        for &(name, value) in &pairs {
            let is_last = pairs.iter().rev().find(|pair| pair.0 == name).map(|pair| pair.1);
            assert!(
                is_last != Some(value) || settings.overrides().any(|pair| pair == (name, value)),
                "what was set is there"
            );
        }
        check(&settings);
    }
    let changes: Vec<_> = pairs.iter().map(|&(name, value)| change(name, value)).collect();
    if let Ok(settings) = TopicSettings::default().alter(&changes) {
        check(&settings);
    }
    let mut settings = TopicSettings::default();
    for change in changes {
        match settings.alter(&[change]) {
            Ok(altered) => settings = altered,
            Err(error) => assert!(!error.problems().is_empty(), "a refusal says why: {error}"),
        }
    }
    check(&settings);
}

fn change(name: &str, value: &str) -> ConfigChange {
    let operation = if let Some(words) = value.strip_prefix("+=") {
        ConfigOperation::Append(words.to_owned())
    } else if let Some(words) = value.strip_prefix("-=") {
        ConfigOperation::Subtract(words.to_owned())
    } else if value == "-" {
        ConfigOperation::Delete
    } else {
        ConfigOperation::Set(value.to_owned())
    };
    ConfigChange { name: name.to_owned(), operation }
}

fn check(settings: &TopicSettings) {
    let stored = serde_json::to_vec(settings).expect("settings can be stored");
    let read: TopicSettings = serde_json::from_slice(&stored).expect("stored settings are legal");
    assert_eq!(&read, settings, "settings survive being stored");
    let effective = settings.effective();
    assert!(effective.min_compaction_lag_ms <= effective.max_compaction_lag_ms);
    assert!((0.0..=1.0).contains(&effective.min_cleanable_dirty_ratio));
    for key in TOPIC_CONFIG_KEYS {
        assert!(settings.value(key).0.len() <= MAX_CONFIG_VALUE_BYTES);
    }
}
