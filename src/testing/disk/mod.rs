//! A simulated disk, which can lose, tear, fail and fill up: for tests of all that writes files.
//!
//! # The fault model
//!
//! A file is a page cache and a device. Writes and truncations change the cache; the device gets
//! them, in sectors of 512 bytes, when the file is synced, or unasked and in any order
//! ([`SimulatedDisk::set_write_back`]). The names in a directory likewise, as a list of changes
//! that reach the device in their order when the directory is synced. A directory itself is
//! durable once it was made.
//!
//! - [`SimulatedDisk::kill`]: the process dies. What it wrote stays in the cache. Its open files,
//!   and its [`SimulatedDisk::process`], answer errors from then on.
//! - [`SimulatedDisk::power_loss`]: of what was not synced, the device keeps nothing, all, the
//!   first changes in their order, or any subset of the sectors, and of each directory any first
//!   part of its changes. A lost sector of a file that grew shows zeros, or on a file system that
//!   lets old blocks be seen, what a removed file held at that place
//!   ([`SimulatedDisk::set_stale_bytes`]). A file that was truncated may have its old bytes again.
//! - [`SimulatedDisk::crash_after_calls`]: the process stops within a call, which may have done
//!   all, a part or nothing; each later call fails until `kill` or `power_loss` is called.
//! - [`SimulatedDisk::plan`]: one call fails. A write does some of its bytes first. A sync leaves
//!   some sectors unwritten and counts them as clean: the next sync of the same file succeeds, as
//!   on Linux; reads show the cache until [`File::drop_cache`]. A sync of a directory drops some of
//!   its changes.
//! - Sectors that a failing sync or write has hit are lost for good: writing them again succeeds,
//!   syncing too, and they do not reach the device (unwritten extents of ext4), until the next
//!   power loss.
//! - [`SimulatedDisk::set_capacity`]: the disk has so much room, to the byte; the write that
//!   reaches its end is done in part.
//! - [`SimulatedDisk::hold_syncs`] and [`SimulatedDisk::during_next_sync`]: a sync makes durable
//!   what was written before it began. What is written while it runs stays unsynced.

mod faults;
mod handles;
mod inode;
mod random;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

pub(super) use faults::STOPPED;
pub use faults::{Counters, EIO, ENOSPC, Fault, FileCall, PowerLoss};

use crate::base::io::{File, Files, LockError, LockGuard};
use handles::Process;
use state::{Shared, State};

/// A simulated disk; clones are handles of the same one. As [`Files`] it serves the
/// process that runs now, whichever that is.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

impl SimulatedDisk {
    /// An empty disk. The seed decides whatever happens at random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(State::new(seed))
    }

    fn with(state: State) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }) }
    }

    /// A second disk in the same state, which goes its own way from now on. Open files belong to
    /// the first.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::with(self.shared.state.lock().copy())
    }

    /// The disk as a process sees it that starts now and dies with the next kill or power loss.
    #[must_use]
    pub fn process(&self) -> Arc<dyn Files> {
        Arc::new(self.current())
    }

    fn current(&self) -> Process {
        Process { shared: self.shared.clone(), life: self.shared.state.lock().life }
    }

    /// The process dies; what it wrote is still there.
    pub fn kill(&self) {
        self.shared.state.lock().kill();
        self.shared.changed.notify_all();
    }

    /// The machine stops and starts again.
    pub fn power_loss(&self, loss: PowerLoss) {
        self.shared.state.lock().power_loss(loss);
        self.shared.changed.notify_all();
    }

    /// How many changes a power loss could take now.
    #[must_use]
    pub fn unsynced_changes(&self) -> usize {
        self.shared.state.lock().unsynced_changes().len()
    }

    /// Lets this many more calls that change something go well, and then stops the process.
    pub fn crash_after_calls(&self, calls: u64) {
        self.shared.state.lock().faults.calls_until_crash = Some(calls);
    }

    /// Whether the process has been stopped, and neither killed nor hit by a power loss since.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.shared.state.lock().faults.has_crashed
    }

    /// Makes one call fail.
    pub fn plan(&self, fault: Fault) {
        self.shared.state.lock().faults.planned.push(fault);
    }

    /// Forgets all planned failures and stops, and a limited capacity.
    pub fn clear_faults(&self) {
        let faults = &mut self.shared.state.lock().faults;
        faults.planned.clear();
        faults.calls_until_crash = None;
        faults.capacity_bytes = None;
    }

    /// How many bytes all files together may have; `None` for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().faults.capacity_bytes = bytes;
    }

    /// With this chance in a hundred, a write makes the system write back half of what is dirty.
    pub fn set_write_back(&self, percent: u64) {
        self.shared.state.lock().faults.write_back_percent = percent;
    }

    /// Whether lost sectors of a file that grew show what removed files held at their place.
    pub fn set_stale_bytes(&self, shown: bool) {
        self.shared.state.lock().faults.shows_stale_bytes = shown;
    }

    /// Makes syncs of files block until [`SimulatedDisk::release_syncs`].
    pub fn hold_syncs(&self) {
        self.shared.state.lock().faults.holds_syncs = true;
    }

    /// Lets held syncs go on.
    pub fn release_syncs(&self) {
        self.shared.state.lock().faults.holds_syncs = false;
        self.shared.changed.notify_all();
    }

    /// How many syncs are held now.
    #[must_use]
    pub fn held_syncs(&self) -> usize {
        self.shared.state.lock().held_syncs
    }

    /// Runs this once, on the syncing thread, in the middle of the next sync of a file.
    pub fn during_next_sync(&self, run: impl FnOnce() + Send + 'static) {
        self.shared.state.lock().faults.during_sync = Some(Box::new(run));
    }

    /// What the calls so far came to.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.state.lock().counters
    }

    /// The bytes of a file as the page cache shows them; `None` if it is not there.
    #[must_use]
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let mut state = self.shared.state.lock();
        let inode = state.find(path).ok()?;
        Some(state.inode(inode).bytes().to_vec())
    }

    /// Changes a file's bytes unseen, in cache and device.
    ///
    /// # Panics
    /// If the file is not there.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.shared.state.lock();
        let inode = state.find(path).expect("the file is there");
        let mut bytes = state.inode(inode).bytes().to_vec();
        change(&mut bytes);
        state.inode(inode).replace(bytes);
    }

    /// Flips one bit of a file, counted from its start.
    ///
    /// # Panics
    /// If the file is not there or shorter.
    pub fn flip_bit(&self, path: &Path, bit: u64) {
        self.tamper(path, |bytes| bytes[(bit / 8) as usize] ^= 1 << (bit % 8));
    }

    /// Puts a file there, durably and counted nowhere, in place of what has the name.
    ///
    /// # Panics
    /// If the path has no name in it.
    pub fn plant(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.shared.state.lock();
        let directory = path.parent().expect("a file is in a directory");
        state.create_directory(directory);
        let inode = match state.find(path) {
            Ok(inode) => inode,
            Err(_) => state.create(path).expect("the directory is there"),
        };
        state.inode(inode).replace(bytes);
        state.sync_directory(directory).expect("the directory is there");
    }

    /// Gives a file a second name in a directory that is there, durably and counted nowhere.
    ///
    /// # Panics
    /// If the file or the directory is not there.
    pub fn link(&self, from: &Path, to: &Path) {
        let mut state = self.shared.state.lock();
        state.link(from, to).expect("file and directory are there");
        let directory = to.parent().expect("a file is in a directory");
        state.sync_directory(directory).expect("the directory is there");
    }

    /// Takes a file away, durably and counted nowhere.
    ///
    /// # Panics
    /// If the file is not there.
    pub fn vanish(&self, path: &Path) {
        let mut state = self.shared.state.lock();
        state.remove(path).expect("the file is there");
        let directory = path.parent().expect("a file is in a directory");
        state.sync_directory(directory).expect("the directory is there");
    }
}

impl Files for SimulatedDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.current().create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.current().list(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.current().create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.current().open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.current().remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.current().rename(from, to)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.current().sync_directory(directory)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.current().free_bytes(directory)
    }

    fn total_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.current().total_bytes(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        self.current().lock(path)
    }
}
