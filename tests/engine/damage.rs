//! A record batch that the disk has damaged: who is told of it, and how one reads on after it.

use std::time::Duration;

use crate::common::{TestEngine, append};
use tidelog::{Consumer, ConsumerError, FetchError, FetchOptions, Record, TopicConfig};

fn offsets(consumer: &mut Consumer) -> Vec<i64> {
    let found = consumer.poll(Duration::ZERO).expect("it is readable");
    found.iter().map(|found| found.record.offset).collect()
}

#[test]
fn a_damaged_batch_is_named_by_its_offsets_served_to_nobody_and_can_be_passed() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(1)).unwrap();
    let partition = topic.partition(0).unwrap();
    for values in [&["a"][..], &["soon damaged", "with it"], &["d"]] {
        append(&engine, &partition, values.iter().copied().map(Record::keyless));
    }
    test.flip("soon damaged");
    let mut consumer = engine.consumer("g", &topic).unwrap();
    assert_eq!(offsets(&mut consumer), [0], "what comes before it is given first");
    for _ in 0..2 {
        let failed = consumer.poll(Duration::ZERO).unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("t-0") && text.contains("checksum"), "{text}");
        let ConsumerError::Fetch(FetchError::Damaged { base_offset, last_offset, .. }) = failed
        else {
            panic!("{failed:?}");
        };
        assert_eq!((base_offset, last_offset), (1, 2));
    }
    assert!(engine.fetch(&partition, 2, FetchOptions::new()).is_err());
    assert!(engine.snapshot().scan(&topic).any(|scanned| scanned.is_err()));
    assert!(engine.metrics().corruptions > 0);
    consumer.seek(&partition, 3).unwrap();
    assert_eq!(offsets(&mut consumer), [3]);
}
