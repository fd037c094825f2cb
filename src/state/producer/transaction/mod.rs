//! The coordinator's side of producer transactions, one transactional id at a time: what a request makes of its row.
//!
//! Every function takes the row as it is stored and gives a [`Step`]: the row to store in its
//! place, what else is to be written in the same commit, and the answer. Nothing here looks at
//! partitions: whether they exist, and what they know of a producer, is the caller's to check.
//!
//! INVARIANT: a transaction ends in the commit that decides so. There is no state between, so
//! no request ever waits for markers, and none of Kafka's `Prepare` states is stored.
//!
//! INVARIANT: the epochs of a producer id only rise. Where they end, at [`MAX_PRODUCER_EPOCH`],
//! a producer id that was never given takes the place.

mod add;
mod end;
mod error;
mod init;
mod limits;

pub use add::{add_group, add_partitions, check_append, stage_offsets};
pub use end::{EndProtocol, end, is_expired, time_out};
pub use error::ProducerTransactionError;
pub use init::{InitRequest, check_transactional_id, init};
pub use limits::{MAX_TRANSACTION_GROUPS, MAX_TRANSACTION_PARTITIONS};

use crate::base::types::{
    Durability, MAX_PRODUCER_EPOCH, PartitionId, ProducerEpoch, ProducerId, ProducerIdentity,
    TimestampMs,
};
use crate::index::keyspace::{ProducerTransactionRow, ProducerTransactionState};
use crate::record::MarkerKind;

/// What a request makes of a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a step changes nothing until it is written"]
pub struct Step {
    /// The row to store; `None` where it stays as it is.
    pub row: Option<ProducerTransactionRow>,
    /// The transaction that ends in the same commit.
    pub ending: Option<Ending>,
    /// How the commit must be kept: what tells a producer its epoch, or that its transaction has
    /// ended, must not be lost; what only adds to a transaction goes with the data it was for.
    pub durability: Durability,
    /// What the client is answered once it is written.
    pub answer: Result<ProducerIdentity, ProducerTransactionError>,
}

/// A transaction that ends: one marker in each partition, and the offsets that it holds for each
/// group, which a commit makes the group's and an abort drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// How it ends.
    pub kind: MarkerKind,
    /// The producer whose transaction it was, which may not be the one that goes on.
    pub producer_id: ProducerId,
    /// The epoch of the markers; the epoch after the greatest one fences for good.
    pub marker_epoch: ProducerEpoch,
    /// Its partitions, in order; some may be deleted meanwhile.
    pub partitions: Vec<PartitionId>,
    /// Its groups, in order.
    pub groups: Vec<String>,
}

impl Step {
    fn unchanged(answer: ProducerIdentity) -> Self {
        Self { row: None, ending: None, durability: Durability::Buffered, answer: Ok(answer) }
    }

    /// Stores a row whose producer is the answer.
    fn store(row: ProducerTransactionRow, durability: Durability) -> Self {
        debug_assert!(row.partitions.is_sorted_by(|a, b| a < b), "each partition stands once");
        debug_assert!(row.groups.is_sorted_by(|a, b| a < b), "each group stands once");
        let answer = Ok(row.current);
        Self { row: Some(row), ending: None, durability, answer }
    }
}

/// The row of a producer that holds its id.
fn holder(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
) -> Result<&ProducerTransactionRow, ProducerTransactionError> {
    let producer_id = given.producer_id;
    let held_by = row.map(|row| row.current.producer_id);
    let refusal = ProducerTransactionError::InvalidProducerIdMapping { producer_id, held_by };
    match row {
        Some(row) if row.current.producer_id == producer_id => Ok(row),
        Some(row) => Err(or_timed_out(row, given, refusal)),
        None => Err(refusal),
    }
}

/// A refusal by identity or state, told as what it is where the transaction of the one who asks
/// has timed out and nobody has taken its place since.
fn or_timed_out(
    row: &ProducerTransactionRow,
    given: ProducerIdentity,
    refusal: ProducerTransactionError,
) -> ProducerTransactionError {
    debug_assert!(!refusal.is_timed_out(), "a refusal is told once");
    let was_late = is_late(row, row.updated_at);
    let has_timed_out = row.state == ProducerTransactionState::CompleteAbort && was_late;
    if given == row.previous && given != row.current && has_timed_out {
        let (timeout_ms, refusal) = (row.timeout_ms, Box::new(refusal));
        return ProducerTransactionError::TimedOut { timeout_ms, refusal };
    }
    refusal
}

/// Whether the newest transaction of a row was open for longer than it may at this time.
fn is_late(row: &ProducerTransactionRow, at: TimestampMs) -> bool {
    at.saturating_sub(row.started_at) > TimestampMs::from(row.timeout_ms)
}

/// The epoch after this one, or a producer id that was never given where there is none.
fn raised(current: ProducerIdentity, fresh: &mut dyn FnMut() -> ProducerId) -> ProducerIdentity {
    if current.producer_epoch >= MAX_PRODUCER_EPOCH {
        let producer_id = fresh();
        assert_ne!(producer_id, current.producer_id, "a producer id is given once");
        return ProducerIdentity { producer_id, producer_epoch: 0 };
    }
    ProducerIdentity { producer_epoch: current.producer_epoch + 1, ..current }
}

/// Ends the open transaction of a row.
fn ended(
    row: &ProducerTransactionRow,
    kind: MarkerKind,
    marker_epoch: ProducerEpoch,
    next: ProducerTransactionRow,
    now: TimestampMs,
) -> Step {
    assert_eq!(row.state, ProducerTransactionState::Ongoing, "only what is open ends");
    assert!(marker_epoch >= row.current.producer_epoch, "the epochs of a producer only rise");
    let ending = Ending {
        kind,
        producer_id: row.current.producer_id,
        marker_epoch,
        partitions: row.partitions.clone(),
        groups: row.groups.clone(),
    };
    let next = ProducerTransactionRow {
        state: complete(kind),
        updated_at: now,
        partitions: Vec::new(),
        groups: Vec::new(),
        ..next
    };
    Step { ending: Some(ending), ..Step::store(next, Durability::Sync) }
}

/// Aborts the open transaction under a raised epoch, which fences whoever opened it.
fn fenced(
    row: &ProducerTransactionRow,
    previous: ProducerIdentity,
    now: TimestampMs,
    fresh: &mut dyn FnMut() -> ProducerId,
) -> Step {
    let next =
        ProducerTransactionRow { current: raised(row.current, fresh), previous, ..row.clone() };
    ended(row, MarkerKind::Abort, row.current.producer_epoch + 1, next, now)
}

fn complete(kind: MarkerKind) -> ProducerTransactionState {
    match kind {
        MarkerKind::Commit => ProducerTransactionState::CompleteCommit,
        MarkerKind::Abort => ProducerTransactionState::CompleteAbort,
    }
}

/// A row and what the tests of this folder ask of it.
#[cfg(test)]
mod fixture {
    use super::*;
    use crate::base::types::NO_TIMESTAMP;

    pub(super) const NOW: TimestampMs = 1_000_000;

    pub(super) fn identity(producer_id: i64, producer_epoch: i16) -> ProducerIdentity {
        ProducerIdentity { producer_id, producer_epoch }
    }

    /// Producer 5 in this epoch, with nothing open.
    pub(super) fn idle(producer_epoch: i16) -> ProducerTransactionRow {
        ProducerTransactionRow {
            current: identity(5, producer_epoch),
            previous: ProducerIdentity::NONE,
            timeout_ms: 60_000,
            state: ProducerTransactionState::Empty,
            started_at: NO_TIMESTAMP,
            updated_at: NOW,
            partitions: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// The same with a transaction open since `NOW` over partitions 1 and 3 and group `g`.
    pub(super) fn open(producer_epoch: i16) -> ProducerTransactionRow {
        ProducerTransactionRow {
            state: ProducerTransactionState::Ongoing,
            started_at: NOW,
            partitions: vec![PartitionId(1), PartitionId(3)],
            groups: vec!["g".to_owned()],
            ..idle(producer_epoch)
        }
    }

    /// For a step that needs no new producer id.
    pub(super) fn no_fresh() -> ProducerId {
        panic!("no new producer id is needed")
    }

    /// The row that a step stores.
    pub(super) fn stored(step: &Step) -> &ProducerTransactionRow {
        step.row.as_ref().expect("the step stores a row")
    }
}
