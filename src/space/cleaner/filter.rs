//! One batch through the rules: it stays as it is, goes, or is built again out of what stays.

use bytes::Bytes;

use super::producers::Role;
use super::rules::{CleaningRules, Newer, stays};
use crate::base::types::TimestampMs;
use crate::record::{BatchHeader, BuildError, RecordError, RecordView, UnpackedBatch, rebuild};

/// Records for which room is made before they are read.
const MAX_RESERVED_RECORDS: usize = 1024;

/// What becomes of a batch.
#[derive(Debug, PartialEq)]
pub(super) enum Filtered {
    /// It stays, byte for byte.
    Unchanged {
        /// When the tombstones in it may go that this pass has seen, or it itself as a marker.
        horizon: Option<TimestampMs>,
    },
    /// None of its records stays.
    Emptied,
    /// Some of its records stay, or it has a horizon now.
    Rebuilt {
        /// The batch that takes its place.
        bytes: Bytes,
        /// As above.
        horizon: Option<TimestampMs>,
    },
}

/// Why a batch cannot be filtered.
#[derive(Debug, PartialEq)]
pub(super) enum FilterError {
    /// Its records cannot be read.
    Records(RecordError),
    /// What stays cannot be built.
    Build(BuildError),
}

/// Decides about a batch.
pub(super) fn filter(
    batch: &UnpackedBatch<'_>,
    role: Role,
    rules: &CleaningRules,
    newer: Newer<'_>,
) -> Result<Filtered, FilterError> {
    match role {
        Role::Data => filter_data(batch, rules, newer),
        Role::Aborted => Ok(Filtered::Emptied),
        Role::Marker => Ok(Filtered::Unchanged { horizon: None }),
        Role::IdleMarker => filter_idle_marker(batch, rules),
    }
}

/// A marker that ends nothing any more gets a horizon, and goes with the first pass after it.
fn filter_idle_marker(
    batch: &UnpackedBatch<'_>,
    rules: &CleaningRules,
) -> Result<Filtered, FilterError> {
    let header = batch.header();
    let records: Result<Vec<_>, _> = batch.records().collect();
    let records = records.map_err(FilterError::Records)?;
    match header.delete_horizon_ms() {
        _ if records.is_empty() => Ok(Filtered::Emptied),
        Some(horizon) if horizon <= rules.now => Ok(Filtered::Emptied),
        Some(horizon) => Ok(Filtered::Unchanged { horizon: Some(horizon) }),
        None => {
            let horizon = rules.horizon;
            let bytes = rebuild(header, &records, horizon).map_err(FilterError::Build)?;
            Ok(Filtered::Rebuilt { bytes, horizon })
        }
    }
}

/// Decides about the records of a batch by their keys.
fn filter_data(
    batch: &UnpackedBatch<'_>,
    rules: &CleaningRules,
    newer: Newer<'_>,
) -> Result<Filtered, FilterError> {
    let records = records_of(batch)?;
    let has_newer = newer.of(&records);
    filter_records(batch.header(), records, &has_newer, rules)
}

/// Decides about the records of a batch, of each of which it is known whether there is a newer one
/// of its key.
pub(super) fn filter_noted(
    batch: &UnpackedBatch<'_>,
    rules: &CleaningRules,
    has_newer: &[bool],
) -> Result<Filtered, FilterError> {
    filter_records(batch.header(), records_of(batch)?, has_newer, rules)
}

fn records_of<'b>(batch: &'b UnpackedBatch<'_>) -> Result<Vec<RecordView<'b>>, FilterError> {
    let count = batch.header().record_count().unsigned_abs() as usize;
    let mut records = Vec::with_capacity(count.min(MAX_RESERVED_RECORDS));
    debug_assert!(batch.keys().count() == count || batch.keys().any(|key| key.is_err()));
    for record in batch.records() {
        records.push(record.map_err(FilterError::Records)?);
    }
    Ok(records)
}

fn filter_records(
    header: &BatchHeader,
    mut records: Vec<RecordView<'_>>,
    has_newer: &[bool],
    rules: &CleaningRules,
) -> Result<Filtered, FilterError> {
    let before = header.delete_horizon_ms();
    assert_eq!(has_newer.len(), records.len(), "it is known of each record");
    let (record_count, mut has_newer) = (records.len(), has_newer.iter());
    records.retain(|record| {
        let has_newer = has_newer.next().expect("it is known of each record");
        stays(rules, record, *has_newer, before)
    });
    if records.is_empty() {
        return Ok(Filtered::Emptied);
    }
    assert!(records.len() <= record_count, "cleaning adds no record");
    let mut tombstones = records.iter().filter(|record| record.value.is_none());
    let (first, last) = (tombstones.clone().next(), tombstones.next_back());
    let is_reached = |tombstone: &RecordView<'_>| tombstone.offset < rules.end;
    // Older records of keys are left after the pass, so that its tombstones get no horizon yet.
    let after = if last.is_some_and(is_reached) { before.or(rules.horizon) } else { before };
    let horizon = after.filter(|_| first.is_some_and(is_reached));
    if records.len() == record_count && after == before {
        return Ok(Filtered::Unchanged { horizon });
    }
    let bytes = rebuild(header, &records, after).map_err(FilterError::Build)?;
    Ok(Filtered::Rebuilt { bytes, horizon })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::HashKey;
    use crate::record::{
        BatchBuilder, BatchView, ControlRecord, EndMarker, MarkerKind, Record, RecordBatch, emptied,
    };
    use crate::space::cleaner::key_map::KeyMap;

    fn filtered(bytes: &[u8], keys: &KeyMap, end: i64, now: i64) -> Filtered {
        filtered_as(Role::Data, bytes, keys, end, now)
    }

    fn filtered_as(role: Role, bytes: &[u8], keys: &KeyMap, end: i64, now: i64) -> Filtered {
        let batch = BatchView::parse(bytes).unwrap().unpack().unwrap();
        let rules = CleaningRules { end, now, horizon: Some(now + 1000) };
        filter(&batch, role, &rules, Newer::Looked(keys)).unwrap()
    }

    fn batch(records: &[Record]) -> Bytes {
        let mut builder = BatchBuilder::new();
        records.iter().for_each(|record| builder.push(record).unwrap());
        builder.finish().unwrap()
    }

    fn offsets(bytes: &Bytes) -> Vec<i64> {
        let batch = RecordBatch::parse(bytes.clone()).unwrap();
        batch.records().map(|record| record.unwrap().offset).collect()
    }

    #[test]
    fn a_tombstone_is_stamped_once_and_goes_at_its_horizon() {
        let keys = KeyMap::new(1, HashKey([3, 4]));
        let bytes = batch(&[Record::tombstone("a"), Record::new("b", "1")]);
        let Filtered::Rebuilt { bytes, horizon } = filtered(&bytes, &keys, 2, 5000) else {
            panic!("the batch was not stamped");
        };
        assert_eq!((horizon, offsets(&bytes)), (Some(6000), vec![0, 1]));
        let unchanged = Filtered::Unchanged { horizon: Some(6000) };
        assert_eq!(filtered(&bytes, &keys, 2, 5999), unchanged);
        let Filtered::Rebuilt { bytes, horizon } = filtered(&bytes, &keys, 2, 6000) else {
            panic!("the tombstone stayed");
        };
        assert_eq!((horizon, offsets(&bytes)), (None, vec![1]));
        assert_eq!(filtered(&bytes, &keys, 2, 9000), Filtered::Unchanged { horizon: None });
    }

    #[test]
    fn a_batch_with_a_tombstone_after_the_pass_is_not_stamped_yet() {
        let keys = KeyMap::new(1, HashKey([3, 4]));
        let bytes = batch(&[Record::tombstone("b"), Record::new("c", "1"), Record::tombstone("a")]);
        for end in 0..3 {
            let unchanged = Filtered::Unchanged { horizon: None };
            assert_eq!(filtered(&bytes, &keys, end, 5000), unchanged, "{end}");
        }
        let Filtered::Rebuilt { bytes, horizon } = filtered(&bytes, &keys, 3, 5000) else {
            panic!("the batch was not stamped");
        };
        assert_eq!(horizon, Some(6000));
        // A horizon that is there was written when the older records were gone.
        let waits = Filtered::Unchanged { horizon: Some(6000) };
        assert_eq!(filtered(&bytes, &keys, 2, 5999), waits);
        let Filtered::Rebuilt { bytes, horizon } = filtered(&bytes, &keys, 2, 6000) else {
            panic!("the tombstone that was reached stayed");
        };
        assert_eq!((horizon, offsets(&bytes)), (None, vec![1, 2]));
    }

    #[test]
    fn a_batch_that_loses_all_is_emptied_and_an_aborted_one_loses_all() {
        let mut keys = KeyMap::new(1, HashKey([3, 4]));
        keys.put(keys.hash(b"a"), 9);
        let bytes = batch(&[Record::new("a", "1"), Record::keyless("1")]);
        assert_eq!(filtered(&bytes, &keys, 2, 0), Filtered::Emptied);
        let bytes = batch(&[Record::new("b", "1")]);
        assert_eq!(filtered(&bytes, &keys, 2, 0), Filtered::Unchanged { horizon: None });
        assert_eq!(filtered_as(Role::Aborted, &bytes, &keys, 2, 0), Filtered::Emptied);
    }

    #[test]
    fn a_marker_is_stamped_once_it_is_idle_and_goes_at_its_horizon() {
        let keys = KeyMap::new(1, HashKey([3, 4]));
        for kind in [MarkerKind::Abort, MarkerKind::Commit] {
            let marker = EndMarker { kind, coordinator_epoch: 0 };
            let bytes = marker.batch(7, 0, 5);
            let as_marker = filtered_as(Role::Marker, &bytes, &keys, 2, 0);
            assert_eq!(as_marker, Filtered::Unchanged { horizon: None });
            let idle = |bytes: &Bytes, now| filtered_as(Role::IdleMarker, bytes, &keys, 2, now);
            let Filtered::Rebuilt { bytes, horizon } = idle(&bytes, 5000) else {
                panic!("the marker was not stamped");
            };
            assert_eq!((horizon, offsets(&bytes)), (Some(6000), vec![0]));
            let control = RecordBatch::parse(bytes.clone()).unwrap();
            let record = control.records().next().unwrap().unwrap();
            assert_eq!(ControlRecord::parse(&record), Ok(ControlRecord::End(marker)));
            assert_eq!(idle(&bytes, 5999), Filtered::Unchanged { horizon: Some(6000) });
            assert_eq!(idle(&bytes, 6000), Filtered::Emptied);
            assert_eq!(idle(&emptied(control.header()), 0), Filtered::Emptied);
        }
    }
}
