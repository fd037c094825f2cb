//! Any records through the builder and back: the same records, by our reader and another decoder.

use arbitrary::{Arbitrary, Unstructured};
use tidelog::record::{
    AppendRules, BatchBuilder, Codec, EndMarker, Record, RecordBatch, TimestampType,
    validate_append,
};

use crate::other_decoder;

#[derive(Debug, Arbitrary)]
struct Input {
    codec: Codec,
    timestamp_type: TimestampType,
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    max_bytes: Option<u16>,
    marker: EndMarker,
    records: Vec<Record>,
}

/// Builds what `data` describes, reads it back and compares.
///
/// # Panics
/// If something else comes back.
pub fn encode_decode(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    check_marker(&input);
    let mut builder = BatchBuilder::new().codec(input.codec).timestamp_type(input.timestamp_type);
    if let Some((id, epoch, sequence)) = input.producer {
        builder = builder.producer(id, epoch, sequence);
    }
    if input.transactional {
        builder = builder.transactional();
    }
    if let Some(max_bytes) = input.max_bytes {
        builder = builder.max_bytes(max_bytes.into());
    }
    let mut kept = Vec::new();
    for record in &input.records {
        let told = builder.encoded_size_with(record);
        let before = builder.encoded_size();
        match builder.push(record) {
            Ok(()) => {
                assert_eq!(builder.encoded_size(), told);
                kept.push(record.clone());
            }
            Err(_) => {
                assert_eq!(builder.encoded_size(), before, "a refused record leaves no trace")
            }
        }
    }
    let Ok(bytes) = builder.finish() else { return };
    let batch = RecordBatch::parse(bytes).expect("what was built is a batch");
    batch.verify_crc().expect("its checksum is right");
    let read: Vec<Record> =
        batch.records().collect::<Result<_, _>>().expect("its records can be read");
    compare(&input, &batch, &kept, &read);
    check_verdict(&input, &batch);
}

fn compare(input: &Input, batch: &RecordBatch, kept: &[Record], read: &[Record]) {
    assert_eq!(read.len(), kept.len());
    let max = kept.iter().map(|record| record.timestamp).max().unwrap_or(-1).max(-1);
    assert_eq!(batch.header().max_timestamp(), max);
    for (index, (read, kept)) in read.iter().zip(kept).enumerate() {
        let mut wanted = kept.clone();
        wanted.offset = index as i64;
        if input.timestamp_type == TimestampType::LogAppendTime {
            wanted.timestamp = max;
        }
        assert_eq!(*read, wanted);
    }
    let texts = read.iter().flat_map(|record| &record.headers).all(|h| h.name_str().is_ok());
    if !other_decoder::compare(batch, read) && texts && read.len() == 1 {
        // One record has no deltas, so nothing can overflow in the other decoder.
        assert_eq!(input.timestamp_type, TimestampType::LogAppendTime, "it takes what we write");
    }
}

fn check_verdict(input: &Input, batch: &RecordBatch) {
    let mut rules = AppendRules::new(0);
    rules.max_message_bytes = u32::MAX;
    (rules.before_max_ms, rules.after_max_ms) = (i64::MAX, i64::MAX);
    if input.timestamp_type == TimestampType::CreateTime
        && let Ok(validated) = validate_append(batch.bytes().clone(), &rules)
    {
        assert_eq!(validated.stored(7).head, None, "what we build is stored as it is");
    }
}

/// A marker comes back as it was.
fn check_marker(input: &Input) {
    let (id, epoch, _) = input.producer.unwrap_or((7, 3, 0));
    if id < 0 || epoch < 0 {
        return;
    }
    let batch = RecordBatch::parse(input.marker.batch(id, epoch, 5)).expect("a control batch");
    batch.verify_crc().expect("its checksum is right");
    let record = batch.records().next().expect("one record").expect("which can be read");
    let read = tidelog::record::ControlRecord::parse(&record);
    assert_eq!(read, Ok(tidelog::record::ControlRecord::End(input.marker)));
}
