//! Files under a small trait: the real file system here, and a simulated one in `testing`.
//!
//! Everything the engine does to its directory goes through [`Files`] and [`File`]; no other module
//! opens a file. The traits promise what POSIX promises and no more: a write may be torn at any
//! sector, unsynced bytes may vanish in any subset, and a directory entry is durable only once its
//! directory was synced.

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod real;

pub use real::SystemFiles;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("tidelog runs on Linux and macOS");

/// A file system, or the part of one that the engine may use. Paths are absolute or relative to
/// the process, as the caller gave them.
pub trait Files: Send + Sync + fmt::Debug {
    /// Makes a directory and its parents, all of them durable; no error if they are there.
    ///
    /// # Errors
    /// What the system says.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in no order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Makes a file for reading and writing; an error of kind `AlreadyExists` if the name is taken.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file that exists, for reading and writing.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Removes a file's name; who has it open can still read it.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name in the same file system, replacing what has it.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    ///
    /// # Errors
    /// What the system says; then entries may be lost although a later call succeeds.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Bytes that can still be written below this directory.
    ///
    /// # Errors
    /// What the system says.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;

    /// Bytes of the file system that holds this directory, written and free.
    ///
    /// # Errors
    /// What the system says.
    fn total_bytes(&self, directory: &Path) -> io::Result<u64>;

    /// Takes the lock file at this path for this process until the guard is dropped, and writes
    /// who holds it into the file.
    ///
    /// # Errors
    /// [`LockError::Held`] if another holds it, in this process or another.
    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError>;
}

/// An open file. Positions are absolute; there is no cursor.
pub trait File: Send + Sync + fmt::Debug {
    /// Writes all of the slices, one after the other, from `position` on.
    ///
    /// # Errors
    /// What the system says; then any part of the bytes may have been written.
    fn write_at(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()>;

    /// Reads up to `buffer.len()` bytes from `position` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Makes the file's bytes and length durable (fdatasync).
    ///
    /// # Errors
    /// What the system says; then bytes may be lost although a later call succeeds.
    fn sync_data(&self) -> io::Result<()>;

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// What the system says.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// The length of the file.
    ///
    /// # Errors
    /// What the system says.
    fn length(&self) -> io::Result<u64>;

    /// How many names the file has: more than one where somebody made a hard link to it.
    ///
    /// # Errors
    /// What the system says.
    fn link_count(&self) -> io::Result<u64>;

    /// Asks the system to forget what it caches of the file, so that the next read asks the device.
    ///
    /// # Errors
    /// What the system says.
    fn drop_cache(&self) -> io::Result<()>;
}

/// A lock that is held; dropping it lets go.
pub trait LockGuard: Send + Sync + fmt::Debug {}

/// Why a lock file could not be taken.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Another holds it.
    Held {
        /// What the holder wrote into the file about itself: `pid=` and its process id.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file could not be used.
    Io(io::Error),
}

/// Whether the system refused a write because there was no room: the disk or a quota is full.
#[must_use]
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { holder, path } => {
                write!(f, "the directory is in use: {holder} path={}", path.display())
            }
            Self::Io(_) => f.write_str("the lock file could not be used"),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Held { .. } => None,
            Self::Io(error) => Some(error),
        }
    }
}
