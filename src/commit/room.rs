//! Who waits for room in the queue without blocking, and is told once it is there.

use std::collections::VecDeque;

use super::ticket::Promise;
use crate::base::error::StorageError;

/// The answer to who waits for room.
type Told = Promise<Result<(), StorageError>>;

/// Those who wait for room, in the order in which they asked; each with the bytes that it needs.
#[derive(Default)]
pub(super) struct RoomWaiters {
    waiting: VecDeque<(u64, Told)>,
}

/// Those whose room is there. They are told when this is dropped, also where a panic passes.
/// REQUIRES: dropped without locks.
#[must_use]
#[derive(Default)]
pub(super) struct GrantedRoom {
    told: Vec<Told>,
}

impl RoomWaiters {
    pub(super) fn push(&mut self, bytes: u64, told: Told) {
        self.waiting.push_back((bytes, told));
    }

    /// Takes those who fit into this many bytes together; all of them where the queue is empty,
    /// since then no group will end that could grant what is left.
    pub(super) fn grant(&mut self, room_bytes: u64, queue_is_empty: bool) -> GrantedRoom {
        assert!(!queue_is_empty || room_bytes > 0, "an empty queue has room");
        let mut left = room_bytes;
        let mut granted = GrantedRoom::default();
        while let Some((bytes, _)) = self.waiting.front() {
            if *bytes > left && !queue_is_empty {
                break;
            }
            left = left.saturating_sub(*bytes);
            granted.told.extend(self.waiting.pop_front().map(|(_, told)| told));
        }
        granted
    }

    /// Takes all of them: the queue is closed.
    pub(super) fn take_all(&mut self) -> Vec<Told> {
        self.waiting.drain(..).map(|(_, told)| told).collect()
    }
}

impl Drop for GrantedRoom {
    fn drop(&mut self) {
        self.told.drain(..).for_each(|told| told.fulfil(Ok(())));
    }
}
