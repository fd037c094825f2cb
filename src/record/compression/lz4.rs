//! LZ4: one frame, with its end mark, its sizes and every checksum that it has.
//!
//! The crate takes a frame that breaks off between two blocks for complete, and reads frames of
//! other kinds; so where the frame ends is found here first, by its block lengths alone.

use std::io::Write;

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::read_within;
use crate::record::fault::StreamFault;

const MAGIC: [u8; 4] = 0x184d_2204u32.to_le_bytes();
const FLAG_BLOCK_CHECKSUM: u8 = 1 << 4;
const FLAG_CONTENT_SIZE: u8 = 1 << 3;
const FLAG_CONTENT_CHECKSUM: u8 = 1 << 2;
const FLAG_DICTIONARY: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

/// The bit of a block length that says that the block is not compressed.
const UNCOMPRESSED: u32 = 1 << 31;

/// How much more than the stream is reserved at first: what records usually shrink by.
const USUAL_RATIO: usize = 4;

pub(super) fn decompress(stream: &[u8], limit_bytes: usize) -> Result<Vec<u8>, StreamFault> {
    if frame_size(stream)? != stream.len() {
        return Err(StreamFault::BytesBehind);
    }
    read_within(FrameDecoder::new(stream), stream.len() * USUAL_RATIO, limit_bytes)
}

/// The size of the frame at the start of `stream`.
fn frame_size(stream: &[u8]) -> Result<usize, StreamFault> {
    let head = stream.first_chunk::<6>().ok_or(StreamFault::EndsEarly)?;
    if head[..4] != MAGIC {
        return Err(StreamFault::Malformed);
    }
    let flags = head[4];
    let has = |flag: u8| usize::from(flags & flag != 0);
    let block_checksum = CHECKSUM_BYTES * has(FLAG_BLOCK_CHECKSUM);
    // Behind the two bytes of flags: sizes if there are, and one byte of a checksum.
    let mut at = head.len() + 8 * has(FLAG_CONTENT_SIZE) + 4 * has(FLAG_DICTIONARY) + 1;
    loop {
        let rest = stream.get(at..).ok_or(StreamFault::EndsEarly)?;
        let length = u32::from_le_bytes(*rest.first_chunk::<4>().ok_or(StreamFault::EndsEarly)?);
        at += 4;
        if length == 0 {
            break;
        }
        at += (length & !UNCOMPRESSED) as usize + block_checksum;
    }
    at += CHECKSUM_BYTES * has(FLAG_CONTENT_CHECKSUM);
    if at > stream.len() { Err(StreamFault::EndsEarly) } else { Ok(at) }
}

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) {
    // As the clients write it: independent blocks of 64 KiB, no checksum, no size.
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(records).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail");
}
