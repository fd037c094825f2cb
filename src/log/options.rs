//! How a log behaves: the limits that it keeps.

use crate::base::rules::BrokenRules;

/// How a log behaves.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The size at which a segment is left for a new one.
    pub segment_bytes: u64,
    /// After how many unsynced bytes the background syncs (W8).
    pub background_sync_bytes: u64,
    /// How many bytes may be unsynced before the committer waits (W8). It bounds what a power
    /// loss takes of buffered commits.
    pub max_unsynced_bytes: u64,
    /// Free space below which appends are refused (E5); 0 to never look.
    pub reserve_bytes: u64,
    /// How many freed segments are kept at most to be written over (F5); 0 to remove them all.
    pub max_free_segments: u32,
    /// Rules that a test breaks on purpose.
    pub broken: BrokenRules,
}

impl Default for LogOptions {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            segment_bytes: 256 * MIB,
            background_sync_bytes: 16 * MIB,
            max_unsynced_bytes: 64 * MIB,
            reserve_bytes: 0,
            max_free_segments: 8,
            broken: BrokenRules::NONE,
        }
    }
}
