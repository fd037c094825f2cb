//! The options under which RocksDB keeps the index: it flushes when asked to, and at no other time.
//!
//! INVARIANT (S1): whatever a flush, a stall or the durability of one depends on is set here for
//! every family and for `default`, also where it is RocksDB's own default today. A test reads the
//! options file that RocksDB writes.

use rocksdb::{BlockBasedOptions, Cache, LogLevel, Options};
use rustix::process::{Resource, getrlimit};

use crate::base::error::StorageError;

/// As large as RocksDB takes: no memtable is ever full, so the size of one never starts a flush.
/// It costs nothing, since memory is taken as it is used; the engine bounds it.
const WRITE_BUFFER_BYTES: usize = 64 << 30;

/// Out of reach: a write is never slowed down or stopped by tables that wait for compaction, and a
/// flush never waits for them.
const NO_TRIGGER: i32 = 1 << 30;
const NO_LIMIT_BYTES: usize = 1 << 60;

/// What has no setter in the crate. The text goes first: it makes options anew.
const WITHOUT_SETTER: &str = "avoid_flush_during_shutdown=true;max_bgerror_resume_count=0;\
    memtable_max_range_deletions=0;memtable_op_scan_flush_trigger=0;\
    memtable_avg_op_scan_flush_trigger=0;experimental_mempurge_threshold=0;\
    persist_stats_to_disk=false";

/// The least memory for blocks: below it the index blocks of a few tables alone do not fit.
const LEAST_BLOCK_CACHE_BYTES: u64 = 1 << 20;

/// Files that RocksDB needs at least: its own manifest and logs, and some tables.
const LEAST_OPEN_FILES: u64 = 64;

/// Files that it has use for: at 64 MiB a table this is an index of 256 GiB.
const MOST_OPEN_FILES: u64 = 4096;

/// The options of the database and of each of its families.
pub(super) fn options(
    block_cache_bytes: u64,
    max_open_files: Option<u32>,
) -> Result<Options, StorageError> {
    let with_text = Options::default().get_options_from_string(WITHOUT_SETTER);
    let mut options =
        with_text.map_err(|error| StorageError::store("set options", error.into_string()))?;
    options.create_missing_column_families(true);
    set_durability(&mut options);
    set_limits(&mut options, max_open_files);
    set_tables(&mut options, block_cache_bytes);
    Ok(options)
}

fn set_durability(options: &mut Options) {
    options.set_atomic_flush(true);
    options.set_paranoid_checks(true);
    options.set_use_fsync(false);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_db_write_buffer_size(0);
    // Room for a flush under way and the next one; with 2 a second flush blocks its caller.
    options.set_max_write_buffer_number(6);
    options.set_min_write_buffer_number_to_merge(1);
    options.set_level_zero_slowdown_writes_trigger(NO_TRIGGER);
    options.set_level_zero_stop_writes_trigger(NO_TRIGGER);
    options.set_soft_pending_compaction_bytes_limit(NO_LIMIT_BYTES);
    options.set_hard_pending_compaction_bytes_limit(NO_LIMIT_BYTES);
    // One thread writes at a time, so it need not share the memtable.
    options.set_allow_concurrent_memtable_write(false);
    options.set_enable_pipelined_write(false);
    options.set_unordered_write(false);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
}

fn set_limits(options: &mut Options, max_open_files: Option<u32>) {
    let files = max_open_files.map_or_else(open_file_limit, u64::from);
    assert!(files > 0, "a store has files");
    options.set_max_open_files(i32::try_from(files).unwrap_or(i32::MAX));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    options.set_max_background_jobs(cores.clamp(2, 4) as i32);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(4 << 20);
    options.set_keep_log_file_num(4);
    options.set_max_manifest_file_size(64 << 20);
}

/// A half of the files that the process may still open at once: the log and the process's own
/// sockets need the other.
fn open_file_limit() -> u64 {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (allowed / 2).clamp(LEAST_OPEN_FILES, MOST_OPEN_FILES)
}

/// Keys are short and of fixed width in each family, values are a few numbers, and reads are
/// either for one key or for the first keys after one.
///
/// No compression: checksums and positions do not shrink, and RocksDB is built without codecs. No
/// prefix extractor either: a scan that crosses a prefix would need to say so, and one that
/// forgets is silently short; seeks are cheap without, since checkpoints keep the tables few.
fn set_tables(options: &mut Options, block_cache_bytes: u64) {
    let capacity = block_cache_bytes.max(LEAST_BLOCK_CACHE_BYTES);
    let cache = Cache::new_hyper_clock_cache(usize::try_from(capacity).unwrap_or(usize::MAX), 0);
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&cache);
    tables.set_block_size(8 << 10);
    tables.set_bloom_filter(10.0, false);
    tables.set_whole_key_filtering(true);
    // So that memory is bounded by the cache, however many tables there are.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    options.set_block_based_table_factory(&tables);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    options.set_target_file_size_base(64 << 20);
    options.set_max_bytes_for_level_base(256 << 20);
    options.set_level_compaction_dynamic_level_bytes(true);
    // Tables reach the disk while they are written, not all at once when they are complete.
    options.set_bytes_per_sync(1 << 20);
}
