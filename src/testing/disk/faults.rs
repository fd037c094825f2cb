//! What a test can make go wrong: which call fails, where the process stops, how much room is left.

use std::fmt;
use std::io;

/// "No space left on device", as Linux and macOS number it.
pub const ENOSPC: i32 = 28;
/// "Input/output error".
pub const EIO: i32 = 5;

/// A kind of call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileCall {
    /// Making a directory.
    CreateDirectory,
    /// Making a file.
    Create,
    /// Opening a file.
    Open,
    /// Removing a name.
    Remove,
    /// Renaming.
    Rename,
    /// Syncing a directory.
    SyncDirectory,
    /// Writing.
    Write,
    /// Syncing a file.
    Sync,
    /// Cutting or extending a file.
    SetLength,
    /// Reading a file, or the names in a directory.
    Read,
    /// Dropping the cache of a file.
    DropCache,
}

impl FileCall {
    /// Whether it changes something, so that it matters if the process stops at it.
    const fn is_change(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::DropCache)
    }
}

/// A failure that will happen once.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// The calls that it is about.
    pub operation: FileCall,
    /// How many of them go well before it.
    pub after_calls: u64,
    /// What the failing call answers, such as [`ENOSPC`].
    pub errno: i32,
    /// Of a write: how many bytes of it are done first.
    pub after_bytes: u64,
}

impl Fault {
    /// The next call of this kind fails.
    #[must_use]
    pub const fn next(operation: FileCall, errno: i32) -> Self {
        Self { operation, after_calls: 0, errno, after_bytes: 0 }
    }

    /// As many calls go well before it.
    #[must_use]
    pub const fn after_calls(self, after_calls: u64) -> Self {
        Self { after_calls, ..self }
    }

    /// As many bytes of the failing write are done.
    #[must_use]
    pub const fn after_bytes(self, after_bytes: u64) -> Self {
        Self { after_bytes, ..self }
    }
}

/// What the calls so far came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that change something: the places where a run can be stopped.
    pub changing_calls: u64,
    /// Writes among them.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Syncs of files among them.
    pub syncs: u64,
    /// Syncs of directories among them.
    pub directory_syncs: u64,
    /// Reads.
    pub reads: u64,
}

/// What a power loss leaves of the unsynced changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerLoss {
    /// None of them.
    Nothing,
    /// All of them.
    Everything,
    /// The first ones, over all files and directories; see `SimulatedDisk::unsynced_changes`.
    First(usize),
    /// Any subset of the sectors, and any first part of each directory's changes, by this seed.
    Random(u64),
}

pub(super) type SyncHook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct Faults {
    pub(super) planned: Vec<Fault>,
    /// How many changing calls go well before the process stops.
    pub(super) calls_until_crash: Option<u64>,
    pub(super) has_crashed: bool,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) write_back_percent: u64,
    pub(super) shows_stale_bytes: bool,
    pub(super) holds_syncs: bool,
    pub(super) during_sync: Option<SyncHook>,
}

/// How a call goes.
pub(super) enum Verdict {
    Proceed,
    /// The process stops in it: it may have done all, a part or nothing.
    Crash,
    Fail(Fault),
}

impl Faults {
    /// Counts a call down and says how it goes.
    pub(super) fn judge(&mut self, operation: FileCall) -> io::Result<Verdict> {
        if self.stops_at(operation)? {
            return Ok(Verdict::Crash);
        }
        Ok(self.take_planned(operation).map_or(Verdict::Proceed, Verdict::Fail))
    }

    /// Whether the process stops in this call.
    pub(super) fn stops_at(&mut self, operation: FileCall) -> io::Result<bool> {
        if self.has_crashed {
            return Err(stopped());
        }
        let Some(left) = self.calls_until_crash.as_mut().filter(|_| operation.is_change()) else {
            return Ok(false);
        };
        if *left == 0 {
            self.calls_until_crash = None;
            self.has_crashed = true;
            return Ok(true);
        }
        *left -= 1;
        Ok(false)
    }

    /// The planned failure of this call, if its turn has come.
    pub(super) fn take_planned(&mut self, operation: FileCall) -> Option<Fault> {
        let mut due = None;
        for (at, fault) in self.planned.iter_mut().enumerate() {
            if fault.operation == operation {
                if fault.after_calls == 0 {
                    due = due.or(Some(at));
                } else {
                    fault.after_calls -= 1;
                }
            }
        }
        due.map(|at| self.planned.remove(at))
    }

    /// The same faults for a copy of the disk; what runs during a sync is not copied.
    pub(super) fn copy(&self) -> Self {
        Self { planned: self.planned.clone(), during_sync: None, ..*self }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Faults");
        shown.field("planned", &self.planned).field("has_crashed", &self.has_crashed);
        shown.field("calls_until_crash", &self.calls_until_crash);
        shown.field("capacity_bytes", &self.capacity_bytes).finish_non_exhaustive()
    }
}

/// What a call answers after its simulated machine or process has stopped.
pub(in crate::testing) const STOPPED: &str =
    "the power was lost or the process was killed: open the engine again";

/// The failure of such a call.
pub(super) fn stopped() -> io::Error {
    io::Error::other(STOPPED)
}

pub(super) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
