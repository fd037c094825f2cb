//! Another decoder of record batches, and what must be the same in it.

use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;
use tidelog::record::{Record, RecordBatch, TimestampType};

/// Whether the other decoder can be asked: it adds without wrapping, and would stop the process.
fn can_be_asked(batch: &RecordBatch, records: &[Record]) -> bool {
    let header = batch.header();
    // Its timestamps are base and delta even where the log's time counts; a delta that the base
    // cannot take is not seen in ours then.
    let times_fit = header.timestamp_type() == TimestampType::CreateTime
        && records.iter().all(|record| {
            let delta = record.timestamp.wrapping_sub(header.base_timestamp());
            header.base_timestamp().checked_add(delta).is_some()
        });
    let offsets_fit = records.iter().all(|record| {
        let delta = record.offset.wrapping_sub(header.base_offset());
        header.base_offset().checked_add(delta).is_some()
    });
    times_fit && offsets_fit
}

/// Asks the other decoder for the records of a batch whose records are these, and compares.
/// Gives whether it took the batch.
///
/// # Panics
/// If it reads other records.
pub(crate) fn compare(batch: &RecordBatch, records: &[Record]) -> bool {
    if !can_be_asked(batch, records) {
        return false;
    }
    let mut bytes = batch.bytes().clone();
    let Ok(theirs) = RecordBatchDecoder::decode(&mut bytes) else { return false };
    assert_eq!(theirs.records.len(), records.len(), "as many records");
    for (ours, theirs) in records.iter().zip(&theirs.records) {
        assert_eq!(ours.offset, theirs.offset);
        assert_eq!(ours.timestamp, theirs.timestamp);
        assert_eq!(ours.key, theirs.key);
        assert_eq!(ours.value, theirs.value);
        assert_eq!(theirs.transactional, batch.header().is_transactional());
        assert_eq!(theirs.control, batch.header().is_control());
        assert_eq!(theirs.producer_id, batch.header().producer_id());
        compare_headers(ours, &theirs.headers);
    }
    true
}

/// The other decoder keeps headers in a map: of those with one name the last value.
fn compare_headers<'a>(
    ours: &Record,
    theirs: impl IntoIterator<Item = (&'a kafka_protocol::protocol::StrBytes, &'a Option<Bytes>)>,
) {
    let mut folded: Vec<(Bytes, Option<Bytes>)> = Vec::new();
    for header in &ours.headers {
        match folded.iter_mut().find(|(name, _)| *name == header.name) {
            Some((_, value)) => *value = header.value,
            None => folded.push((header.name, header.value)),
        }
    }
    let theirs: Vec<_> = theirs
        .into_iter()
        .map(|(name, value)| (name.clone().into_bytes(), value.clone()))
        .collect();
    assert_eq!(folded, theirs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_other_decoder_takes_the_batches_of_every_client() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/decode_record_batch");
        let mut taken = 0;
        for entry in fs::read_dir(folder).expect("a corpus") {
            let bytes = fs::read(entry.expect("an entry").path()).expect("a file");
            let Ok(batch) = RecordBatch::parse(bytes.into()) else { continue };
            let records = batch.records().collect::<Result<Vec<_>, _>>();
            taken += usize::from(records.is_ok_and(|records| compare(&batch, &records)));
        }
        assert!(taken > 100, "taken={taken}");
    }
}
