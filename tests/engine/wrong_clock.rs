//! One wrong reading of the clock does no lasting harm: times beyond now count as now.

use crate::common;

use std::time::Duration;

use common::{NOW_MS, TestEngine, append, one_partition};
use tidelog::{Durability, Record};

const YEARS_MS: i64 = 50 * 366 * 24 * 3600 * 1000;

#[test]
fn a_transaction_that_began_while_the_clock_was_wrong_times_out_all_the_same() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    test.clock.set_ms(NOW_MS + YEARS_MS);
    let mut producer = engine.producers().transactional("p", Duration::from_secs(60)).unwrap();
    let mut transaction = producer.begin();
    let record = Record::keyless("v").timestamp(NOW_MS);
    transaction.append([(&partition, vec![record])]).unwrap();
    std::mem::forget(transaction);
    test.clock.set_ms(NOW_MS);
    for _ in 0..3 {
        test.clock.advance_ms(60_000);
        engine.maintenance().run().unwrap();
    }
    let marks = engine.watermarks(&partition).unwrap();
    assert_eq!(marks.last_stable, marks.log_end, "after three timeouts: {marks:?}");
}

#[test]
fn a_producer_that_wrote_while_the_clock_was_wrong_is_forgotten_in_the_end() {
    let test = TestEngine::with(|config| config.max_producers(1));
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    test.clock.set_ms(NOW_MS + YEARS_MS);
    let mut producer = engine.producers().idempotent().unwrap();
    let record = Record::keyless("v").timestamp(NOW_MS);
    producer.append([(&partition, vec![record])], Durability::Buffered).unwrap();
    test.clock.set_ms(NOW_MS);
    for _ in 0..3 {
        engine.maintenance().run().unwrap();
        test.clock.advance_ms(86_400_000);
    }
    engine.maintenance().run().unwrap();
    let mut other = engine.producers().idempotent().unwrap();
    let done = other.append([(&partition, vec![Record::keyless("w")])], Durability::Buffered);
    assert!(done.is_ok(), "three days later: {done:?}");
}

#[test]
fn what_was_appended_while_the_clock_was_wrong_does_not_hold_back_retention() {
    for is_cleaned_again in [false, true] {
        let test = TestEngine::new();
        let engine = test.open();
        let settings = [("retention.ms", "60000"), ("message.timestamp.type", "LogAppendTime")];
        let partition = one_partition(&engine, "t", &settings);
        for _ in 0..=u8::from(is_cleaned_again) {
            let start = engine.watermarks(&partition).unwrap().log_end;
            test.clock.set_ms(NOW_MS + YEARS_MS);
            append(&engine, &partition, [Record::keyless("wrong")]);
            append(&engine, &partition, [Record::keyless("wrong too")]);
            test.clock.set_ms(NOW_MS);
            append(&engine, &partition, [Record::keyless("right")]);
            engine.maintenance().run().unwrap();
            assert_eq!(engine.watermarks(&partition).unwrap().log_start, start, "none is old yet");
            for _ in 0..3 {
                test.clock.advance_ms(60_001);
                engine.maintenance().run().unwrap();
            }
            let marks = engine.watermarks(&partition).unwrap();
            assert_eq!(marks.log_start, marks.log_end, "three retention times later: {marks:?}");
        }
    }
}
