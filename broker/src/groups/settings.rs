//! The limits and times of groups.

use std::time::Duration;

/// The limits and times that hold for every group.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long the first members of an empty group wait for others.
    pub initial_delay: Duration,
    /// The shortest session that a member may ask for.
    pub min_session: Duration,
    /// The longest.
    pub max_session: Duration,
    /// How long a new member may wait for its first generation; its client asks again before.
    pub new_member_wait: Duration,
    /// Members of a group, and as many that have an id and have not joined yet.
    pub max_members: usize,
    /// What a member may say in JoinGroup, over all its protocols.
    pub max_metadata_bytes: usize,
    /// What all groups together may hold in memory.
    pub max_total_bytes: usize,
    /// How long offsets are kept once nobody needs them.
    pub offsets_retention: Duration,
    /// How often offsets that nobody needs are looked for.
    pub expiry_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_secs(3),
            min_session: Duration::from_secs(6),
            max_session: Duration::from_secs(30 * 60),
            new_member_wait: Duration::from_secs(5 * 60),
            max_members: 10_000,
            max_metadata_bytes: 1024 * 1024,
            max_total_bytes: 256 * 1024 * 1024,
            offsets_retention: Duration::from_secs(7 * 24 * 60 * 60),
            expiry_interval: Duration::from_secs(10 * 60),
        }
    }
}
