//! What can go wrong below every operation: `StorageError`, and `Corruption` found on disk.
//!
//! Each operation has its own error enum, which wraps [`StorageError`]. All of them can be cloned,
//! because one failure is reported to every caller that waits for it. Each says its direct cause in
//! its own text, and `source` is what comes after that: a chain that is printed says nothing twice.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::types::{CommitSequence, Offset, PartitionId, SegmentId};

/// A failure of the storage below an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StorageError {
    /// A call on a file failed.
    Io {
        /// What was tried, as a verb: "read", "sync".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        source: Arc<io::Error>,
    },
    /// The index store failed.
    Store {
        /// What was tried, as a verb: "write", "flush".
        operation: &'static str,
        /// The store's own words.
        reason: Arc<str>,
    },
    /// Bytes on disk are not what was written.
    Corruption(Corruption),
    /// A file is of a format that this version does not know; it was left as it is.
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The format version that it names.
        version: u32,
    },
    /// The disk has no room. Nothing of the commit exists; try again once there is space.
    DiskFull {
        /// Bytes free on the file system of the log, or 0 where the write itself failed.
        free_bytes: u64,
        /// Free space below which appends are refused.
        reserve_bytes: u64,
    },
    /// A storage failure has stopped all writes; reads go on. Reopen the engine.
    Halted {
        /// The failure that stopped them.
        cause: Arc<StorageError>,
    },
    /// The engine was closed.
    Closed,
}

/// Bytes on disk that are not what was written, and where they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// Where.
    pub place: Place,
    /// What is wrong there, as a clause: "the checksum of the frame does not match".
    pub what: &'static str,
}

/// Where damage was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A place in a commit log segment.
    Segment {
        /// The segment.
        segment: SegmentId,
        /// The byte in its file.
        position: u64,
    },
    /// Commits that were acknowledged as synced and cannot be read back.
    Commits {
        /// The first of them.
        first: CommitSequence,
        /// The last that is known.
        last: CommitSequence,
    },
    /// A record batch of a partition.
    Batch {
        /// The partition.
        partition: PartitionId,
        /// The batch's base offset.
        offset: Offset,
    },
    /// A key or value of the index store.
    StoreEntry {
        /// Its column family.
        family: &'static str,
        /// Its key.
        key: Box<[u8]>,
    },
    /// A file as a whole.
    File {
        /// The file.
        path: PathBuf,
    },
}

impl StorageError {
    /// The failure of a call on a file.
    #[must_use]
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), source: Arc::new(source) }
    }

    /// The failure of a call of the index store.
    #[must_use]
    pub fn store(operation: &'static str, reason: impl Into<Arc<str>>) -> Self {
        Self::Store { operation, reason: reason.into() }
    }

    /// Whether the disk has no room.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }

    /// Whether a storage failure has stopped all writes, so that the engine must be reopened.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        matches!(self, Self::Halted { .. })
    }

    /// Whether the engine was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// Whether the same call can succeed later without reopening the engine.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }
}

impl Corruption {
    /// Damage at a place in a segment.
    #[must_use]
    pub fn in_segment(segment: SegmentId, position: u64, what: &'static str) -> Self {
        Self { place: Place::Segment { segment, position }, what }
    }

    /// Damage of an entry of the index store.
    #[must_use]
    pub fn in_store(family: &'static str, key: &[u8], what: &'static str) -> Self {
        Self { place: Place::StoreEntry { family, key: key.into() }, what }
    }
}

impl From<Corruption> for StorageError {
    fn from(corruption: Corruption) -> Self {
        Self::Corruption(corruption)
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { operation, path, source } => {
                write!(f, "could not {operation} {}: {source}", path.display())
            }
            Self::Store { operation, reason } => {
                write!(f, "the index store could not {operation}: {reason}")
            }
            Self::Corruption(corruption) => corruption.fmt(f),
            Self::UnknownFormat { path, version } => write!(
                f,
                "a file has a format that this version does not know: version={version} path={}",
                path.display()
            ),
            Self::DiskFull { free_bytes, reserve_bytes } => write!(
                f,
                "the disk is full and nothing was written: free_bytes={free_bytes} \
                 reserve_bytes={reserve_bytes}"
            ),
            Self::Halted { cause } => write!(
                f,
                "the engine has halted after a storage failure and must be reopened: {cause}"
            ),
            Self::Closed => f.write_str("the engine is closed"),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => source.source(),
            Self::Halted { cause } => cause.source(),
            _ => None,
        }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what;
        match &self.place {
            Place::Segment { segment, position } => {
                write!(f, "damage in the commit log: {what}: segment={segment} position={position}")
            }
            Place::Commits { first, last } => {
                write!(f, "acknowledged commits are damaged: {what}: first={first} last={last}")
            }
            Place::Batch { partition, offset } => {
                write!(
                    f,
                    "a record batch is damaged: {what}: partition_id={partition} offset={offset}"
                )
            }
            Place::StoreEntry { family, key } => {
                write!(f, "an index entry is damaged: {what}: family={family} key=")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Place::File { path } => write!(f, "a file is damaged: {what}: path={}", path.display()),
        }
    }
}

impl std::error::Error for Corruption {}
