//! Random work on a compacted partition, with producers and crashes at any commit, against a list of what was appended.

use crate::model;

use model::Model;
use model::world::World;

/// Steps of one run, and how many runs there are.
const STEPS: u64 = 120;
const SEEDS: u64 = 60;

fn run(seed: u64) {
    let mut world = World::new(seed);
    let mut model = Model::default();
    for step in 0..STEPS {
        let done = world.step(&mut model);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            model.check(&world.engine(), &world.partition(), world.now());
        }));
        if let Err(cause) = told {
            println!("seed={seed} step={step} behind {done}");
            std::panic::resume_unwind(cause);
        }
    }
    world.settle(&mut model);
}

#[test]
fn the_newest_record_of_each_key_stays_whatever_happens() {
    let (first, count) = match std::env::var("TIDELOG_SEED") {
        Ok(seed) => (seed.parse().expect("a number"), 1),
        Err(_) => (0, SEEDS),
    };
    (first..first + count).for_each(run);
}
