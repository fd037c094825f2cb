//! The keys of a batch's records alone: for who looks at very many records, and at little of each.

use crate::base::types::Offset;

use super::fault::RecordError;
use super::raw::{bytes_behind, take_key};

/// The key of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordKey<'a> {
    /// The record's place in the partition.
    pub offset: Offset,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Whether its value is not null: a record without one is a tombstone on a compacted topic.
    pub has_value: bool,
}

/// The keys of the records of an [`UnpackedBatch`](super::UnpackedBatch). A fault is the last item;
/// faults in values and headers are not seen.
#[derive(Debug)]
pub struct RecordKeys<'a> {
    pub(super) base_offset: Offset,
    pub(super) records: &'a [u8],
    pub(super) at: usize,
    pub(super) index: u32,
    pub(super) left: u32,
}

impl<'a> Iterator for RecordKeys<'a> {
    type Item = Result<RecordKey<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return bytes_behind(&mut self.at, self.records.len()).map(Err);
        }
        let records = self.records;
        match take_key(records, &mut self.at) {
            Ok(raw) => {
                self.left -= 1;
                self.index += 1;
                Some(Ok(RecordKey {
                    offset: self.base_offset.wrapping_add(i64::from(raw.offset_delta)),
                    key: raw.key.map(|range| &records[range]),
                    has_value: raw.has_value,
                }))
            }
            Err(fault) => {
                self.left = 0;
                self.at = records.len();
                Some(Err(RecordError::Record { index: self.index, fault }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::record::{BatchBuilder, BatchView, Codec, Record};

    fn batch(codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new().codec(codec);
        for record in [
            Record::new("k", vec![b'x'; 300]).timestamp(5),
            Record::tombstone("").timestamp(-1),
            Record::keyless("v").header("", None::<&str>).timestamp(1 << 40),
            Record::keyless(None::<&str>),
        ] {
            builder.push(&record).unwrap();
        }
        builder.finish().unwrap().to_vec()
    }

    #[test]
    fn the_keys_are_those_of_the_records_under_every_codec() {
        for codec in Codec::ALL {
            let bytes = batch(codec);
            let batch = BatchView::parse(&bytes).unwrap().unpack().unwrap();
            let keys = batch.keys().map(|key| key.unwrap());
            let keys = keys.map(|key| (key.offset, key.key, key.has_value));
            let records = batch.records().map(|record| record.unwrap());
            let records = records.map(|record| (record.offset, record.key, record.value.is_some()));
            assert!(keys.eq(records));
            assert_eq!(batch.keys().count(), 4);
        }
    }

    #[test]
    fn any_changed_byte_before_the_values_gives_what_the_records_give_or_is_seen_by_them_alone() {
        let whole = batch(Codec::None);
        for at in 57..whole.len() {
            for changed in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = changed;
                let Ok(batch) = BatchView::parse(&bytes).unwrap().unpack() else { continue };
                let records: Vec<_> = batch.records().collect();
                let keys: Vec<_> = batch.keys().collect();
                for (index, record) in records.iter().enumerate() {
                    let Ok(record) = record else { break };
                    let key = keys[index].as_ref().expect("a key is a part of a record");
                    assert_eq!((key.offset, key.key), (record.offset, record.key));
                    assert_eq!(key.has_value, record.value.is_some());
                }
                if keys.iter().any(Result::is_err) {
                    assert!(records.iter().any(Result::is_err), "byte {at} is {changed}");
                    assert!(keys[..keys.len() - 1].iter().all(Result::is_ok));
                }
            }
        }
    }
}
