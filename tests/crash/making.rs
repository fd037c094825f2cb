//! The making of an engine, stopped at each call, and its second try stopped at each call too.

use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{EIO, Fault, FileCall, PowerLoss};

use crate::machine::Stop;
use crate::recovery::Disturbance;
use crate::script::SCRIPTED;
use crate::world::World;

const STOPS: [Stop; 4] = [
    Stop::Kill,
    Stop::Power(PowerLoss::Nothing),
    Stop::Power(PowerLoss::First(1)),
    Stop::Power(PowerLoss::Random(5)),
];

/// Opens, stopped at this call; `false` if it was not reached.
fn is_stopped_at(world: &mut World, call: u64) -> bool {
    world.machine.disk.crash_after_calls(call);
    !world.try_open(0).unwrap_or_else(|what| panic!("call {call}: {what}"))
}

#[test]
fn an_engine_whose_making_was_stopped_twice_anywhere_is_made_and_stays() {
    let mut count = 0;
    for first in 0..100 {
        let mut base = World::new(first, BrokenRules::NONE, SCRIPTED);
        if !is_stopped_at(&mut base, first) {
            assert!(first > 10, "{first} calls");
            break;
        }
        for (number, stop) in (0..).zip(STOPS) {
            for second in 0..100 {
                let mut world = base.image(number);
                world.stop(stop);
                if !is_stopped_at(&mut world, second) {
                    break;
                }
                for (number, stop) in (0..).zip(STOPS) {
                    let mut world = world.image(number);
                    world.stop(stop);
                    let recovered = world.recover(stop, Disturbance::None);
                    recovered.unwrap_or_else(|what| panic!("{first} {second} {stop:?}: {what}"));
                    world.restart(Stop::Power(PowerLoss::Nothing)).unwrap_or_else(|what| {
                        panic!("{first} {second} {stop:?}: {what}");
                    });
                    count += 1;
                }
            }
        }
    }
    println!("{count} makings");
    assert!(count > 1000, "{count} makings");
}

#[test]
fn an_engine_whose_making_failed_in_a_sync_is_made_anew_and_stays() {
    let mut failures = 0;
    let losses = [PowerLoss::Nothing, PowerLoss::Everything, PowerLoss::Random(7)];
    for after_calls in 0..6 {
        // What a failing sync loses is up to the seed.
        for (seed, loss) in (0..30).zip(losses.into_iter().cycle()) {
            let mut world = World::new(seed, BrokenRules::NONE, SCRIPTED);
            let fault = Fault::next(FileCall::Sync, EIO).after_calls(after_calls);
            world.machine.disk.plan(fault);
            world.expected.failure = true;
            world.expected.failing_sync = true;
            let is_made = world.try_open(0).unwrap_or_else(|what| panic!("{fault:?}: {what}"));
            failures += usize::from(!is_made);
            // In the same boot: what the failed sync lost is still in the cache.
            world.stop(Stop::Kill);
            let recovered = world.recover(Stop::Kill, Disturbance::None);
            recovered.unwrap_or_else(|what| panic!("{fault:?}: {what}"));
            world.must_restart(Stop::Power(loss));
            world.must_restart(Stop::Power(PowerLoss::Nothing));
        }
    }
    assert!(failures >= 90, "{failures} failures");
}
