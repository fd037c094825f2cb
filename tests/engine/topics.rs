//! Topics: names, limits, growth, deletion and what is made anew under the name, and their settings.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use common::{TestEngine, append, append_to_all, one_partition, values_of};
use tidelog::config::{ConfigChange, ConfigOperation, ConfigProblem};
use tidelog::types::TopicNameError;
use tidelog::{
    AddPartitionsError, AlterTopicError, AppendErrorKind, CreateTopicError, DeleteTopicError,
    Durability, Engine, FetchError, FetchOptions, Partition, Record, TopicConfig, TopicSettings,
    Watermarks,
};

fn create(engine: &Engine, name: &str, partitions: u32) -> Result<(), CreateTopicError> {
    engine.create_topic(name, TopicConfig::new(partitions)).map(drop)
}

fn names(engine: &Engine) -> Vec<String> {
    engine.topics().list().iter().map(|topic| topic.name().to_string()).collect()
}

fn change(name: &str, operation: ConfigOperation) -> ConfigChange {
    ConfigChange { name: name.to_owned(), operation }
}

fn set(name: &str, value: &str) -> ConfigChange {
    change(name, ConfigOperation::Set(value.to_owned()))
}

fn overrides(engine: &Engine, topic: &str) -> Vec<(String, String)> {
    let settings = engine.topic(topic).unwrap().settings();
    settings.overrides().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn is_gone(engine: &Engine, partition: &Partition) -> bool {
    let mut append = engine.append_transaction();
    let refused = append.records(partition, [Record::keyless("v")]);
    let refused = matches!(refused.unwrap_err().kind, AppendErrorKind::UnknownPartition);
    let fetched = engine.fetch(partition, 0, FetchOptions::new());
    let fetched = matches!(fetched.unwrap_err(), FetchError::UnknownPartition { .. });
    let marks = engine.watermarks(partition);
    let marks = matches!(marks.unwrap_err(), FetchError::UnknownPartition { .. });
    refused && fetched && marks && partition.topic().is_deleted()
}

#[test]
fn names_are_legal_as_they_are_in_kafka() {
    let test = TestEngine::new();
    let engine = test.open();
    let longest = "n".repeat(249);
    for name in ["a", "A", "...", "__offsets", "a-b_c.D9", "-", &longest] {
        create(&engine, name, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let name_error = |name: &str| match create(&engine, name, 1) {
        Err(CreateTopicError::Name(error)) => error,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(name_error(""), TopicNameError::Empty);
    assert_eq!([".", ".."].map(name_error), [TopicNameError::Dots, TopicNameError::Dots]);
    let length_bytes = 250;
    assert_eq!(name_error(&"n".repeat(250)), TopicNameError::TooLong { length_bytes });
    for (name, character, at_byte) in
        [("a b", ' ', 1), ("a/b", '/', 1), ("caf\u{e9}", '\u{e9}', 3), ("a\n", '\n', 1)]
    {
        assert_eq!(name_error(name), TopicNameError::IllegalCharacter { character, at_byte });
    }
    assert_eq!(engine.topics().list().len(), 7);
}

#[test]
fn a_name_that_differs_from_another_in_dot_and_underscore_alone_is_refused() {
    let test = TestEngine::new();
    let engine = test.open();
    create(&engine, "a.b_c", 1).unwrap();
    for name in ["a_b.c", "a.b.c", "a_b_c"] {
        match create(&engine, name, 1).unwrap_err() {
            CreateTopicError::Collides { with, .. } => assert_eq!(with.as_str(), "a.b_c"),
            error => panic!("{error}"),
        }
    }
    create(&engine, "a-b-c", 1).unwrap();
    engine.delete_topic("a.b_c").unwrap();
    create(&engine, "a_b.c", 1).unwrap();
}

#[test]
fn a_name_that_is_taken_is_named_before_a_wrong_partition_count() {
    let test = TestEngine::new();
    let engine = test.open();
    create(&engine, "t", 1).unwrap();
    assert!(matches!(create(&engine, "t", 0), Err(CreateTopicError::Exists { .. })));
    match create(&engine, "u", 0).unwrap_err() {
        CreateTopicError::Config(error) => {
            let [ConfigProblem::PartitionCount { count: 0, .. }] = error.problems() else {
                panic!("{error}");
            };
        }
        error => panic!("{error}"),
    }
}

#[test]
fn each_limit_of_topics_and_partitions_takes_what_it_says_and_no_more() {
    let test = TestEngine::with(|config| {
        config.max_partitions_per_topic(4).max_partitions(6).max_topics(3)
    });
    let engine = test.open();
    let too_many = create(&engine, "a", 5).unwrap_err();
    assert!(too_many.to_string().contains("count=5 limit=4"), "{too_many}");
    create(&engine, "a", 4).unwrap();
    create(&engine, "b", 1).unwrap();
    let full = create(&engine, "c", 2).unwrap_err();
    assert!(full.to_string().contains("partition_count=7 limit=6"), "{full}");
    let full = engine.topics().add_partitions("b", 3).unwrap_err();
    assert!(matches!(full, AddPartitionsError::Limit(CreateTopicError::EngineFull { .. })));
    create(&engine, "c", 1).unwrap();
    let full = create(&engine, "d", 1).unwrap_err();
    assert!(full.to_string().contains("topic_count=4 limit=3"), "{full}");
    engine.delete_topic("a").unwrap();
    let too_many = engine.topics().add_partitions("b", 5).unwrap_err();
    assert!(too_many.to_string().contains("count=5 limit=4"), "{too_many}");
    engine.topics().add_partitions("b", 4).unwrap();
    create(&engine, "d", 1).unwrap();
}

#[test]
fn a_check_makes_nothing_and_says_what_the_making_would_say() {
    let test = TestEngine::new();
    let engine = test.open();
    let config = TopicConfig::new(2);
    engine.topics().validate_create("t", &config).unwrap();
    assert!(engine.topic("t").is_none());
    create(&engine, "t", 2).unwrap();
    let taken = engine.topics().validate_create("t", &config).unwrap_err();
    assert!(matches!(taken, CreateTopicError::Exists { .. }), "{taken}");
    engine.topics().validate_add_partitions("t", 3).unwrap();
    assert_eq!(engine.topic("t").unwrap().partition_count(), 2);
    assert!(engine.topics().validate_add_partitions("t", 2).is_err());
}

#[test]
fn topics_are_listed_by_name_and_keep_their_ids_over_a_reopen() {
    let test = TestEngine::new();
    let engine = test.open();
    for name in ["b", "a-1", "B", "a", "ab"] {
        create(&engine, name, 2).unwrap();
    }
    assert_eq!(names(&engine), ["B", "a", "a-1", "ab", "b"]);
    let ids: Vec<_> = engine.topics().list().iter().map(tidelog::Topic::id).collect();
    engine.close().unwrap();
    let engine = test.open();
    assert_eq!(names(&engine), ["B", "a", "a-1", "ab", "b"]);
    for (topic, id) in engine.topics().list().iter().zip(ids) {
        assert_eq!(topic.id(), id);
        assert_eq!(engine.topics().by_id(id).unwrap().name(), topic.name());
        assert_eq!(topic.partition_count(), 2);
    }
}

#[test]
fn a_topic_that_is_made_anew_starts_at_zero_and_shows_nothing_of_the_old_one() {
    let test = TestEngine::new();
    let engine = test.open();
    let old = one_partition(&engine, "t", &[("max.message.bytes", "5000")]);
    for i in 0..100 {
        append(&engine, &old, [Record::keyless(format!("old {i}"))]);
    }
    engine.delete_topic("t").unwrap();
    let new = one_partition(&engine, "t", &[]);
    assert_ne!(new.topic().id(), old.topic().id());
    assert_eq!(overrides(&engine, "t"), []);
    append(&engine, &new, (0..5).map(|i| Record::keyless(format!("new {i}"))));
    let expected: Vec<_> = (0..5).map(|i| format!("new {i}")).collect();
    assert_eq!(values_of(&engine, &new), expected);
    assert!(is_gone(&engine, &old));
    for kills in [false, true] {
        if kills {
            test.kill();
        }
        let engine = if kills { test.open() } else { engine.clone() };
        let new = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(values_of(&engine, &new), expected);
        let report = engine.verify().unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        assert_eq!((report.partition_count, report.record_count), (1, 5));
    }
}

#[test]
fn deleting_what_is_not_there_fails_cleanly_however_often() {
    let test = TestEngine::new();
    let engine = test.open();
    create(&engine, "t", 1).unwrap();
    engine.delete_topic("t").unwrap();
    for name in ["t", "never", "", "no/name"] {
        match engine.delete_topic(name).unwrap_err() {
            DeleteTopicError::UnknownTopic { name: told } => assert_eq!(told, name),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_deletion_that_is_killed_at_any_step_is_done_or_not_and_the_name_is_free_or_not() {
    let mut crash_points = 0;
    for calls in 0.. {
        let test = TestEngine::new();
        let engine = test.open();
        let old = engine.create_topic("t", TopicConfig::new(3)).unwrap();
        append_to_all(&engine, &old.partitions(), "old");
        create(&engine, "live", 1).unwrap();
        test.disk.crash_after_calls(calls);
        let deleted = engine.delete_topic("t");
        let has_crashed = test.disk.has_crashed();
        test.disk.clear_faults();
        test.kill();
        let engine = test.open();
        let left = engine.topic("t");
        assert!(deleted.is_err() || left.is_none());
        if let Some(left) = left {
            assert_eq!(left.id(), old.id());
            for partition in left.partitions() {
                assert_eq!(values_of(&engine, &partition), ["old"]);
            }
            engine.delete_topic("t").unwrap();
        }
        let new = one_partition(&engine, "t", &[]);
        assert_ne!(new.topic().id(), old.id());
        assert!(values_of(&engine, &new).is_empty());
        assert_eq!(names(&engine), ["live", "t"]);
        assert!(engine.verify().unwrap().is_clean());
        if !has_crashed {
            break;
        }
        crash_points += 1;
    }
    assert!(crash_points >= 2, "crash_points={crash_points}");
}

#[test]
fn a_topic_that_is_made_anew_with_fewer_partitions_has_fewer() {
    let test = TestEngine::new();
    let engine = test.open();
    let old = engine.create_topic("t", TopicConfig::new(3)).unwrap();
    engine.delete_topic("t").unwrap();
    let new = engine.create_topic("t", TopicConfig::new(1)).unwrap();
    for index in [1, 2, -1, i32::MAX, i32::MIN] {
        let unknown = new.partition(index).unwrap_err();
        assert_eq!((unknown.index, unknown.partition_count), (index, 1));
    }
    assert!(is_gone(&engine, &old.partition(2).unwrap()));
    assert!(is_gone(&engine, &old.partition(0).unwrap()));
}

#[test]
fn a_deletion_by_id_leaves_what_was_made_under_the_name_since() {
    let test = TestEngine::new();
    let engine = test.open();
    let old = one_partition(&engine, "t", &[]).topic().id();
    engine.topics().delete_by_id(old).unwrap();
    let new = one_partition(&engine, "t", &[]);
    match engine.topics().delete_by_id(old).unwrap_err() {
        DeleteTopicError::UnknownTopic { name } => assert_eq!(name, old.to_string()),
        error => panic!("{error}"),
    }
    append(&engine, &new, [Record::keyless("v")]);
    assert_eq!(names(&engine), ["t"]);
}

#[test]
fn growth_leaves_old_partitions_alone_and_new_ones_start_empty() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
    append_to_all(&engine, &topic.partitions(), "old");
    let grown = engine.topics().add_partitions("t", 6).unwrap();
    assert_eq!((grown.partition_count(), topic.partition_count()), (6, 6));
    for index in 0..6 {
        let partition = topic.partition(index).unwrap();
        let log_end = i64::from(index < 3);
        let (last_stable, high_watermark) = (log_end, log_end);
        let expected = Watermarks { log_start: 0, last_stable, high_watermark, log_end };
        assert_eq!(engine.watermarks(&partition).unwrap(), expected);
    }
    append_to_all(&engine, &topic.partitions(), "new");
    for asked in [6, 5, 1, 0] {
        match engine.topics().add_partitions("t", asked).unwrap_err() {
            AddPartitionsError::NotMore { partition_count: 6, total_count } => {
                assert_eq!(total_count, asked);
            }
            error => panic!("{error}"),
        }
    }
    assert!(matches!(
        engine.topics().add_partitions("u", 1),
        Err(AddPartitionsError::UnknownTopic { .. })
    ));
    engine.close().unwrap();
    let engine = test.open();
    let topic = engine.topic("t").unwrap();
    let read = |index| values_of(&engine, &topic.partition(index).unwrap());
    assert_eq!(read(2), ["old", "new"]);
    assert_eq!(read(3), ["new"]);
}

#[test]
fn a_growth_that_is_killed_at_any_step_is_whole_or_absent() {
    let mut seen = Vec::new();
    for calls in 0.. {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
        append_to_all(&engine, &topic.partitions(), "old");
        test.disk.crash_after_calls(calls);
        let grown = engine.topics().add_partitions("t", 6).is_ok();
        let has_crashed = test.disk.has_crashed();
        test.disk.clear_faults();
        test.kill();
        let engine = test.open();
        let topic = engine.topic("t").unwrap();
        let count = topic.partition_count();
        assert!(count == 6 || count == 3 && !grown, "partition_count={count}");
        append_to_all(&engine, &topic.partitions(), "new");
        for partition in topic.partitions() {
            let expected: &[&str] = if partition.index() < 3 { &["old", "new"] } else { &["new"] };
            assert_eq!(values_of(&engine, &partition), expected);
        }
        assert!(engine.verify().unwrap().is_clean());
        seen.push(count);
        if !has_crashed {
            break;
        }
    }
    assert_eq!((seen[0], seen[seen.len() - 1]), (3, 6));
}

#[test]
fn all_that_is_wrong_with_an_alteration_is_named_at_once_and_nothing_is_changed() {
    let test = TestEngine::new();
    let engine = test.open();
    one_partition(&engine, "t", &[("max.message.bytes", "2000")]);
    let changes = [
        set("max.message.bytes", "3000"),
        set("retention.ms", "soon"),
        set("no.such.setting", "1"),
        set("max.message.bytes", "4000"),
        change("segment.bytes", ConfigOperation::Append("1".to_owned())),
    ];
    let AlterTopicError::Config(error) = engine.topics().alter("t", &changes).unwrap_err() else {
        panic!("it is the configuration");
    };
    let [
        ConfigProblem::IllegalValue { .. },
        ConfigProblem::UnknownName { .. },
        ConfigProblem::NamedTwice { .. },
        ConfigProblem::NotAList { .. },
    ] = error.problems()
    else {
        panic!("{error}");
    };
    assert_eq!(overrides(&engine, "t"), [("max.message.bytes".to_owned(), "2000".to_owned())]);
    let unknown = engine.topics().alter("u", &[]).unwrap_err();
    assert!(matches!(unknown, AlterTopicError::UnknownTopic { .. }), "{unknown}");
}

#[test]
fn settings_are_changed_one_by_one_or_replaced_as_a_whole_and_stay_over_a_kill() {
    let test = TestEngine::new();
    let engine = test.open();
    one_partition(&engine, "t", &[("max.message.bytes", "2000"), ("retention.ms", "5")]);
    let changes =
        [set("cleanup.policy", "compact"), change("retention.ms", ConfigOperation::Delete)];
    engine.topics().alter("t", &changes).unwrap();
    let append = ConfigOperation::Append("delete".to_owned());
    engine.topics().alter("t", &[change("cleanup.policy", append)]).unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [pair("cleanup.policy", "compact,delete"), pair("max.message.bytes", "2000")];
    assert_eq!(overrides(&engine, "t"), expected);
    test.kill();
    let engine = test.open();
    assert_eq!(overrides(&engine, "t"), expected);
    assert!(engine.topic("t").unwrap().settings().effective().cleanup_policy.compact);
    let settings = TopicSettings::from_values([("retention.bytes", "9")]).unwrap();
    engine.topics().replace_settings("t", settings).unwrap();
    assert_eq!(overrides(&engine, "t"), [pair("retention.bytes", "9")]);
    engine.close().unwrap();
    assert_eq!(overrides(&test.open(), "t"), [pair("retention.bytes", "9")]);
}

#[test]
fn a_change_of_settings_holds_for_what_is_appended_from_now_on() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let mut begun = engine.append_transaction();
    begun.records(&partition, [Record::keyless("before")]).unwrap();
    engine.topics().alter("t", &[set("cleanup.policy", "compact")]).unwrap();
    let refused = begun.records(&partition, [Record::keyless("after")]).unwrap_err();
    assert_eq!(refused.code(), 87);
    begun.commit(Durability::Buffered).unwrap();
    assert_eq!(values_of(&engine, &partition), ["before"]);
}

#[test]
fn a_record_without_a_key_is_refused_on_a_compacted_topic_and_an_empty_key_is_one() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[("cleanup.policy", "compact")]);
    let mut append = engine.append_transaction();
    let records = [Record::new("a", "1"), Record::keyless("2"), Record::new("c", "3")];
    let refused = append.records(&partition, records).unwrap_err();
    assert_eq!(refused.code(), 87);
    assert_eq!(refused.record_errors().iter().map(|r| r.index).collect::<Vec<_>>(), [1]);
    assert!(append.is_empty());
    append.records(&partition, [Record::new("", "empty")]).unwrap();
    append.commit(Durability::Buffered).unwrap();
    assert_eq!(values_of(&engine, &partition), ["empty"]);
}

#[test]
fn a_handle_of_another_engine_is_not_taken_for_one_of_this_engine() {
    let (one, other) = (TestEngine::new(), TestEngine::new());
    let (one, other) = (one.open(), other.open());
    let own = one_partition(&one, "t", &[]);
    let foreign = one_partition(&other, "t", &[]);
    let mut append = one.append_transaction();
    let refused = append.records(&foreign, [Record::keyless("v")]).unwrap_err();
    assert!(matches!(refused.kind, AppendErrorKind::UnknownPartition), "{refused}");
    assert!(one.fetch(&foreign, 0, FetchOptions::new()).is_err());
    assert!(one.watermarks(&foreign).is_err());
    assert!(one.watermarks(&own).is_ok());
}

#[test]
fn an_engine_that_is_opened_with_the_same_seed_again_gives_no_id_twice() {
    let test = TestEngine::new();
    let first = test.open().create_topic("a", TopicConfig::new(1)).expect("it is made").id();
    let engine = test.open();
    let second = engine.create_topic("b", TopicConfig::new(1)).expect("it is made");
    assert_ne!(first, second.id());
    let topic = engine.topic("a").expect("it is there");
    assert_eq!(topic.id(), first);
    assert!(engine.watermarks(&topic.partition(0).expect("it has one")).is_ok());
    assert!(engine.watermarks(&second.partition(0).expect("it has one")).is_ok());
}
