//! Where librdkafka and the Java client put 185 keys, with each of their partitioners.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tidelog::partitioner::Partitioner;

/// How many keys are in our own copy.
const KEY_COUNT: usize = 185;

fn golden() -> Value {
    let folder = std::env::var_os("TIDELOG_GOLDEN").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| PathBuf::from("tests/data/golden"));
    let text = fs::read_to_string(folder.join("records/partitions.json")).expect("the partitions");
    serde_json::from_str(&text).expect("the partitions are JSON")
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex digits")).collect()
}

/// The names under which a partitioner's answers stand for a key that is not empty.
fn plain_name(partitioner: Partitioner) -> &'static str {
    match partitioner {
        Partitioner::Crc32Random | Partitioner::Crc32 => "consistent",
        Partitioner::Murmur2Random | Partitioner::Murmur2 => "murmur2",
        Partitioner::Fnv1aRandom | Partitioner::Fnv1a => "fnv1a",
        Partitioner::Java => "java",
        other => panic!("{other:?} has no recorded partitions"),
    }
}

fn counts(golden: &Value) -> Vec<u32> {
    let counts = golden["counts"].as_array().expect("the counts of partitions");
    counts.iter().map(|count| count.as_u64().expect("a number") as u32).collect()
}

#[test]
fn every_key_lands_where_the_clients_put_it() {
    let golden = golden();
    let counts = counts(&golden);
    let keys = golden["keys"].as_array().expect("the keys");
    for entry in keys {
        let key = unhex(entry["key"].as_str().expect("a key"));
        for partitioner in Partitioner::ALL {
            let wanted = &entry[plain_name(partitioner)];
            let got: Vec<i32> =
                counts.iter().map(|&count| partitioner.partition(Some(&key), count)).collect();
            assert_eq!(Value::from(got), *wanted, "{partitioner:?} of {}", entry["key"]);
            if !key.is_empty() {
                assert!(!partitioner.spreads(Some(&key)), "{partitioner:?}");
            }
        }
    }
    assert!(keys.len() > 3);
    if std::env::var_os("TIDELOG_GOLDEN").is_none() {
        assert_eq!(keys.len(), KEY_COUNT);
    }
}

#[test]
fn null_and_empty_keys_are_spread_or_placed_as_the_clients_do() {
    let golden = golden();
    let counts = counts(&golden);
    for (field, key) in [("null_key", None), ("empty_key", Some(b"".as_slice()))] {
        for partitioner in Partitioner::ALL {
            let Some(wanted) = golden[field].get(partitioner.name()) else {
                assert_eq!(partitioner, Partitioner::Java, "the six of librdkafka are recorded");
                continue;
            };
            for (&count, wanted) in counts.iter().zip(wanted.as_array().expect("partitions")) {
                if wanted == "spread" {
                    assert!(partitioner.spreads(key), "{partitioner:?} {field}");
                } else {
                    let mut generator = || u32::MAX / 2;
                    let got = partitioner.partition_with(key, count, &mut generator);
                    assert_eq!(Value::from(got), *wanted, "{partitioner:?} {field} {count}");
                }
            }
        }
    }
}
