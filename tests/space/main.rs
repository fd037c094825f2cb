//! Space comes back: retention, freeing, reuse of segments, relocation, and the maintenance that does it.

#[path = "../common/mod.rs"]
mod common;

mod crashes;
mod freeing;
mod given_back;
mod long_scans;
mod maintenance;
mod relocation;
mod retention;
mod reuse;
