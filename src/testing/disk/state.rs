//! The whole simulated disk as one value: directories, files, faults, and what a stop leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

use super::faults::{
    Counters, ENOSPC, Fault, Faults, FileCall, PowerLoss, Verdict, errno, stopped,
};
use super::inode::{Inode, Remains};
use super::random::Random;

/// How many removed files are remembered for their stale bytes.
const MAX_GHOSTS: usize = 2;

pub(super) type InodeId = u64;

/// A change of the names in one directory.
#[derive(Debug, Clone)]
struct NameChange {
    number: u64,
    gone: Option<String>,
    come: Option<(String, InodeId)>,
}

#[derive(Debug, Clone, Default)]
struct Directory {
    names: BTreeMap<String, InodeId>,
    durable: BTreeMap<String, InodeId>,
    pending: Vec<NameChange>,
}

/// What all handles of a disk share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Notified when syncs are released or the process dies.
    pub(super) changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    /// Counts the processes; handles of an earlier one are dead.
    pub(super) life: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) counters: Counters,
    pub(super) held_syncs: usize,
    pub(super) locks: BTreeSet<PathBuf>,
    directories: BTreeMap<PathBuf, Directory>,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    next_change: u64,
    ghosts: Vec<Vec<u8>>,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            life: 0,
            random: Random::new(seed),
            faults: Faults::default(),
            counters: Counters::default(),
            held_syncs: 0,
            locks: BTreeSet::new(),
            directories: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            next_change: 0,
            ghosts: Vec::new(),
        }
    }

    pub(super) fn copy(&self) -> Self {
        Self {
            life: self.life,
            random: self.random.clone(),
            faults: self.faults.copy(),
            counters: self.counters,
            held_syncs: 0,
            locks: self.locks.clone(),
            directories: self.directories.clone(),
            inodes: self.inodes.clone(),
            next_inode: self.next_inode,
            next_change: self.next_change,
            ghosts: self.ghosts.clone(),
        }
    }

    /// Every call passes here first: counts it, and says how it goes.
    pub(super) fn enter(&mut self, life: u64, operation: FileCall) -> io::Result<Verdict> {
        self.check_life(life)?;
        let verdict = self.faults.judge(operation)?;
        self.count(operation);
        Ok(verdict)
    }

    /// As [`Self::enter`], where a planned failure is looked for only when the call ends.
    pub(super) fn enter_sync(&mut self, life: u64) -> io::Result<bool> {
        self.check_life(life)?;
        let stops = self.faults.stops_at(FileCall::Sync)?;
        self.count(FileCall::Sync);
        Ok(stops)
    }

    pub(super) fn check_life(&self, life: u64) -> io::Result<()> {
        if life == self.life && !self.faults.has_crashed { Ok(()) } else { Err(stopped()) }
    }

    fn count(&mut self, operation: FileCall) {
        let counters = &mut self.counters;
        match operation {
            FileCall::Read => counters.reads += 1,
            FileCall::Open | FileCall::DropCache => {}
            FileCall::Write => counters.writes += 1,
            FileCall::Sync => counters.syncs += 1,
            FileCall::SyncDirectory => counters.directory_syncs += 1,
            _ => {}
        }
        if !matches!(operation, FileCall::Read | FileCall::Open | FileCall::DropCache) {
            counters.changing_calls += 1;
        }
    }

    /// Runs a change whole, not at all, or, where the process stops in it, either.
    pub(super) fn change<T>(
        &mut self,
        life: u64,
        operation: FileCall,
        make: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.enter(life, operation)? {
            Verdict::Proceed => make(self),
            Verdict::Fail(fault) => Err(errno(fault.errno)),
            Verdict::Crash => {
                if self.random.chance(50) {
                    make(self)?;
                }
                Err(stopped())
            }
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_change += 1;
        self.next_change
    }

    pub(super) fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("a file lives as long as its process")
    }

    pub(super) fn create_directory(&mut self, path: &Path) {
        for directory in path.ancestors() {
            self.directories.entry(directory.to_owned()).or_default();
        }
    }

    pub(super) fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        let found = self.directories.get(directory).ok_or(io::ErrorKind::NotFound)?;
        Ok(found.names.keys().cloned().collect())
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<InodeId> {
        let (directory, name) = split(path)?;
        let found = self.directories.get(directory).ok_or(io::ErrorKind::NotFound)?;
        Ok(*found.names.get(name).ok_or(io::ErrorKind::NotFound)?)
    }

    fn directory(&mut self, path: &Path) -> io::Result<&mut Directory> {
        Ok(self.directories.get_mut(path).ok_or(io::ErrorKind::NotFound)?)
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<InodeId> {
        let (number, inode) = (self.number(), self.next_inode);
        let (directory, name) = split(path)?;
        let directory = self.directory(directory)?;
        if directory.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let come = Some((name.to_owned(), inode));
        directory.change(NameChange { number, gone: None, come });
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        Ok(inode)
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let number = self.number();
        let inode = self.find(path)?;
        let (directory, name) = split(path)?;
        let gone = Some(name.to_owned());
        self.directory(directory)?.change(NameChange { number, gone, come: None });
        let ghost = self.inode(inode).device_bytes().to_vec();
        self.ghosts.push(ghost);
        if self.ghosts.len() > MAX_GHOSTS {
            self.ghosts.remove(0);
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let number = self.number();
        let inode = self.find(from)?;
        let ((from, old), (to, new)) = (split(from)?, split(to)?);
        self.directory(to)?;
        let (gone, come) = (Some(old.to_owned()), Some((new.to_owned(), inode)));
        if from == to {
            self.directory(to)?.change(NameChange { number, gone, come });
        } else {
            self.directory(to)?.change(NameChange { number, gone: None, come });
            self.directory(from)?.change(NameChange { number, gone, come: None });
        }
        Ok(())
    }

    /// Gives a file a second name.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let number = self.number();
        let inode = self.find(from)?;
        let (directory, name) = split(to)?;
        let come = Some((name.to_owned(), inode));
        self.directory(directory)?.change(NameChange { number, gone: None, come });
        Ok(())
    }

    /// How many names a file has, as the process sees them.
    pub(super) fn link_count(&self, inode: InodeId) -> u64 {
        let names = self.directories.values().flat_map(|directory| directory.names.values());
        names.filter(|named| **named == inode).count() as u64
    }

    pub(super) fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let directory = self.directory(path)?;
        directory.settle(u64::MAX);
        Ok(())
    }

    /// A failing sync of a directory: some of the changes are never made durable any more.
    pub(super) fn fail_sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let pending_count = self.directory(path)?.pending.len();
        let kept = self.random.below(pending_count as u64 + 1) as usize;
        let directory = self.directory(path)?;
        directory.pending.truncate(kept);
        directory.settle(u64::MAX);
        Ok(())
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&mut self, inode: InodeId, position: u64, bytes: &[u8]) -> io::Result<()> {
        let position = usize::try_from(position).map_err(|_| errno(ENOSPC))?;
        let length = self.inode(inode).bytes().len();
        let room = self.free_bytes().saturating_add(length.saturating_sub(position) as u64);
        // Writing beyond the end takes room for the gap too.
        let room = room.saturating_sub(position.saturating_sub(length) as u64);
        let done = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.write_part(inode, position, bytes, done);
        if done < bytes.len() { Err(errno(ENOSPC)) } else { Ok(()) }
    }

    /// A write that fails after some of its bytes, by plan.
    pub(super) fn fail_write(
        &mut self,
        inode: InodeId,
        position: u64,
        bytes: &[u8],
        fault: Fault,
    ) -> io::Error {
        let done = bytes.len().min(usize::try_from(fault.after_bytes).unwrap_or(usize::MAX));
        match usize::try_from(position) {
            Ok(position) => self.write_part(inode, position, bytes, done),
            Err(_) => return errno(ENOSPC),
        }
        errno(fault.errno)
    }

    /// Writes the first `done` bytes of a write; the places of the rest have had an error.
    fn write_part(&mut self, inode: InodeId, position: usize, bytes: &[u8], done: usize) {
        let number = self.number();
        let percent = self.faults.write_back_percent;
        self.counters.written_bytes += done as u64;
        let file = self.inodes.get_mut(&inode).expect("a file lives as long as its process");
        file.write(number, position, &bytes[..done]);
        if done < bytes.len() {
            file.fail_write(position + done..position + bytes.len());
        }
        if percent > 0 && self.random.chance(percent) {
            file.write_back(&mut self.random, 50);
        }
    }

    pub(super) fn set_length(&mut self, inode: InodeId, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| errno(ENOSPC))?;
        let more = length.saturating_sub(self.inode(inode).bytes().len()) as u64;
        if more > self.free_bytes() {
            return Err(errno(ENOSPC));
        }
        let number = self.number();
        self.inode(inode).set_length(number, length);
        Ok(())
    }

    pub(super) fn fail_sync(&mut self, inode: InodeId) {
        let file = self.inodes.get_mut(&inode).expect("a file lives as long as its process");
        file.fail_sync(&mut self.random);
    }

    pub(super) fn capacity(&self) -> u64 {
        self.faults.capacity_bytes.unwrap_or(1 << 50)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        let Some(capacity) = self.faults.capacity_bytes else { return 1 << 50 };
        let names = self.directories.values().flat_map(|directory| directory.names.values());
        let used: usize = names.map(|inode| self.inodes[inode].bytes().len()).sum();
        capacity.saturating_sub(used as u64)
    }

    /// How many changes a power loss could take.
    pub(super) fn unsynced_changes(&self) -> Vec<u64> {
        let files = self.inodes.values().flat_map(Inode::change_numbers);
        let pending = self.directories.values().flat_map(|directory| &directory.pending);
        let mut numbers: Vec<u64> = files.chain(pending.map(|change| change.number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The process is no more; what it wrote stays in the page cache.
    pub(super) fn kill(&mut self) {
        self.life += 1;
        self.faults.has_crashed = false;
        self.faults.calls_until_crash = None;
        self.locks.clear();
        self.drop_nameless();
    }

    /// The machine has stopped and started again.
    pub(super) fn power_loss(&mut self, loss: PowerLoss) {
        let numbers = self.unsynced_changes();
        let mut random = match loss {
            PowerLoss::Random(seed) => Random::new(seed),
            _ => Random::new(0),
        };
        let percent = [15, 50, 85][random.below(3) as usize];
        let remains = match loss {
            PowerLoss::Nothing => Remains::Nothing,
            PowerLoss::Everything => Remains::Everything,
            PowerLoss::First(count) => {
                Remains::Before(numbers.get(count).copied().unwrap_or(u64::MAX))
            }
            PowerLoss::Random(_) => Remains::Sectors { percent },
        };
        for directory in self.directories.values_mut() {
            directory.settle(match remains {
                Remains::Nothing => 0,
                Remains::Everything => u64::MAX,
                Remains::Before(limit) => limit,
                Remains::Sectors { .. } => {
                    let kept = random.below(directory.pending.len() as u64 + 1) as usize;
                    directory.pending.get(kept).map_or(u64::MAX, |change| change.number)
                }
            });
            directory.pending.clear();
            directory.names = directory.durable.clone();
        }
        for inode in self.inodes.values_mut() {
            let ghost = match self.faults.shows_stale_bytes && !self.ghosts.is_empty() {
                true => &self.ghosts[random.below(self.ghosts.len() as u64) as usize][..],
                false => &[],
            };
            inode.power_loss(remains, ghost, &mut random);
        }
        self.kill();
    }

    /// Frees files that have no name, and can get none by a power loss.
    fn drop_nameless(&mut self) {
        let mut named = BTreeSet::new();
        for directory in self.directories.values() {
            let come = directory.pending.iter().filter_map(|change| change.come.as_ref());
            named.extend(come.map(|(_, inode)| *inode));
            named.extend(directory.names.values().chain(directory.durable.values()).copied());
        }
        self.inodes.retain(|id, _| named.contains(id));
    }
}

impl Directory {
    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending.push(change);
    }

    /// Makes the changes with a lower number durable.
    fn settle(&mut self, limit: u64) {
        for change in self.pending.extract_if(.., |change| change.number < limit) {
            apply(&mut self.durable, &change);
        }
    }
}

fn apply(names: &mut BTreeMap<String, InodeId>, change: &NameChange) {
    if let Some(gone) = &change.gone {
        names.remove(gone);
    }
    if let Some((name, inode)) = &change.come {
        names.insert(name.clone(), *inode);
    }
}

fn split(path: &Path) -> io::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    let directory = path.parent();
    directory.zip(name).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
