//! A model of what the log has promised, driven beside a real log on a simulated disk.
//!
//! A run is a number of lives. In each the log is opened, perhaps with crashes on the way, is held
//! against the model, takes commits, and is stopped: killed or by a power loss, in the middle of a
//! call or between two. What must hold after each open:
//!
//! - the commits are a prefix of those that were made, each as it was made, payloads included;
//! - it has at least those that the log called synced, and after a kill all that were written;
//! - a commit that was answered as "not written" is not there;
//! - the log opens, but where the test itself has done damage.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tidelog::error::{Place, StorageError};
use tidelog::internals::log::{CommitLog, ReplayedFrame, ReplayedPayload};
use tidelog::testing::{Fault, FileCall, SimulatedDisk};
use tidelog::types::AppliedCommit;

use crate::groups::{append_some, append_some_inside};
use crate::model::{
    DIRECTORY, LOG, Made, Random, Settings, Shared, options, read_back, stop_disk, used_bytes,
};

pub(crate) struct World {
    pub(crate) disk: SimulatedDisk,
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    pub(crate) timeline: Shared,
    pub(crate) applied: AppliedCommit,
    pub(crate) log: Option<Arc<CommitLog>>,
    /// How many crashes were survived, those inside an open included.
    pub(crate) crash_count: u64,
    /// How many segments were written over freed ones.
    pub(crate) reused_count: u64,
    /// After damage: the first commit that it hit, and whether something proves that it was synced.
    pub(crate) damage: Option<(u64, bool)>,
}

/// What worlds went through.
#[derive(Debug, Default)]
pub(crate) struct Survived {
    pub(crate) crash_count: u64,
    pub(crate) reused_count: u64,
}

/// Runs a world by its seed to its end, or to the first promise that does not hold.
pub(crate) fn run(seed: u64, settings: Settings) -> Result<Survived, String> {
    let mut world = World::new(seed, settings)?;
    for _ in 0..settings.lives {
        if !world.open()? {
            break;
        }
        world.live()?;
        world.stop();
    }
    if world.damage.is_none() {
        world.open()?;
    }
    world.close();
    Ok(Survived { crash_count: world.crash_count, reused_count: world.reused_count })
}

/// Runs many worlds; the first promise that does not hold, with the seed of its world.
pub(crate) fn search(
    mut seeds: std::ops::Range<u64>,
    settings: Settings,
) -> Result<Survived, (u64, String)> {
    seeds.try_fold(Survived::default(), |sum, seed| {
        let survived = run(seed, settings).map_err(|what| (seed, what))?;
        Ok(Survived {
            crash_count: sum.crash_count + survived.crash_count,
            reused_count: sum.reused_count + survived.reused_count,
        })
    })
}

impl World {
    pub(crate) fn new(seed: u64, settings: Settings) -> Result<Self, String> {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new(random.next());
        disk.set_write_back(settings.write_back_percent);
        disk.set_stale_bytes(settings.stale_bytes);
        let mut crash_count = 0;
        let directory = Path::new(DIRECTORY);
        let log = loop {
            if random.chance(40) && crash_count < 3 {
                disk.crash_after_calls(random.below(6));
            }
            let made = CommitLog::create(disk.process(), directory, LOG, options(settings.broken));
            if let Ok(log) = made {
                break log;
            }
            if !disk.has_crashed() {
                return Err(format!("a log could not be made: {made:?}"));
            }
            crash_count += 1;
            stop_disk(&disk, &mut random, 50);
        };
        disk.clear_faults();
        let applied = log.first_place();
        let timeline = Shared::default();
        Ok(Self {
            disk,
            settings,
            random,
            timeline,
            applied,
            log: Some(Arc::new(log)),
            crash_count,
            reused_count: 0,
            damage: None,
        })
    }

    /// A world in which nothing happens but what the test asks for.
    pub(crate) fn quiet(seed: u64, settings: Settings) -> Self {
        let disk = SimulatedDisk::new(seed);
        let options = options(settings.broken);
        let log = CommitLog::create(disk.process(), Path::new(DIRECTORY), LOG, options)
            .expect("nothing fails");
        Self {
            disk,
            settings,
            random: Random(seed),
            timeline: Shared::default(),
            applied: log.first_place(),
            log: Some(Arc::new(log)),
            crash_count: 0,
            reused_count: 0,
            damage: None,
        }
    }

    /// The same world once more, without the process that runs in it.
    pub(crate) fn fork(&self) -> Self {
        let timeline = self.timeline.lock().clone();
        Self {
            disk: self.disk.fork(),
            settings: self.settings,
            random: self.random.clone(),
            timeline: Arc::new(Mutex::new(timeline)),
            applied: self.applied,
            log: None,
            crash_count: self.crash_count,
            reused_count: self.reused_count,
            damage: self.damage,
        }
    }

    /// Opens the log, with up to three crashes on the way; `false` where damage made it refuse.
    pub(crate) fn open(&mut self) -> Result<bool, String> {
        self.close();
        let mut crashes = 0;
        for _ in 0..20 {
            if crashes < 3 && self.settings.crash_percent > 0 && self.random.chance(35) {
                self.disk.crash_after_calls(self.random.below(10));
            }
            let mut replayed = Vec::new();
            let mut replay = |frame: ReplayedFrame<'_>| {
                let payloads: Vec<_> = frame.payloads().collect();
                replayed.push((frame.applied, frame.write_batch.to_vec(), payloads));
                Ok(())
            };
            let opened = CommitLog::open(
                self.disk.process(),
                Path::new(DIRECTORY),
                LOG,
                options(self.settings.broken),
                self.applied,
                &mut replay,
            );
            match opened {
                Ok((log, found)) => {
                    self.disk.crash_after_calls(u64::MAX);
                    if found.last.sequence.0 != self.applied.sequence.0 + replayed.len() as u64 {
                        return Err("the last commit is not the last that was replayed".into());
                    }
                    self.check(&log, &replayed)?;
                    self.log = Some(Arc::new(log));
                    return Ok(true);
                }
                Err(_) if self.disk.has_crashed() => {
                    crashes += 1;
                    self.crash_count += 1;
                    if stop_disk(&self.disk, &mut self.random, 50) {
                        self.forget_buffered();
                    }
                }
                // A sync that was planned to fail, or a full disk: the next try finds it well.
                Err(StorageError::Io { .. }) => {
                    self.disk.clear_faults();
                    self.disk.kill();
                    self.forget_buffered();
                }
                Err(error) => return self.judge_refusal(&error),
            }
        }
        Err("the log does not open after 20 tries".into())
    }

    fn judge_refusal(&self, error: &StorageError) -> Result<bool, String> {
        let Some((hit, _)) = self.damage else {
            return Err(format!("the log refuses to open: {error}"));
        };
        let StorageError::Corruption(corruption) = error else {
            return Err(format!("damage is reported as something else: {error}"));
        };
        match &corruption.place {
            Place::Commits { first, last } if first.0 == hit && last >= first => Ok(false),
            Place::Segment { .. } => Ok(false),
            _ => Err(format!("commit {hit} is damaged, and told is: {error}")),
        }
    }

    /// Holds what was found against the model, and lets the model go on from there.
    fn check(
        &mut self,
        log: &CommitLog,
        replayed: &[(AppliedCommit, Vec<u8>, Vec<ReplayedPayload>)],
    ) -> Result<(), String> {
        let mut timeline = self.timeline.lock();
        let last = self.applied.sequence.0 + replayed.len() as u64;
        if let Some((hit, is_proven)) = self.damage {
            if is_proven {
                return Err(format!("commit {hit} was synced, is damaged, and goes unnoticed"));
            }
            timeline.acked = timeline.acked.min(hit - 1);
            timeline.written = timeline.written.min(hit - 1);
        }
        if last < timeline.acked {
            return Err(format!(
                "commits {}..={} were synced and are lost",
                last + 1,
                timeline.acked
            ));
        }
        if last < timeline.written {
            return Err(format!("a kill took commits {}..={}", last + 1, timeline.written));
        }
        if last > timeline.made.len() as u64 {
            return Err(format!("commit {last} was never made, or was called not written"));
        }
        timeline.made.truncate(last as usize);
        for (applied, write_batch, payloads) in replayed {
            let made = &mut timeline.made[applied.sequence.0 as usize - 1];
            if *write_batch != made.commit.write_batch {
                return Err(format!("commit {} holds the changes of another", applied.sequence));
            }
            if payloads.len() != made.commit.batches.len() {
                return Err(format!("commit {} has other payloads", applied.sequence));
            }
            let made_at = applied.position + made.commit.payloads_at();
            if payloads.first().is_some_and(|first| first.location.position != made_at) {
                return Err(format!("the payloads of commit {} are elsewhere", applied.sequence));
            }
            made.place = Some(*applied);
        }
        for (at, made) in timeline.made.iter().enumerate() {
            let place = made.place.ok_or("a commit has no place")?;
            if place.sequence.0 != at as u64 + 1 {
                return Err("a commit has another's place".into());
            }
            if !timeline.freed.contains(&place.segment) {
                read_back(log, &made.commit, place)?;
            }
        }
        if log.written().0 != last || log.synced().0 != last {
            return Err("what was recovered is not written and synced".into());
        }
        timeline.acked = last;
        timeline.written = last;
        Ok(())
    }

    /// One life: appends, syncs, checkpoints, until a call fails or enough was done.
    fn live(&mut self) -> Result<(), String> {
        let log = self.log.clone().expect("the log is open");
        self.plan_faults();
        for _ in 0..1 + self.random.below(self.settings.steps) {
            if self.random.chance(self.settings.full_percent) {
                let used = used_bytes(&log);
                self.disk.set_capacity(Some(used + self.random.below(1500)));
            } else if self.random.chance(20) {
                self.disk.set_capacity(None);
            }
            let goes_on = match self.random.below(12) {
                0..=6 => append_some(&log, &self.timeline, &mut self.random, self.settings)?,
                7 | 8 => self.sync(&log)?,
                9 | 10 => self.checkpoint(&log)? && (self.random.chance(30) || self.free(&log)?),
                _ => break,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn plan_faults(&mut self) {
        if self.random.chance(self.settings.sync_fails_percent) {
            let fault = Fault::next(FileCall::Sync, self.settings.sync_errno);
            self.disk.plan(fault.after_calls(self.random.below(6)));
        }
        if self.random.chance(self.settings.crash_percent) {
            self.disk.crash_after_calls(self.random.below(60));
        }
    }

    /// Syncs, perhaps with commits that are appended in the middle of it.
    pub(crate) fn sync(&mut self, log: &Arc<CommitLog>) -> Result<bool, String> {
        let failure = Arc::new(Mutex::new(None));
        if self.random.chance(self.settings.interleave_percent) {
            let (log, timeline) = (Arc::downgrade(log), self.timeline.clone());
            let (mut random, settings) = (Random(self.random.next()), self.settings);
            let failure = failure.clone();
            self.disk.during_next_sync(move || {
                // An append that has to sync would wait for the sync that it stands in.
                let log = log.upgrade().expect("the log lives as long as its sync");
                if log.unsynced_bytes() < 2000 {
                    *failure.lock() =
                        append_some_inside(&log, &timeline, &mut random, settings).err();
                }
            });
        }
        let synced = log.sync(log.written());
        self.disk.during_next_sync(|| {});
        if let Some(failure) = failure.lock().take() {
            return Err(failure);
        }
        let mut timeline = self.timeline.lock();
        timeline.acked = timeline.acked.max(log.synced().0);
        if synced.is_err() && !self.disk.has_crashed() {
            timeline.written = timeline.acked;
        }
        // With a broken rule the log may go on after a failed sync; then so does its caller.
        Ok(synced.is_ok() || !log.is_halted() && !self.disk.has_crashed())
    }

    pub(crate) fn checkpoint(&mut self, log: &Arc<CommitLog>) -> Result<bool, String> {
        if !self.sync(log)? {
            return Ok(false);
        }
        let timeline = self.timeline.lock();
        let synced = log.synced().0;
        if let Some(made) = synced.checked_sub(1).map(|at| &timeline.made[at as usize]) {
            self.applied = made.place.expect("a synced commit was written");
        }
        Ok(true)
    }

    /// Frees what lies before the log's begin; what it held cannot be read any more.
    pub(crate) fn free(&mut self, log: &Arc<CommitLog>) -> Result<bool, String> {
        for segment in log.segments() {
            if segment.id >= self.applied.segment || log.is_halted() {
                break;
            }
            self.timeline.lock().freed.insert(segment.id);
            match log.free_segment(segment.id) {
                Ok(_) => {}
                Err(_) if self.disk.has_crashed() => return Ok(false),
                Err(error) => return Err(format!("a segment cannot be freed: {error}")),
            }
            let timeline = self.timeline.lock();
            let is_in = |made: &&Made| made.place.is_some_and(|at| at.segment == segment.id);
            for made in timeline.made.iter().filter(is_in) {
                let place = made.place.expect("it has one");
                if !made.commit.batches.is_empty() && read_back(log, &made.commit, place).is_ok() {
                    return Err(format!("commit {} is read from a freed segment", place.sequence));
                }
            }
        }
        Ok(true)
    }

    fn close(&mut self) {
        if let Some(log) = self.log.take() {
            self.reused_count += log.free_segments().reused_count;
        }
    }

    /// Stops the process, and perhaps does damage.
    fn stop(&mut self) {
        // A failed sync has halted it: what was buffered may be gone although the machine runs on.
        let has_failed = self.log.as_ref().is_some_and(|log| log.is_halted());
        self.close();
        if has_failed && !self.disk.has_crashed() {
            self.forget_buffered();
        }
        self.disk.set_capacity(None);
        self.disk.crash_after_calls(u64::MAX);
        self.crash_count += 1;
        if stop_disk(&self.disk, &mut self.random, self.settings.power_percent) {
            self.forget_buffered();
        }
        if self.random.chance(self.settings.rot_percent) {
            self.damage = self.rot_a_frame();
        } else if self.random.chance(self.settings.header_rot_percent) {
            self.damage = self.rot_a_header();
        }
    }

    pub(crate) fn forget_buffered(&self) {
        let mut timeline = self.timeline.lock();
        timeline.written = timeline.acked;
    }
}
