//! Partitions whose listeners are still to be notified: of a commit that was published, and of its sync.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::types::{CommitSequence, PartitionId};
use crate::state::catalog::PartitionCell;

#[derive(Debug, Default)]
pub(super) struct Touched {
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    published: Vec<Arc<PartitionCell>>,
    unsynced: VecDeque<(CommitSequence, Arc<PartitionCell>)>,
    /// Partitions with a listener that is newer than commits which were unsynced then, up to this
    /// one. Which of those commits are the partition's is not known: each sync notifies.
    awaiting: HashMap<PartitionId, (CommitSequence, Arc<PartitionCell>)>,
    notified: Option<CommitSequence>,
}

impl Touched {
    /// A commit to the partition was published; who listens hears of it now and once it is synced.
    pub(super) fn published(&self, sequence: CommitSequence, cell: &Arc<PartitionCell>) {
        if cell.has_listeners() {
            let mut lists = self.lists.lock();
            lists.published.push(Arc::clone(cell));
            let newest = lists.unsynced.back().map(|(sequence, _)| *sequence);
            assert!(newest <= Some(sequence), "commits are published in their order");
            lists.unsynced.push_back((sequence, Arc::clone(cell)));
        }
    }

    /// Somebody listens from now on, also for the sync of commits up to this one.
    pub(super) fn await_sync(&self, written: CommitSequence, cell: &Arc<PartitionCell>) {
        self.lists.lock().awaiting.insert(cell.id(), (written, Arc::clone(cell)));
    }

    /// Notifies all who listen. REQUIRES: no lock is held.
    pub(super) fn notify(&self, synced: CommitSequence) {
        let mut lists = self.lists.lock();
        let mut cells = std::mem::take(&mut lists.published);
        let covered = lists.unsynced.partition_point(|(sequence, _)| *sequence <= synced);
        cells.extend(lists.unsynced.drain(..covered).map(|(_, cell)| cell));
        if lists.notified < Some(synced) {
            lists.notified = Some(synced);
            cells.extend(lists.awaiting.values().map(|(_, cell)| Arc::clone(cell)));
            lists.awaiting.retain(|_, (written, _)| *written > synced);
        }
        drop(lists);
        cells.dedup_by_key(|cell| cell.id());
        for cell in cells {
            cell.notify();
        }
    }
}
