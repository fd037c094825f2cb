//! The fuzz targets of tidelog: one function each, for libFuzzer and for tests over a corpus.

#![forbid(unsafe_code)]

mod decode_record_batch;
mod decode_store_value;
mod encode_decode;
mod engine_ops;
mod other_decoder;

pub use decode_record_batch::decode_record_batch;
pub use decode_store_value::decode_store_value;
pub use encode_decode::encode_decode;
pub use engine_ops::{engine_ops, engine_ops_breaking, show_operations};
pub use tidelog::internals::fuzz::decode_frame;
pub use tidelog::internals::fuzz::replay_segment;
pub use tidelog::internals::fuzz::topic_settings as topic_config;
