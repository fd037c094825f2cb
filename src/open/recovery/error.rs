//! Why an engine cannot be opened; log and index are as they were.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::base::error::StorageError;
use crate::base::io::LockError;
use crate::config::EngineConfigError;

/// An engine was not opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OpenError {
    /// The limits are not valid.
    Config(EngineConfigError),
    /// Another has the engine open.
    Locked {
        /// What it wrote about itself: `pid=` and its process id.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// The format is not known here: a newer version wrote it. Nothing was touched.
    UnknownFormat {
        /// The file that tells the format.
        path: PathBuf,
        /// What it says, shortened if it is long.
        found: String,
    },
    /// There is an index, but not the file that tells whose.
    FormatMissing {
        /// The directory.
        directory: PathBuf,
    },
    /// The engine's directory has no index, though one was made there.
    IndexMissing {
        /// Where it should be.
        directory: PathBuf,
    },
    /// This build has no RocksDB, and the builder was given no other store.
    NoStore,
    /// The storage failed, or what it holds is damaged.
    Storage(StorageError),
}

impl OpenError {
    pub(super) fn lock(error: LockError, path: &Path) -> Self {
        match error {
            LockError::Held { holder, path } => Self::Locked { holder, path },
            LockError::Io(error) => Self::Storage(StorageError::io("lock", path, error)),
        }
    }

    /// A call on a file in the engine's directory failed.
    pub(super) fn file(operation: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self::Storage(StorageError::io(operation, path, error))
    }
}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "the engine's limits are not valid: {error}"),
            Self::Locked { holder, path } => {
                write!(f, "the engine is open elsewhere: {holder} lock={}", path.display())
            }
            Self::UnknownFormat { path, found } => write!(
                f,
                "the engine's format is not known here and nothing was touched: file={} \
                 found={found:?}",
                path.display()
            ),
            Self::FormatMissing { directory } => write!(
                f,
                "the directory holds an index and no FORMAT file: directory={}",
                directory.display()
            ),
            Self::IndexMissing { directory } => write!(
                f,
                "the engine was made here, and its index is gone: directory={}",
                directory.display()
            ),
            Self::NoStore => f.write_str(
                "this build has no index store: enable the feature `rocksdb`, or give one to \
                 `EngineBuilder::store`",
            ),
            Self::Storage(error) => write!(f, "the engine's storage could not be opened: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => error.source(),
            Self::Storage(error) => error.source(),
            _ => None,
        }
    }
}
