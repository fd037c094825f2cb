//! Zstandard: one frame, complete, its checksum and size right if it has them.
//!
//! A frame is decompressed in one piece into a buffer that quadruples until it fits, so memory
//! follows what was produced, and no window is allocated by a size that the frame claims.

use std::cell::RefCell;

use zstd::zstd_safe::{
    CCtx, DCtx, compress_bound, find_frame_compressed_size, get_frame_content_size, zstd_sys,
};

use crate::record::fault::StreamFault;

const MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();

/// The level that Kafka's producers use.
const LEVEL: i32 = 3;

/// The first buffer: what records usually shrink by, and a little for the smallest.
const USUAL_RATIO: usize = 8;
const FIRST_BYTES: usize = 16 * 1024;

thread_local! {
    // A context is large; making one for every batch would cost more than most batches.
    static DECODER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    static ENCODER: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
}

pub(super) fn decompress(stream: &[u8], limit_bytes: usize) -> Result<Vec<u8>, StreamFault> {
    if !stream.starts_with(&MAGIC) {
        let early = MAGIC.starts_with(stream);
        return Err(if early { StreamFault::EndsEarly } else { StreamFault::Malformed });
    }
    let size = find_frame_compressed_size(stream).map_err(|code| {
        if is(code, zstd_sys::ZSTD_ErrorCode::ZSTD_error_srcSize_wrong) {
            StreamFault::EndsEarly
        } else {
            StreamFault::Malformed
        }
    })?;
    if size != stream.len() {
        return Err(StreamFault::BytesBehind);
    }
    let mut capacity = FIRST_BYTES.max(stream.len() * USUAL_RATIO);
    if let Ok(Some(content)) = get_frame_content_size(stream) {
        let content = usize::try_from(content).unwrap_or(usize::MAX);
        if content > limit_bytes {
            return Err(StreamFault::TooLarge { limit_bytes });
        }
        capacity = capacity.min(content);
    }
    loop {
        capacity = capacity.min(limit_bytes);
        let mut out = Vec::with_capacity(capacity);
        match DECODER.with_borrow_mut(|decoder| decoder.decompress(&mut out, stream)) {
            Ok(_) => return Ok(out),
            Err(code) if !is(code, zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => {
                return Err(StreamFault::Malformed);
            }
            Err(_) if capacity == limit_bytes => {
                return Err(StreamFault::TooLarge { limit_bytes });
            }
            Err(_) => capacity = capacity.max(1).saturating_mul(4),
        }
    }
}

/// Whether a result of zstd is this error: it returns the negated number.
fn is(code: usize, error: zstd_sys::ZSTD_ErrorCode) -> bool {
    code.wrapping_neg() == error as usize
}

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) {
    let mut compressed = Vec::with_capacity(compress_bound(records.len()));
    ENCODER
        .with_borrow_mut(|encoder| encoder.compress(&mut compressed, records, LEVEL))
        .expect("the buffer has room for the worst, and the level exists");
    out.extend_from_slice(&compressed);
}
