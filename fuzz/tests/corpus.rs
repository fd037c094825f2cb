//! Every target over its corpus, on stable Rust.

use std::fs;
use std::path::Path;

/// Runs a target over every file of its corpus.
fn run(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut ran = 0;
    for entry in fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("an entry of the corpus").path();
        body(&fs::read(&path).expect("a file of the corpus"));
        ran += 1;
    }
    assert!(ran > 0, "{} is empty", folder.display());
}

#[test]
fn decode_record_batch_finds_nothing_in_its_corpus() {
    run("decode_record_batch", tidelog_fuzz::decode_record_batch);
}

#[test]
fn encode_decode_finds_nothing_in_its_corpus() {
    run("encode_decode", tidelog_fuzz::encode_decode);
}

#[test]
fn batches_of_the_corpus_cut_and_damaged_are_no_finding_either() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/decode_record_batch");
    for entry in fs::read_dir(folder).expect("a corpus") {
        let seed = fs::read(entry.expect("an entry").path()).expect("a file of the corpus");
        for at in (0..seed.len()).step_by(1 + seed.len() / 10) {
            tidelog_fuzz::decode_record_batch(&seed[..at]);
            let mut damaged = seed.clone();
            damaged[at] ^= 0x41;
            tidelog_fuzz::decode_record_batch(&damaged);
        }
    }
}
