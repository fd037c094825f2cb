//! Calls of code that is not the engine's, on whatever thread the engine is at that moment.
//!
//! What panics there goes no further: nobody else's commit may suffer from it. And the engine
//! knows that it is within such a call, so that who drops or closes it there is not made to wait
//! for the thread that makes the call.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Calls back. REQUIRES: no lock is held.
pub fn call(callback: impl FnOnce()) {
    DEPTH.set(DEPTH.get() + 1);
    // The panic hook has reported it; what the callback left half done is its owner's own.
    let _ = catch_unwind(AssertUnwindSafe(callback));
    DEPTH.set(DEPTH.get() - 1);
}

/// Whether this thread is within a callback.
#[must_use]
pub fn is_running() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_known_to_run_until_it_returns_or_panics() {
        assert!(!is_running());
        call(|| {
            call(|| assert!(is_running()));
            assert!(is_running());
        });
        assert!(!is_running());
        call(|| panic!("a callback panics, as this test wants"));
        assert!(!is_running());
    }
}
