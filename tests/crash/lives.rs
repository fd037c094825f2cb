//! Long runs of many lives, in which anything goes wrong at random: each is told by its seed.

use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{EIO, ENOSPC, FailedFlush, Fault, FileCall};

use crate::failure::{Asked, Failure, scale};
use crate::machine::any_stop;
use crate::operations::Kinds;
use crate::recovery::Disturbance;
use crate::world::{Expected, Flow, World};

/// What a run is made of. Each percentage is a chance in a hundred.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What a failure calls these runs.
    pub kind: &'static str,
    pub broken: BrokenRules,
    pub lives: u64,
    /// That a life is stopped in the middle of a call.
    pub crash_percent: u64,
    /// That a stop is a power loss.
    pub power_percent: u64,
    /// That a write makes the system write back some of what is dirty.
    pub write_back_percent: u64,
    pub stale_bytes: bool,
    pub interleave_percent: u64,
    /// That a call fails in a life: a sync, a write, a sync of a directory, a cut.
    pub failing_call_percent: u64,
    /// That the store fails in a life.
    pub failing_store_percent: u64,
    /// That a sync fails while an engine is opened.
    pub failing_open_percent: u64,
    /// At each step, that the disk becomes nearly full.
    pub full_percent: u64,
}

impl Settings {
    pub const PLAIN: Self = Self {
        kind: "plain",
        broken: BrokenRules::NONE,
        lives: 6,
        crash_percent: 70,
        power_percent: 65,
        write_back_percent: 20,
        stale_bytes: false,
        interleave_percent: 0,
        failing_call_percent: 0,
        failing_store_percent: 0,
        failing_open_percent: 0,
        full_percent: 0,
    };
    pub const INTERLEAVED: Self =
        Self { kind: "interleaved", interleave_percent: 70, ..Self::PLAIN };
    pub const STALE: Self = Self { kind: "stale", stale_bytes: true, ..Self::PLAIN };
    pub const FAILING: Self =
        Self { kind: "failing", failing_call_percent: 60, failing_open_percent: 20, ..Self::PLAIN };
    pub const STORE: Self = Self { kind: "store", failing_store_percent: 60, ..Self::PLAIN };
    pub const FULL: Self =
        Self { kind: "full", full_percent: 25, write_back_percent: 60, ..Self::PLAIN };
}

/// What runs went through.
#[derive(Debug, Clone, Copy, Default)]
pub struct Survived {
    pub crash_count: u64,
    /// How many segments were written over freed ones.
    pub reused_count: u64,
}

/// Runs one seed to its end; what it has survived.
pub fn run(seed: u64, settings: Settings) -> Result<Survived, Failure> {
    let kinds = Kinds { interleave_percent: settings.interleave_percent, reopens: true };
    let mut world = World::new(seed, settings.broken, kinds);
    world.machine.disk.set_write_back(settings.write_back_percent);
    world.machine.disk.set_stale_bytes(settings.stale_bytes);
    if settings.interleave_percent > 0 {
        // A commit in the middle of a sync must not have to wait for that sync.
        let config = world.machine.config.clone();
        world.machine.config = config.max_unsynced_bytes(1 << 20).index_memory_limit_bytes(1 << 20);
    }
    match live_all(&mut world, settings) {
        Ok(crash_count) => Ok(Survived { crash_count, reused_count: world.reused_count }),
        Err(what) => Err(Failure::new(format_args!("{}:{seed}", settings.kind), what, &world)),
    }
}

fn live_all(world: &mut World, settings: Settings) -> Result<u64, String> {
    let mut crashes = 0;
    if world.random.chance(20) {
        let call = world.random.below(25);
        world.machine.disk.crash_after_calls(call);
    }
    let mut is_open = world.try_open(0)?;
    for _ in 0..settings.lives {
        if is_open {
            live(world, settings)?;
        }
        let unsynced = world.machine.disk.unsynced_changes();
        let stop = any_stop(&mut world.random, settings.power_percent, unsynced);
        world.stop(stop);
        world.expected = Expected::default();
        let disturbance = match world.random.chance(settings.failing_open_percent) {
            true => Disturbance::FailingSync,
            false => Disturbance::Often,
        };
        crashes += 1 + world.recover(stop, disturbance)?;
        is_open = true;
    }
    world.check_afterlife()?;
    Ok(crashes)
}

/// One life, until a call fails or enough was done.
fn live(world: &mut World, settings: Settings) -> Result<(), String> {
    // Some are long enough for segments to be freed in them, and written over.
    let is_long = world.random.chance(25);
    let steps = if is_long { 30 + world.random.below(40) } else { 3 + world.random.below(18) };
    plan(world, settings, if is_long { 300 } else { 70 });
    for _ in 0..steps {
        if world.random.chance(settings.full_percent) {
            let room = world.random.below(6000);
            world.limit_room(Some(room));
        } else if world.expected.full && world.random.chance(30) {
            world.limit_room(None);
        }
        match world.step()? {
            Flow::GoesOn => {}
            Flow::Crashed => break,
            Flow::Halted => {
                world.note("halted");
                return world.check_halted();
            }
        }
    }
    Ok(())
}

/// Plans what goes wrong in a life that has about so many calls.
fn plan(world: &mut World, settings: Settings, calls: u64) {
    let disk = world.machine.disk.clone();
    let random = &mut world.random;
    if random.chance(settings.crash_percent) {
        disk.crash_after_calls(random.below(calls));
    }
    if random.chance(settings.failing_call_percent) {
        let failing = [
            FileCall::Sync,
            FileCall::Sync,
            FileCall::Write,
            FileCall::SyncDirectory,
            FileCall::Create,
            FileCall::Rename,
        ];
        let call = random.pick(&failing);
        let errno = random.pick(&[EIO, ENOSPC]);
        let errno = if call == FileCall::Sync { errno } else { EIO };
        let fault = Fault::next(call, errno).after_calls(random.below(8));
        disk.plan(fault.after_bytes(random.below(3000)));
        world.expected.failure = true;
        world.expected.failing_sync = call == FileCall::Sync;
        let text = format!("will fail: {fault:?}");
        world.note(text);
        return;
    }
    if random.chance(settings.failing_store_percent) {
        world.expected.failure = true;
        match random.below(3) {
            0 => world.machine.store.fail_next_flush(FailedFlush::KeepsOld),
            1 => world.machine.store.fail_next_flush(FailedFlush::KeepsNew),
            _ => world.machine.store.fail_write_after(random.below(20)),
        }
        world.note("the store will fail");
    }
}

/// Runs many seeds; the first promise that does not hold.
pub fn search(seeds: std::ops::Range<u64>, settings: Settings) -> Result<Survived, Failure> {
    let mut sum = Survived::default();
    for seed in seeds {
        let survived = run(seed, settings)?;
        sum.crash_count += survived.crash_count;
        sum.reused_count += survived.reused_count;
    }
    Ok(sum)
}

fn must_hold(count: u64, settings: Settings) {
    let result = match Asked::of(settings.kind) {
        Asked::All => search(0..count * scale(), settings).inspect(|survived| {
            assert!(survived.reused_count > 50, "segments are written over: {survived:?}");
        }),
        Asked::One(numbers) => run(numbers[0], settings),
        Asked::Nothing => return,
    };
    match result {
        Ok(survived) => println!("{}: {survived:?}", settings.kind),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn many_lives_that_end_anywhere_keep_every_promise() {
    must_hold(400, Settings::PLAIN);
}

#[test]
fn commits_in_the_middle_of_syncs_and_checkpoints_keep_every_promise() {
    must_hold(300, Settings::INTERLEAVED);
}

#[test]
fn old_bytes_that_show_in_new_files_are_never_taken_for_commits() {
    must_hold(200, Settings::STALE);
}

#[test]
fn a_call_that_fails_halts_and_nothing_acknowledged_is_lost() {
    must_hold(400, Settings::FAILING);
}

#[test]
fn a_store_that_fails_halts_and_nothing_acknowledged_is_lost() {
    must_hold(300, Settings::STORE);
}

#[test]
fn a_full_disk_refuses_commits_for_good_and_loses_none() {
    must_hold(400, Settings::FULL);
}
