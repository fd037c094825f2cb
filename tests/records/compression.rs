//! Compressed batches: every codec there and back, the cap, and streams that are not whole.

use bytes::Bytes;
use tidelog::record::{
    AppendRules, BatchBuilder, Codec, ErrorCode, Record, RecordBatch, RecordError, StreamFault,
    validate_append,
};

const NOW: i64 = 1_700_000_000_000;

fn build(records: &[Record], codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new().codec(codec);
    records.iter().for_each(|record| builder.push(record).expect("a small record"));
    builder.finish().expect("a small batch")
}

fn read(batch: Bytes) -> Result<Vec<Record>, RecordError> {
    RecordBatch::parse(batch)?.records().collect()
}

/// The same bytes with the length and the checksum that they should have.
fn repaired(mut bytes: Vec<u8>) -> Bytes {
    let length = bytes.len() as u32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

fn code(batch: Bytes) -> ErrorCode {
    validate_append(batch, &AppendRules::new(NOW)).expect_err("the batch is bad").code()
}

#[test]
fn every_codec_reads_back_what_it_wrote() {
    let mut records: Vec<_> = (0..300)
        .map(|index| Record::new(format!("key-{index}"), "value ".repeat(index)).timestamp(NOW))
        .collect();
    records.push(Record::tombstone("k").header("h", None::<Bytes>).timestamp(NOW + 1));
    let wanted = read(build(&records, Codec::None)).unwrap();
    for codec in Codec::ALL {
        let batch = build(&records, codec);
        let validated = validate_append(batch.clone(), &AppendRules::new(NOW)).unwrap();
        assert_eq!(validated.codec(), codec);
        assert_eq!(validated.max_timestamp(), NOW + 1);
        assert_eq!(read(batch).unwrap(), wanted, "{codec}");
    }
}

#[test]
fn records_that_decompress_to_exactly_the_cap_pass_and_one_byte_more_does_not() {
    for codec in &Codec::ALL[1..] {
        let mut builder = BatchBuilder::new().codec(*codec);
        builder.push(&Record::new("k", vec![7; 100_000]).timestamp(NOW)).unwrap();
        let records_bytes = builder.encoded_size() - 61;
        let batch = builder.finish().unwrap();
        let mut rules = AppendRules::new(NOW);
        rules.max_decompressed_bytes = records_bytes;
        assert!(validate_append(batch.clone(), &rules).is_ok(), "{codec}");
        rules.max_decompressed_bytes -= 1;
        let limit_bytes = rules.max_decompressed_bytes;
        let fault = StreamFault::TooLarge { limit_bytes };
        let wanted = RecordError::Stream { codec: *codec, fault };
        assert_eq!(validate_append(batch.clone(), &rules).unwrap_err(), wanted.into());
        let parsed = RecordBatch::parse(batch).unwrap();
        assert_eq!(parsed.records_within(limit_bytes).next(), Some(Err(wanted)));
        assert_eq!(parsed.records_within(records_bytes).count(), 1);
    }
}

#[test]
fn a_compressed_stream_truncated_anywhere_or_with_a_byte_more_is_corrupt() {
    for codec in &Codec::ALL[1..] {
        let mut builder = BatchBuilder::new().codec(*codec);
        for index in 0..20 {
            builder.push(&Record::new(format!("key-{index}"), "v").timestamp(NOW)).unwrap();
        }
        let batch = builder.finish().unwrap().to_vec();
        for length in 61..batch.len() {
            let code = code(repaired(batch[..length].to_vec()));
            // Snappy's blocks have no end mark: cut between two, records are missing instead.
            let between_blocks = *codec == Codec::Snappy && length == 61 + 16;
            let wanted =
                if between_blocks { ErrorCode::InvalidRecord } else { ErrorCode::CorruptMessage };
            assert_eq!(code, wanted, "{codec} cut to {length}");
        }
        let longer = [&batch[..], &[0]].concat();
        assert_eq!(code(repaired(longer)), ErrorCode::CorruptMessage, "{codec} and a byte");
    }
}
