//! Opening: lock, compare, replay, and begin a new life; and the first making of an engine.
//!
//! ```text
//! DIRECTORY/LOCK        who has it open
//! DIRECTORY/FORMAT      version, engine id and secret; there once the engine was made whole
//! DIRECTORY/FORMAT.new  there while an engine is being made: what is beside it may be made anew
//! DIRECTORY/FORMAT.next FORMAT.new before it is whole
//! DIRECTORY/store/      the index
//! DIRECTORY/log/        the commit log, or elsewhere: then that directory has a LOCK too
//! ```
//!
//! Recovery only ever redoes: every frame after the index's applied commit is applied again, in
//! order, by the same call that applies commits. It changes nothing in the log before the new
//! segment, so whatever stops it, it starts again from the beginning.

mod error;
mod format;
mod session;

pub use error::OpenError;
pub use session::end_session;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::error::{Corruption, Place, StorageError};
use crate::base::hash::HashKey;
use crate::base::io::{Files, LockGuard};
use crate::base::random::{Randomness, Secrets};
use crate::base::rules::{BrokenRules, Rule};
use crate::base::types::{AppliedCommit, EngineId, PartitionId};
use crate::commit::{CheckpointLimits, FLUSH_POLL, Pipeline};
use crate::config::EngineConfig;
use crate::core::{Parts, ProducerRegistry, Shared, Transactions};
use crate::index::keyspace::{
    FORMAT_VERSION, Identity, MetaKey, Session, decode_applied, decode_counter, encode_applied,
    encode_counter,
};
use crate::index::store::{OpenStore, Store};
use crate::index::write_batch::{Family, WriteBatch};
use crate::log::{
    CommitLog, LogIdentity, LogOptions, RecoveredLog, ReplayedFrame, max_open_segments,
};
use crate::state::catalog::Catalog;
use format::Format;

/// What an engine is opened with.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The engine's directory.
    pub directory: PathBuf,
    /// Where the commit log lies, if not below the directory.
    pub log_directory: Option<PathBuf>,
    /// Limits.
    pub config: EngineConfig,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The file system.
    pub files: Arc<dyn Files>,
    /// The kind of index store.
    pub store: Arc<dyn OpenStore>,
    /// Where random ids and keys come from.
    pub randomness: Randomness,
    /// Rules that a test breaks.
    pub broken: BrokenRules,
}

/// What opening found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Whether the engine was made just now.
    pub is_new: bool,
    /// Whether it had been closed, so that the leader epoch stays.
    pub closed_cleanly: bool,
    /// Commits that were in the log and not in the index.
    pub replayed_commits: u64,
    /// Bytes of log that were read for it.
    pub replayed_bytes: u64,
    /// Bytes at the end of the log that were no whole commit and were never acknowledged as synced.
    pub torn_bytes: u64,
    /// Whole commits among them. They lie beyond one that is torn or damaged, and are dropped;
    /// nothing tells that they were synced. After a power loss that took parts of what was not
    /// synced this is no cause for alarm; after anything else it is.
    pub dropped_commits: u64,
    /// Bytes of log of those.
    pub dropped_bytes: u64,
}

/// Opens the engine in a directory, or makes it there.
///
/// # Errors
/// [`OpenError`]; log and index are as they were.
pub fn open(options: &OpenOptions) -> Result<(Arc<Shared>, Recovered), OpenError> {
    options.config.validate().map_err(OpenError::Config)?;
    let place = Directories::new(options);
    let locks = place.lock(options)?;
    let files = &*options.files;
    let secrets = Secrets::new(options.randomness);
    let (pipeline, recovered) = match Format::read(files, &place.directory)? {
        Some(format) => open_existing(options, &place, &format)?,
        None => make_new(options, &place, &secrets)?,
    };
    let store = Arc::clone(&pipeline.store);
    let before = read_session(&*store)?;
    let catalog = Catalog::load(&*store)?;
    let next_partition_id = read_next_partition_id(&*store)?;
    let producers =
        ProducerRegistry::new(catalog.producer_count(), read_next_producer_id(&*store)?);
    let transactions = Transactions::load(&*store, &catalog)?;
    let recovered = Recovered { closed_cleanly: before.closed_cleanly, ..recovered };
    let is_new_epoch =
        !before.closed_cleanly && !recovered.is_new && !options.broken.breaks(Rule::D2EpochRises);
    let session = Session {
        open_count: before.open_count + 1,
        leader_epoch: before.leader_epoch + i32::from(is_new_epoch),
        closed_cleanly: false,
    };
    assert!(session.leader_epoch >= before.leader_epoch, "leader epochs never fall (D2)");
    assert!(!locks.is_empty(), "the directories are held");
    let shared = Arc::new(Shared::new(Parts {
        pipeline,
        catalog,
        clock: Arc::clone(&options.clock),
        config: options.config.clone(),
        session,
        next_partition_id,
        producers,
        transactions,
        // Each open has ids of its own, also where all opens are given the same seed.
        // The bits are mixed, so that a seed that counts opens too does not cancel the count.
        seed: options.randomness.bits().wrapping_add(session.open_count),
        secrets,
        locks,
    }));
    session::begin_session(&shared)?;
    Ok((shared, recovered))
}

struct Directories {
    directory: PathBuf,
    log: PathBuf,
    store: PathBuf,
}

impl Directories {
    fn new(options: &OpenOptions) -> Self {
        let directory = options.directory.clone();
        let log = options.log_directory.clone().unwrap_or_else(|| directory.join("log"));
        Self { store: directory.join("store"), directory, log }
    }

    fn lock(&self, options: &OpenOptions) -> Result<Vec<Box<dyn LockGuard>>, OpenError> {
        let mut directories = vec![&self.directory];
        directories.extend(options.log_directory.as_ref());
        let mut locks = Vec::with_capacity(directories.len());
        for directory in directories {
            let made = options.files.create_directory(directory);
            made.map_err(|error| StorageError::io("create", directory, error))?;
            let path = directory.join("LOCK");
            let lock = options.files.lock(&path);
            locks.push(lock.map_err(|error| OpenError::lock(error, &path))?);
        }
        Ok(locks)
    }
}

fn log_options(options: &OpenOptions) -> LogOptions {
    let config = &options.config;
    LogOptions {
        segment_bytes: config.segment_bytes,
        max_unsynced_bytes: config.max_unsynced_bytes,
        reserve_bytes: config.effective_disk_reserve_bytes(),
        max_free_segments: config.max_free_segments,
        max_open_segments: max_open_segments(),
        broken: options.broken,
    }
}

fn pipeline(
    options: &OpenOptions,
    log: CommitLog,
    store: Arc<dyn Store>,
    applied: AppliedCommit,
) -> Pipeline {
    let config = &options.config;
    let limits = CheckpointLimits {
        index_bytes: config.checkpoint_index_bytes,
        log_bytes: config.checkpoint_log_bytes,
        range_deletes: config.checkpoint_range_deletes,
        index_memory_bytes: config.effective_index_memory_limit_bytes(),
        background_sync_bytes: config.background_sync_bytes,
    };
    let clock = Arc::clone(&options.clock);
    Pipeline::new(log, store, clock, applied, limits, options.broken)
}

/// Makes an engine. What an earlier try left is made anew; what may hold commits is not touched.
fn make_new(
    options: &OpenOptions,
    place: &Directories,
    secrets: &Secrets,
) -> Result<(Pipeline, Recovered), OpenError> {
    let files = &*options.files;
    let is_second_try = Format::is_begun(files, &place.directory)?;
    if !is_second_try && options.store.exists(&place.store)? {
        return Err(OpenError::FormatMissing { directory: place.directory.clone() });
    }
    let engine = EngineId(options.randomness.bits());
    let identity = LogIdentity { engine, secret: HashKey(secrets.key()) };
    let format = Format { version: FORMAT_VERSION, identity };
    format.begin(files, &place.directory)?;
    let log_files = Arc::clone(&options.files);
    let log = CommitLog::create(log_files, &place.log, identity, log_options(options))?;
    let store = options.store.open(&place.store, true)?;
    let applied = log.first_place();
    assert_eq!(applied.sequence, log.written(), "a new log holds no commit");
    let mut first = WriteBatch::new();
    let identity = Identity { format_version: FORMAT_VERSION, engine };
    first.put(Family::Meta, &MetaKey::Identity.key(), &identity.encode());
    first.put(Family::Meta, &MetaKey::Session.key(), &Session::default().encode());
    first.put(Family::Meta, &MetaKey::Applied.key(), &encode_applied(&applied));
    first.put(Family::Meta, &MetaKey::NextPartitionId.key(), &encode_counter(1));
    store.write(&[&first])?;
    flush(&*store)?;
    let parent = place.directory.as_path();
    files.sync_directory(parent).map_err(|error| StorageError::io("sync", parent, error))?;
    format.complete(files, &place.directory)?;
    let pipeline = pipeline(options, log, store, applied);
    let recovered = Recovered {
        is_new: true,
        closed_cleanly: false,
        replayed_commits: 0,
        replayed_bytes: 0,
        torn_bytes: 0,
        dropped_commits: 0,
        dropped_bytes: 0,
    };
    Ok((pipeline, recovered))
}

fn open_existing(
    options: &OpenOptions,
    place: &Directories,
    format: &Format,
) -> Result<(Pipeline, Recovered), OpenError> {
    format.check_version(&place.directory)?;
    // The process that renamed FORMAT may have died before it synced the name: nothing may be
    // acknowledged on a name that a power loss takes back.
    let named = options.files.sync_directory(&place.directory);
    named.map_err(|error| StorageError::io("sync the directory", &place.directory, error))?;
    if !options.store.exists(&place.store)? {
        return Err(OpenError::IndexMissing { directory: place.store.clone() });
    }
    let store = options.store.open(&place.store, false)?;
    let opened = open_log(options, place, format, &store);
    let (log, found) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // Whatever was replayed can be replayed again; the error that is reported is the first.
            let _ = store.close();
            return Err(error);
        }
    };
    let recovered = Recovered {
        is_new: false,
        closed_cleanly: false,
        replayed_commits: found.replayed_count,
        replayed_bytes: found.replayed_bytes,
        torn_bytes: found.torn_bytes,
        dropped_commits: found.dropped_count,
        dropped_bytes: found.dropped_bytes,
    };
    let pipeline = pipeline(options, log, store, found.last);
    pipeline.note_replayed(found.replayed_bytes);
    Ok((pipeline, recovered))
}

fn open_log(
    options: &OpenOptions,
    place: &Directories,
    format: &Format,
    store: &Arc<dyn Store>,
) -> Result<(CommitLog, RecoveredLog), OpenError> {
    let identity = read_meta(&**store, MetaKey::Identity, Identity::decode)?;
    if identity.engine != format.identity.engine || identity.format_version != format.version {
        let place = Place::File { path: place.store.clone() };
        let what = "the index belongs to another engine than its directory";
        return Err(StorageError::from(Corruption { place, what }).into());
    }
    let applied = read_meta(&**store, MetaKey::Applied, decode_applied)?;
    let memory_limit = options.config.effective_index_memory_limit_bytes();
    let mut last = applied.sequence;
    let mut replay = |frame: ReplayedFrame<'_>| {
        assert_eq!(frame.applied.sequence, last.next(), "commits are replayed without a gap");
        last = frame.applied.sequence;
        replay_frame(&**store, &frame, memory_limit)
    };
    let files = Arc::clone(&options.files);
    let options = log_options(options);
    let opened =
        CommitLog::open(files, &place.log, format.identity, options, applied, &mut replay)?;
    let (log, found) = &opened;
    assert_eq!(found.last.sequence, last, "what counts in the log is in the index");
    assert_eq!(log.written(), last, "the log goes on where the index ends");
    assert_eq!(log.synced(), last, "what was replayed is durable (R4)");
    Ok(opened)
}

fn replay_frame(
    store: &dyn Store,
    frame: &ReplayedFrame<'_>,
    memory_limit: u64,
) -> Result<(), StorageError> {
    let batch = WriteBatch::decode(frame.write_batch).map_err(|_| Corruption {
        place: Place::Commits { first: frame.applied.sequence, last: frame.applied.sequence },
        what: "the write batch of the commit cannot be decoded",
    })?;
    let mut applied = WriteBatch::new();
    applied.put(Family::Meta, &MetaKey::Applied.key(), &encode_applied(&frame.applied));
    store.write(&[&batch, &applied])?;
    if store.unflushed_bytes() >= memory_limit {
        // All that is replayed was synced before it was read, so a flush is allowed (rule S4).
        flush(store)?;
    }
    Ok(())
}

fn flush(store: &dyn Store) -> Result<(), StorageError> {
    store.begin_flush()?;
    while !store.is_flushed()? {
        std::thread::park_timeout(FLUSH_POLL);
    }
    // Nobody else writes while an engine is opened.
    debug_assert_eq!(store.unflushed_bytes(), 0, "a flush takes all");
    Ok(())
}

fn read_meta<T>(
    store: &dyn Store,
    key: MetaKey,
    decode: impl FnOnce(&[u8]) -> Result<T, Corruption>,
) -> Result<T, StorageError> {
    let value = store.get(Family::Meta, &key.key())?;
    let missing = || Corruption::in_store(Family::Meta.name(), &key.key(), "it is missing");
    Ok(decode(&value.ok_or_else(missing)?)?)
}

fn read_session(store: &dyn Store) -> Result<Session, StorageError> {
    read_meta(store, MetaKey::Session, Session::decode)
}

fn read_next_partition_id(store: &dyn Store) -> Result<PartitionId, StorageError> {
    let key = MetaKey::NextPartitionId;
    let next = read_meta(store, key, |value| decode_counter(key, value))?;
    let next = u32::try_from(next).map_err(|_| {
        Corruption::in_store(Family::Meta.name(), &key.key(), "it is no partition id")
    })?;
    Ok(PartitionId(next))
}

/// The block of ids that is reserved last ends here; nothing is there before the first.
fn read_next_producer_id(store: &dyn Store) -> Result<u64, StorageError> {
    let key = MetaKey::NextProducerId;
    let next = store.get(Family::Meta, &key.key())?;
    Ok(next.map(|next| decode_counter(key, &next)).transpose()?.unwrap_or(0))
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "is_new={} closed_cleanly={} replayed_commits={} replayed_bytes={} torn_bytes={} \
             dropped_commits={} dropped_bytes={}",
            self.is_new,
            self.closed_cleanly,
            self.replayed_commits,
            self.replayed_bytes,
            self.torn_bytes,
            self.dropped_commits,
            self.dropped_bytes
        )
    }
}
