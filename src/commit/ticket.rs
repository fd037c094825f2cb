//! Tickets: what a submitted commit gives back at once, to be waited for, polled or called back on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::base::callback::call;

/// The result of something under way. It can be waited for, polled as a future, or given a
/// callback; dropping it changes nothing about what is under way.
#[must_use = "a ticket that is dropped tells nobody how the commit ended"]
pub struct Ticket<T> {
    state: Arc<State<T>>,
    /// Who brings the result, where no thread of the engine does.
    driver: Option<Arc<dyn Driver>>,
}

/// Whoever can bring the results of tickets on the thread that waits for one.
pub(crate) trait Driver: Send + Sync {
    /// Does what was asked for before, or waits for whoever does it. Afterwards each such ticket
    /// has its result, or another thread is about to give it.
    fn drive(&self);
}

/// The other end of a [`Ticket`]: whoever fulfils it.
pub struct Promise<T> {
    state: Arc<State<T>>,
}

struct State<T> {
    stage: Mutex<Stage<T>>,
    ready: Condvar,
}

enum Stage<T> {
    Pending(Option<Waker>),
    CalledBack(Box<dyn FnOnce(T) + Send>),
    Ready(T),
    Taken,
}

impl<T: Send + 'static> Promise<T> {
    /// A promise and its ticket.
    pub fn new() -> (Self, Ticket<T>) {
        let state =
            Arc::new(State { stage: Mutex::new(Stage::Pending(None)), ready: Condvar::new() });
        (Self { state: Arc::clone(&state) }, Ticket { state, driver: None })
    }

    /// Gives the result. A callback runs here, on this thread.
    pub fn fulfil(self, result: T) {
        let state = self.state;
        let mut stage = state.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::CalledBack(callback) => {
                drop(stage);
                call(move || callback(result));
            }
            Stage::Pending(waker) => {
                *stage = Stage::Ready(result);
                drop(stage);
                state.ready.notify_all();
                if let Some(waker) = waker {
                    call(move || waker.wake());
                }
                // Where the ticket was dropped the result goes here, with all that it holds.
                call(move || drop(state));
            }
            Stage::Ready(_) | Stage::Taken => unreachable!("a promise is fulfilled by value, once"),
        }
    }
}

impl<T: Send + 'static> Ticket<T> {
    /// Has who waits for the result bring it, by this driver.
    pub(crate) fn driven_by(self, driver: Arc<dyn Driver>) -> Self {
        Self { driver: Some(driver), ..self }
    }

    fn is_pending(&self) -> bool {
        !matches!(*self.state.stage.lock(), Stage::Ready(_))
    }

    /// Blocks until the result is there. Where no thread of the engine commits, this one does: see
    /// [`Maintenance::Manual`](crate::Maintenance::Manual).
    pub fn wait(self) -> T {
        if let Some(driver) = &self.driver
            && self.is_pending()
        {
            driver.drive();
        }
        let mut stage = self.state.stage.lock();
        loop {
            match std::mem::replace(&mut *stage, Stage::Taken) {
                Stage::Ready(result) => return result,
                other => *stage = other,
            }
            self.state.ready.wait(&mut stage);
        }
    }

    /// The result if it is there, else the ticket again.
    ///
    /// # Errors
    /// The ticket, while the result is not there.
    pub fn try_wait(self) -> Result<T, Self> {
        let mut stage = self.state.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Ready(result) => Ok(result),
            other => {
                *stage = other;
                drop(stage);
                Err(self)
            }
        }
    }

    /// Calls `callback` with the result: at once on this thread if it is there, else on the thread
    /// that brings it. It should be short, and must not wait for another commit.
    pub fn on_done(self, callback: impl FnOnce(T) + Send + 'static) {
        let mut stage = self.state.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Ready(result) => {
                drop(stage);
                callback(result);
            }
            _ => *stage = Stage::CalledBack(Box::new(callback)),
        }
    }
}

impl<T: Send + 'static> Future for Ticket<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut stage = self.state.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Ready(result) => Poll::Ready(result),
            _ => {
                *stage = Stage::Pending(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_result_is_told_to_who_waits_before_and_after_it_came() {
        let (promise, ticket) = Promise::new();
        let waiter = std::thread::spawn(move || ticket.wait());
        promise.fulfil(7);
        assert_eq!(waiter.join().unwrap(), 7);
        let (promise, ticket) = Promise::new();
        promise.fulfil(8);
        assert_eq!(ticket.wait(), 8);
    }

    #[test]
    fn a_callback_runs_once_whether_it_is_set_before_or_after_the_result() {
        let seen = Arc::new(AtomicU32::new(0));
        for set_first in [true, false] {
            let (promise, ticket) = Promise::new();
            let count = Arc::clone(&seen);
            let callback = move |by: u32| {
                count.fetch_add(by, Ordering::SeqCst);
            };
            if set_first {
                ticket.on_done(callback);
                promise.fulfil(1);
            } else {
                promise.fulfil(10);
                ticket.on_done(callback);
            }
        }
        assert_eq!(seen.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn a_future_is_woken_when_the_result_comes() {
        let (promise, mut ticket) = Promise::new();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut ticket).poll(&mut context).is_pending());
        promise.fulfil("done");
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(Pin::new(&mut ticket).poll(&mut context), Poll::Ready("done"));
    }

    #[test]
    fn a_ticket_is_given_back_while_the_result_is_not_there() {
        let (promise, ticket) = Promise::new();
        let ticket = ticket.try_wait().unwrap_err();
        promise.fulfil(1);
        assert_eq!(ticket.try_wait().unwrap(), 1);
    }
}
