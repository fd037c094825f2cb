//! Whose log it is: the engine's id, which tells logs apart, and the secret that seals its frames.

use crate::base::hash::HashKey;
use crate::base::types::EngineId;

/// What makes files one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogIdentity {
    /// The engine. Whoever works with it may know this.
    pub engine: EngineId,
    /// What the header of each frame is sealed with. No client may know this, or what he sends
    /// could pass for a frame.
    pub secret: HashKey,
}
