//! Fetch: whole record batches from an offset on, as one piece of bytes ready for the wire.
//!
//! The watermarks are taken first, then the index is read, then the log: what is returned lies
//! below the high watermark of the same answer, always.

mod error;

pub use error::FetchError;

use bytes::Bytes;

use crate::base::error::StorageError;
use crate::base::types::{Isolation, Offset, Visibility, Watermarks};
use crate::core::{Located, Shared, aborted_transactions, locate, read_batches};
use crate::record::{Attributes, BatchHeader, Batches, Record, RecordError};
use crate::state::catalog::Partition;
use crate::state::producer::{AbortedSet, AbortedTransaction};

/// What a fetch may return.
///
/// ```
/// use tidelog::{FetchOptions, FirstBatch, Isolation, Visibility};
///
/// let options = FetchOptions::new()
///     .max_bytes(4 << 20)
///     .isolation(Isolation::Uncommitted)
///     .visibility(Visibility::Synced)
///     .first_batch(FirstBatch::IfItFits);
/// assert_ne!(options, FetchOptions::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct FetchOptions {
    max_bytes: u64,
    isolation: Isolation,
    visibility: Visibility,
    first_batch: FirstBatch,
}

/// Whether a fetch returns its first batch where that alone is larger than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstBatch {
    /// It does, so that a consumer never sticks (KIP-74).
    #[default]
    Always,
    /// It does not: for all but the first partition of a request that reads several.
    IfItFits,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FetchOptions {
    /// 1 MiB, committed data only, visible once applied, and at least one batch.
    pub const fn new() -> Self {
        Self {
            max_bytes: 1 << 20,
            isolation: Isolation::Committed,
            visibility: Visibility::Applied,
            first_batch: FirstBatch::Always,
        }
    }

    /// The most bytes to return; one batch may be larger, see [`FirstBatch`].
    pub const fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Which records may be returned.
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// From when on a commit may be returned.
    pub const fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Whether the first batch is returned even if it is larger than `max_bytes`.
    pub const fn first_batch(mut self, first_batch: FirstBatch) -> Self {
        self.first_batch = first_batch;
        self
    }
}

/// What a fetch found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fetched {
    /// The partition's offsets at the instant of the fetch.
    pub watermarks: Watermarks,
    /// Whole batches, the first of which holds the fetch offset or is the next one behind it.
    pub bytes: Bytes,
    /// The offset that was asked for.
    pub offset: Offset,
    /// The offset to fetch next: behind the last batch, or the same if there was none.
    pub next_offset: Offset,
    /// The aborted producer transactions that touch the batches, in the order of their markers,
    /// where only committed data was asked for: who reads [`Fetched::bytes`] skips their records.
    pub aborted: Vec<AbortedTransaction>,
}

impl Fetched {
    /// The records at and behind the fetch offset. Checksums are compared. Records of aborted
    /// producer transactions are left out where only committed data was asked for.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, RecordError>> + use<> {
        let from = self.offset;
        let aborted: AbortedSet = self.aborted.iter().collect();
        Batches::new(self.bytes.clone()).flat_map(move |batch| -> Box<dyn Iterator<Item = _>> {
            match batch {
                Ok(batch) if is_skipped(batch.header(), &aborted) => Box::new(std::iter::empty()),
                Ok(batch) => Box::new(
                    batch
                        .stored_records()
                        .filter(move |record| !matches!(record, Ok(r) if r.offset < from)),
                ),
                Err(error) => Box::new(std::iter::once(Err(error))),
            }
        })
    }
}

/// Reads batches from `offset` on.
///
/// # Errors
/// [`FetchError`]: the topic is gone, the offset is out of range, or damage.
pub fn fetch(
    shared: &Shared,
    partition: &Partition,
    offset: Offset,
    options: FetchOptions,
) -> Result<Fetched, FetchError> {
    shared.check_open()?;
    // What is found stays until it is read (rule F3).
    let _pin = shared.pin();
    let (watermarks, found, aborted) = loop {
        let (watermarks, found) = look(shared, partition, offset, options)?;
        let aborted = aborted_among(shared, partition, offset, options, &found)?;
        // An aborted transaction is listed for as long as any batch of it is there. Where what was
        // found is still there, it was there when the list was read.
        let is_listed = !needs_list(options, &found)
            || found == find(shared, partition, offset, &watermarks, options)?;
        if is_listed {
            break (watermarks, found, aborted);
        }
    };
    let read = read_batches(&shared.pipeline, partition.cell().id(), &found);
    if let Some(StorageError::Corruption(_)) = read.failure {
        shared.pipeline.counters.corruptions.add(1);
    }
    // What is good is given first: the next fetch begins with what cannot be read.
    if let (0, Some(failure)) = (read.count, read.failure) {
        return Err(unreadable(partition, &found[0], failure));
    }
    let good = &found[..read.count];
    shared.pipeline.counters.fetches.add(1);
    shared.pipeline.counters.fetched_bytes.add(read.bytes.len() as u64);
    let next_offset = good.last().map_or(offset, |last| last.last_offset + 1);
    debug_assert!(next_offset >= offset, "a fetch never goes back");
    Ok(Fetched { watermarks, bytes: read.bytes, offset, next_offset, aborted })
}

/// Why the batch at the fetch offset could not be read.
fn unreadable(partition: &Partition, batch: &Located, failure: StorageError) -> FetchError {
    match failure {
        StorageError::Corruption(corruption) => FetchError::Damaged {
            partition: partition.clone(),
            base_offset: batch.entry.base_offset,
            last_offset: batch.last_offset,
            corruption,
        },
        failure => FetchError::Storage(failure),
    }
}

/// The batches to return, and the offsets of the partition by which they were chosen.
fn look(
    shared: &Shared,
    partition: &Partition,
    offset: Offset,
    options: FetchOptions,
) -> Result<(Watermarks, Vec<Located>), FetchError> {
    loop {
        let watermarks = check(shared, partition, offset, options.visibility)?;
        let found = find(shared, partition, offset, &watermarks, options)?;
        let is_whole = found.first().is_some_and(|first| first.entry.base_offset <= offset);
        if is_whole || offset >= watermarks.readable_end(options.isolation) {
            return Ok((watermarks, found));
        }
        // A gap, or the start of the log has moved past the offset since the look at it: an entry
        // goes from the index before the watermarks tell so.
        shared.settle();
        if check(shared, partition, offset, options.visibility)?.log_start == watermarks.log_start {
            return Ok((watermarks, found));
        }
    }
}

/// Whether what was found has to be told apart by the list of aborted transactions.
fn needs_list(options: FetchOptions, found: &[Located]) -> bool {
    let is_transactional =
        |located: &Located| Attributes::from_bits(located.entry.attributes).is_transactional();
    options.isolation == Isolation::Committed && found.iter().any(is_transactional)
}

fn aborted_among(
    shared: &Shared,
    partition: &Partition,
    offset: Offset,
    options: FetchOptions,
    found: &[Located],
) -> Result<Vec<AbortedTransaction>, StorageError> {
    if !needs_list(options, found) {
        return Ok(Vec::new());
    }
    let end = found.last().map_or(offset, |last| last.last_offset + 1);
    aborted_transactions(&*shared.pipeline.store, partition.cell().id(), offset, end)
}

/// Markers are no records, and what was aborted is not read.
fn is_skipped(header: &BatchHeader, aborted: &AbortedSet) -> bool {
    let is_aborted =
        header.is_transactional() && aborted.holds(header.producer_id(), header.base_offset());
    header.is_control() || is_aborted
}

/// The offsets of the partition, if the fetch offset is in range.
fn check(
    shared: &Shared,
    partition: &Partition,
    offset: Offset,
    visibility: Visibility,
) -> Result<Watermarks, FetchError> {
    if !shared.catalog.holds(partition.topic()) {
        return Err(FetchError::UnknownPartition { partition: partition.clone() });
    }
    let watermarks = shared.watermarks(partition, visibility);
    if offset < watermarks.log_start || offset > watermarks.log_end {
        let partition = partition.clone();
        return Err(FetchError::OffsetOutOfRange { partition, offset, watermarks });
    }
    Ok(watermarks)
}

fn find(
    shared: &Shared,
    partition: &Partition,
    offset: Offset,
    watermarks: &Watermarks,
    options: FetchOptions,
) -> Result<Vec<Located>, StorageError> {
    let bound = watermarks.readable_end(options.isolation);
    if offset >= bound {
        return Ok(Vec::new());
    }
    let max_bytes = options.max_bytes.min(shared.config.max_fetch_bytes);
    let limit = (max_bytes, options.first_batch == FirstBatch::Always);
    locate(&*shared.pipeline.store, partition.cell().id(), offset, bound, limit)
}
