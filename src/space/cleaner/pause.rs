//! Pausing: as long as one pause lives, no pass runs.

use std::fmt;
use std::sync::Arc;

use crate::core::Shared;

/// Keeps the cleaner from running while it lives. There may be several; passes run again once the
/// last one is gone.
#[must_use = "the cleaner runs again once this is dropped"]
pub struct CleanerPause {
    shared: Arc<Shared>,
}

impl CleanerPause {
    /// Pauses the cleaner, and waits until the pass that runs has stopped.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.cleaning.pause();
        Self { shared: Arc::clone(shared) }
    }
}

impl Drop for CleanerPause {
    fn drop(&mut self) {
        self.shared.cleaning.resume();
    }
}

impl fmt::Debug for CleanerPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CleanerPause")
    }
}
