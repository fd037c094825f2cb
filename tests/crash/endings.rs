//! How a life may end, and what clocks do: closed, dropped, panicked, halted, killed again and again.

use tidelog::internals::log::CommitLog;
use tidelog::internals::rules::BrokenRules;
use tidelog::internals::write_batch::{Operation as IndexOperation, WriteBatch};
use tidelog::testing::{EIO, Fault, FileCall, PowerLoss};
use tidelog::{Durability, Record};

use crate::lives::{Settings, run};
use crate::machine::{DIRECTORY, Machine, NOW_MS, Stop};
use crate::operations::Operation;
use crate::script::{THREE, any_time, started};
use crate::world::{Flow, partition};

/// The ways in which a halted engine can go.
#[derive(Debug, Clone, Copy)]
pub enum Ends {
    Closes,
    Drops,
    Panics,
}

/// Halts with commits that only the index in memory still holds, ends, and loses power.
pub fn end_halted(ends: Ends, flushes_at_close: bool, broken: BrokenRules) -> Result<(), String> {
    let mut world = started(1, broken);
    world.machine.store.set_flushes_at_close(flushes_at_close);
    world.commit(&THREE, Durability::Sync);
    for _ in 0..3 {
        world.commit(&[("orders", 1, 200)], Durability::Buffered);
    }
    world.machine.disk.plan(Fault::next(FileCall::Sync, EIO));
    world.expected.failure = true;
    world.expected.failing_sync = true;
    if world.run(&Operation::Sync)? != Flow::Halted {
        return Err("it has not halted".into());
    }
    let engine = world.engine.take().expect("it is open");
    match ends {
        Ends::Closes => assert!(engine.close().is_err(), "a halted engine closed cleanly"),
        Ends::Drops => drop(engine),
        Ends::Panics => {
            let panicked = std::thread::spawn(move || {
                let _engine = engine;
                std::panic::resume_unwind(Box::new("a caller panics"));
            });
            assert!(panicked.join().is_err());
        }
    }
    world.restart(Stop::Power(PowerLoss::Nothing))
}

#[test]
fn a_halted_engine_flushes_nothing_however_it_ends() {
    for ends in [Ends::Closes, Ends::Drops, Ends::Panics] {
        let kept = end_halted(ends, false, BrokenRules::NONE);
        kept.unwrap_or_else(|what| panic!("{ends:?}: {what}"));
        // A store that flushes when it is closed must be noticed.
        let broken = end_halted(ends, true, BrokenRules::NONE);
        assert!(broken.is_err(), "{ends:?}: a flush at the end was not noticed");
    }
}

#[test]
fn a_panic_in_a_callback_of_a_commit_loses_nothing_acknowledged() {
    let mut world = started(2, BrokenRules::NONE);
    world.commit(&THREE, Durability::Buffered);
    let engine = world.engine.take().expect("it is open");
    let panicked = std::thread::spawn(move || {
        let _engine = engine.clone();
        let orders = partition(&engine, "orders", 0).expect("it exists");
        let mut transaction = engine.append_transaction();
        transaction.records(&orders, [Record::keyless("never committed")]).expect("it is small");
        std::panic::resume_unwind(Box::new("a caller panics"));
    });
    assert!(panicked.join().is_err());
    world.must_restart(Stop::Kill);
}

#[test]
fn two_hundred_kills_in_a_row_open_each_time_with_all_that_was_acknowledged() {
    let settings = Settings { lives: 200, power_percent: 0, crash_percent: 90, ..Settings::PLAIN };
    let survived = run(16, settings).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(survived.crash_count >= 200, "{survived:?}");
}

#[test]
fn three_records_are_there_after_a_kill_right_after_them() {
    let mut world = started(3, BrokenRules::NONE);
    for _ in 0..3 {
        world.commit(&[("audit", 0, 20)], Durability::Buffered);
    }
    world.must_restart(Stop::Kill);
    let audit = partition(world.engine(), "audit", 0).expect("it exists");
    assert_eq!(world.engine().watermarks(&audit).expect("it exists").log_end, 3);
}

#[test]
fn topics_made_again_never_show_what_the_earlier_ones_held() {
    let mut world = started(4, BrokenRules::NONE);
    for round in 0..6 {
        world.commit(&[("orders", 0, 300), ("orders", 1, 300)], Durability::Buffered);
        world.must(&Operation::Delete { name: "orders".into() });
        world.must(&Operation::Create { name: "orders", partition_count: 3, log_time: false });
        let stop = match round % 3 {
            0 => Stop::Power(PowerLoss::Nothing),
            1 => Stop::Kill,
            _ => Stop::Power(PowerLoss::Random(round)),
        };
        world.must_restart(stop);
        let orders = partition(world.engine(), "orders", 0).expect("it exists");
        assert_eq!(world.engine().watermarks(&orders).expect("it exists").log_end, 0);
    }
}

/// A commit in the log, but for when it was formed.
#[derive(Debug, PartialEq, Eq)]
struct Logged {
    sequence: u64,
    segment: u64,
    position: u64,
    keys: Vec<Vec<u8>>,
}

/// The commits of one run, whose clock is stepped between all of its phases, or stands still.
fn logged(steps: bool) -> (Vec<Logged>, Vec<i64>) {
    let machine = Machine::new(9, BrokenRules::NONE);
    let mut phase = 0;
    let mut step = || {
        phase += 1;
        let ten_years_ms = 10 * 365 * 24 * 3600 * 1000;
        if steps {
            machine
                .clock
                .set_ms(NOW_MS + if phase % 2 == 0 { ten_years_ms } else { -ten_years_ms });
        }
    };
    let open = |machine: &Machine| machine.open().expect("nothing fails");
    let mut engine = open(&machine);
    step();
    engine.create_topic("orders", any_time(2)).expect("it is new");
    for round in 0..12u64 {
        step();
        let orders = partition(&engine, "orders", (round % 2) as u32).expect("it exists");
        let mut transaction = engine.append_transaction();
        let record = Record::new("key", vec![round as u8; 400]).timestamp(NOW_MS);
        transaction.records(&orders, [record]).expect("any time is taken");
        let durability = if round % 3 == 0 { Durability::Sync } else { Durability::Buffered };
        transaction.commit(durability).expect("nothing fails");
        step();
        match round {
            3 => engine.maintenance().checkpoint().expect("nothing fails"),
            5 => {
                drop(engine);
                machine.stop(Stop::Kill, 1);
                step();
                engine = open(&machine);
            }
            8 => {
                engine.close().expect("nothing fails");
                step();
                engine = open(&machine);
            }
            _ => {}
        }
    }
    let (identity, first) = (log_identity(&machine), first_commit(&machine));
    drop(engine);
    machine.stop(Stop::Kill, 1);
    let (mut commits, mut times) = (Vec::new(), Vec::new());
    let mut replay = |frame: tidelog::internals::log::ReplayedFrame<'_>| {
        let batch = WriteBatch::decode(frame.write_batch).expect("it is legal");
        let key = |operation| match operation {
            IndexOperation::Put { key, .. } | IndexOperation::Delete { key, .. } => key.to_vec(),
            IndexOperation::DeleteRange { begin, end, .. } => [begin, end].concat(),
        };
        commits.push(Logged {
            sequence: frame.applied.sequence.0,
            segment: frame.applied.segment.0,
            position: frame.applied.position,
            keys: batch.operations().map(key).collect(),
        });
        times.push(frame.append_time_ms);
        Ok(())
    };
    let directory = std::path::Path::new(DIRECTORY).join("log");
    let options = tidelog::internals::log::LogOptions::default();
    CommitLog::open(machine.disk.process(), &directory, identity, options, first, &mut replay)
        .expect("the log is whole");
    (commits, times)
}

/// Whose log it is, as the file FORMAT says.
pub(crate) fn log_identity(machine: &Machine) -> tidelog::internals::log::LogIdentity {
    let path = std::path::Path::new(DIRECTORY).join("FORMAT");
    let text = machine.disk.contents(&path).expect("it was written");
    let text = String::from_utf8(text).expect("it is text");
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let word = |digits| u64::from_str_radix(digits, 16).expect("it is hexadecimal");
    let (high, low) = field("secret ").split_at(16);
    tidelog::internals::log::LogIdentity {
        engine: tidelog::types::EngineId(word(field("engine "))),
        secret: tidelog::internals::hash::HashKey([word(high), word(low)]),
    }
}

/// What the index of a new engine says, so that all of the log is replayed.
fn first_commit(machine: &Machine) -> tidelog::types::AppliedCommit {
    let name = machine.segments().remove(0);
    let number = name.file_stem().and_then(|stem| stem.to_str()).expect("it has a number");
    tidelog::types::AppliedCommit {
        sequence: tidelog::types::CommitSequence::NONE,
        segment: tidelog::types::SegmentId(number.parse().expect("it is a number")),
        position: tidelog::internals::log::SEGMENT_HEADER_BYTES,
        frame_crc: 0,
    }
}

#[test]
fn steps_of_the_clock_by_ten_years_change_nothing_in_the_log_but_the_append_times() {
    let ((still, still_times), (stepped, stepped_times)) = (logged(false), logged(true));
    assert!(still.len() > 14, "{} commits", still.len());
    assert_eq!(still, stepped);
    assert_ne!(still_times, stepped_times);
    assert!(stepped_times.iter().any(|time| *time < NOW_MS));
}
