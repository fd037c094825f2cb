//! One run, stopped at each of its calls, with every outcome of the stop, and at each call of the
//! recovery that follows.

use std::path::Path;

use tidelog::internals::log::CommitLog;
use tidelog::testing::PowerLoss;

use crate::groups::append_these;
use crate::model::{Commit, DIRECTORY, LOG, Settings, batch, options};
use crate::world::World;

/// The run: groups of several sizes, rolls, syncs before and behind a roll, checkpoints, and
/// segments that are freed and written over.
fn run_script(world: &mut World) -> Result<(), String> {
    let log = world.log.clone().expect("the log is open");
    let sizes: [&[usize]; 10] = [
        &[600, 61],
        &[1500],
        &[1400],
        &[2500],
        &[],
        &[700, 700],
        &[3000],
        &[512],
        &[300, 3000],
        &[1500],
    ];
    for (step, sizes) in sizes.iter().enumerate() {
        let content = step as u64 * 10;
        let commits = sizes.iter().enumerate().map(|(at, size)| {
            Commit::new(content + at as u64, vec![batch(content + at as u64, *size)])
        });
        let mut commits: Vec<Commit> = commits.collect();
        if commits.is_empty() {
            commits.push(Commit::new(content, Vec::new()));
        }
        append_these(&log, &world.timeline, commits)?;
        let goes_on = match step {
            2 | 5 => world.checkpoint(&log)? && world.free(&log)?,
            1 | 7 => world.sync(&log)?,
            _ => !log.is_halted(),
        };
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
}

fn outcomes(world: &World) -> Vec<Option<PowerLoss>> {
    let firsts = (0..=world.disk.unsynced_changes()).map(PowerLoss::First);
    let random = (0..6).map(PowerLoss::Random);
    let all = firsts.chain(random).chain([PowerLoss::Nothing, PowerLoss::Everything]);
    all.map(Some).chain([None]).collect()
}

fn stop(world: &World, outcome: Option<PowerLoss>) {
    match outcome {
        None => world.disk.kill(),
        Some(loss) => {
            world.disk.power_loss(loss);
            world.forget_buffered();
        }
    }
}

/// Opens with the process stopped at each call of it in turn, until it comes through.
fn open_with_a_crash_at_every_call(world: &World, crash_count: &mut u64) -> Result<(), String> {
    for calls in 0.. {
        let mut world = world.fork();
        world.disk.crash_after_calls(calls);
        let opened = CommitLog::open(
            world.disk.process(),
            Path::new(DIRECTORY),
            LOG,
            options(world.settings.broken),
            world.applied,
            &mut |_| Ok(()),
        );
        if opened.is_ok() {
            return Ok(());
        }
        if !world.disk.has_crashed() {
            return Err(format!("the log refuses to open: {:?}", opened.err()));
        }
        *crash_count += 1;
        let outcomes = [None, Some(PowerLoss::Nothing), Some(PowerLoss::Random(calls))];
        stop(&world, outcomes[calls as usize % 3]);
        world.open()?;
    }
    Ok(())
}

#[test]
fn a_stop_at_every_call_with_every_outcome_loses_nothing_acknowledged() {
    let settings = Settings { crash_percent: 0, interleave_percent: 0, ..Settings::PLAIN };
    let (mut crash_count, mut reused_count) = (0, 0);
    for calls in 0.. {
        let mut world = World::quiet(calls, settings);
        world.disk.crash_after_calls(calls);
        run_script(&mut world).expect("the promises hold while it runs");
        let log = world.log.take().expect("it was open");
        reused_count = reused_count.max(log.free_segments().reused_count);
        drop(log);
        let is_over = !world.disk.has_crashed();
        for outcome in outcomes(&world) {
            let mut world = world.fork();
            stop(&world, outcome);
            crash_count += 1;
            let told = |what| panic!("stopped at call {calls} with {outcome:?}: {what}");
            open_with_a_crash_at_every_call(&world, &mut crash_count).unwrap_or_else(told);
            world.open().map(drop).unwrap_or_else(told);
            // What was found is found again.
            world.disk.power_loss(PowerLoss::Nothing);
            world.open().map(drop).unwrap_or_else(told);
        }
        if is_over {
            break;
        }
    }
    println!("crashes survived: {crash_count}");
    assert!(crash_count > 2000, "{crash_count}");
    assert!(reused_count >= 2, "{reused_count}");
}
