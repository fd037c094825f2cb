//! Operations chosen at random: they find nothing in the engine, and each rule that it breaks on purpose.

use std::panic::{catch_unwind, set_hook, take_hook};

use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog_fuzz::{engine_ops, engine_ops_breaking};

/// Bytes that look random and are the same every time.
fn input(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::new();
    while bytes.len() < 1000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes
}

// One test: while rules are broken no panic is shown, and it must not be one of another test.
#[test]
fn they_find_nothing_but_the_rules_that_are_broken_on_purpose() {
    (0..300).for_each(|seed| engine_ops(&input(seed)));

    let rules = [
        Rule::W1SegmentIdOnce,
        Rule::W3DirectorySynced,
        Rule::W3NewSegmentAtOpen,
        Rule::W5SyncCoversAll,
        Rule::S6HaltOnStoreError,
        Rule::R4SyncBeforeRead,
        Rule::R6SuccessorEnd,
        Rule::R10NewHeader,
        Rule::E3HaltRefuses,
        Rule::E4NewFileAfterError,
        Rule::D1TopicsSynced,
        Rule::D2EpochRises,
    ];
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let is_found = |rule: &Rule| {
        let broken = BrokenRules::only(*rule);
        (0..300).any(|seed| catch_unwind(|| engine_ops_breaking(&input(seed), broken)).is_err())
    };
    let missed: Vec<Rule> = rules.into_iter().filter(|rule| !is_found(rule)).collect();
    set_hook(hook);
    assert!(missed.is_empty(), "nothing is found where these are broken: {missed:?}");
}
