//! The whole engine on a machine that crashes: what was promised is there, whatever is lost beside it.
//!
//! `sweep` stops runs at each of their calls, with all that a stop may leave; `lives` lets anything
//! go wrong at random; `faults`, `damage`, `refused`, `endings` and `making` say their steps
//! themselves. `rules` breaks each rule and shows that these tests notice. A failure prints what
//! was done, and the value of `TIDELOG_CRASH_CASE` with which the one case runs again;
//! `TIDELOG_CRASH_SCALE` makes the searches so many times as long.
#![cfg(feature = "test-util")]

#[cfg(feature = "rocksdb")]
#[path = "../temporary/mod.rs"]
mod temporary;

mod damage;
mod endings;
mod failure;
mod faults;
mod killed_process;
mod lives;
mod machine;
mod making;
mod model;
mod observed;
mod operations;
mod random;
mod recovery;
mod refused;
mod rules;
mod script;
mod sweep;
mod topics;
mod world;
