//! Opening an engine with more than a directory and limits, and the threads that an open engine has.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::session::{Engine, Inner};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::StorageError;
use crate::base::io::{Files, SystemFiles};
use crate::base::random::Randomness;
use crate::base::rules::BrokenRules;
use crate::config::{EngineConfig, Maintenance};
use crate::core::Shared;
use crate::engine::maintenance::run_background;
use crate::index::store::OpenStore;
use crate::open::recovery::{OpenError, OpenOptions, open};

/// Opens an engine with more than a directory and limits.
#[derive(Debug)]
#[must_use]
pub struct EngineBuilder {
    directory: PathBuf,
    log_directory: Option<PathBuf>,
    config: EngineConfig,
    clock: Arc<dyn Clock>,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) store: Option<Arc<dyn OpenStore>>,
    pub(crate) randomness: Randomness,
    pub(crate) broken: BrokenRules,
}

impl Engine {
    /// Opens the engine in a directory, or makes it there. One process at a time can.
    ///
    /// # Errors
    /// [`OpenError`]; log and index are as they were. [`OpenError::NoStore`] in a build without
    /// the feature `rocksdb`.
    pub fn open(directory: impl AsRef<Path>, config: EngineConfig) -> Result<Self, OpenError> {
        Self::builder(directory).config(config).open()
    }

    /// Opens an engine with more than limits: a clock, another directory for the log.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-builder-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Engine, EngineConfig};
    ///
    /// let engine = Engine::builder(directory.join("index"))
    ///     .log_dir(directory.join("log"))
    ///     .config(EngineConfig::default().segment_bytes(64 << 20))
    ///     .open()?;
    /// assert!(engine.recovered().is_new);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(directory: impl AsRef<Path>) -> EngineBuilder {
        EngineBuilder::new(directory.as_ref())
    }
}

impl EngineBuilder {
    fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            log_directory: None,
            config: EngineConfig::default(),
            clock: Arc::new(SystemClock::new()),
            files: Arc::new(SystemFiles),
            store: None,
            randomness: Randomness::System,
            broken: BrokenRules::NONE,
        }
    }

    /// The engine's limits.
    pub fn config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// Where time comes from; the machine's clocks unless it is set.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another directory for the commit log, such as one on another disk.
    pub fn log_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.log_directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Opens the engine, or makes it where there is none.
    ///
    /// # Errors
    /// [`OpenError`]; log and index are as they were. [`OpenError::NoStore`] in a build without
    /// the feature `rocksdb`, unless a store is set.
    pub fn open(self) -> Result<Engine, OpenError> {
        let store = match self.store {
            Some(store) => store,
            None => default_store(&self.config)?,
        };
        let options = OpenOptions {
            store,
            directory: self.directory,
            log_directory: self.log_directory,
            config: self.config,
            clock: self.clock,
            files: self.files,
            randomness: self.randomness,
            broken: self.broken,
        };
        let (shared, recovered) = open(&options)?;
        let inner = Inner::new(shared, recovered);
        // Where one cannot be started, the drop ends the others and lets go of the directories.
        inner.start_threads(start_threads)?;
        Ok(Engine { inner: Arc::new(inner) })
    }
}

#[cfg(feature = "rocksdb")]
fn default_store(config: &EngineConfig) -> Result<Arc<dyn OpenStore>, OpenError> {
    Ok(Arc::new(crate::index::store::RocksOpener::new(config.block_cache_bytes)))
}

#[cfg(not(feature = "rocksdb"))]
fn default_store(_config: &EngineConfig) -> Result<Arc<dyn OpenStore>, OpenError> {
    Err(OpenError::NoStore)
}

/// What a thread of the engine does until the engine is closed.
type Job = fn(&Arc<Shared>);

fn start_threads(
    shared: &Arc<Shared>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), StorageError> {
    if shared.config.maintenance == Maintenance::Manual {
        return Ok(());
    }
    let jobs: [(&str, Job); 3] = [
        ("tidelog-commit", |shared| shared.queue.run_committer()),
        ("tidelog-sync", |shared| shared.queue.run_syncer()),
        ("tidelog-maintenance", run_background),
    ];
    for (name, job) in jobs {
        let shared = Arc::clone(shared);
        let started = Builder::new().name(name.to_owned()).spawn(move || job(&shared));
        let failed = |error| StorageError::io("start a thread for", Path::new(name), error);
        threads.push(started.map_err(failed)?);
    }
    Ok(())
}
