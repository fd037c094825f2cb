//! Cleaning and retention come to an end at the extremes of settings, clock and timestamps.

use crate::common;

use common::{TestEngine, append, assert_verified, one_partition, records_of};
use tidelog::{Durability, Isolation, OffsetQuery, Record, Visibility};

const CLOCKS_MS: [i64; 7] = [i64::MIN, -1, 0, 1, 1_700_000_000_000, i64::MAX - 1, i64::MAX];

const LONGEST: &str = "9223372036854775807";

fn settings() -> Vec<Vec<(&'static str, &'static str)>> {
    let mut all = Vec::new();
    for policy in ["compact", "compact,delete"] {
        for ratio in ["0", "1"] {
            for delete_retention in ["0", "1", LONGEST] {
                for (min_lag, max_lag) in
                    [("0", "1"), ("0", LONGEST), (LONGEST, LONGEST), ("1", "1")]
                {
                    for (ms, bytes) in [
                        ("-1", "-1"),
                        ("0", LONGEST),
                        (LONGEST, "0"),
                        (LONGEST, "-9223372036854775808"),
                    ] {
                        all.push(vec![
                            ("cleanup.policy", policy),
                            ("min.cleanable.dirty.ratio", ratio),
                            ("delete.retention.ms", delete_retention),
                            ("min.compaction.lag.ms", min_lag),
                            ("max.compaction.lag.ms", max_lag),
                            ("retention.ms", ms),
                            ("retention.bytes", bytes),
                            ("message.timestamp.after.max.ms", LONGEST),
                            ("segment.bytes", "2147483647"),
                        ]);
                    }
                }
            }
        }
    }
    all
}

#[test]
fn no_setting_no_clock_and_no_timestamp_keeps_the_cleaner_busy() {
    for (first, second) in CLOCKS_MS.iter().flat_map(|a| CLOCKS_MS.map(|b| (*a, b))) {
        let test = TestEngine::new();
        test.clock.set_ms(first);
        let engine = test.open();
        let partitions: Vec<_> = settings()
            .iter()
            .enumerate()
            .map(|(index, settings)| one_partition(&engine, &index.to_string(), settings))
            .collect();
        for partition in &partitions {
            for timestamp in [-1, 0, 1, i64::MAX] {
                for record in [
                    Record::new("a", "1"),
                    Record::tombstone("b"),
                    Record::new("b", "1"),
                    Record::tombstone("a"),
                ] {
                    let mut append = engine.append_transaction();
                    // The window of timestamps is exact, and refuses some beside such clocks.
                    if append.records(partition, [record.timestamp(timestamp)]).is_ok() {
                        append.commit(Durability::Buffered).expect("the disk is good");
                    }
                }
            }
            append(&engine, partition, [Record::new("own", "1")]);
        }
        for now in [first, second] {
            test.clock.set_ms(now);
            let mut rounds = 0;
            loop {
                let round = engine.cleaner().run().expect("the disk is good");
                assert!(round.failures.is_empty(), "{:?}", round.failures.first());
                let retained = engine.maintenance().run_retention().expect("the disk is good");
                if round.passes.is_empty() && retained.moved_partitions == 0 {
                    break;
                }
                rounds += 1;
                assert!(rounds < 6, "{first} {second}: {:?}", round.passes.first());
            }
            engine.maintenance().run().expect("the disk is good");
            assert_verified(&engine);
            for partition in &partitions {
                records_of(&engine, partition);
                for query in [
                    OffsetQuery::Timestamp(0),
                    OffsetQuery::Timestamp(i64::MAX),
                    OffsetQuery::Timestamp(i64::MIN),
                    OffsetQuery::MaxTimestamp,
                ] {
                    let found = engine.list_offset(
                        partition,
                        query,
                        Isolation::Committed,
                        Visibility::Applied,
                    );
                    found.expect("nothing is damaged");
                }
            }
        }
    }
}
