//! The memory of answers: it is taken from the budget before an answer is made, or while it grows.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::request::Closing;
use crate::context::Context;
use crate::wire::budget::{FREE_BYTES, Held};
use crate::wire::head::Start;

/// The least that a growing answer takes at a time.
const STEP_BYTES: usize = 1024 * 1024;

/// Memory for an answer that will be about this long, decoded and encoded.
///
/// # Errors
/// [`Closing::TooLarge`] where it would be more than half of the budget, and [`Closing::NoMemory`]
/// where others hold too much for too long.
pub(super) async fn take(context: &Context, start: Start, bytes: usize) -> Result<Held, Closing> {
    if bytes > context.budget.total_bytes() / 2 {
        return Err(Closing::TooLarge(start));
    }
    let taken = context.budget.take_within(bytes, context.limits.stall).await;
    taken.ok_or(Closing::NoMemory(start))
}

/// Memory for an answer that grows on a thread that may block: nothing is added to the answer
/// before there is memory for it.
pub(super) struct Growing {
    context: Arc<Context>,
    start: Start,
    runtime: Handle,
    held: Held,
    taken_bytes: usize,
    used_bytes: usize,
}

impl Growing {
    /// Call it in the runtime.
    pub(super) fn new(context: &Arc<Context>, start: Start) -> Self {
        Self {
            context: Arc::clone(context),
            start,
            runtime: Handle::current(),
            held: Held::default(),
            // A short answer costs nothing.
            taken_bytes: FREE_BYTES,
            used_bytes: 0,
        }
    }

    /// Makes room for so many more bytes of the answer; as many again are for its encoded form.
    ///
    /// # Errors
    /// As [`take`], and [`Closing::Stopping`] once the broker is told to stop.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Closing> {
        if self.used_bytes.saturating_add(bytes.saturating_mul(2)) <= self.taken_bytes {
            self.used_bytes += 2 * bytes;
            return Ok(());
        }
        self.runtime.clone().block_on(self.grow(bytes))
    }

    /// As [`Growing::add`], where no thread may block.
    ///
    /// # Errors
    /// As [`Growing::add`].
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), Closing> {
        self.used_bytes = self.used_bytes.saturating_add(bytes.saturating_mul(2));
        if self.used_bytes <= self.taken_bytes {
            return Ok(());
        }
        if *self.context.draining.borrow() {
            return Err(Closing::Stopping);
        }
        let more = (self.used_bytes - self.taken_bytes).max(STEP_BYTES);
        if self.taken_bytes.saturating_add(more) > self.context.budget.total_bytes() / 2 {
            return Err(Closing::TooLarge(self.start));
        }
        let taken = take(&self.context, self.start, more).await?;
        self.taken_bytes += more;
        self.held.merge(taken);
        Ok(())
    }

    /// What was taken, to be held until the answer is sent.
    pub(super) fn into_held(self) -> Held {
        self.held
    }
}
