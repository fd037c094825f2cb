//! Waiting for new data: a listener that is called, and a wait that blocks. No async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::types::{Isolation, Offset, Visibility};
use crate::core::Shared;
use crate::state::catalog::{Catalog, Listener, Partition};

/// A listener that is registered; dropping it ends that.
#[must_use = "a listener that is dropped is not called"]
pub struct Listening {
    _listener: Arc<Listener>,
}

/// Calls `listener` from now on after every commit to one of the partitions, after its sync, when
/// a topic of theirs is deleted and when the engine is closed. It may be called once too often,
/// never too seldom: look after registering, then wait.
///
/// The listener runs on a thread of the engine, which does no other work meanwhile: it must not
/// wait for a commit.
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
pub fn notify_all(catalog: &Catalog) {
    for topic in catalog.topics() {
        topic.cells().iter().for_each(|cell| cell.notify());
    }
}

/// What a wait waits for in one partition: records at an offset or after it that its reader may
/// read. Committed data only, visible once applied, unless something else is asked for: as a fetch
/// with [`FetchOptions::new`](crate::FetchOptions::new) returns it.
///
/// Give a wait and the fetch after it the same isolation and visibility. Else the wait may end at
/// once, time after time, while the fetch returns nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct WaitFor {
    partition: Partition,
    offset: Offset,
    isolation: Isolation,
    visibility: Visibility,
}

impl WaitFor {
    /// Records at this offset or after it.
    pub fn new(partition: &Partition, offset: Offset) -> Self {
        let (isolation, visibility) = (Isolation::Committed, Visibility::Applied);
        Self { partition: partition.clone(), offset, isolation, visibility }
    }

    /// The same with another isolation.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// The same with another visibility.
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Whether a fetch would return more than nothing: data, or why there is none.
    fn is_there(&self, shared: &Shared) -> bool {
        let marks = shared.watermarks(&self.partition, self.visibility);
        self.partition.topic().is_deleted()
            || self.offset < marks.log_start
            || self.offset < marks.readable_end(self.isolation)
    }
}

/// Blocks until a fetch of one of what is wanted would return records, or would fail because its
/// topic is gone or its offset below the log start; or the engine is closed, or the time is over.
/// Returns whether it was one of the first two.
pub fn wait_for_data(shared: &Shared, wanted: &[WaitFor], timeout: Duration) -> bool {
    let signal = Arc::new((Mutex::new(false), Condvar::new()));
    let partitions: Vec<_> = wanted.iter().map(|wanted| wanted.partition.clone()).collect();
    let raised = Arc::clone(&signal);
    let _listening = listen(shared, &partitions, move || {
        *raised.0.lock() = true;
        raised.1.notify_all();
    });
    let is_there = || wanted.iter().any(|wanted| wanted.is_there(shared));
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
