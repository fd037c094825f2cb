//! How many connections the limit of open files has room for, once the engine has its share.

use std::fmt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of the process's own: standard streams, listeners, locks, the log's newest files, and
/// those of the index that count by themselves.
const OWN: u64 = 40;

/// What the limit of open files leaves for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Files that the process may open; nothing is no limit.
    pub allowed: Option<u64>,
    /// What is set aside.
    pub set_aside: u64,
}

/// The limit of open files has no room for the connections that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFew {
    room: Room,
    connections: usize,
}

/// Raises the soft limit of open files to the hard one, and says how many may be opened then. Each
/// connection and each file of the store needs one, and the soft limit is often 1,024 for the sake
/// of programs that this is none of.
#[must_use]
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    getrlimit(Resource::Nofile).current
}

impl Room {
    /// What is left where the process may open so many files, and figures have so many connections.
    #[must_use]
    pub fn new(allowed: Option<u64>, metrics_connections: usize) -> Self {
        let all = allowed.unwrap_or(u64::MAX);
        // As the engine takes them: a half for its index, a quarter for its log, within bounds.
        let engine = (all / 2).clamp(64, 4096) + (all / 4).clamp(4, 256);
        Self { allowed, set_aside: engine + OWN + metrics_connections as u64 }
    }

    /// Connections that there is room for.
    #[must_use]
    pub fn connections(self) -> usize {
        let left = self.allowed.map_or(u64::MAX, |all| all.saturating_sub(self.set_aside));
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// The limit of connections, where so many are asked for; what is only the default is lowered.
    ///
    /// # Errors
    /// There is no room for what was asked for, or for any connection.
    pub fn settle(self, connections: usize, is_default: bool) -> Result<usize, TooFew> {
        let room = self.connections();
        if connections <= room {
            return Ok(connections);
        }
        if !is_default || room == 0 {
            return Err(TooFew { room: self, connections });
        }
        tracing::warn!(
            max_connections = room,
            open_files = self.allowed,
            set_aside = self.set_aside,
            "fewer connections than by default: raise the hard limit of open files (ulimit -Hn)"
        );
        Ok(room)
    }
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (room, allowed) = (self.room.connections(), self.room.allowed.unwrap_or(u64::MAX));
        write!(
            f,
            "the limit of open files is too low for max-connections={}: raise the hard limit \
             (ulimit -Hn), or ask for no more than there is room for: open_files={allowed} \
             set_aside={} room={room}",
            self.connections, self.room.set_aside
        )
    }
}

impl std::error::Error for TooFew {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_needs_is_set_aside_whatever_the_limit_is() {
        for allowed in [256, 300, 1024, 4096, 65_536] {
            let room = Room::new(Some(allowed), 16);
            let engine = (allowed / 2).min(4096) + (allowed / 4).min(256);
            assert!(room.connections() as u64 + engine + OWN + 16 <= allowed, "{allowed}");
            assert!(room.connections() > 0, "{allowed}");
        }
        assert_eq!(Room::new(None, 16).connections(), usize::MAX);
    }

    #[test]
    fn the_default_is_lowered_and_what_was_asked_for_is_refused() {
        let room = Room::new(Some(1024), 16);
        assert_eq!(room.settle(100, false), Ok(100));
        assert_eq!(room.settle(4096, true), Ok(room.connections()));
        let refused = room.settle(4096, false).unwrap_err();
        assert!(refused.to_string().contains("open_files=1024"), "{refused}");
        assert!(Room::new(Some(64), 16).settle(4096, true).is_err(), "no room at all");
    }
}
