//! The operations that give space back: retention, the cleaner, relocation, freeing, checkpoints.

pub mod checkpoint;
pub mod cleaner;
pub mod freeing;
pub mod relocation;
pub mod retention;
