//! The simulated disk under the traits: what a process calls, and the files that it has open.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::faults::{FileCall, Verdict, errno, stopped};
use super::state::{InodeId, Shared, State};
use crate::base::io::{File, Files, LockError, LockGuard};

/// One process on the disk.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) shared: Arc<Shared>,
    pub(super) life: u64,
}

struct SimulatedFile {
    process: Process,
    path: PathBuf,
    inode: InodeId,
}

#[derive(Debug)]
struct SimulatedLock {
    process: Process,
    path: PathBuf,
}

impl LockGuard for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut state = self.process.shared.state.lock();
        if state.life == self.process.life {
            state.locks.remove(&self.path);
        }
    }
}

impl Process {
    fn change<T>(
        &self,
        operation: FileCall,
        make: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.shared.state.lock().change(self.life, operation, make)
    }

    fn file(&self, path: &Path, inode: InodeId) -> Arc<dyn File> {
        Arc::new(SimulatedFile { process: self.clone(), path: path.to_owned(), inode })
    }
}

impl Files for Process {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.change(FileCall::CreateDirectory, |state| {
            state.create_directory(path);
            Ok(())
        })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.change(FileCall::Read, |state| state.names(directory))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let inode = self.change(FileCall::Create, |state| state.create(path))?;
        Ok(self.file(path, inode))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let inode = self.change(FileCall::Open, |state| state.find(path))?;
        Ok(self.file(path, inode))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(FileCall::Remove, |state| state.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(FileCall::Rename, |state| state.rename(from, to))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        match state.enter(self.life, FileCall::SyncDirectory)? {
            Verdict::Proceed => state.sync_directory(directory),
            Verdict::Fail(fault) => {
                state.fail_sync_directory(directory)?;
                Err(errno(fault.errno))
            }
            Verdict::Crash => Err(stopped()),
        }
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        let state = self.shared.state.lock();
        state.check_life(self.life)?;
        Ok(state.free_bytes())
    }

    fn total_bytes(&self, _directory: &Path) -> io::Result<u64> {
        let state = self.shared.state.lock();
        state.check_life(self.life)?;
        Ok(state.capacity())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        let mut state = self.shared.state.lock();
        state.check_life(self.life).map_err(LockError::Io)?;
        if !state.locks.insert(path.to_owned()) {
            let holder = format!("pid={}", self.life);
            return Err(LockError::Held { holder, path: path.to_owned() });
        }
        if state.find(path).is_err() {
            state.create(path).map_err(LockError::Io)?;
        }
        Ok(Box::new(SimulatedLock { process: self.clone(), path: path.to_owned() }))
    }
}

impl File for SimulatedFile {
    fn write_at(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
        let mut state = self.process.shared.state.lock();
        match state.enter(self.process.life, FileCall::Write)? {
            Verdict::Proceed => state.write(self.inode, position, &bytes),
            Verdict::Fail(fault) => Err(state.fail_write(self.inode, position, &bytes, fault)),
            Verdict::Crash => {
                let done = state.random.below(bytes.len() as u64 + 1);
                state.write(self.inode, position, &bytes[..done as usize])?;
                Err(stopped())
            }
        }
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.process.change(FileCall::Read, |state| {
            let bytes = state.inode(self.inode).bytes();
            let start = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
            let count = buffer.len().min(bytes.len() - start);
            buffer[..count].copy_from_slice(&bytes[start..start + count]);
            Ok(count)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let Process { shared, life } = &self.process;
        let mut state = shared.state.lock();
        if state.enter_sync(*life)? {
            if state.random.chance(50) {
                let snapshot = state.inode(self.inode).begin_sync();
                state.inode(self.inode).finish_sync(snapshot);
            }
            return Err(stopped());
        }
        let snapshot = state.inode(self.inode).begin_sync();
        if let Some(run) = state.faults.during_sync.take() {
            drop(state);
            run();
            state = shared.state.lock();
        }
        state.held_syncs += 1;
        while state.faults.holds_syncs && state.check_life(*life).is_ok() {
            shared.changed.wait(&mut state);
        }
        state.held_syncs -= 1;
        state.check_life(*life)?;
        if let Some(fault) = state.faults.take_planned(FileCall::Sync) {
            state.fail_sync(self.inode);
            return Err(errno(fault.errno));
        }
        state.inode(self.inode).finish_sync(snapshot);
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.process.change(FileCall::SetLength, |state| state.set_length(self.inode, length))
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.process.shared.state.lock();
        state.check_life(self.process.life)?;
        Ok(state.inode(self.inode).bytes().len() as u64)
    }

    fn link_count(&self) -> io::Result<u64> {
        let state = self.process.shared.state.lock();
        state.check_life(self.process.life)?;
        Ok(state.link_count(self.inode))
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.process.change(FileCall::DropCache, |state| {
            state.inode(self.inode).drop_cache();
            Ok(())
        })
    }
}

impl fmt::Debug for SimulatedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedFile").field("path", &self.path).finish_non_exhaustive()
    }
}
