//! How an engine is opened, and how its invariants are verified.

pub mod recovery;
pub mod verify;
