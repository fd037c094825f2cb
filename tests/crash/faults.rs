//! Calls that fail without a crash: the engine halts or says "not written", and is believed after any crash.

use tidelog::internals::rules::BrokenRules;
use tidelog::testing::{EIO, ENOSPC, FailedFlush, Fault, FileCall, PowerLoss};
use tidelog::{CommitError, Durability, NotWritten, Record, StorageError};

use crate::machine::Stop;
use crate::operations::{Kinds, Operation};
use crate::recovery::Disturbance;
use crate::script::{THREE, started};
use crate::world::{Answer, Flow, World};

const RUN_STEPS: u64 = 25;

/// An open that fails is another test's: here the engine stays open until it halts.
const ONE_LIFE: Kinds = Kinds { interleave_percent: 0, reopens: false };

/// Runs a seed until its planned failure has halted it; `false` if the run ended before.
fn run_until_halted(world: &mut World) -> Result<bool, String> {
    for _ in 0..RUN_STEPS {
        match world.step()? {
            Flow::GoesOn => {}
            Flow::Halted => return Ok(true),
            Flow::Crashed => return Err("nothing has stopped the process".into()),
        }
    }
    Ok(false)
}

/// After a halt: refused and readable; opened again in the same boot; and then the power fails.
fn check_after_halt(mut world: World, number: u64) -> Result<(), String> {
    world.check_halted()?;
    if number.is_multiple_of(2) {
        // Dropped, and opened by the same process.
        world.engine = None;
        world.machine.disk.clear_faults();
        let least = if world.lost_a_sync { world.model.synced() } else { world.model.acked() };
        if !world.try_open(least)? {
            return Err("nothing has stopped the process".into());
        }
    } else {
        world.stop(Stop::Kill);
        world.recover(Stop::Kill, Disturbance::None)?;
    }
    for durability in [Durability::Buffered, Durability::Sync, Durability::Buffered] {
        if !world.model.state().topics.is_empty() {
            let state = world.model.state().clone();
            let append = crate::operations::append(&mut world.random, &state, durability);
            world.run(&Operation::Append(append))?;
        }
    }
    let loss = match number % 3 {
        0 => PowerLoss::Nothing,
        1 => PowerLoss::First(1),
        _ => PowerLoss::Random(number),
    };
    world.restart(Stop::Power(loss))?;
    world.check_afterlife()
}

/// Lets each call of a kind fail in turn, of a few runs; how many have halted.
fn each_call_fails(call: FileCall, errno: i32, after_bytes: u64) -> u64 {
    let mut halts = 0;
    for seed in 0..4 {
        let mut quiet = 0;
        for after_calls in 0..60 {
            let mut world = World::new(seed, BrokenRules::NONE, ONE_LIFE);
            let fault = Fault::next(call, errno).after_calls(after_calls).after_bytes(after_bytes);
            let result = world.try_open(0).and_then(|_| {
                world.machine.disk.plan(fault);
                world.expected.failure = true;
                world.expected.full = errno == ENOSPC;
                world.expected.failing_sync = call == FileCall::Sync;
                let is_halted = run_until_halted(&mut world)?;
                let trace = world.trace.join("\n");
                let checked = match is_halted {
                    true => check_after_halt(world, after_calls),
                    false => world.restart(Stop::Power(PowerLoss::Nothing)),
                };
                checked.map(|()| is_halted).map_err(|what| format!("{what}\n{trace}"))
            });
            match result {
                Ok(true) => halts += 1,
                Ok(false) => quiet += 1,
                Err(what) => panic!("seed {seed}, {fault:?}: {what}"),
            }
            if quiet > 3 {
                break;
            }
        }
    }
    halts
}

#[test]
fn a_sync_that_fails_once_halts_although_the_next_ones_succeed() {
    assert!(each_call_fails(FileCall::Sync, EIO, 0) > 40);
}

#[test]
fn a_full_disk_that_a_sync_reports_halts_too() {
    assert!(each_call_fails(FileCall::Sync, ENOSPC, 0) > 40);
}

#[test]
fn a_write_that_fails_in_its_middle_halts() {
    for after_bytes in [0, 1, 100, 700] {
        assert!(each_call_fails(FileCall::Write, EIO, after_bytes) > 20);
    }
}

#[test]
fn a_directory_that_cannot_be_synced_halts() {
    assert!(each_call_fails(FileCall::SyncDirectory, EIO, 0) > 3);
}

/// Three transactions as one group, with room for this much more than is used.
fn try_with_room(world: &mut World, room: u64) -> Vec<Answer> {
    world.limit_room(Some(room));
    let mut tickets = Vec::new();
    for (name, index, value_bytes) in THREE {
        let mut transaction = world.engine().append_transaction();
        let partition = crate::world::partition(world.engine(), name, index).expect("it exists");
        let records = [Record::new("key", vec![7; value_bytes])];
        transaction.records(&partition, records).expect("it is small");
        tickets.push(transaction.submit(Durability::Buffered).expect("the queue has room"));
    }
    world.engine().maintenance().run_pending();
    tickets.into_iter().map(|ticket| ticket.wait()).collect()
}

/// Refuses transactions for which there is this much room, and holds the engine to it after a
/// power loss and after there is room again; `false` where there was enough.
pub fn refuse_for_good(room: u64, broken: BrokenRules) -> Result<bool, String> {
    let mut world = started(room, broken);
    world.machine.disk.set_write_back(if room.is_multiple_of(2) { 0 } else { 100 });
    world.commit(&THREE, Durability::Buffered);
    let answers = try_with_room(&mut world, room);
    if answers.iter().all(Result::is_ok) {
        return Ok(false);
    }
    for answer in answers {
        let Err(CommitError::NotWritten {
            reason: NotWritten::Storage(StorageError::DiskFull { .. }),
            transaction,
        }) = answer
        else {
            return Err(format!("room {room}: {answer:?}"));
        };
        assert_eq!(transaction.batch_count(), 1);
    }
    assert!(!world.engine().metrics().halted);
    // The power fails before the next commit: what was refused does not come back.
    let losses = [PowerLoss::Nothing, PowerLoss::Everything, PowerLoss::First(1)];
    for (number, loss) in (0..).zip(losses.into_iter().chain([PowerLoss::Random(room)])) {
        world.image(number).restart(Stop::Power(loss))?;
    }
    // Or there is room again, and what comes next is taken.
    world.limit_room(None);
    if world.commit(&THREE, Durability::Sync) != Flow::GoesOn {
        return Err("there is room, and nothing is taken".into());
    }
    world.restart(Stop::Power(PowerLoss::Nothing))?;
    Ok(true)
}

#[test]
fn a_disk_that_is_full_at_any_byte_of_a_group_refuses_it_for_good() {
    let is_refused = |room: &u64| {
        refuse_for_good(*room, BrokenRules::NONE).unwrap_or_else(|what| panic!("{what}"))
    };
    let refusals = (0..).take_while(is_refused).count();
    assert!(refusals > 800, "{refusals} bytes");
}

#[test]
fn a_disk_that_is_full_at_any_byte_of_a_new_segment_refuses_what_needs_it() {
    for room in (0..4096).step_by(61).chain([4095]) {
        let mut world = started(room, BrokenRules::NONE);
        // Nothing else fits in this segment.
        while world.engine().metrics().segment_count == 1 {
            world.commit(&[("orders", 0, 900)], Durability::Buffered);
        }
        world.commit(&[("orders", 1, 2800)], Durability::Buffered);
        let used = world.engine().metrics().segment_count;
        world.limit_room(Some(room));
        assert_eq!(world.commit(&[("orders", 1, 2900)], Durability::Sync), Flow::GoesOn);
        assert_eq!(world.engine().metrics().segment_count, used, "room {room}");
        let mut image = world.image(room);
        image.must_restart(Stop::Power(PowerLoss::Random(room)));
        world.limit_room(None);
        world.commit(&[("orders", 1, 2900)], Durability::Sync);
        assert_eq!(world.engine().metrics().segment_count, used + 1);
        world.must_restart(Stop::Power(PowerLoss::Nothing));
    }
}

#[test]
fn a_full_disk_whose_file_cannot_be_truncated_leaves_the_outcome_unknown_and_halts() {
    for (call, room) in [(FileCall::SetLength, 300), (FileCall::Sync, 300), (FileCall::Sync, 0)] {
        for loss in [PowerLoss::Nothing, PowerLoss::Everything, PowerLoss::Random(3)] {
            let mut world = started(1, BrokenRules::NONE);
            world.commit(&THREE, Durability::Sync);
            world.machine.disk.plan(Fault::next(call, EIO));
            world.expected.failure = true;
            world.limit_room(Some(room));
            let flow = world.commit(&THREE, Durability::Buffered);
            assert_eq!(flow, Flow::Halted, "{call:?}");
            world.check_halted().expect("reads go on");
            world.must_restart(Stop::Power(loss));
        }
    }
}

/// Rule S6: whatever was written when the store failed is synced before anybody hears of it.
fn expect_all_there(world: &mut World) {
    let written = world.model.commit_count();
    world.model.acknowledge(written);
    world.model.settle(written);
}

#[test]
fn a_commit_that_the_store_cannot_take_is_unknown_and_there_after_a_reopen() {
    let mut halts = 0;
    for seed in 0..6 {
        for after_writes in 0..14 {
            let mut world = World::new(seed, BrokenRules::NONE, ONE_LIFE);
            world.try_open(0).expect("it opens");
            world.machine.store.fail_write_after(after_writes);
            world.expected.failure = true;
            if !run_until_halted(&mut world).unwrap_or_else(|what| panic!("{what}")) {
                continue;
            }
            halts += 1;
            world.check_halted().expect("reads go on");
            expect_all_there(&mut world);
            world.must_restart(Stop::Power(PowerLoss::Nothing));
            world.check_afterlife().expect("it goes on");
        }
    }
    assert!(halts > 40, "{halts} halts");
}

#[test]
fn a_flush_that_fails_halts_and_either_checkpoint_is_gone_on_from() {
    for how in [FailedFlush::KeepsOld, FailedFlush::KeepsNew] {
        for seed in 0..12 {
            let mut world = World::new(seed, BrokenRules::NONE, ONE_LIFE);
            world.try_open(0).expect("it opens");
            for _ in 0..seed {
                world.step().expect("nothing is wrong yet");
            }
            world.machine.store.fail_next_flush(how);
            world.expected.failure = true;
            if world.must(&Operation::Checkpoint) != Flow::Halted {
                continue;
            }
            world.check_halted().expect("reads go on");
            expect_all_there(&mut world);
            world.must_restart(Stop::Power(PowerLoss::Nothing));
            world.check_afterlife().expect("it goes on");
        }
    }
}

#[test]
fn after_one_write_has_failed_no_partition_takes_a_commit() {
    let mut world = started(1, BrokenRules::NONE);
    world.commit(&THREE, Durability::Sync);
    world.machine.disk.plan(Fault::next(FileCall::Write, EIO).after_bytes(50));
    world.expected.failure = true;
    assert_eq!(world.commit(&[("orders", 0, 10)], Durability::Buffered), Flow::Halted);
    for partition in [("orders", 0, 10), ("orders", 1, 10), ("audit", 0, 10)] {
        for durability in [Durability::Buffered, Durability::Sync] {
            let acked = world.model.acked();
            assert_eq!(world.commit(&[partition], durability), Flow::Halted);
            assert_eq!(world.model.acked(), acked);
        }
    }
    let taken = world.engine().create_topic("more", tidelog::TopicConfig::new(1));
    assert!(taken.is_err(), "{taken:?}");
    world.must_restart(Stop::Kill);
}

/// Loses power with buffered commits that the store may have flushed by itself.
pub fn lose_what_was_flushed(flushes: bool, seed: u64, broken: BrokenRules) -> Result<(), String> {
    let mut world = started(seed, broken);
    world.machine.store.set_flushes_by_itself(flushes);
    world.commit(&THREE, Durability::Sync);
    for _ in 0..4 {
        world.commit(&[("orders", 1, 200)], Durability::Buffered);
    }
    world.restart(Stop::Power(PowerLoss::Nothing))
}

/// What an open says that finds the index ahead of the log.
pub const AHEAD: &str = "the index knows commits that the log lost";

#[test]
fn a_store_that_flushes_by_itself_breaks_a_promise_and_one_that_obeys_does_not() {
    let lose = |flushes, seed| lose_what_was_flushed(flushes, seed, BrokenRules::NONE);
    assert!((0..20).all(|seed| lose(false, seed).is_ok()));
    let broken: Vec<String> = (0..20).filter_map(|seed| lose(true, seed).err()).collect();
    assert!(broken.len() > 5, "{broken:?}");
    // Nothing wrong is ever served: the open is refused, and names what the log has lost.
    for what in broken {
        assert!(what.contains(AHEAD), "{what}");
    }
}

#[test]
fn of_two_that_wait_for_a_sync_that_fails_neither_is_told_that_it_succeeded() {
    let world = started(3, BrokenRules::NONE);
    let disk = world.machine.disk.clone();
    disk.hold_syncs();
    let orders = crate::world::partition(world.engine(), "orders", 0).expect("it exists");
    let commit = || {
        let mut transaction = world.engine().append_transaction();
        transaction.records(&orders, [Record::keyless("waits")]).expect("it is small");
        transaction.commit(Durability::Sync)
    };
    let commits = || world.engine().metrics().commits;
    let before = commits();
    let answers = std::thread::scope(|scope| {
        let first = scope.spawn(commit);
        while disk.held_syncs() == 0 {
            std::thread::yield_now();
        }
        let second = scope.spawn(commit);
        while commits() < before + 2 {
            std::thread::yield_now();
        }
        disk.plan(Fault::next(FileCall::Sync, EIO));
        disk.release_syncs();
        [first, second].map(|waiting| waiting.join().expect("no thread panics"))
    });
    for answer in answers {
        assert!(matches!(answer, Err(CommitError::OutcomeUnknown(_))), "{answer:?}");
    }
}

/// Asks for a sync in the middle of which another sync fails. REQUIRES: a rule is broken, for else
/// the second waits for the first, which waits for it here.
pub fn sync_beside_one_that_fails(broken: BrokenRules) -> Result<(), String> {
    let mut world = started(3, broken);
    for _ in 0..2 {
        world.commit(&THREE, Durability::Buffered);
    }
    let through = world.model.acked();
    let orders = crate::world::partition(world.engine(), "orders", 0)?;
    let mut transaction = world.engine().append_transaction();
    transaction.records(&orders, [Record::keyless("in between")]).expect("it is small");
    world.machine.disk.plan(Fault::next(FileCall::Sync, EIO));
    world.machine.disk.during_next_sync(move || {
        let answer = transaction.commit(Durability::Sync);
        assert!(matches!(answer, Err(CommitError::OutcomeUnknown(_))), "{answer:?}");
    });
    world.engine().sync().map_err(|error| format!("it is told of the failure: {error}"))?;
    world.model.settle(through);
    world.restart(Stop::Power(PowerLoss::Nothing))
}

#[test]
fn a_transaction_that_was_refused_for_want_of_room_can_be_committed_once_there_is_some() {
    let mut world = started(4, BrokenRules::NONE);
    let answers = try_with_room(&mut world, 100);
    world.limit_room(None);
    for answer in answers {
        let error = answer.expect_err("there is no room");
        assert!(error.is_retriable());
        let transaction = error.into_transaction().expect("it comes back");
        let committed = transaction.commit(Durability::Sync).expect("there is room");
        assert_eq!(committed.batches[0].base_offset, 0);
    }
}
