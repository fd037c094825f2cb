//! What a fuzzer does with the bytes of a commit log: a single frame, and whole segments to be opened.

mod frame;
mod replay;

pub use frame::fuzz_decode_frame;
pub use replay::{fuzz_replay_segment, pack_segments};
