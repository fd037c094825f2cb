//! How a log behaves: the limits that it keeps.

use rustix::process::{Resource, getrlimit};

use crate::base::rules::BrokenRules;

/// Segments that are kept open for reading at most, however many files the process may have open.
const MOST_OPEN_SEGMENTS: u64 = 256;

/// Segments that are kept open at least: what the last few readers need.
const LEAST_OPEN_SEGMENTS: u64 = 4;

/// How a log behaves.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The size at which a segment is left for a new one.
    pub segment_bytes: u64,
    /// How many bytes may be unsynced before the committer waits (W8). It bounds what a power
    /// loss takes of buffered commits.
    pub max_unsynced_bytes: u64,
    /// Free space below which appends are refused (E5); 0 to never look.
    pub reserve_bytes: u64,
    /// How many freed segments are kept at most to be written over (F5); 0 to remove them all.
    pub max_free_segments: u32,
    /// How many segments are kept open at most for reading.
    pub max_open_segments: usize,
    /// Rules that a test breaks on purpose.
    pub broken: BrokenRules,
}

impl Default for LogOptions {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            segment_bytes: 256 * MIB,
            max_unsynced_bytes: 64 * MIB,
            reserve_bytes: 0,
            max_free_segments: 8,
            max_open_segments: max_open_segments(),
            broken: BrokenRules::NONE,
        }
    }
}

/// How many segments this process may keep open for reading.
#[must_use]
pub fn max_open_segments() -> usize {
    open_segments_within(getrlimit(Resource::Nofile).current)
}

/// A quarter of the files that a process may have open: the index takes a half, and what the
/// process opens besides has the rest.
fn open_segments_within(allowed_files: Option<u64>) -> usize {
    let share = allowed_files.map_or(u64::MAX, |allowed| allowed / 4);
    share.clamp(LEAST_OPEN_SEGMENTS, MOST_OPEN_SEGMENTS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_segments_take_a_quarter_of_the_files_and_no_more_than_are_of_use() {
        let within = [0, 64, 256, 1024, 1 << 20].map(|allowed| open_segments_within(Some(allowed)));
        assert_eq!(within, [4, 16, 64, 256, 256]);
        assert_eq!(open_segments_within(None), 256);
    }
}
