//! The operations that give space back: retention, the cleaner, relocation, freeing, checkpoints.
//! Beside them stands the proof of what is synced.

pub mod checkpoint;
pub mod cleaner;
pub mod freeing;
pub mod proof;
pub mod relocation;
pub mod retention;
