//! Any operations on an engine over simulated files, with crashes and faults, beside a model of it.
//!
//! The model is a list of worlds, one after each commit. A live engine shows the newest of them; a
//! crash leaves one of those that the contracts allow: a prefix of the commit order that holds all
//! that was acknowledged as synced, and, unless power was lost or a sync failed, all that was
//! written.

mod batches;
mod history;
mod input;
mod life;
mod reads;
mod topics;
mod world;
mod writes;

use arbitrary::{Arbitrary, Unstructured};
use tidelog::internals::rules::BrokenRules;

use input::{
    EndStep, FaultStep, Input, Name, ReadStep, SettleStep, Step, TopicStep, TransactionStep,
};
use life::Runner;

/// Runs the operations that `data` describes.
///
/// # Panics
/// If the engine does what no world of the model allows, fails without a cause, or is not content
/// with itself at the end.
pub fn engine_ops(data: &[u8]) {
    engine_ops_breaking(data, BrokenRules::NONE);
}

/// The same with an engine that breaks rules on purpose: what finds nothing then is worth nothing.
///
/// # Panics
/// As [`engine_ops`].
pub fn engine_ops_breaking(data: &[u8], broken: BrokenRules) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let mut runner = Runner::start(&input, broken);
    if input.has_topics {
        runner.create_topic(&Name("a"), 2, None);
        runner.create_topic(&Name("b.c"), 1, None);
    }
    for step in &input.steps {
        run(&mut runner, step);
        runner.check_live();
    }
    runner.finish();
}

/// The operations that `data` describes, as text.
#[must_use]
pub fn show_operations(data: &[u8]) -> String {
    let input = Input::arbitrary_take_rest(Unstructured::new(data));
    input.map_or_else(|error| error.to_string(), |input| format!("{input:#?}"))
}

fn run(runner: &mut Runner, step: &Step) {
    match step {
        Step::Append { parts, sync, more } => {
            let more = if *more < 240 { more % 4 } else { 20 };
            for _ in 0..=more {
                parts.iter().for_each(|part| runner.add(part));
                runner.commit(*sync);
            }
        }
        Step::Submit { parts, sync } => {
            parts.iter().for_each(|part| runner.add(part));
            runner.submit(*sync);
        }
        Step::Transaction(TransactionStep::Add(part)) => runner.add(part),
        Step::Transaction(TransactionStep::Commit { sync }) => runner.commit(*sync),
        Step::Transaction(TransactionStep::Abort) => runner.abort(),
        Step::Topic(step) => change(runner, step),
        Step::Read(step) => read(runner, step),
        Step::Settle(SettleStep::Sync) => runner.sync(),
        Step::Settle(SettleStep::Checkpoint { fails }) => runner.checkpoint(fails.as_ref()),
        Step::Settle(SettleStep::Maintain) => runner.maintain(),
        Step::Settle(SettleStep::RunPending) => runner.run_pending(),
        Step::Settle(SettleStep::Clock { by }) => runner.move_clock(*by),
        Step::End(EndStep::Crash(crash)) => runner.crash(crash),
        Step::End(EndStep::Close) => runner.reopen(),
        Step::End(EndStep::Drop) => runner.drop_and_open(),
        Step::Fault(FaultStep::StopAfter { calls }) => runner.stop_after(*calls),
        Step::Fault(FaultStep::FailNext(failure)) => runner.fail_next(failure),
        Step::Fault(FaultStep::FailStoreWrite { after }) => runner.fail_store_write(*after),
        Step::Fault(FaultStep::Room { bytes }) => {
            runner.set_room(bytes.map(|bytes| u64::from(bytes % 6000)))
        }
        Step::Fault(FaultStep::WriteBack { percent }) => runner.write_back(*percent),
    }
}

fn change(runner: &mut Runner, step: &TopicStep) {
    match step {
        TopicStep::Create { name, partitions, setting } => {
            runner.create_topic(name, u32::from(*partitions % 8), setting.as_ref());
        }
        TopicStep::Delete { name } => runner.delete_topic(name),
        TopicStep::AddPartitions { name, total } => {
            runner.add_partitions(name, u32::from(*total % 8));
        }
        TopicStep::Alter { name, setting } => runner.alter_topic(name, setting),
    }
}

fn read(runner: &mut Runner, step: &ReadStep) {
    match step {
        ReadStep::Fetch { spot, offset, max_bytes, synced } => {
            runner.fetch(spot, i64::from(*offset), u64::from(*max_bytes), *synced);
        }
        ReadStep::ListOffset { spot, query } => runner.list_offset(spot, query),
        ReadStep::TakeSnapshot { name } => runner.take_snapshot(name),
        ReadStep::Scan { least, most } => runner.scan(i64::from(*least), i64::from(*most)),
        ReadStep::Verify => runner.verify(),
    }
}
