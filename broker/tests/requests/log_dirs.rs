//! DescribeLogDirs: sizes of partitions that are there and may be described, and the disk under them.

use crate::common;

use common::client::{batch, name, produce};
use common::{TestBroker, config};
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

fn asked(topics: &[(&str, &[i32])]) -> DescribeLogDirsRequest {
    let topics = topics.iter().map(|(topic, partitions)| {
        DescribableLogDirTopic::default()
            .with_topic(name(topic))
            .with_partitions(partitions.to_vec())
    });
    DescribeLogDirsRequest::default().with_topics(Some(topics.collect()))
}

/// Topic, partition and whether it has a size.
fn sizes(response: &DescribeLogDirsResponse) -> Vec<(String, i32, bool)> {
    let [result] = &response.results[..] else { panic!("one directory: {response:?}") };
    assert_eq!((response.error_code, result.error_code), (0, 0));
    let topics = result.topics.iter();
    let sizes = topics.flat_map(|topic| {
        topic.partitions.iter().map(|partition| {
            assert_eq!((partition.offset_lag, partition.is_future_key), (0, false));
            let size = partition.partition_size;
            (topic.name.as_str().to_owned(), partition.partition_index, size > 0)
        })
    });
    sizes.collect()
}

#[test]
fn partitions_have_the_sizes_of_what_can_be_read_and_unknown_ones_are_left_out() {
    let broker = TestBroker::start(config());
    broker.topic("orders", 2);
    broker.topic("audit", 1);
    let mut client = broker.client();
    client.ask(9, &produce(-1, &[("orders", &[(1, batch("a"))])]));
    let of = |topic: &str, index, has_size| (topic.to_owned(), index, has_size);
    let (first, second) = (of("orders", 0, false), of("orders", 1, true));
    for version in 1..=4 {
        let all = client.ask(version, &DescribeLogDirsRequest::default().with_topics(None));
        let expected = [of("audit", 0, false), first.clone(), second.clone()];
        assert_eq!(sizes(&all), expected, "version {version}");
        let [result] = &all.results[..] else { panic!("one directory") };
        assert!(result.log_dir.ends_with("log"), "{}", &*result.log_dir);
        if version == 4 {
            assert!(result.usable_bytes > 0 && result.total_bytes >= result.usable_bytes);
        }
        let request =
            asked(&[("orders", &[1, 7, 1]), ("none", &[0]), ("audit", &[]), ("orders", &[0])]);
        assert_eq!(sizes(&client.ask(version, &request)), [first.clone(), second.clone()]);
        assert_eq!(sizes(&client.ask(version, &asked(&[]))), []);
    }
}
