//! The fuzz targets of tidelog: one function each, run by libFuzzer and, over their corpus, by tests.

#![forbid(unsafe_code)]

mod decode_record_batch;
mod encode_decode;
mod other_decoder;

pub use decode_record_batch::decode_record_batch;
pub use encode_decode::encode_decode;
