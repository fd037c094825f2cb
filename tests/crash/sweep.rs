//! Every place at which a run can be stopped, with all that the stop may leave of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tidelog::internals::rules::BrokenRules;
use tidelog::testing::PowerLoss;

use crate::failure::{Asked, Case, Failure, scale};
use crate::machine::Stop;
use crate::operations::Kinds;
use crate::random::Random;
use crate::recovery::Disturbance;
use crate::world::{Flow, World};

const KINDS: Kinds = Kinds { interleave_percent: 0, reopens: true };

/// Operations of a run.
const STEPS: u64 = 22;

/// Runs that are stopped at each of their calls.
const RUNS: u64 = 20;

/// Of each run, every so many calls the recovery is stopped at each of its own calls too.
const NESTED_EVERY: u64 = 17;

/// More calls than any recovery makes.
const MAX_NESTED: u64 = 200;

/// What a sweep has tried.
#[derive(Debug, Default)]
struct Tried {
    /// Calls at which a run was stopped.
    calls: AtomicU64,
    /// Crashes from which an engine was opened and checked.
    crashes: AtomicU64,
    /// Segments that were written over freed ones before the crashes.
    reused: AtomicU64,
}

/// Runs a seed up to the call at which it is stopped, or to its end.
fn run_until(world: &mut World, seed: u64, call: u64) -> Result<(), String> {
    // Every second system writes back unasked; every third shows old blocks.
    world.machine.disk.set_write_back(if seed.is_multiple_of(2) { 0 } else { 30 });
    world.machine.disk.set_stale_bytes(seed.is_multiple_of(3));
    world.machine.disk.crash_after_calls(call);
    if !world.try_open(0)? {
        return Ok(());
    }
    for _ in 0..STEPS {
        if world.step()? != Flow::GoesOn {
            return Ok(());
        }
    }
    Ok(())
}

/// What a stop may leave: all first parts of the unsynced changes, if they are few, and any
/// subsets of the sectors.
fn stops(unsynced_changes: usize, random: &mut Random) -> Vec<Stop> {
    let mut losses = vec![PowerLoss::Nothing, PowerLoss::Everything];
    let between = 1..unsynced_changes;
    let step = between.len() / 6 + 1;
    losses.extend(between.step_by(step).map(PowerLoss::First));
    losses.extend((0..4).map(|_| PowerLoss::Random(random.next())));
    let mut stops = vec![Stop::Kill];
    stops.extend(losses.into_iter().map(Stop::Power));
    stops
}

/// One crash: what it leaves, and where its recovery is stopped.
fn crash(base: &World, case: Case, stop: Stop) -> Result<u64, Failure> {
    let mut world = base.fork(case.random());
    let disturbance = case.nested.map_or(Disturbance::None, Disturbance::At);
    world.stop(stop);
    let result = world.recover(stop, disturbance).and_then(|tries| {
        world.check_afterlife()?;
        Ok(tries)
    });
    result.map_err(|what| Failure::new(case, what, &world))
}

/// All crashes of a run at one of its calls; `false` if the run ends before it.
fn sweep_call(seed: u64, call: u64, only: Option<Case>, tried: &Tried) -> Result<bool, Failure> {
    let case = Case { seed, call, left: 0, nested: None };
    let mut base = World::new(seed, BrokenRules::NONE, KINDS);
    let ran = run_until(&mut base, seed, call);
    ran.map_err(|what| Failure::new(case, what, &base))?;
    if !base.machine.disk.has_crashed() {
        return Ok(false);
    }
    tried.calls.fetch_add(1, Ordering::Relaxed);
    tried.reused.fetch_add(base.reused_count, Ordering::Relaxed);
    base.note(format_args!("  stopped at call {call}"));
    let unsynced = base.machine.disk.unsynced_changes();
    let stops = stops(unsynced, &mut Random::at(&[seed, call]));
    for (left, &stop) in (0..).zip(&stops) {
        let case = Case { left, ..case };
        if only.is_none_or(|only| only == case) {
            crash(&base, case, stop)?;
            tried.crashes.fetch_add(1, Ordering::Relaxed);
        }
        let is_nested = call % NESTED_EVERY == seed % NESTED_EVERY && left % 3 == 0;
        for nested in (0..MAX_NESTED).take_while(|_| is_nested) {
            let case = Case { nested: Some(nested), ..case };
            if only.is_none_or(|only| only == case) {
                let tries = crash(&base, case, stop)?;
                tried.crashes.fetch_add(1 + tries, Ordering::Relaxed);
                if tries == 0 {
                    break;
                }
            }
        }
    }
    Ok(true)
}

/// Sweeps these runs on two threads; the first failure ends it.
fn sweep(seeds: std::ops::Range<u64>) -> Result<Tried, Failure> {
    let tried = Tried::default();
    let work = Mutex::new(seeds.map(|seed| (seed, 0)).collect::<Vec<(u64, u64)>>());
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    let take = || {
        let mut work = work.lock().expect("no thread panics while it holds it");
        let (seed, call) = work.last_mut()?;
        let taken = (*seed, *call);
        *call += 1;
        Some(taken)
    };
    let drop_seed = |seed: u64| {
        let mut work = work.lock().expect("no thread panics while it holds it");
        work.retain(|(other, _)| *other != seed);
    };
    let run = || {
        while let Some((seed, call)) = take() {
            match sweep_call(seed, call, None, &tried) {
                Ok(true) => {}
                Ok(false) => drop_seed(seed),
                Err(failure) => {
                    *failed.lock().expect("no thread panics while it holds it") = Some(failure);
                    work.lock().expect("no thread panics while it holds it").clear();
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(run);
        scope.spawn(run);
    });
    match failed.into_inner().expect("no thread has panicked") {
        Some(failure) => Err(failure),
        None => Ok(tried),
    }
}

#[test]
fn a_run_stopped_at_any_call_keeps_every_promise() {
    match Asked::of("sweep") {
        Asked::Nothing => return,
        Asked::One(numbers) => {
            let case = Case::new(&numbers);
            let result = sweep_call(case.seed, case.call, Some(case), &Tried::default());
            let is_there = result.unwrap_or_else(|failure| panic!("{failure}"));
            assert!(is_there, "{case} is behind the end of its run");
            return;
        }
        Asked::All => {}
    }
    let runs = RUNS * scale();
    let tried = sweep(0..runs).unwrap_or_else(|failure| panic!("{failure}"));
    let (calls, crashes) = (tried.calls.into_inner(), tried.crashes.into_inner());
    let reused = tried.reused.into_inner();
    println!("{runs} runs, stopped at {calls} calls: {crashes} crashes, {reused} reused segments");
    assert!(reused >= 50, "{reused} reused segments");
    assert!(calls >= 1500, "{calls} calls");
    assert!(crashes >= 10_000, "{crashes} crashes");
}
