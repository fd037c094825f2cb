//! Opening a world again after a stop, with crashes on the way, and all that must hold then.

use tidelog::internals::rules::Rule;
use tidelog::testing::{EIO, Fault, FileCall, PowerLoss};
use tidelog::{Durability, OpenError, StorageError};

use crate::machine::{Stop, any_stop};
use crate::observed::{Observed, check_epochs, check_given};
use crate::operations::{Operation, Part, append};
use crate::world::{Ending, Expected, World};

/// How recovery is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// It is stopped at this call, and the next time at any.
    At(u64),
    /// It is stopped at any call, up to three times.
    Often,
    /// A sync of it fails, and then it is stopped at any call.
    FailingSync,
}

impl World {
    /// Opens the engine and holds it against the model, which goes on from there. `false` if the
    /// process was stopped before the open had ended; the commit that begins its life may be there
    /// then. At least `least` commits must be there.
    pub fn try_open(&mut self, least: usize) -> Result<bool, String> {
        let engine = match self.machine.open() {
            Ok(engine) => engine,
            Err(_) if self.machine.disk.has_crashed() => {
                self.tries += 1;
                return Ok(false);
            }
            Err(OpenError::Storage(error)) if self.expected.failure => {
                self.note(format_args!("  failed: {error}"));
                self.lost_a_sync |= self.expected.failing_sync;
                self.tries += 1;
                return Ok(false);
            }
            Err(error) => return Err(format!("the engine does not open: {}", chain(&error))),
        };
        self.note(format_args!("opened: {}", engine.recovered()));
        self.check_epoch(&engine)?;
        self.engine = Some(engine);
        let observed = Observed::of(self.engine())?;
        let report = self.engine().verify().map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("verify is not content: {report}"));
        }
        let last = self.last_recovered();
        self.find(&observed, last, least)?;
        self.check_shown_as_synced()?;
        check_epochs(self.engine(), self.model.state())?;
        let state = self.model.state().clone();
        check_given(&*self.machine.index(), &state, &mut self.model.given)?;
        self.leader_epoch = self.engine().leader_epoch();
        self.ending = Ending::Otherwise;
        self.tries = 0;
        self.lost_a_sync = false;
        self.note_opened();
        Ok(true)
    }

    /// The number of the last commit before this life began, from the index itself.
    fn last_recovered(&self) -> usize {
        let key = tidelog::internals::keyspace::MetaKey::Applied.key();
        let index = self.machine.index();
        let value = index.get(tidelog::internals::write_batch::Family::Meta, &key);
        let value = value.expect("the index can be read").expect("a commit was applied");
        let applied =
            tidelog::internals::keyspace::decode_applied(&value).expect("it is well formed");
        // The last one began this life.
        applied.sequence.0 as usize - 1
    }

    /// Finds the place of the history that the engine shows, and lets the model go on from it.
    fn find(&mut self, observed: &Observed, last: usize, least: usize) -> Result<(), String> {
        let tries = self.tries;
        let most = self.model.commit_count();
        let range = format!("{last} commits are there, {least} to {most} and {tries} tries may be");
        if last < least || last > most + tries {
            return Err(range);
        }
        let mut first_difference = None;
        for number in (least..=last.min(most)).rev().filter(|number| last - number <= tries) {
            let state = self.model.state_at(number);
            match observed.compare(&state) {
                Ok(()) => {
                    self.model.reopened(number, last - number + 1);
                    for (made_by, id) in observed.ids(&state) {
                        self.model.name_topic(made_by, id);
                    }
                    return Ok(());
                }
                Err(difference) => first_difference = first_difference.or(Some(difference)),
            }
        }
        Err(format!("{range}; the state is none of them: {first_difference:?}"))
    }

    /// What was shown as synced is there, where its topic is.
    fn check_shown_as_synced(&mut self) -> Result<(), String> {
        for ((id, index), end) in self.shown_as_synced.drain() {
            let topics = &self.model.state().topics;
            let topic = topics.iter().find(|(_, topic)| topic.id == Some(id));
            let Some((name, topic)) = topic else { continue };
            let log_end = topic.log_end(index);
            if log_end < end {
                return Err(format!("{name}-{index} was shown as synced to {end}: now {log_end}"));
            }
        }
        Ok(())
    }

    /// The leader epoch is raised by every open but one that follows a clean close.
    fn check_epoch(&self, engine: &tidelog::Engine) -> Result<(), String> {
        if self.machine.broken.breaks(Rule::D2EpochRises) {
            // What comes of it shows later: one name is given to two records.
            return Ok(());
        }
        let tries = self.tries;
        let (before, now) = (self.leader_epoch, engine.leader_epoch());
        let is_clean = engine.recovered().closed_cleanly;
        let may_be_clean = matches!(self.ending, Ending::Closed | Ending::Closing);
        let must_be_clean = self.ending == Ending::Closed && tries == 0;
        let is_right = match is_clean {
            true => may_be_clean && now >= before && (tries > 0 || now == before),
            false => !must_be_clean && now > before,
        };
        match is_right {
            true => Ok(()),
            false => Err(format!(
                "leader epoch {before} became {now}: closed_cleanly={is_clean} ended {:?}",
                self.ending
            )),
        }
    }

    /// Opens after a stop, which may be followed by more of them.
    pub fn recover(&mut self, stop: Stop, disturbance: Disturbance) -> Result<u64, String> {
        let mut is_power = stop != Stop::Kill;
        let mut tries = 0;
        let mut disturbance = disturbance;
        loop {
            match disturbance {
                Disturbance::At(call) => self.machine.disk.crash_after_calls(call),
                Disturbance::Often if tries < 3 && self.random.chance(70) => {
                    let call = self.random.below(30);
                    self.machine.disk.crash_after_calls(call);
                }
                Disturbance::FailingSync => {
                    let fault = Fault::next(FileCall::Sync, EIO);
                    self.machine.disk.plan(fault.after_calls(self.random.below(5)));
                    self.expected.failure = true;
                    self.expected.failing_sync = true;
                }
                _ => {}
            }
            let least =
                if is_power || self.lost_a_sync { self.model.synced() } else { self.model.acked() };
            if self.try_open(least)? {
                self.machine.disk.clear_faults();
                self.expected = Expected::default();
                return Ok(tries as u64);
            }
            self.note("  stopped while it opened");
            self.expected = Expected::default();
            tries += 1;
            disturbance = Disturbance::Often;
            let unsynced = self.machine.disk.unsynced_changes();
            let stop = any_stop(&mut self.random, 50, unsynced);
            is_power |= stop != Stop::Kill;
            self.stop(stop);
        }
    }

    /// Appending works, and a second open shows the same, whatever ends the life between.
    pub fn check_afterlife(&mut self) -> Result<(), String> {
        if self.model.state().topics.is_empty() {
            let create =
                Operation::Create { name: "afterwards", partition_count: 2, log_time: false };
            self.run(&create)?;
        }
        let (name, _) = self.model.state().topics.first_key_value().expect("one was made");
        let part = Part { name: name.clone(), partition: 0, record_count: 2, value_bytes: 30 };
        let mut last = append(&mut self.random, self.model.state(), Durability::Sync);
        last.parts.push(part);
        self.run(&Operation::Append(last))?;
        let before = Observed::of(self.engine())?;
        match self.random.below(4) {
            0 => {
                self.run(&Operation::Close)?;
            }
            1 => {
                self.run(&Operation::Drop)?;
            }
            choice => {
                let stop = if choice == 2 { Stop::Kill } else { Stop::Power(PowerLoss::Nothing) };
                self.stop(stop);
                self.recover(stop, Disturbance::None)?;
            }
        }
        if Observed::of(self.engine())? != before {
            return Err("a second open shows something else".into());
        }
        Ok(())
    }

    /// After a halt: nothing is taken any more, and what is there can be read.
    pub fn check_halted(&mut self) -> Result<(), String> {
        for durability in [Durability::Buffered, Durability::Sync] {
            let mut state = self.model.state().clone();
            // One may be gone whose deletion is not known to be there.
            state.topics.retain(|name, _| self.engine().topic(name).is_some());
            if state.topics.is_empty() {
                break;
            }
            let append = append(&mut self.random, &state, durability);
            let before = self.model.acked();
            self.run(&Operation::Append(append))?;
            if self.model.acked() != before {
                return Err("a halted engine has taken a commit".into());
            }
        }
        if self.engine().maintenance().checkpoint().is_ok() {
            return Err("a halted engine has taken a checkpoint".into());
        }
        if self.machine.disk.has_crashed() {
            return Ok(());
        }
        Observed::of(self.engine()).map(|_| ())
    }
}

/// An error with all its causes.
pub fn chain(error: &OpenError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    if let OpenError::Storage(StorageError::Io { source, .. }) = error {
        text = format!("{text} ({source})");
    }
    text
}
