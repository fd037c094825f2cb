//! For tests of this crate and of those that link it: simulated files, a store in memory, a manual clock.

mod clock;
mod disk;
mod fuzz;
mod hooks;
#[doc(hidden)]
pub mod internals;
mod store;
mod world;

pub use crate::base::io::{File, Files, LockError, LockGuard, SystemFiles};
pub use clock::ManualClock;
pub use disk::{Counters, EIO, ENOSPC, Fault, FileCall, PowerLoss, SimulatedDisk};
pub use store::{FailedFlush, MemoryDisk};
pub use world::World;
