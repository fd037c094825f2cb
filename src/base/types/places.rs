//! Places in the commit log: segments, positions, commit sequences.

use std::fmt;

/// The number of a commit log segment; never given twice, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

/// The number of a commit, dense from 1: the order of all commits. 0 stands before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSequence(pub u64);

impl CommitSequence {
    /// The place before the first commit.
    pub const NONE: Self = Self(0);

    /// The commit after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Where the bytes of one record batch lie in the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadLocation {
    /// The segment that holds them.
    pub segment: SegmentId,
    /// The byte in that segment's file at which they start.
    pub position: u64,
    /// How many they are.
    pub length_bytes: u32,
}

/// The commit that the index holds last, and the frame that carried it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppliedCommit {
    /// Its number; [`CommitSequence::NONE`] for an index that holds no commit.
    pub sequence: CommitSequence,
    /// The segment that holds its frame; where no commit was made, the first segment.
    pub segment: SegmentId,
    /// The byte at which its frame starts.
    pub position: u64,
    /// The checksum of its frame.
    pub frame_crc: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for CommitSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
