//! Snappy, raw or in snappy-java's blocks; written in blocks, which every client reads.
//!
//! ```text
//! framed := 82 'SNAPPY' 00 | version i32 | compatible version i32 | block*
//! block  := length i32 | one raw stream
//! ```
//!
//! No raw stream starts with the eight magic bytes: they would be a length of 10,626 and a copy
//! from before the start.

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use crate::record::fault::StreamFault;

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const HEADER_BYTES: usize = 16;
const VERSION: i32 = 1;

/// The block size of snappy-java.
const BLOCK_BYTES: usize = 32 * 1024;

/// The most that one byte of a raw stream can become: a copy of 64 bytes takes three.
const MAX_RATIO: usize = 22;

pub(super) fn decompress(stream: &[u8], limit_bytes: usize) -> Result<Vec<u8>, StreamFault> {
    let mut out = Vec::new();
    if !stream.starts_with(&MAGIC) {
        append_raw(stream, limit_bytes, &mut out)?;
        return Ok(out);
    }
    // The versions say nothing that a reader needs; Kafka takes any.
    let mut rest = stream.get(HEADER_BYTES..).ok_or(StreamFault::EndsEarly)?;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<4>().ok_or(StreamFault::EndsEarly)?;
        let length = usize::try_from(i32::from_be_bytes(*length));
        let length = length.map_err(|_| StreamFault::Malformed)?;
        let (block, behind) = behind.split_at_checked(length).ok_or(StreamFault::EndsEarly)?;
        append_raw(block, limit_bytes, &mut out)?;
        rest = behind;
    }
    Ok(out)
}

fn append_raw(raw: &[u8], limit_bytes: usize, out: &mut Vec<u8>) -> Result<(), StreamFault> {
    let claimed = decompress_len(raw).map_err(|_| StreamFault::Malformed)?;
    if claimed > raw.len().saturating_mul(MAX_RATIO) {
        return Err(StreamFault::Malformed);
    }
    let start = out.len();
    if claimed > limit_bytes - start {
        return Err(StreamFault::TooLarge { limit_bytes });
    }
    out.resize(start + claimed, 0);
    let produced = Decoder::new().decompress(raw, &mut out[start..]);
    produced.map_err(|_| StreamFault::Malformed)?;
    Ok(())
}

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = Encoder::new();
    let mut block = vec![0; max_compress_len(BLOCK_BYTES)];
    for chunk in records.chunks(BLOCK_BYTES) {
        let length = encoder.compress(chunk, &mut block).expect("the block has room for its worst");
        let length_field = i32::try_from(length).expect("a block is small");
        out.extend_from_slice(&length_field.to_be_bytes());
        out.extend_from_slice(&block[..length]);
    }
}
