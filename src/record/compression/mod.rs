//! The codecs of batches: one stream in, the records out, and back.
//!
//! A payload is exactly one stream: one gzip member, one LZ4 frame, one Zstandard frame, or one
//! snappy stream, raw or in snappy-java's blocks. It is complete, its checksums are right, and
//! nothing is behind it. Output is never reserved by a length that the stream claims alone.

#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;

use super::attributes::Codec;
use super::fault::{RecordError, StreamFault};

/// What the records of one compressed batch may decompress to, unless a caller says otherwise:
/// sixty times the default `max.message.bytes`, and little enough to have some in memory at once.
pub const MAX_DECOMPRESSED_BYTES: usize = 64 * 1024 * 1024;

/// What the records of a batch in the log may decompress to. It was taken under an engine's own
/// limit, 1 GiB at most, and a delete horizon adds up to ten bytes to records of seven at least.
pub const MAX_STORED_DECOMPRESSED_BYTES: usize = 3 << 30;

/// The records in a compressed payload.
pub(super) fn decompress(
    codec: Codec,
    stream: &[u8],
    limit_bytes: usize,
) -> Result<Vec<u8>, RecordError> {
    let result: Result<Vec<u8>, StreamFault> = match codec {
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::decompress(stream, limit_bytes),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::decompress(stream, limit_bytes),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => lz4::decompress(stream, limit_bytes),
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd::decompress(stream, limit_bytes),
        Codec::None if stream.len() > limit_bytes => Err(StreamFault::TooLarge { limit_bytes }),
        Codec::None => Ok(stream.to_vec()),
        #[cfg(not(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")))]
        codec => return Err(RecordError::CodecNotBuilt { codec }),
    };
    result.map_err(|fault| RecordError::Stream { codec, fault })
}

/// Appends the compressed records to `out`.
pub(super) fn compress(codec: Codec, records: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
    match codec {
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::compress(records, out),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::compress(records, out),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => lz4::compress(records, out),
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd::compress(records, out),
        Codec::None => out.extend_from_slice(records),
        #[cfg(not(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")))]
        codec => return Err(RecordError::CodecNotBuilt { codec }),
    }
    Ok(())
}

/// Reads all that a decoder gives, up to a limit. The output grows as it is produced.
#[cfg(any(feature = "gzip", feature = "lz4"))]
fn read_within(
    decoder: impl std::io::Read,
    reserve_bytes: usize,
    limit_bytes: usize,
) -> Result<Vec<u8>, StreamFault> {
    use std::io::{ErrorKind, Read};

    let mut out = Vec::with_capacity(reserve_bytes.min(limit_bytes));
    let over = u64::try_from(limit_bytes).map_or(u64::MAX, |limit| limit.saturating_add(1));
    match decoder.take(over).read_to_end(&mut out) {
        Ok(_) if out.len() > limit_bytes => Err(StreamFault::TooLarge { limit_bytes }),
        Ok(_) => Ok(out),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(StreamFault::EndsEarly),
        Err(_) => Err(StreamFault::Malformed),
    }
}
