//! One handle over all that outlives an engine: a simulated disk, the store on it, and a clock.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{ManualClock, MemoryDisk, PowerLoss, SimulatedDisk};
use crate::base::types::TimestampMs;
use crate::config::{EngineConfig, Maintenance};
use crate::engine::{Engine, EngineBuilder};
use crate::open::recovery::OpenError;

/// The time of day that a new world shows: 2023-11-14 22:13:20 UTC.
const FIRST_NOW_MS: TimestampMs = 1_700_000_000_000;

/// A machine for a test: a disk that can lose what was not synced, a store in memory on it, and a
/// clock that stands still until it is moved. Engines come and go in it; what they made durable
/// stays. Equal seeds and equal calls give equal runs.
///
/// A test of a service asks what is left after a power loss:
///
/// ```
/// use tidelog::testing::World;
/// use tidelog::{Durability, Engine, FetchOptions, Record, TopicConfig};
///
/// type Answer<T> = Result<T, Box<dyn std::error::Error>>;
///
/// /// The service under test: it says that it has an order once the order survives.
/// fn take_order(engine: &Engine, order: &'static str, durability: Durability) -> Answer<()> {
///     let orders = match engine.topic("orders") {
///         Some(topic) => topic,
///         None => engine.create_topic("orders", TopicConfig::new(1))?,
///     };
///     let mut append = engine.append_transaction();
///     append.records(&orders.partition(0)?, [Record::keyless(order)])?;
///     append.commit(durability)?;
///     Ok(())
/// }
///
/// fn count_orders(engine: &Engine) -> Answer<usize> {
///     let orders = engine.topic("orders").ok_or("no topic")?.partition(0)?;
///     Ok(engine.fetch(&orders, 0, FetchOptions::new())?.records().count())
/// }
///
/// # fn main() -> Answer<()> {
/// let world = World::new();
/// let engine = world.open()?;
/// take_order(&engine, "a book", Durability::Sync)?;
/// take_order(&engine, "a lamp", Durability::Buffered)?;
/// assert_eq!(count_orders(&engine)?, 2);
///
/// world.lose_power();
/// assert!(take_order(&engine, "a chair", Durability::Sync).is_err(), "it died with the power");
///
/// let engine = world.open()?;
/// assert_eq!(count_orders(&engine)?, 1, "what was only buffered is lost, and nothing else");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct World {
    disk: SimulatedDisk,
    store: MemoryDisk,
    clock: Arc<ManualClock>,
    config: EngineConfig,
    directory: PathBuf,
    seed: u64,
}

impl World {
    /// A world with an empty disk. Its engines have no threads ([`Maintenance::Manual`]), small
    /// segments, and keep no room in reserve: [`World::config`] changes that.
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(1)
    }

    /// The same where this seed decides whatever happens at random.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        let config = EngineConfig::default()
            .maintenance(Maintenance::Manual)
            .segment_bytes(1 << 20)
            .disk_reserve_bytes(0);
        Self {
            disk: SimulatedDisk::new(seed),
            store: MemoryDisk::new(),
            clock: Arc::new(ManualClock::new(FIRST_NOW_MS)),
            config,
            directory: PathBuf::from("/engine"),
            seed,
        }
    }

    /// The limits of the engines that are opened from now on, made of those that hold now.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(EngineConfig) -> EngineConfig) -> Self {
        self.config = change(self.config);
        self
    }

    /// Opens the engine of this world, or makes it.
    ///
    /// # Errors
    /// [`OpenError`], such as [`OpenError::Locked`] while an engine has it open.
    pub fn open(&self) -> Result<Engine, OpenError> {
        self.builder().open()
    }

    /// What [`World::open`] opens, for more settings.
    pub fn builder(&self) -> EngineBuilder {
        Engine::builder(&self.directory)
            .config(self.config.clone())
            .clock(Arc::clone(&self.clock) as _)
            .files(self.disk.process())
            .store(Arc::new(self.store.clone()))
            .seed(self.seed)
    }

    /// Lets time pass, for both clocks of an engine: ages, and the timeouts of transactions, which
    /// `ManualMaintenance::run` sees. Waits with a timeout, such as `poll`, wait in real time.
    ///
    /// # Panics
    /// If that is more than 500 million years.
    pub fn advance(&self, time: Duration) {
        let by_ms = u64::try_from(time.as_millis()).expect("an age that fits");
        self.clock.advance_ms(by_ms);
    }

    /// The machine stops at once and starts again: all that was not synced is lost. An engine that
    /// is open finds its files and its store gone: what is asked of it fails, and says why. Open it
    /// again to see what is left.
    pub fn lose_power(&self) {
        self.lose_power_keeping(PowerLoss::Nothing);
    }

    /// The same where a part of what was not synced has reached the disk by chance.
    pub fn lose_power_keeping(&self, kept: PowerLoss) {
        self.disk.power_loss(kept);
        self.crash_store();
    }

    /// The process dies and the machine goes on: what was written to files is still there.
    pub fn kill(&self) {
        self.disk.kill();
        self.crash_store();
    }

    fn crash_store(&self) {
        self.store.crash(self.seed);
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The disk, to let calls fail, to fill it up, or to damage what is on it.
    #[must_use]
    pub fn disk(&self) -> &SimulatedDisk {
        &self.disk
    }

    /// The disk of the store.
    #[must_use]
    pub fn store(&self) -> &MemoryDisk {
        &self.store
    }

    /// Where the engine is on the disk.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("World");
        shown.field("directory", &self.directory).field("seed", &self.seed);
        shown.field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::Durability;
    use crate::config::TopicConfig;
    use crate::read::fetch::FetchOptions;
    use crate::record::Record;
    use crate::state::catalog::Partition;
    use crate::testing::{EIO, Fault, FileCall};

    fn partition(engine: &Engine) -> Partition {
        let topic = engine.topic("t").unwrap_or_else(|| {
            engine.create_topic("t", TopicConfig::new(1)).expect("the topic is new")
        });
        topic.partition(0).unwrap()
    }

    fn append(engine: &Engine, durability: Durability) -> Result<(), String> {
        let mut append = engine.append_transaction();
        append.records(&partition(engine), [Record::keyless("r")]).unwrap();
        append.commit(durability).map(drop).map_err(|error| error.to_string())
    }

    fn log_end(engine: &Engine) -> i64 {
        engine.watermarks(&partition(engine)).unwrap().log_end
    }

    #[test]
    fn a_power_loss_takes_what_was_not_synced_and_a_kill_takes_nothing() {
        for (stop, left) in [(World::lose_power as fn(&World), 1), (World::kill, 3)] {
            let world = World::new();
            let engine = world.open().unwrap();
            append(&engine, Durability::Sync).unwrap();
            append(&engine, Durability::Buffered).unwrap();
            append(&engine, Durability::Buffered).unwrap();
            stop(&world);
            drop(engine);
            assert_eq!(log_end(&world.open().unwrap()), left);
        }
    }

    #[test]
    fn what_has_reached_the_disk_by_chance_is_kept() {
        let world = World::new();
        let engine = world.open().unwrap();
        append(&engine, Durability::Buffered).unwrap();
        world.lose_power_keeping(PowerLoss::Everything);
        assert_eq!(log_end(&world.open().unwrap()), 1);
    }

    #[test]
    fn an_engine_that_was_open_is_stale_and_does_no_harm_to_the_next_one() {
        let world = World::new();
        let stale = world.open().unwrap();
        append(&stale, Durability::Sync).unwrap();
        world.lose_power();
        let engine = world.open().unwrap();
        append(&stale, Durability::Buffered).unwrap_err();
        append(&engine, Durability::Sync).unwrap();
        assert!(stale.close().is_err(), "what it says of its end is an error");
        append(&engine, Durability::Sync).unwrap();
        drop(engine);
        world.lose_power();
        assert_eq!(log_end(&world.open().unwrap()), 3);
    }

    #[test]
    fn an_engine_without_its_machine_says_so_whatever_it_is_asked() {
        for stop in [World::lose_power as fn(&World), World::kill] {
            let world = World::new();
            let engine = world.open().unwrap();
            let partition = partition(&engine);
            append(&engine, Durability::Sync).unwrap();
            stop(&world);
            let fetched = engine.fetch(&partition, 0, FetchOptions::new()).unwrap_err();
            for text in [
                fetched.to_string(),
                append(&engine, Durability::Buffered).unwrap_err(),
                append(&engine, Durability::Sync).unwrap_err(),
                engine.group("g").offset(&partition).unwrap_err().to_string(),
                engine.create_topic("u", TopicConfig::new(1)).unwrap_err().to_string(),
                engine.close().unwrap_err().to_string(),
            ] {
                assert!(text.contains("the power was lost or the process was killed"), "{text}");
            }
        }
    }

    #[test]
    fn one_engine_at_a_time_has_the_world_open() {
        let world = World::new();
        let engine = world.open().unwrap();
        assert!(matches!(world.open(), Err(OpenError::Locked { .. })));
        drop(engine);
        world.open().unwrap();
    }

    #[test]
    fn time_passes_when_a_test_says_so() {
        let world = World::new();
        let engine = world.open().unwrap();
        append(&engine, Durability::Sync).unwrap();
        world.advance(Duration::from_secs(3600));
        let mut times = Vec::new();
        append(&engine, Durability::Sync).unwrap();
        let fetched = engine.fetch(&partition(&engine), 0, FetchOptions::new()).unwrap();
        times.extend(fetched.records().map(|record| record.unwrap().timestamp));
        assert_eq!(times, [FIRST_NOW_MS, FIRST_NOW_MS + 3_600_000]);
    }

    #[test]
    fn a_call_of_the_disk_can_fail_and_settings_reach_the_engine() {
        let world = World::with_seed(5).config(|config| config.segment_bytes(1 << 18));
        let engine = world.open().unwrap();
        assert_eq!(engine.config().segment_bytes, 1 << 18);
        append(&engine, Durability::Sync).unwrap();
        world.disk().plan(Fault::next(FileCall::Sync, EIO));
        append(&engine, Durability::Sync).unwrap_err();
    }
}
