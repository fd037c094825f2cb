//! What the decoder allocates on any input, counted: a small multiple of the input, or the cap.
//!
//! The inputs are recorded batches, right and wrong, and seeded damage of them with the checksum
//! repaired. What C code allocates is not counted: zstd decompresses into our own buffer here.
//! A program of its own: it counts with an allocator, which would be that of all tests beside it.

use std::fs;

use bytes::Bytes;
use serde_json::Value;
use tidelog::record::{AppendRules, BatchBuilder, Batches, Codec, Record, validate_append};

/// A context of a codec, tables of its decoder, an error's text: what no input changes. The blocks
/// of an LZ4 frame are four mebibytes at most, of which a linked frame keeps two and a window.
const FIXED_BYTES: u64 = 256 * 1024;
const LZ4_BLOCKS_BYTES: u64 = 3 * 4 * 1024 * 1024 + 128 * 1024;

/// Per byte of an uncompressed batch: a refused record takes 24 bytes in a list that doubles, and
/// the smallest record takes 7.
const UNCOMPRESSED_RATIO: u64 = 16;

/// A buffer that doubles has its old and its new half at once.
const CAP_RATIO: u64 = 3;

const CAP_BYTES: usize = 256 * 1024;

fn seeds() -> Vec<Bytes> {
    let mut seeds = Vec::new();
    for file in ["rules", "varints", "codecs", "flips-compressed", "counts"] {
        let text = fs::read_to_string(format!("tests/data/golden/records/{file}.jsonl"));
        for line in text.expect("a file of cases").lines() {
            let case: Value = serde_json::from_str(line).expect("a case is JSON");
            let digits = case["batch"].as_str().expect("a case has a batch").as_bytes();
            let digit = |byte: u8| (byte as char).to_digit(16).expect("hex digits") as u8;
            seeds.push(digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect());
        }
    }
    seeds
}

/// Decodes with both readers and gives the codec that the attributes name, and the peak.
fn measure(batch: &Bytes) -> (Option<Codec>, u64) {
    let mut rules = AppendRules::new(1_700_000_001_000);
    rules.max_decompressed_bytes = CAP_BYTES;
    rules.compacted = true;
    let info = allocation_counter::measure(|| {
        let _ = validate_append(batch.clone(), &rules);
        for read in Batches::new(batch.clone()).trusting_crc() {
            let Ok(read) = read else { break };
            for record in read.records_within(CAP_BYTES) {
                let Ok(record) = record else { break };
                let _ = record.headers.iter().count();
            }
        }
    });
    let id = batch.get(22).map_or(0, |attributes| attributes & 7);
    (Codec::from_id(id), info.bytes_max)
}

fn assert_bounded(batch: &Bytes, what: &str) {
    let (codec, peak) = measure(batch);
    let input = batch.len() as u64;
    let limit = FIXED_BYTES
        + match codec {
            None => 0,
            Some(Codec::None) => input * UNCOMPRESSED_RATIO,
            Some(Codec::Lz4) => LZ4_BLOCKS_BYTES + CAP_BYTES as u64 * CAP_RATIO,
            Some(_) => CAP_BYTES as u64 * CAP_RATIO,
        };
    // A refused record may be named for every seven bytes that came out, too.
    let limit = limit + if codec == Some(Codec::None) { 0 } else { CAP_BYTES as u64 * 8 };
    assert!(peak <= limit, "{what}: peak={peak} limit={limit} input_bytes={input} codec={codec:?}");
}

#[test]
fn recorded_batches_and_damage_of_them_allocate_no_more_than_they_may() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let seeds = seeds();
    assert!(seeds.len() > 1500);
    for (index, seed) in seeds.iter().enumerate() {
        assert_bounded(seed, &format!("seed {index}"));
        if seed.len() < 62 {
            continue;
        }
        for round in 0..8 {
            let mut damaged = seed.to_vec();
            for _ in 0..=random(3) {
                let at = 21 + random(damaged.len() - 21);
                damaged[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
            }
            let crc = crc32c::crc32c(&damaged[21..]);
            damaged[17..21].copy_from_slice(&crc.to_be_bytes());
            assert_bounded(&damaged.into(), &format!("seed {index} round {round}"));
        }
    }
}

#[test]
fn sixty_one_bytes_that_claim_two_billion_records_allocate_next_to_nothing() {
    let mut builder = BatchBuilder::new();
    builder.push(&Record::new("k", "v")).expect("a small record");
    let mut batch = builder.finish().expect("a small batch")[..61].to_vec();
    batch[8..12].copy_from_slice(&49u32.to_be_bytes());
    batch[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
    batch[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    let (_, peak) = measure(&batch.into());
    assert!(peak < 1024, "peak={peak}");
}

#[test]
fn a_bomb_of_any_codec_stops_at_the_cap() {
    for codec in &Codec::ALL[1..] {
        let mut builder = BatchBuilder::new().codec(*codec);
        builder.push(&Record::new("k", vec![0; 64 << 20])).expect("below two gibibytes");
        let bomb = builder.finish().expect("a batch");
        assert_bounded(&bomb, &format!("{codec}"));
    }
}

#[test]
fn reading_an_uncompressed_batch_of_many_headers_allocates_next_to_nothing() {
    let mut builder = BatchBuilder::new();
    for _ in 0..100 {
        let record = (0..1000).fold(Record::keyless("v"), |r, _| r.header("", None::<Bytes>));
        builder.push(&record).expect("below the limit");
    }
    let batch = builder.finish().expect("a batch");
    let (_, peak) = measure(&batch);
    assert!(peak < 16 * 1024, "peak={peak} input_bytes={}", batch.len());
}
