//! Whether a client still waits for the answer that is being made for it.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// What is known of a client while its request is worked on.
#[derive(Debug, Default)]
pub struct Presence {
    gone: AtomicBool,
    pressing: AtomicBool,
    news: Notify,
}

impl Presence {
    /// The client has closed its connection.
    pub fn leave(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// The client has sent so much more that nobody can tell whether it is still there.
    pub fn press(&self) {
        self.pressing.store(true, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Whether the client has closed its connection.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Waits until the client has closed its connection.
    pub async fn gone(&self) {
        while !self.is_gone() {
            self.news.notified().await;
        }
    }

    /// Waits until the client has closed its connection, or presses for its answer.
    pub async fn impatient(&self) {
        while !self.is_gone() && !self.pressing.load(Ordering::Relaxed) {
            self.news.notified().await;
        }
    }
}
