//! How long a rebalance waits for members.

use std::time::Duration;

/// How long a rebalance waits for members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinTimer {
    /// The group was empty: it waits `delay`, and again as long as newcomers come, up to
    /// `remaining`.
    Initial { at: Duration, delay: Duration, remaining: Duration },
    /// Who has not joined by then is thrown out.
    Last { at: Duration },
}

impl JoinTimer {
    pub(super) fn at(self) -> Duration {
        match self {
            Self::Initial { at, .. } | Self::Last { at } => at,
        }
    }
}
