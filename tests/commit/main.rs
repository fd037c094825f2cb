//! The commit path: its queue and threads, checkpoints beside it, failures that halt it, and closing.

#[path = "../common/mod.rs"]
mod common;

mod allocation;
mod callbacks;
mod checkpoints;
mod closing;
mod concurrency;
mod halt;
mod queue;
mod user_code;
mod waiting;
