//! Every target over its corpus, on stable Rust.

use std::fs;
use std::path::Path;

/// The files of a target's corpus.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).expect("a corpus");
    let read = entries.map(|entry| {
        let path = entry.expect("an entry of the corpus").path();
        fs::read(path).expect("a file of the corpus")
    });
    let seeds: Vec<_> = read.collect();
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    seeds
}

/// Runs a target over its corpus as it is, and with each file cut and damaged in some places.
fn run(target: &str, body: fn(&[u8]), places: usize) {
    for seed in seeds(target) {
        body(&seed);
        for at in (0..seed.len()).step_by(1 + seed.len() / places) {
            body(&seed[..at]);
            let mut damaged = seed.clone();
            damaged[at] ^= 0x41;
            body(&damaged);
        }
    }
}

#[test]
fn decode_record_batch_finds_nothing_in_its_corpus() {
    run("decode_record_batch", tidelog_fuzz::decode_record_batch, 10);
}

#[test]
fn encode_decode_finds_nothing_in_its_corpus() {
    run("encode_decode", tidelog_fuzz::encode_decode, 10);
}

#[test]
fn decode_frame_finds_nothing_in_its_corpus() {
    run("decode_frame", tidelog_fuzz::decode_frame, 40);
}

#[test]
fn replay_segment_finds_nothing_in_its_corpus() {
    run("replay_segment", tidelog_fuzz::replay_segment, 40);
}

#[test]
fn decode_store_value_finds_nothing_in_its_corpus() {
    run("decode_store_value", tidelog_fuzz::decode_store_value, 100);
}

#[test]
fn topic_config_finds_nothing_in_its_corpus() {
    run("topic_config", tidelog_fuzz::topic_config, 20);
}

#[test]
fn engine_ops_finds_nothing_in_its_corpus() {
    run("engine_ops", tidelog_fuzz::engine_ops, 10);
}
