//! The fuzz targets of tidelog: one function each, for libFuzzer and for tests over a corpus.

#![forbid(unsafe_code)]

mod decode_record_batch;
mod encode_decode;
mod other_decoder;

pub use decode_record_batch::decode_record_batch;
pub use encode_decode::encode_decode;
