//! The index store: an ordered map in column families, changed by write batches, as a trait.
//!
//! INVARIANT (rules S1 to S6, docs/space.md): one function writes, and one flushes, always all
//! families at one instant. A crash leaves the store between two write batches, at its last
//! complete flush or, where the store flushes by itself, later. Every call on a store that was
//! closed fails with [`StorageError::Closed`].

#[cfg(feature = "rocksdb")]
mod rocks;
#[cfg(feature = "rocksdb")]
mod rocks_options;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::index::write_batch::{Family, WriteBatch};

#[cfg(feature = "rocksdb")]
pub use rocks::RocksOpener;

/// The order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the least key up.
    Forward,
    /// From the greatest key down.
    #[cfg_attr(
        not(any(test, feature = "test-util")),
        expect(dead_code, reason = "part of what a store does; tests alone ask for it yet")
    )]
    Backward,
}

/// What a scan calls for each entry, with key and value; it says whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Something that can be read at one instant or as it is now.
pub trait Read: Send + Sync + fmt::Debug {
    /// The value of a key.
    ///
    /// # Errors
    /// [`StorageError::Store`], never "not there".
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// Visits the entries with `begin <= key < end`, over the one state that held when the scan
    /// began; none where `begin >= end`. `visit` may use the store.
    ///
    /// # Errors
    /// [`StorageError::Store`]; a failure is never taken for the end of the entries.
    fn scan(
        &self,
        family: Family,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StorageError>;
}

/// The index store.
pub trait Store: Read {
    /// Applies write batches, one after the other, as one atomic change. Never blocks on a flush.
    ///
    /// # Errors
    /// [`StorageError::Store`]; then nothing is visible, and all later writes fail too.
    fn write(&self, batches: &[&WriteBatch]) -> Result<(), StorageError>;

    /// The store as it is now, until the store is closed: from then on every read of the snapshot
    /// fails with [`StorageError::Closed`].
    fn snapshot(&self) -> Arc<dyn Read>;

    /// Starts to make durable all that was written so far, of all families at one instant, and does
    /// not wait. What is written later is not in the flush. One flush at a time: it has ended when
    /// [`Store::is_flushed`] says so.
    ///
    /// # Errors
    /// [`StorageError::Store`]. While another flush is under way nothing has happened; else either
    /// the old or the new state may be found after a reopen.
    fn begin_flush(&self) -> Result<(), StorageError>;

    /// Whether the flush that was begun last is complete; `true` if none was. Cheap; to be polled.
    ///
    /// # Errors
    /// [`StorageError::Store`]; then either the old or the new state may be found after a reopen,
    /// and all later writes fail.
    fn is_flushed(&self) -> Result<bool, StorageError>;

    /// Bytes of memory that unflushed writes hold, about.
    fn unflushed_bytes(&self) -> u64;

    /// Closes without flushing, once the reads under way have ended; later calls fail, those of
    /// snapshots too. The store holds no file any more and can be opened anew at once.
    ///
    /// # Errors
    /// [`StorageError::Store`].
    fn close(&self) -> Result<(), StorageError>;
}

/// A kind of store, which can be opened in a directory.
pub trait OpenStore: Send + Sync + fmt::Debug {
    /// Whether a store was made in this directory.
    ///
    /// # Errors
    /// [`StorageError::Io`] if that cannot be known.
    fn exists(&self, directory: &Path) -> Result<bool, StorageError>;

    /// Opens the store in this directory, which nobody else has open; with `create` it is made
    /// where there is none.
    ///
    /// # Errors
    /// [`StorageError::Store`] if there is none, if it is open already, or if it is damaged.
    fn open(&self, directory: &Path, create: bool) -> Result<Arc<dyn Store>, StorageError>;
}

/// A snapshot of a store that is closed.
#[cfg(any(feature = "rocksdb", test, feature = "test-util"))]
#[derive(Debug)]
pub(crate) struct ClosedSnapshot(pub(crate) StorageError);

#[cfg(any(feature = "rocksdb", test, feature = "test-util"))]
impl Read for ClosedSnapshot {
    fn get(&self, _: Family, _: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Err(self.0.clone())
    }

    fn scan(
        &self,
        _: Family,
        _: &[u8],
        _: &[u8],
        _: Direction,
        _: &mut Visit<'_>,
    ) -> Result<(), StorageError> {
        Err(self.0.clone())
    }
}
