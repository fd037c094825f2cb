//! What everybody sees tells nothing of what nobody may know: ids against the keys of hashes.

use std::sync::Arc;

use tidelog::{Engine, Record, TopicConfig, TopicId};

use crate::common::{TestEngine, append, one_partition};

/// What SplitMix64 does to its state for one output, undone: the state after that output.
fn state_of(output: u64) -> u64 {
    let bits = unshift(output, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let bits = unshift(bits, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshift(bits, 30)
}

/// The `bits` for which `bits ^ (bits >> by)` is `mixed`.
fn unshift(mixed: u64, by: u32) -> u64 {
    (0..=64 / by).fold(mixed, |bits, _| mixed ^ (bits >> by))
}

/// The inverse of an odd factor, by Newton's method.
fn inverse(factor: u64) -> u64 {
    (0..6).fold(1, |inverse: u64, _| {
        inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
    })
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn words(id: TopicId) -> [u64; 2] {
    let (words, _) = id.as_bytes().as_chunks::<8>();
    [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])]
}

#[test]
fn a_topic_id_does_not_tell_the_secret_of_the_next_cleaner_pass() {
    let test = TestEngine::new();
    let engine = Engine::builder("/engine")
        .config(test.config.clone())
        .clock(test.clock.clone())
        .files(test.disk.process())
        .store(Arc::new(test.store.clone()))
        .open()
        .unwrap();
    let settings = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")];
    let keyed = one_partition(&engine, "keyed", &settings);
    let shown = engine.create_topic("mine", TopicConfig::new(1)).unwrap().id();
    let mut state = state_of(words(shown)[1]);
    append(&engine, &keyed, [Record::new("k", "1"), Record::new("k", "2")]);
    assert!(
        engine.cleaner().clean_partition(&keyed).unwrap().is_some(),
        "a pass ran, with a secret"
    );
    let foretold = [next(&mut state), next(&mut state)];
    let after = engine.create_topic("mine-2", TopicConfig::new(1)).unwrap().id();
    assert_eq!(words(after), foretold, "the generator of topic ids gave the pass its secret");
}
