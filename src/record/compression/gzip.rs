//! gzip: one member, its flags known, its checksum and length right.

use std::io::Write;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::read_within;
use crate::record::fault::StreamFault;

/// How much more than the stream is reserved at first: what records usually shrink by.
const USUAL_RATIO: usize = 4;

pub(super) fn decompress(stream: &[u8], limit_bytes: usize) -> Result<Vec<u8>, StreamFault> {
    let mut decoder = GzDecoder::new(stream);
    let out = read_within(&mut decoder, stream.len() * USUAL_RATIO, limit_bytes)?;
    if !decoder.into_inner().is_empty() {
        return Err(StreamFault::BytesBehind);
    }
    Ok(out)
}

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) {
    let mut encoder = GzEncoder::new(out, Compression::default());
    encoder.write_all(records).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail");
}
