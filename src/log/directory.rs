//! What lies in the directory of a log: segments, and freed ones that are kept to be written over.

use std::path::{Path, PathBuf};

use super::segment::{file_name, free_name, parse_file_name, parse_free_name};
use crate::base::error::StorageError;
use crate::base::io::Files;
use crate::base::types::SegmentId;

/// The files of a log, each kind by id. Other files are none of ours.
pub(super) struct Listed {
    pub(super) segments: Vec<SegmentId>,
    pub(super) free: Vec<SegmentId>,
}

impl Listed {
    /// The newest id that any name tells: those after it were never given.
    pub(super) fn newest(&self) -> Option<SegmentId> {
        self.segments.iter().chain(&self.free).max().copied()
    }
}

pub(super) fn list(files: &dyn Files, directory: &Path) -> Result<Listed, StorageError> {
    let names = files.list(directory);
    let names = names.map_err(|error| StorageError::io("list", directory, error))?;
    let mut segments: Vec<_> = names.iter().filter_map(|name| parse_file_name(name)).collect();
    let mut free: Vec<_> = names.iter().filter_map(|name| parse_free_name(name)).collect();
    segments.sort_unstable();
    free.sort_unstable();
    Ok(Listed { segments, free })
}

/// Removes files that hold nothing of the log, durably.
pub(super) fn remove(
    files: &dyn Files,
    directory: &Path,
    segments: &[SegmentId],
    free: &[SegmentId],
) -> Result<(), StorageError> {
    let names =
        segments.iter().map(|&id| file_name(id)).chain(free.iter().map(|&id| free_name(id)));
    let paths: Vec<PathBuf> = names.map(|name| directory.join(name)).collect();
    for path in &paths {
        files.remove(path).map_err(|error| StorageError::io("remove", path, error))?;
    }
    if paths.is_empty() {
        return Ok(());
    }
    let synced = files.sync_directory(directory);
    synced.map_err(|error| StorageError::io("sync the directory", directory, error))
}
