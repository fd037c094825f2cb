//! What a program does with an engine: topics and their settings, appends, reads, waits, and limits.

#[path = "../common/mod.rs"]
mod common;

mod append_and_fetch;
mod append_transaction;
mod damage;
mod delete_records;
mod limits;
mod list_offsets;
mod listen;
mod public_face;
mod scan;
mod size_limits;
mod timestamps;
mod topic_changes;
mod topic_config;
mod topics;
mod unpacked_bytes;
mod verify;
mod watermarks;
mod wrong_clock;
