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

/// Batches that were read, up to the first that is damaged.
#[derive(Debug)]
pub struct ReadBatches {
    /// The good ones, as one piece of bytes.
    pub bytes: Bytes,
    /// How many these are.
    pub count: usize,
    /// Why the next one could not be read.
    pub failure: Option<StorageError>,
}

/// Reads batches that [`locate`] found, until one cannot be read or is not what was written, by its
/// whole checksum. Damage names partition and offset.
#[must_use]
pub fn read_batches(
    pipeline: &Pipeline,
    partition: PartitionId,
    batches: &[Located],
) -> ReadBatches {
    let lengths = batches.iter().map(|batch| batch.entry.location.length_bytes as usize);
    let mut buffer = vec![0; lengths.sum()];
    let (mut count, mut good_bytes) = (0, 0);
    let mut one_by_one = false;
    let mut failure = None;
    while failure.is_none() && count < batches.len() {
        let run = if one_by_one { 1 } else { adjacent(&batches[count..]) };
        let location = whole(&batches[count..count + run]);
        let bytes = &mut buffer[good_bytes..good_bytes + location.length_bytes as usize];
        match pipeline.log.read(location, bytes) {
            Ok(()) => {}
            // The first of them may be there all the same.
            Err(_) if run > 1 => {
                one_by_one = true;
                continue;
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
        for batch in &batches[count..count + run] {
            let end = good_bytes + batch.entry.location.length_bytes as usize;
            let bytes = &mut buffer[good_bytes..end];
            let checked = check_and_stamp(pipeline, partition, batch, bytes)
                .and_then(|()| check_sum(pipeline, partition, batch, bytes));
            if let Err(error) = checked {
                failure = Some(error);
                break;
            }
            (count, good_bytes) = (count + 1, end);
        }
    }
    assert!(failure.is_some() || good_bytes == buffer.len(), "each byte of the buffer was read");
    buffer.truncate(good_bytes);
    ReadBatches { bytes: buffer.into(), count, failure }
}

/// Bytes between two batches that are read over, in place of a second read: what a frame has
/// beside one or two batches.
const MAX_GAP_BYTES: u64 = 512;

/// Reads batches that [`locate`] found into a buffer that is used again and again, with few reads:
/// what lies between them is read too. Tells where each lies in the buffer. Of each the header is
/// compared; its whole checksum is for the caller.
///
/// # Errors
/// [`StorageError::Corruption`] with partition and offset where the log holds something else.
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
/// As [`read_spans_into`].
pub fn read_batch(
    pipeline: &Pipeline,
    partition: PartitionId,
    batch: &Located,
) -> Result<Bytes, StorageError> {
    let read = read_batches(pipeline, partition, std::slice::from_ref(batch));
    read.failure.map_or(Ok(read.bytes), Err)
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

/// Compares the checksum over all that clients wrote, which no stamp changes.
fn check_sum(
    pipeline: &Pipeline,
    partition: PartitionId,
    batch: &Located,
    bytes: &[u8],
) -> Result<(), StorageError> {
    let is_whole = crc32c::crc32c(&bytes[CRC_END..]) == batch.entry.crc;
    if is_whole || pipeline.broken().breaks(Rule::W4ReadCompares) {
        return Ok(());
    }
    Err(damage(pipeline, partition, batch, "its checksum does not match"))
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
