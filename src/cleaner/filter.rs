//! One batch through the rules: it stays as it is, goes, or is built again out of what stays.

use bytes::Bytes;

use super::rules::{Retention, stays};
use crate::record::{BuildError, RecordError, RecordView, UnpackedBatch, rebuild};
use crate::types::TimestampMs;

/// What becomes of a batch.
#[derive(Debug, PartialEq)]
pub(super) enum Filtered {
    /// It stays, byte for byte.
    Unchanged {
        /// When the tombstones in it may go that this pass has seen.
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

/// Decides about the records of a batch. A control batch stays as it is.
pub(super) fn filter(
    batch: &UnpackedBatch<'_>,
    retention: &Retention<'_>,
) -> Result<Filtered, FilterError> {
    let header = batch.header();
    let before = header.delete_horizon_ms();
    if header.is_control() {
        return Ok(Filtered::Unchanged { horizon: None });
    }
    let mut kept: Vec<RecordView<'_>> = Vec::with_capacity(16);
    let (mut has_tombstone, mut sees_tombstone, mut loses_records) = (false, false, false);
    for record in batch.records() {
        let record = record.map_err(FilterError::Records)?;
        if stays(retention, record.offset, record.key, record.value.is_some(), before) {
            has_tombstone |= record.value.is_none();
            sees_tombstone |= record.value.is_none() && record.offset < retention.end;
            kept.push(record);
        } else {
            loses_records = true;
        }
    }
    if kept.is_empty() {
        return Ok(Filtered::Emptied);
    }
    let after = if has_tombstone { before.or(Some(retention.horizon)) } else { before };
    let horizon = after.filter(|_| sees_tombstone);
    if !loses_records && after == before {
        return Ok(Filtered::Unchanged { horizon });
    }
    let bytes = rebuild(header, &kept, after).map_err(FilterError::Build)?;
    Ok(Filtered::Rebuilt { bytes, horizon })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cleaner::hash::HashKey;
    use crate::cleaner::key_map::KeyMap;
    use crate::record::{BatchBuilder, BatchView, EndMarker, MarkerKind, Record, RecordBatch};

    fn filtered(bytes: &[u8], keys: &KeyMap, end: i64, now: i64) -> Filtered {
        let batch = BatchView::parse(bytes).unwrap().unpack().unwrap();
        filter(&batch, &Retention { keys, end, now, horizon: now + 1000 }).unwrap()
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
    fn a_tombstone_behind_the_pass_is_stamped_and_no_pass_waits_for_it_yet() {
        let keys = KeyMap::new(1, HashKey([3, 4]));
        let bytes = batch(&[Record::new("b", "1"), Record::tombstone("a")]);
        let Filtered::Rebuilt { bytes, horizon } = filtered(&bytes, &keys, 1, 0) else {
            panic!("the batch was not stamped");
        };
        assert_eq!(horizon, None);
        assert_eq!(filtered(&bytes, &keys, 1, 5000), Filtered::Unchanged { horizon: None });
        assert!(matches!(filtered(&bytes, &keys, 2, 5000), Filtered::Rebuilt { .. }));
    }

    #[test]
    fn a_batch_that_loses_all_is_emptied_and_a_control_batch_is_left_alone() {
        let mut keys = KeyMap::new(1, HashKey([3, 4]));
        keys.put(b"a", 9);
        let bytes = batch(&[Record::new("a", "1"), Record::keyless("1")]);
        assert_eq!(filtered(&bytes, &keys, 2, 0), Filtered::Emptied);
        let marker = EndMarker { kind: MarkerKind::Abort, coordinator_epoch: 0 };
        let control = marker.batch(7, 0, 5);
        assert_eq!(filtered(&control, &keys, 2, 0), Filtered::Unchanged { horizon: None });
    }
}
