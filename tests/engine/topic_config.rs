//! Topic configuration has Kafka's names, defaults, bounds and operations, and tells all problems.
#![cfg(feature = "test-util")]

use proptest::prelude::*;
use tidelog::config::{
    ConfigChange, ConfigKey, ConfigOperation, ConfigProblem, Domain, Effect,
    MAX_CONFIG_VALUE_BYTES, TOPIC_CONFIG_KEYS, TopicConfig, TopicConfigError, TopicSettings,
};
use tidelog::internals::fuzz::topic_settings;
use tidelog::record::TimestampType;

fn key(name: &str) -> &'static ConfigKey {
    ConfigKey::find(name).expect("the name is in the table")
}

fn change(name: &str, operation: ConfigOperation) -> ConfigChange {
    ConfigChange { name: name.to_owned(), operation }
}

fn set(name: &str, value: &str) -> ConfigChange {
    change(name, ConfigOperation::Set(value.to_owned()))
}

fn settings(values: &[(&str, &str)]) -> TopicSettings {
    TopicSettings::from_values(values.iter().copied()).expect("the values are legal")
}

fn problems(result: Result<TopicSettings, TopicConfigError>) -> Vec<ConfigProblem> {
    result.expect_err("something is wrong").problems().to_vec()
}

/// Whether the only thing that is wrong is the value.
fn is_illegal(name: &str, value: &str) -> bool {
    match TopicSettings::from_values([(name, value)]) {
        Ok(_) => false,
        Err(error) => {
            matches!(error.problems(), [ConfigProblem::IllegalValue { key, value: told }]
                if key.name == name && told == value)
        }
    }
}

#[test]
fn every_default_is_kafkas() {
    let expected = [
        ("cleanup.policy", "delete"),
        ("compression.gzip.level", "-1"),
        ("compression.lz4.level", "9"),
        ("compression.type", "producer"),
        ("compression.zstd.level", "3"),
        ("delete.retention.ms", "86400000"),
        ("errors.deadletterqueue.group.enable", "false"),
        ("file.delete.delay.ms", "60000"),
        ("flush.messages", "9223372036854775807"),
        ("flush.ms", "9223372036854775807"),
        ("follower.replication.throttled.replicas", ""),
        ("index.interval.bytes", "4096"),
        ("leader.replication.throttled.replicas", ""),
        ("local.retention.bytes", "-2"),
        ("local.retention.ms", "-2"),
        ("max.compaction.lag.ms", "9223372036854775807"),
        ("max.decompressed.message.bytes", "2147483639"),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.timestamp.before.max.ms", "9223372036854775807"),
        ("message.timestamp.type", "CreateTime"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("min.compaction.lag.ms", "0"),
        ("min.insync.replicas", "1"),
        ("preallocate", "false"),
        ("remote.copy.lag.bytes", "-1"),
        ("remote.copy.lag.ms", "0"),
        ("remote.log.copy.disable", "false"),
        ("remote.log.delete.on.disable", "false"),
        ("remote.storage.enable", "false"),
        ("retention.bytes", "-1"),
        ("retention.ms", "604800000"),
        ("segment.bytes", "1073741824"),
        ("segment.index.bytes", "10485760"),
        ("segment.jitter.ms", "0"),
        ("segment.ms", "604800000"),
        ("unclean.leader.election.enable", "false"),
    ];
    let table: Vec<_> = TOPIC_CONFIG_KEYS.iter().map(|key| (key.name, key.default)).collect();
    assert_eq!(table, expected);
    let settings = TopicSettings::default();
    for key in TOPIC_CONFIG_KEYS {
        assert_eq!(ConfigKey::find(key.name), Some(key), "the table is sorted");
        assert_eq!(settings.value(key), (key.default, true));
        assert!(!key.doc.is_empty());
    }
    assert_eq!(settings.overrides().count(), 0);
}

#[test]
fn the_default_values_in_effect_are_those_of_the_table() {
    let settings = TopicSettings::default();
    let effective = settings.effective();
    assert_eq!(effective.max_message_bytes, 1_048_588);
    assert_eq!(effective.max_decompressed_message_bytes, 2_147_483_639);
    assert!(effective.cleanup_policy.delete && !effective.cleanup_policy.compact);
    assert_eq!(effective.timestamp_type, TimestampType::CreateTime);
    assert_eq!(effective.timestamp_before_max_ms, i64::MAX);
    assert_eq!(effective.timestamp_after_max_ms, 3_600_000);
    assert_eq!(effective.retention_ms, Some(604_800_000));
    assert_eq!(effective.retention_bytes, None);
    assert_eq!(effective.min_compaction_lag_ms, 0);
    assert_eq!(effective.max_compaction_lag_ms, i64::MAX);
    assert_eq!(effective.delete_retention_ms, 86_400_000);
    assert_eq!(effective.min_cleanable_dirty_ratio, 0.5);
}

#[test]
fn every_setting_that_is_followed_changes_what_is_in_effect_and_no_other_does() {
    for key in TOPIC_CONFIG_KEYS {
        let other = match key.domain {
            Domain::Boolean => "true",
            Domain::Word(words) => words.last().unwrap(),
            Domain::Int { greatest: 0..1000, .. } => "7",
            Domain::Int { .. } | Domain::Long { .. } => "2000000",
            Domain::Ratio => "0.25",
            Domain::Words(words) => words[0],
            Domain::Only { value, .. } => value,
            _ => unreachable!("all domains are listed"),
        };
        let changed = settings(&[(key.name, other)]);
        let differs = changed.effective() != TopicSettings::default().effective();
        let is_followed = key.effect != Effect::None;
        assert_eq!(differs, is_followed, "{}", key.name);
        assert_eq!(changed.value(key), (other, false));
    }
}

#[test]
fn the_least_value_is_taken_and_the_one_below_it_is_not() {
    for key in TOPIC_CONFIG_KEYS {
        let (least, greatest) = match key.domain {
            Domain::Int { least, greatest } => (i128::from(least), i128::from(greatest)),
            Domain::Long { least } => (i128::from(least), i128::from(i64::MAX)),
            _ => continue,
        };
        for value in [least, greatest] {
            settings(&[(key.name, &value.to_string())]);
        }
        for value in [least - 1, greatest + 1] {
            assert!(is_illegal(key.name, &value.to_string()), "{} {value}", key.name);
        }
        for text in ["", " ", "soon", "1.0", "0x10", "1_000", "1 000", "--1", "1e3"] {
            assert!(is_illegal(key.name, text), "{} {text}", key.name);
        }
    }
}

#[test]
fn bounds_that_kafka_was_seen_to_keep_are_kept() {
    for (name, value) in [
        ("retention.ms", "-2"),
        ("max.message.bytes", "-1"),
        ("segment.bytes", "1048575"),
        ("max.compaction.lag.ms", "0"),
        ("message.timestamp.before.max.ms", "-1"),
        ("cleanup.policy", "shred"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("compression.type", "lzma"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("unclean.leader.election.enable", "maybe"),
        ("remote.storage.enable", "true"),
        ("preallocate", "maybe"),
    ] {
        assert!(is_illegal(name, value), "{name}={value}");
    }
    for (name, value) in [
        ("retention.ms", "-1"),
        ("retention.bytes", "-5"),
        ("retention.bytes", "0"),
        ("max.message.bytes", "0"),
        ("message.timestamp.before.max.ms", "0"),
        ("delete.retention.ms", "0"),
        ("compression.type", "producer"),
        ("compression.type", "uncompressed"),
        ("compression.type", "gzip"),
        ("compression.type", "snappy"),
        ("compression.type", "lz4"),
        ("compression.type", "zstd"),
        ("preallocate", "TRUE"),
    ] {
        settings(&[(name, value)]);
    }
}

#[test]
fn what_the_engine_has_not_is_taken_at_kafkas_default_alone() {
    let mut count = 0;
    for key in TOPIC_CONFIG_KEYS {
        let Domain::Only { value, .. } = key.domain else { continue };
        count += 1;
        assert_eq!((value, key.effect), (key.default, Effect::None), "{}", key.name);
        assert_eq!(settings(&[(key.name, value)]).value(key), (value, false));
        let deleted = TopicSettings::default().alter(&[change(key.name, ConfigOperation::Delete)]);
        assert_eq!(deleted, Ok(TopicSettings::default()), "{}", key.name);
        for other in ["true", "1", "0:1", "*"] {
            assert!(is_illegal(key.name, other), "{}={other}", key.name);
        }
    }
    assert_eq!(count, 10);
}

#[test]
fn a_negative_retention_means_no_limit_and_0_means_0() {
    let unlimited = settings(&[("retention.ms", "-1"), ("retention.bytes", "-7")]);
    assert_eq!(unlimited.effective().retention_ms, None);
    assert_eq!(unlimited.effective().retention_bytes, None);
    let none = settings(&[("retention.ms", "0"), ("retention.bytes", "0")]);
    assert_eq!(none.effective().retention_ms, Some(0));
    assert_eq!(none.effective().retention_bytes, Some(0));
}

#[test]
fn a_ratio_is_a_number_from_0_to_1() {
    for (text, value) in
        [("0", 0.0), ("1", 1.0), (" 0.25 ", 0.25), (".5", 0.5), ("5e-1", 0.5), ("0.5f", 0.5)]
    {
        let settings = settings(&[("min.cleanable.dirty.ratio", text)]);
        assert_eq!(settings.effective().min_cleanable_dirty_ratio, value, "{text}");
    }
    for text in ["-0.1", "1.0001", "NaN", "nan", "inf", "Infinity", "half", "", "f", "1e", "0.5ff"]
    {
        assert!(is_illegal("min.cleanable.dirty.ratio", text), "{text}");
    }
}

#[test]
fn blanks_around_a_value_count_for_nothing_but_are_shown() {
    let settings =
        settings(&[("retention.ms", " 60000 "), ("cleanup.policy", " compact , delete")]);
    assert_eq!(settings.effective().retention_ms, Some(60_000));
    assert!(settings.effective().cleanup_policy.compact);
    assert!(settings.effective().cleanup_policy.delete);
    assert_eq!(settings.value(key("retention.ms")), (" 60000 ", false));
    assert!(is_illegal("message.timestamp.type", " CreateTime"), "as in Kafka");
    assert!(is_illegal("message.timestamp.type", "createtime"));
}

#[test]
fn a_cleanup_policy_is_a_list_that_may_be_empty_and_repeat_itself() {
    for (text, compact, delete) in [
        ("", false, false),
        (" ", false, false),
        ("compact", true, false),
        ("delete", false, true),
        ("compact,delete", true, true),
        ("delete, compact, delete", true, true),
    ] {
        let policy = settings(&[("cleanup.policy", text)]).effective().cleanup_policy;
        assert_eq!((policy.compact, policy.delete), (compact, delete), "{text:?}");
    }
    for text in [",", "compact,", ",delete", "compact,,delete", "Compact", "compact delete"] {
        assert!(is_illegal("cleanup.policy", text), "{text:?}");
    }
}

#[test]
fn words_are_appended_to_and_subtracted_from_the_list_in_effect() {
    let policy = |from: Option<&str>, operation| {
        let start =
            settings(&from.map(|value| ("cleanup.policy", value)).into_iter().collect::<Vec<_>>());
        let altered = start.alter(&[change("cleanup.policy", operation)]).unwrap();
        altered.value(key("cleanup.policy")).0.to_owned()
    };
    let append = |words: &str| ConfigOperation::Append(words.to_owned());
    let subtract = |words: &str| ConfigOperation::Subtract(words.to_owned());
    assert_eq!(policy(None, append("compact")), "delete,compact");
    assert_eq!(policy(None, append("delete")), "delete");
    assert_eq!(policy(Some(""), append("compact, delete")), "compact,delete");
    assert_eq!(policy(Some("compact,delete"), subtract("compact")), "delete");
    assert_eq!(policy(Some("compact"), subtract("delete")), "compact");
    assert_eq!(policy(None, subtract("delete")), "", "an empty list stays");
    assert_eq!(policy(Some("compact"), ConfigOperation::Delete), "delete");

    let wrong = TopicSettings::default().alter(&[
        change("retention.ms", append("1")),
        change("preallocate", subtract("true")),
        change("cleanup.policy", append("shred")),
    ]);
    let problems = problems(wrong);
    assert_eq!(problems[0], ConfigProblem::NotAList { key: key("retention.ms") });
    assert_eq!(problems[1], ConfigProblem::NotAList { key: key("preallocate") });
    let value = "delete,shred".to_owned();
    assert_eq!(problems[2], ConfigProblem::IllegalValue { key: key("cleanup.policy"), value });
}

#[test]
fn a_deleted_setting_has_its_default_again() {
    let start = settings(&[("retention.ms", "1"), ("message.timestamp.type", "LogAppendTime")]);
    assert_eq!(start.effective().timestamp_type, TimestampType::LogAppendTime);
    let altered = start
        .alter(&[
            change("retention.ms", ConfigOperation::Delete),
            change("message.timestamp.type", ConfigOperation::Delete),
            change("flush.ms", ConfigOperation::Delete),
        ])
        .unwrap();
    assert_eq!(altered, TopicSettings::default());
}

#[test]
fn all_problems_are_named_at_once_and_nothing_is_changed() {
    let start = settings(&[("retention.ms", "5")]);
    let found = problems(start.alter(&[
        set("retention.ms", "6"),
        set("no.such.config", "1"),
        set("max.message.bytes", "-5"),
        set("retention.ms", "7"),
        set("min.compaction.lag.ms", "2000"),
        set("max.compaction.lag.ms", "1000"),
        change("gone.too", ConfigOperation::Delete),
    ]));
    let key_of = key;
    assert_eq!(
        found,
        [
            ConfigProblem::UnknownName { name: "no.such.config".to_owned() },
            ConfigProblem::IllegalValue {
                key: key_of("max.message.bytes"),
                value: "-5".to_owned()
            },
            ConfigProblem::NamedTwice { key: key_of("retention.ms") },
            ConfigProblem::UnknownName { name: "gone.too".to_owned() },
            ConfigProblem::LagsContradict { min_ms: 2000, max_ms: 1000 },
        ]
    );
    assert_eq!(start.effective().retention_ms, Some(5));

    let error = TopicSettings::from_values([("retention.ms", "soon"), ("x", "")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "retention.ms takes an integer from -1 to 9223372036854775807: value=\"soon\"; \
         a topic has no such setting: name=\"x\""
    );
}

#[test]
fn lags_that_are_equal_agree_and_a_single_change_is_held_to_the_other() {
    let equal = settings(&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "10")]);
    let contradiction = vec![ConfigProblem::LagsContradict { min_ms: 11, max_ms: 10 }];
    assert_eq!(problems(equal.alter(&[set("min.compaction.lag.ms", "11")])), contradiction);
    let moved =
        equal.alter(&[set("min.compaction.lag.ms", "11"), set("max.compaction.lag.ms", "11")]);
    assert!(moved.is_ok());
    let default_again = equal.alter(&[change("max.compaction.lag.ms", ConfigOperation::Delete)]);
    assert_eq!(default_again.unwrap().effective().max_compaction_lag_ms, i64::MAX);
}

#[test]
fn the_last_of_two_values_for_a_name_counts_in_a_creation() {
    let settings = settings(&[("retention.ms", "bad"), ("retention.ms", "2000")]);
    assert_eq!(settings.effective().retention_ms, Some(2000));
}

#[test]
fn names_that_no_topic_of_kafkas_has_any_more_are_refused() {
    for name in [
        "message.timestamp.difference.max.ms",
        "message.format.version",
        "message.downconversion.enable",
        "Retention.ms",
        "retention.ms ",
        "",
    ] {
        let expected = vec![ConfigProblem::UnknownName { name: name.to_owned() }];
        assert_eq!(problems(TopicSettings::from_values([(name, "1")])), expected);
    }
}

#[test]
fn a_value_of_the_longest_length_is_taken_and_one_byte_more_is_not() {
    let value = |length: usize| format!("{:>length$}", 7);
    let name = "retention.ms";
    assert!(TopicSettings::from_values([(name, &value(MAX_CONFIG_VALUE_BYTES)[..])]).is_ok());
    let length_bytes = MAX_CONFIG_VALUE_BYTES + 1;
    let found = problems(TopicSettings::from_values([(name, &value(length_bytes)[..])]));
    assert_eq!(found, [ConfigProblem::ValueTooLong { key: key(name), length_bytes }]);
    let long_name = "\u{e9}".repeat(1000);
    let found = problems(TopicSettings::from_values([(&long_name[..], "1")]));
    assert_eq!(found, [ConfigProblem::UnknownName { name: "\u{e9}".repeat(50) }]);
}

#[test]
fn a_topic_has_from_one_partition_to_the_limit() {
    for (count, is_legal) in [(0, false), (1, true), (10, true), (11, false), (u32::MAX, false)] {
        let checked = TopicConfig::new(count).check_partition_count(10);
        assert_eq!(checked.is_ok(), is_legal, "{count}");
    }
    let error = TopicConfig::new(0).check_partition_count(10).unwrap_err();
    assert_eq!(error.problems(), [ConfigProblem::PartitionCount { count: 0, limit: 10 }]);
}

#[test]
fn a_topics_configuration_is_built_setting_by_setting() {
    let config = TopicConfig::new(3)
        .set("cleanup.policy", "compact")
        .and_then(|config| config.set("max.message.bytes", "0"))
        .unwrap();
    assert_eq!(config.partition_count(), 3);
    assert_eq!(config.settings().effective().max_message_bytes, 0);
    assert_eq!(
        config.settings().overrides().collect::<Vec<_>>(),
        [("cleanup.policy", "compact"), ("max.message.bytes", "0")]
    );
    assert!(config.set("max.message.bytes", "-1").is_err());
}

#[test]
fn what_is_written_names_only_what_was_set_and_is_read_back_whole() {
    let config = TopicConfig::with_settings(
        2,
        settings(&[("retention.ms", " 60000 "), ("cleanup.policy", "compact, delete")]),
    );
    let text = serde_json::to_string(&config).unwrap();
    let settings = r#"{"cleanup.policy":"compact, delete","retention.ms":" 60000 "}"#;
    assert_eq!(text, format!(r#"{{"partition_count":2,"settings":{settings}}}"#));
    assert_eq!(serde_json::from_str::<TopicConfig>(&text).unwrap(), config);
    let bare = serde_json::from_str::<TopicConfig>(r#"{"partition_count":7}"#).unwrap();
    assert_eq!(bare, TopicConfig::new(7));
}

#[test]
fn a_stored_setting_that_is_unknown_or_illegal_is_refused_by_name() {
    for (text, told) in [
        (r#"{"from.the.future":"1"}"#, "from.the.future"),
        (r#"{"retention.ms":"later"}"#, "retention.ms"),
        (r#"{"min.compaction.lag.ms":"2","max.compaction.lag.ms":"1"}"#, "min.compaction.lag.ms"),
    ] {
        let error = serde_json::from_str::<TopicSettings>(text).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
    assert!(serde_json::from_str::<TopicConfig>(r#"{"partition_count":1,"x":0}"#).is_err());
}

fn any_name() -> impl Strategy<Value = String> {
    let known = (0..TOPIC_CONFIG_KEYS.len()).prop_map(|index| TOPIC_CONFIG_KEYS[index].name);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        "( |,|compact|delete|true|CreateTime|LogAppendTime|producer|-|[0-9]|\\.){0,6}",
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_names_and_values_give_settings_that_survive_a_round_trip_or_an_error(
        values in proptest::collection::vec((any_name(), any_value()), 0..6),
    ) {
        let text: Vec<_> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        topic_settings(text.join("\n").as_bytes());
    }
}
