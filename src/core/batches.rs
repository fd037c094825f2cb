//! From index entries to bytes: finds batches, reads them from the log, compares and stamps them (rule W4).

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use crate::base::error::{Corruption, Place, StorageError};
use crate::base::rules::Rule;
use crate::base::types::{Offset, PartitionId, PayloadLocation};
use crate::commit::Pipeline;
use crate::index::keyspace::{BatchEntry, batch_key, batch_key_offset};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::record::{HEADER_BYTES, stamp};

// Fields of a batch's header that a read compares.
const LENGTH_AT: usize = 8;
const LENGTH_END: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const CRC_END: usize = 21;

/// A batch that the index knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The offset of its last record.
    pub last_offset: Offset,
    /// What the index holds of it.
    pub entry: BatchEntry,
}

/// Looks at the batches from the one that holds `from`, or the next behind it, up to `bound`.
///
/// # Errors
/// [`StorageError`] if the index cannot be read or is damaged.
pub fn visit(
    store: &dyn Read,
    partition: PartitionId,
    from: Offset,
    bound: Offset,
    look: &mut dyn FnMut(Located) -> ControlFlow<()>,
) -> Result<(), StorageError> {
    if from >= bound {
        return Ok(());
    }
    let (begin, end) = (batch_key(partition, from), batch_key(partition, bound));
    let mut damage = None;
    store.scan(Family::Batches, &begin, &end, Direction::Forward, &mut |key, value| {
        let located = BatchEntry::decode(key, value)
            .and_then(|entry| Ok(Located { last_offset: batch_key_offset(key)?, entry }));
        match located {
            Ok(located) => look(located),
            Err(corruption) => {
                damage = Some(corruption);
                ControlFlow::Break(())
            }
        }
    })?;
    damage.map_or(Ok(()), |damage| Err(damage.into()))
}

/// The batches from the one that holds `from`, or the next behind it, up to `bound`, as many as
/// `max_bytes` allow; the first one in any case if `at_least_one`.
///
/// # Errors
/// [`StorageError`] if the index cannot be read or is damaged.
pub fn locate(
    store: &dyn Read,
    partition: PartitionId,
    from: Offset,
    bound: Offset,
    (max_bytes, at_least_one): (u64, bool),
) -> Result<Vec<Located>, StorageError> {
    let mut found: Vec<Located> = Vec::new();
    let mut bytes = 0u64;
    visit(store, partition, from, bound, &mut |located| {
        debug_assert!(
            found.last().is_none_or(|before| before.last_offset < located.last_offset),
            "batches are visited in the order of their offsets"
        );
        bytes += u64::from(located.entry.location.length_bytes);
        let is_first = found.is_empty() && at_least_one;
        if bytes > max_bytes && !is_first {
            return ControlFlow::Break(());
        }
        found.push(located);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Reads batches that [`locate`] found, as one piece of bytes.
///
/// # Errors
/// [`StorageError::Corruption`] with partition and offset where the log holds something else.
pub fn read_batches(
    pipeline: &Pipeline,
    partition: PartitionId,
    batches: &[Located],
) -> Result<Bytes, StorageError> {
    let lengths = batches.iter().map(|batch| batch.entry.location.length_bytes as usize);
    let mut buffer = vec![0; lengths.sum()];
    let mut rest = &mut buffer[..];
    let mut next = 0;
    while next < batches.len() {
        let run = adjacent(&batches[next..]);
        let location = whole(&batches[next..next + run]);
        let (bytes, behind) = rest.split_at_mut(location.length_bytes as usize);
        pipeline.log.read(location, bytes)?;
        let mut unchecked = bytes;
        for batch in &batches[next..next + run] {
            let length = batch.entry.location.length_bytes as usize;
            let (bytes, behind) = unchecked.split_at_mut(length);
            check_and_stamp(pipeline, partition, batch, bytes)?;
            unchecked = behind;
        }
        rest = behind;
        next += run;
    }
    assert!(rest.is_empty(), "each byte of the buffer was read");
    Ok(buffer.into())
}

/// Bytes between two batches that are read over, in place of a second read: what a frame has
/// beside one or two batches.
const MAX_GAP_BYTES: u64 = 512;

/// Reads batches that [`locate`] found into a buffer that is used again and again, with few reads:
/// what lies between them is read too. Tells where each lies in the buffer.
///
/// # Errors
/// As [`read_batches`].
pub fn read_spans_into(
    pipeline: &Pipeline,
    partition: PartitionId,
    batches: &[Located],
    buffer: &mut Vec<u8>,
) -> Result<Vec<Range<usize>>, StorageError> {
    let mut places = Vec::with_capacity(batches.len());
    let (mut rest, mut at) = (batches, 0);
    while !rest.is_empty() {
        let (span, behind) = rest.split_at(near(rest));
        let begin = span[0].entry.location.position;
        let place = |batch: &Located| {
            let start = at + (batch.entry.location.position - begin) as usize;
            start..start + batch.entry.location.length_bytes as usize
        };
        places.extend(span.iter().map(place));
        let end = places.last().map_or(at, |place| place.end);
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        let length_bytes = u32::try_from(end - at).expect("a span is bounded, or one batch");
        let location = PayloadLocation { length_bytes, ..span[0].entry.location };
        pipeline.log.read(location, &mut buffer[at..end])?;
        (rest, at) = (behind, end);
    }
    assert!(places.len() == batches.len(), "each batch has its place in the buffer");
    for (batch, place) in batches.iter().zip(&places) {
        check_and_stamp(pipeline, partition, batch, &mut buffer[place.clone()])?;
    }
    Ok(places)
}

/// How many of the batches lie close enough behind one another that one read gets them.
fn near(batches: &[Located]) -> usize {
    let is_near = |pair: &[Located]| {
        let (a, b) = (pair[0].entry.location, pair[1].entry.location);
        let gap = b.position.checked_sub(a.position + u64::from(a.length_bytes));
        a.segment == b.segment && gap.is_some_and(|gap| gap <= MAX_GAP_BYTES)
    };
    1 + batches.windows(2).take_while(|pair| is_near(pair)).count()
}

/// Reads one batch.
///
/// # Errors
/// As [`read_batches`].
pub fn read_batch(
    pipeline: &Pipeline,
    partition: PartitionId,
    batch: &Located,
) -> Result<Bytes, StorageError> {
    read_batches(pipeline, partition, std::slice::from_ref(batch))
}

/// How many of the batches lie back to back in the log, so that one read gets them.
fn adjacent(batches: &[Located]) -> usize {
    let is_behind = |pair: &[Located]| {
        let (a, b) = (pair[0].entry.location, pair[1].entry.location);
        a.segment == b.segment && a.position + u64::from(a.length_bytes) == b.position
    };
    1 + batches.windows(2).take_while(|pair| is_behind(pair)).count()
}

fn whole(batches: &[Located]) -> PayloadLocation {
    let first = batches[0].entry.location;
    let lengths = batches.iter().map(|batch| batch.entry.location.length_bytes);
    PayloadLocation { length_bytes: lengths.sum(), ..first }
}

fn check_and_stamp(
    pipeline: &Pipeline,
    partition: PartitionId,
    batch: &Located,
    bytes: &mut [u8],
) -> Result<(), StorageError> {
    let entry = &batch.entry;
    if bytes.len() < HEADER_BYTES {
        let place = Place::Batch { partition, offset: entry.base_offset };
        let what = "its index entry is shorter than a header";
        return Err(Corruption { place, what }.into());
    }
    let is_the_batch = bytes[LENGTH_AT..LENGTH_END] == (bytes.len() as u32 - 12).to_be_bytes()
        && bytes[MAGIC_AT] == 2
        && bytes[CRC_AT..CRC_END] == entry.crc.to_be_bytes();
    if !is_the_batch && !pipeline.broken().breaks(Rule::W4ReadCompares) {
        return Err(damage(pipeline, partition, batch, "the log holds other bytes at its place"));
    }
    stamp(bytes, entry.base_offset, entry.leader_epoch);
    Ok(())
}

/// The damage of a batch that the log holds otherwise than it was written. The file that holds it
/// is not written over (rule F5).
#[must_use]
pub fn damage(
    pipeline: &Pipeline,
    partition: PartitionId,
    batch: &Located,
    what: &'static str,
) -> StorageError {
    pipeline.log.distrust(batch.entry.location.segment);
    Corruption { place: Place::Batch { partition, offset: batch.entry.base_offset }, what }.into()
}
