//! The files of an engine: its log on real disks, full ones and broken ones, its lock and its format.

#[path = "../common/mod.rs"]
mod common;

mod broken_files;
mod disk_full;
mod forged;
mod idle_proof;
mod lock_and_format;
mod real_files;
mod rolling;
