//! Random work of idempotent and transactional producers, with crashes at any call, held against a model.
//!
//! The model knows every commit that may exist. After a crash the engine must show the state
//! behind a first part of them, which holds all that was promised: the same records and markers in
//! every partition, the same last stable offsets, group offsets, transactional ids and sequences.
//! `TIDELOG_PRODUCER_MODEL_CASE` runs one seed, `TIDELOG_PRODUCER_MODEL_SEEDS` so many.
#![cfg(feature = "test-util")]

mod model;
mod observed;
mod world;

use tidelog::internals::rules::{BrokenRules, Rule};
use world::{Did, World};

const STEPS: u32 = 120;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("the variable is a number"))
}

fn run(seed: u64, broken: BrokenRules) -> Did {
    let mut world = World::new(seed, broken);
    for step in 0..STEPS {
        let what = world.step();
        world.check(&format!("seed={seed} step={step}: {what}"));
    }
    world.did
}

#[test]
fn producers_transactions_and_offsets_are_what_the_model_says_also_after_crashes() {
    let seeds = match number("TIDELOG_PRODUCER_MODEL_CASE") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDELOG_PRODUCER_MODEL_SEEDS").unwrap_or(60),
    };
    let mut did = Did::default();
    for seed in seeds.clone() {
        did.add(&run(seed, BrokenRules::NONE));
    }
    println!("{did:?}");
    if seeds.end - seeds.start > 20 {
        assert!(did.is_varied(), "the work is too much of a kind: {did:?}");
    }
}

#[test]
fn d1_ends_of_producer_transactions_that_are_not_synced_are_lost() {
    let broken = BrokenRules::only(Rule::D1ProducerTransactionsSynced);
    let is_noticed = |seed: &u64| std::panic::catch_unwind(|| run(*seed, broken)).is_err();
    let seed = (0..60).find(is_noticed).expect("the rule can be broken and nobody notices");
    // It is the rule that matters: in the same run, kept, all holds.
    run(seed, BrokenRules::NONE);
}
