//! Files of which some calls fail for as long as a test says, by name: what a broken disk is like.

use std::io;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidelog::testing::{EIO, File, Files, LockError, LockGuard};

/// A call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Open,
    Read,
    Remove,
    /// It is done, and says that it was not.
    LateRemove,
    /// The same, by the old name.
    LateRename,
    SyncDirectory,
}

type Hook = Box<dyn FnOnce() + Send>;

/// Which calls fail: of files, or directories, whose name ends so.
#[derive(Default)]
pub struct Broken {
    failing: Mutex<Vec<(Call, String)>>,
    failed: Mutex<u64>,
    reads: Mutex<u64>,
    hooks: Mutex<Vec<(u64, Hook)>>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broken").field("failing", &self.failing).finish_non_exhaustive()
    }
}

impl Broken {
    /// From now on such calls fail.
    pub fn fail(&self, call: Call, end: &str) {
        self.failing.lock().push((call, end.to_owned()));
    }

    /// From now on nothing fails.
    pub fn mend(&self) {
        self.failing.lock().clear();
    }

    /// Before the read of a file that comes behind so many from now on, this is done.
    pub fn before_read(&self, after_reads: u64, hook: impl FnOnce() + Send + 'static) {
        let at = *self.reads.lock() + after_reads;
        self.hooks.lock().push((at, Box::new(hook)));
    }

    fn count_read(&self) {
        let at = *self.reads.lock();
        *self.reads.lock() += 1;
        let due: Vec<_> = self.hooks.lock().extract_if(.., |(due, _)| *due <= at).collect();
        due.into_iter().for_each(|(_, hook)| hook());
    }

    /// How many calls have failed since the last time.
    pub fn take_failed(&self) -> u64 {
        std::mem::take(&mut *self.failed.lock())
    }

    fn judge(&self, call: Call, path: &Path) -> io::Result<()> {
        let name = path.to_string_lossy();
        let is_failing = |(failing, end): &(Call, String)| *failing == call && name.ends_with(end);
        if self.failing.lock().iter().any(is_failing) {
            *self.failed.lock() += 1;
            return Err(io::Error::from_raw_os_error(EIO));
        }
        Ok(())
    }
}

/// Files over others.
#[derive(Debug)]
pub struct FailingFiles {
    pub inner: Arc<dyn Files>,
    pub broken: Arc<Broken>,
}

#[derive(Debug)]
struct FailingFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    broken: Arc<Broken>,
}

impl FailingFiles {
    fn file(&self, path: &Path, inner: Arc<dyn File>) -> Arc<dyn File> {
        let (path, broken) = (path.to_owned(), Arc::clone(&self.broken));
        Arc::new(FailingFile { inner, path, broken })
    }
}

impl Files for FailingFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.broken.judge(Call::Open, path)?;
        Ok(self.file(path, self.inner.open(path)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.broken.judge(Call::Remove, path)?;
        self.inner.remove(path)?;
        self.broken.judge(Call::LateRemove, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)?;
        self.broken.judge(Call::LateRename, from)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.broken.judge(Call::SyncDirectory, directory)?;
        self.inner.sync_directory(directory)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.inner.free_bytes(directory)
    }

    fn total_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.inner.total_bytes(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        self.inner.lock(path)
    }
}

impl File for FailingFile {
    fn write_at(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write_at(position, slices)
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.broken.count_read();
        self.broken.judge(Call::Read, &self.path)?;
        self.inner.read_at(position, buffer)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn link_count(&self) -> io::Result<u64> {
        self.inner.link_count()
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.inner.drop_cache()
    }
}
