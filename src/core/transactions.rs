//! The transactional ids of the engine in memory: each with its row, its partitions, and the offsets that it holds.
//!
//! They change only when a commit is published, and every commit that changes one is alone in its
//! group; so what is here is what is applied, and the committer may plan by it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use parking_lot::{Mutex, MutexGuard};

use crate::base::error::{Corruption, StorageError};
use crate::base::types::{PartitionId, ProducerId, TimestampMs, TopicId};
use crate::index::keyspace::{
    GroupRow, PendingOffsetKey, ProducerTransactionRow, ProducerTransactionState,
    decode_producer_transaction_key, pending_offsets_range, producer_transactions_range,
};
use crate::index::store::{Direction, Read};
use crate::index::write_batch::Family;
use crate::state::catalog::{Catalog, Partition};

/// Which offset of a group an open transaction holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StagedPlace {
    /// The group.
    pub group: String,
    /// The topic of the partition.
    pub topic: TopicId,
    /// The partition's number in its topic.
    pub partition: u32,
}

impl StagedPlace {
    /// The key under which the open transaction of a producer holds the offset.
    #[must_use]
    pub fn key(&self, producer_id: ProducerId) -> Vec<u8> {
        let Self { group, topic, partition } = self.clone();
        PendingOffsetKey { producer_id, group, topic, partition }.encode()
    }
}

/// A transactional id.
#[derive(Debug, Clone)]
pub struct HeldId {
    /// What is stored of it.
    pub row: ProducerTransactionRow,
    /// The partitions of the open transaction that were there when they were added.
    pub partitions: BTreeMap<PartitionId, Partition>,
    /// The offsets that the open transaction holds for groups.
    pub staged: BTreeMap<StagedPlace, GroupRow>,
}

/// All transactional ids.
#[derive(Debug, Default)]
pub struct Transactions {
    state: Mutex<TransactionIds>,
}

/// All transactional ids, looked at.
#[derive(Debug, Default)]
pub struct TransactionIds {
    ids: HashMap<String, HeldId>,
    /// Those whose open transaction holds offsets.
    staging: BTreeSet<String>,
}

impl HeldId {
    /// A transactional id without an open transaction, or one that has nothing yet.
    #[must_use]
    pub fn new(row: ProducerTransactionRow) -> Self {
        Self { row, partitions: BTreeMap::new(), staged: BTreeMap::new() }
    }
}

impl Transactions {
    /// The transactional ids that the index store holds.
    ///
    /// # Errors
    /// [`StorageError`] if the store cannot be read, or what it holds does not fit together.
    pub fn load(store: &dyn Read, catalog: &Catalog) -> Result<Self, StorageError> {
        let mut rows: Vec<(String, ProducerTransactionRow)> = Vec::new();
        let (begin, end) = producer_transactions_range();
        each(store, &begin, &end, |key, value| {
            let row = ProducerTransactionRow::decode(key, value)?;
            rows.push((decode_producer_transaction_key(key)?.to_owned(), row));
            Ok(())
        })?;
        let mut staged: HashMap<ProducerId, BTreeMap<StagedPlace, GroupRow>> = HashMap::new();
        let (begin, end) = pending_offsets_range();
        each(store, &begin, &end, |key, value| {
            let PendingOffsetKey { producer_id, group, topic, partition } =
                PendingOffsetKey::decode(key)?;
            let place = StagedPlace { group, topic, partition };
            let row = PendingOffsetKey::decode_value(key, value)?;
            staged.entry(producer_id).or_default().insert(place, row);
            Ok(())
        })?;
        let is_open = rows.iter().any(|(_, row)| !row.partitions.is_empty());
        let known = if is_open { catalog.partitions_by_id() } else { HashMap::new() };
        let mut loaded = TransactionIds::default();
        for (id, row) in rows {
            let staged = staged.remove(&row.current.producer_id).unwrap_or_default();
            let partitions = row.partitions.iter();
            let partitions = partitions.filter_map(|id| Some((*id, known.get(id)?.clone())));
            let partitions = partitions.collect();
            loaded.put(id, HeldId { row, partitions, staged });
        }
        if let Some(producer_id) = staged.into_keys().next() {
            let key = producer_id.to_be_bytes();
            let what = "offsets are staged by a producer without a transactional id";
            return Err(
                Corruption::in_store(Family::ProducerTransactions.name(), &key, what).into()
            );
        }
        Ok(Self { state: Mutex::new(loaded) })
    }

    /// Looks at them. REQUIRES: no other lock of an operation is taken meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, TransactionIds> {
        self.state.lock()
    }
}

impl TransactionIds {
    /// One of them.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&HeldId> {
        self.ids.get(id)
    }

    /// Sets one.
    pub fn put(&mut self, id: String, held: HeldId) {
        if held.staged.is_empty() {
            self.staging.remove(&id);
        } else {
            self.staging.insert(id.clone());
        }
        self.ids.insert(id, held);
        debug_assert!(self.staging.iter().all(|id| self.ids.contains_key(id)));
    }

    /// Lets times beyond now count as now: they were read from a wrong clock, and what is open
    /// since then would never time out. What is stored follows with the next change.
    pub fn limit_times(&mut self, now_ms: TimestampMs) {
        // Times below 0 mean "none" in a row, and a clock may tell them.
        let now_ms = now_ms.max(0);
        for held in self.ids.values_mut() {
            held.row.started_at = held.row.started_at.min(now_ms);
            held.row.updated_at = held.row.updated_at.min(now_ms);
        }
    }

    /// Forgets one.
    pub fn remove(&mut self, id: &str) {
        self.staging.remove(id);
        self.ids.remove(id);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &HeldId)> {
        self.ids.iter()
    }

    /// Those whose open transaction holds offsets.
    pub fn staging(&self) -> impl Iterator<Item = (&String, &HeldId)> {
        self.staging.iter().filter_map(|id| self.ids.get_key_value(id))
    }

    /// How many are open, and since when the oldest of them is; `now_ms` where none is.
    #[must_use]
    pub fn open_since(&self, now_ms: TimestampMs) -> (u64, TimestampMs) {
        let rows = self.ids.values().map(|held| &held.row);
        let open = rows.filter(|row| row.state == ProducerTransactionState::Ongoing);
        open.fold((0, now_ms), |(count, oldest), row| (count + 1, oldest.min(row.started_at)))
    }

    /// Whether an open transaction holds an offset here.
    #[must_use]
    pub fn holds(&self, place: &StagedPlace) -> bool {
        self.staging().any(|(_, held)| held.staged.contains_key(place))
    }

    /// Drops offsets that open transactions hold.
    pub fn unstage(&mut self, places: &[(String, StagedPlace)]) {
        for (id, place) in places {
            if let Some(held) = self.ids.get_mut(id) {
                held.staged.remove(place);
                if held.staged.is_empty() {
                    self.staging.remove(id);
                }
            }
        }
    }
}

fn each(
    store: &dyn Read,
    begin: &[u8],
    end: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Corruption>,
) -> Result<(), StorageError> {
    let mut failed = None;
    let family = Family::ProducerTransactions;
    store.scan(
        family,
        begin,
        end,
        Direction::Forward,
        &mut |key, value| match visit(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(corruption) => {
                failed = Some(corruption);
                ControlFlow::Break(())
            }
        },
    )?;
    failed.map_or(Ok(()), |corruption| Err(corruption.into()))
}
