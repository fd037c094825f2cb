//! What a fuzzer does with any bytes: as a frame, as the segments of a log, as topic settings.

mod frame;
mod replay;
mod topic_settings;

pub use frame::decode_frame;
pub use replay::{pack_segments, replay_segment};
pub use topic_settings::topic_settings;
