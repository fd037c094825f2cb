//! The insides of the engine, for the tests, benches and fuzzers of this workspace alone; nothing here is kept.

pub use crate::base::{hash, io, rules};
pub use crate::index::{keyspace, store, write_batch};
pub use crate::state::partition;
pub use crate::testing::hooks::{
    forget_cleaned, pretend_open_transaction, skip_offsets, write_marker,
};
pub use crate::testing::store::{MemoryStore, conformance, differential};

/// The commit log.
pub mod log {
    pub use crate::log::parts::{
        FramePlace, FreeSegments, GroupPlace, ReplayedPayload, SEGMENT_FORMAT_VERSION,
    };
    pub use crate::log::{
        AppendFailure, CommitLog, FrameLayout, LogIdentity, LogOptions, NewFrame, Payload,
        RecoveredLog, ReplayedFrame, SEGMENT_HEADER_BYTES, SegmentInfo, frame_layout,
    };
}

/// The bodies of fuzz targets.
pub mod fuzz {
    pub use crate::testing::fuzz::{decode_frame, pack_segments, replay_segment, topic_settings};
}
