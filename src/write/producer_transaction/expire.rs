//! What time does to producers: transactions that are open too long are aborted, what is silent too long is forgotten.

use std::sync::Arc;

use super::change::{Decision, Fresh, Request, carry_out};
use super::error::ProducerError;
use crate::base::error::StorageError;
use crate::base::types::{CommitSequence, Durability, ProducerId, ProducerIdentity, TimestampMs};
use crate::commit::{Change, Failure, FramePlan};
use crate::core::Shared;
use crate::index::keyspace::producer_key;
use crate::index::write_batch::Family;
use crate::state::catalog::Partition;
use crate::state::producer::ProducerState;
use crate::state::producer::transaction::{ProducerTransactionError, is_expired, time_out};

/// How many producers one commit forgets at most: it must not hold others up.
const MAX_FORGOTTEN: usize = 10_000;

/// What a look at the clock did to producers: [`crate::ProducerManager::expire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExpireReport {
    /// Transactions that were open for longer than their timeout, and are aborted.
    pub aborted_transactions: u64,
    /// Transactional ids that were forgotten.
    pub forgotten_transactional_ids: u64,
    /// Producers that partitions have forgotten, each partition's counted.
    pub forgotten_producers: u64,
}

/// Aborts every transaction that is open for longer than its timeout, and forgets transactional
/// ids and producers that were silent for longer than they may.
///
/// # Errors
/// [`StorageError`]: what the storage says.
pub fn expire(shared: &Arc<Shared>) -> Result<ExpireReport, StorageError> {
    let now_ms = shared.clock.now_ms();
    let mut report = ExpireReport::default();
    shared.transactions.lock().limit_times(now_ms);
    let late = |shared: &Shared| -> Vec<String> {
        let transactions = shared.transactions.lock();
        let mut none = || ProducerId::MAX;
        let late = transactions
            .iter()
            .filter(|(_, held)| time_out(&held.row, now_ms, &mut none).is_some());
        late.map(|(id, _)| id.clone()).collect()
    };
    for id in late(shared) {
        report.aborted_transactions += u64::from(abort_late(shared, id)?);
    }
    let expiry_ms = i64::try_from(shared.config.transactional_id_expiration_ms).unwrap_or(i64::MAX);
    let silent: Vec<String> = {
        let transactions = shared.transactions.lock();
        let silent =
            transactions.iter().filter(|(_, held)| is_expired(&held.row, now_ms, expiry_ms));
        silent.map(|(id, _)| id.clone()).collect()
    };
    for id in silent {
        report.forgotten_transactional_ids += u64::from(forget_id(shared, id, expiry_ms)?);
    }
    report.forgotten_producers = forget_producers(shared, now_ms)?;
    Ok(report)
}

/// Aborts a transaction if it is still late when its turn comes.
fn abort_late(shared: &Arc<Shared>, id: String) -> Result<bool, StorageError> {
    let step = |row: Option<&_>, now, fresh: Fresh<'_>| {
        row.and_then(|row| time_out(row, now, fresh)).ok_or(NOT_ANY_MORE)
    };
    settled(carry_out(shared, Request { is_sync: true, ..Request::of_step(&id, step) }))
}

/// Forgets a transactional id if it is still silent when its turn comes.
fn forget_id(shared: &Arc<Shared>, id: String, expiry_ms: i64) -> Result<bool, StorageError> {
    let request = Request {
        id,
        decide: Box::new(move |row, now, _| {
            let silent = row.is_some_and(|row| is_expired(row, now, expiry_ms));
            silent.then_some(Decision::Forget).ok_or(NOT_ANY_MORE)
        }),
        partitions: Vec::new(),
        staged: None,
        is_sync: false,
        unless: None,
    };
    settled(carry_out(shared, request))
}

/// What was late or silent is not any more: the producer came between.
const NOT_ANY_MORE: ProducerTransactionError = ProducerTransactionError::ConcurrentTransactions;

fn settled(done: Result<ProducerIdentity, ProducerError>) -> Result<bool, StorageError> {
    match done {
        Ok(_) => Ok(true),
        Err(ProducerError::NotWritten(error) | ProducerError::OutcomeUnknown(error)) => Err(error),
        Err(_) => Ok(false),
    }
}

fn forget_producers(shared: &Arc<Shared>, now_ms: TimestampMs) -> Result<u64, StorageError> {
    if shared.producers.known() == 0 {
        return Ok(0);
    }
    let expiration_ms = shared.config.producer_id_expiration_ms;
    let mut forgotten = 0;
    let mut found: Vec<(Partition, ProducerId)> = Vec::new();
    for topic in shared.catalog.topics() {
        for partition in topic.partitions() {
            let mut producers = partition.cell().producers();
            producers.limit_times(now_ms);
            let silent =
                producers.iter().filter(|(_, state)| state.is_expired(now_ms, expiration_ms));
            found.extend(silent.map(|(id, _)| (partition.clone(), id)));
        }
    }
    while !found.is_empty() {
        let rest = found.split_off(found.len().min(MAX_FORGOTTEN));
        let producers = std::mem::replace(&mut found, rest);
        forgotten += shared.commit(Forget { shared: Arc::clone(shared), producers, now_ms })??;
    }
    Ok(forgotten)
}

/// Forgets producers that are still silent.
struct Forget {
    shared: Arc<Shared>,
    producers: Vec<(Partition, ProducerId)>,
    now_ms: TimestampMs,
}

/// Producers that are forgotten, each as it was before.
type Forgotten = Vec<(Partition, ProducerId, ProducerState)>;

impl Change for Forget {
    type Planned = Forgotten;
    /// All of them were heard of again, or their topics are gone.
    type Refusal = ();
    type Answer = Result<u64, StorageError>;

    fn queued_bytes(&self) -> u64 {
        64 * self.producers.len() as u64
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<Forgotten, ()> {
        let expiration_ms = self.shared.config.producer_id_expiration_ms;
        let mut forgotten = Forgotten::new();
        for (partition, id) in std::mem::take(&mut self.producers) {
            if !self.shared.catalog.holds(partition.topic()) {
                continue;
            }
            let cell = partition.cell();
            let mut producers = cell.producers();
            let state = producers.get(id).copied();
            let Some(state) = state.filter(|state| state.is_expired(self.now_ms, expiration_ms))
            else {
                continue;
            };
            producers.set(id, None);
            frame.write_batch.delete(Family::Producers, &producer_key(cell.id(), id));
            drop(producers);
            forgotten.push((partition, id, state));
        }
        assert!(forgotten.len() <= MAX_FORGOTTEN, "one commit holds others up for so long only");
        self.shared.forget_producers(forgotten.len() as u64);
        if forgotten.is_empty() { Err(()) } else { Ok(forgotten) }
    }

    fn durability(&self, _planned: &Forgotten) -> Durability {
        Durability::Buffered
    }

    fn undo(&mut self, forgotten: Forgotten) {
        self.shared.count_producers(forgotten.len() as u64);
        for (partition, id, state) in forgotten {
            partition.cell().producers().set(id, Some(state));
        }
    }

    fn publish(&mut self, forgotten: Forgotten, _sequence: CommitSequence) -> Self::Answer {
        Ok(forgotten.len() as u64)
    }

    fn fail(self, failure: Failure<()>) -> Self::Answer {
        failure.into_refusal().map(|()| 0)
    }
}
