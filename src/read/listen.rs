//! Waiting for new data: a listener that is called, and a wait that blocks. No async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::types::{Offset, Visibility};
use crate::core::Shared;
use crate::state::catalog::{Listener, Partition};

/// A listener that is registered; dropping it ends that.
#[must_use = "a listener that is dropped is not called"]
pub struct Listening {
    _listener: Arc<Listener>,
}

/// Calls `listener` from now on after every commit to one of the partitions, after its sync, when
/// a topic of theirs is deleted and when the engine is closed. It may be called once too often,
/// never too seldom: look after registering, then wait.
pub fn listen(
    shared: &Shared,
    partitions: &[Partition],
    listener: impl Fn() + Send + Sync + 'static,
) -> Listening {
    let listener: Arc<Listener> = Arc::new(listener);
    for partition in partitions {
        partition.cell().listen(Arc::downgrade(&listener));
    }
    for partition in partitions {
        shared.pipeline.await_sync(partition.cell());
    }
    Listening { _listener: listener }
}

/// Calls all listeners: the engine is closed.
pub fn tell_all(shared: &Shared) {
    for topic in shared.catalog.topics() {
        topic.cells().iter().for_each(|cell| cell.notify());
    }
}

/// Blocks until a partition has records at or behind its offset, a topic is gone, the engine is
/// closed, or the time is over; tells whether it was one of the first two.
pub fn wait_for_data(
    shared: &Shared,
    wanted: &[(Partition, Offset)],
    visibility: Visibility,
    timeout: Duration,
) -> bool {
    let signal = Arc::new((Mutex::new(false), Condvar::new()));
    let partitions: Vec<_> = wanted.iter().map(|(partition, _)| partition.clone()).collect();
    let raised = Arc::clone(&signal);
    let _listening = listen(shared, &partitions, move || {
        *raised.0.lock() = true;
        raised.1.notify_all();
    });
    let is_there = || {
        wanted.iter().any(|(partition, offset)| {
            partition.topic().is_deleted()
                || shared.watermarks(partition, visibility).high_watermark > *offset
        })
    };
    let began = shared.clock.monotonic();
    loop {
        if is_there() {
            return true;
        }
        if shared.check_open().is_err() {
            return false;
        }
        let waited = shared.clock.monotonic().saturating_sub(began);
        let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else {
            return false;
        };
        let mut happened = signal.0.lock();
        if !*happened && signal.1.wait_for(&mut happened, left).timed_out() {
            drop(happened);
            return is_there();
        }
        *happened = false;
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").finish_non_exhaustive()
    }
}
