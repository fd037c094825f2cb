//! A producer asks for its id and epoch (InitProducerId): the first time, again, and in place of another instance.

use super::{ProducerTransactionError, Step, fenced, raised};
use crate::base::types::{
    Durability, MAX_PRODUCER_EPOCH, NO_TIMESTAMP, ProducerId, ProducerIdentity, TimestampMs,
};
use crate::index::keyspace::{
    MAX_TRANSACTIONAL_ID_BYTES, ProducerTransactionRow, ProducerTransactionState,
};

/// What a producer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitRequest {
    /// How long its transactions may be open.
    pub timeout_ms: i32,
    /// The longest that the server allows.
    pub max_timeout_ms: i32,
    /// Who the producer has been, where it wants to go on after an error (KIP-360). Without it,
    /// whoever held the transactional id is fenced.
    pub expected: Option<ProducerIdentity>,
}

/// Checks a transactional id by itself.
///
/// # Errors
/// [`ProducerTransactionError::EmptyTransactionalId`] and
/// [`ProducerTransactionError::TransactionalIdTooLong`].
pub fn check_transactional_id(transactional_id: &str) -> Result<(), ProducerTransactionError> {
    let length_bytes = transactional_id.len();
    if length_bytes == 0 {
        return Err(ProducerTransactionError::EmptyTransactionalId);
    }
    if length_bytes > MAX_TRANSACTIONAL_ID_BYTES {
        return Err(ProducerTransactionError::TransactionalIdTooLong { length_bytes });
    }
    Ok(())
}

/// Gives a transactional id to a producer.
///
/// With a transaction open it is aborted under a raised epoch, and the answer of the step is
/// [`ProducerTransactionError::ConcurrentTransactions`]: the request that is sent again gets the
/// epoch after that, or, where it names who it was, the raised one. Who names the identity before,
/// where the present one was made of it, gets the present one again.
///
/// # Errors
/// [`ProducerTransactionError::InvalidTransactionTimeout`], and
/// [`ProducerTransactionError::ProducerFenced`] where `expected` is neither the present identity
/// nor the one before.
pub fn init(
    row: Option<&ProducerTransactionRow>,
    request: &InitRequest,
    now: TimestampMs,
    fresh: &mut dyn FnMut() -> ProducerId,
) -> Result<Step, ProducerTransactionError> {
    let &InitRequest { timeout_ms, max_timeout_ms, expected } = request;
    if timeout_ms <= 0 || timeout_ms > max_timeout_ms {
        let limit_ms = max_timeout_ms;
        return Err(ProducerTransactionError::InvalidTransactionTimeout { timeout_ms, limit_ms });
    }
    let Some(row) = row else {
        let first = ProducerIdentity { producer_id: fresh(), producer_epoch: 0 };
        let asked_as = expected.filter(|given| *given != first && is_legal(*given));
        return Ok(granted(first, asked_as.unwrap_or(ProducerIdentity::NONE), timeout_ms, now));
    };
    let open = row.state == ProducerTransactionState::Ongoing;
    match expected {
        Some(given) if given == row.current => Ok(if open {
            retry_later(fenced(row, given, now, fresh))
        } else {
            granted(raised(given, fresh), given, timeout_ms, now)
        }),
        // A delayed copy of what was answered long ago must not abort what was begun since.
        Some(given) if is_previous(row, given) && open => Ok(Step::unchanged(row.current)),
        Some(given) if is_previous(row, given) => Ok(granted(row.current, given, timeout_ms, now)),
        Some(given) => {
            Err(ProducerTransactionError::ProducerFenced { given, current: row.current })
        }
        None if open => Ok(retry_later(fenced(row, ProducerIdentity::NONE, now, fresh))),
        None => {
            let next = raised(row.current, fresh);
            Ok(granted(next, ProducerIdentity::NONE, timeout_ms, now))
        }
    }
}

/// Whether a producer can have been given this.
fn is_legal(given: ProducerIdentity) -> bool {
    given.producer_id >= 0 && (0..=MAX_PRODUCER_EPOCH).contains(&given.producer_epoch)
}

fn is_previous(row: &ProducerTransactionRow, given: ProducerIdentity) -> bool {
    row.previous != ProducerIdentity::NONE && row.previous == given
}

fn granted(
    current: ProducerIdentity,
    previous: ProducerIdentity,
    timeout_ms: i32,
    now: TimestampMs,
) -> Step {
    assert_ne!(current, previous, "a producer is not made of itself");
    assert!((0..=MAX_PRODUCER_EPOCH).contains(&current.producer_epoch), "each has an epoch");
    let row = ProducerTransactionRow {
        current,
        previous,
        timeout_ms,
        state: ProducerTransactionState::Empty,
        started_at: NO_TIMESTAMP,
        updated_at: now,
        partitions: Vec::new(),
        groups: Vec::new(),
    };
    Step::store(row, Durability::Sync)
}

fn retry_later(step: Step) -> Step {
    Step { answer: Err(ProducerTransactionError::ConcurrentTransactions), ..step }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{NOW, identity, idle, no_fresh, open, stored};
    use super::*;
    use crate::base::types::PartitionId;
    use crate::record::MarkerKind;

    const MAX_MS: i32 = 900_000;

    fn request(expected: Option<(i64, i16)>) -> InitRequest {
        let expected = expected.map(|(id, epoch)| identity(id, epoch));
        InitRequest { timeout_ms: 30_000, max_timeout_ms: MAX_MS, expected }
    }

    fn ask(row: &ProducerTransactionRow, expected: Option<(i64, i16)>) -> Step {
        init(Some(row), &request(expected), NOW + 1, &mut no_fresh).unwrap()
    }

    fn is_fenced(row: &ProducerTransactionRow, id: i64, epoch: i16) -> bool {
        let refused = init(Some(row), &request(Some((id, epoch))), NOW, &mut no_fresh);
        let (given, current) = (identity(id, epoch), row.current);
        refused == Err(ProducerTransactionError::ProducerFenced { given, current })
    }

    #[test]
    fn an_unknown_transactional_id_gets_a_new_producer_id_whatever_identity_is_given() {
        for expected in [None, Some((7, 3)), Some((9, 0)), Some((-1, 0)), Some((7, 32767))] {
            let step = init(None, &request(expected), NOW, &mut || 9).unwrap();
            assert_eq!(step.answer, Ok(identity(9, 0)));
            let mut previous = ProducerIdentity::NONE;
            if expected == Some((7, 3)) {
                previous = identity(7, 3);
                assert_eq!(ask(stored(&step), expected).answer, Ok(identity(9, 0)), "a retry");
            }
            let row = ProducerTransactionRow { timeout_ms: 30_000, previous, ..idle(0) };
            let row = ProducerTransactionRow { current: identity(9, 0), ..row };
            assert_eq!((step.row, step.durability), (Some(row), Durability::Sync));
            assert_eq!(step.ending, None);
        }
    }

    #[test]
    fn the_same_transactional_id_again_keeps_the_producer_id_and_raises_the_epoch() {
        let first = ask(&idle(0), None);
        assert_eq!(first.answer, Ok(identity(5, 1)));
        let second = ask(stored(&first), None);
        assert_eq!(second.answer, Ok(identity(5, 2)));
        assert_eq!(stored(&second).timeout_ms, 30_000);
        assert_eq!(second.durability, Durability::Sync);
    }

    #[test]
    fn a_timeout_is_legal_from_1_to_the_servers_limit_and_is_judged_before_the_identity() {
        for timeout_ms in [0, -1, i32::MIN, MAX_MS + 1] {
            let bad = InitRequest { timeout_ms, ..request(Some((7, 7))) };
            let refused = init(Some(&idle(0)), &bad, NOW, &mut no_fresh);
            let limit_ms = MAX_MS;
            let error =
                ProducerTransactionError::InvalidTransactionTimeout { timeout_ms, limit_ms };
            assert_eq!(refused, Err(error));
        }
        for timeout_ms in [1, MAX_MS] {
            let good = InitRequest { timeout_ms, ..request(None) };
            let step = init(Some(&idle(0)), &good, NOW, &mut no_fresh).unwrap();
            assert_eq!(stored(&step).timeout_ms, timeout_ms);
        }
    }

    #[test]
    fn who_gives_the_present_epoch_gets_the_next_and_who_repeats_it_the_same_answer() {
        let first = ask(&idle(3), Some((5, 3)));
        assert_eq!(first.answer, Ok(identity(5, 4)));
        let again = ask(stored(&first), Some((5, 3)));
        assert_eq!(again.answer, Ok(identity(5, 4)));
        let third = ask(stored(&again), Some((5, 4)));
        assert_eq!(third.answer, Ok(identity(5, 5)));
        assert!(is_fenced(stored(&third), 5, 3), "the epoch before the one before");
    }

    #[test]
    fn an_older_epoch_one_ahead_and_another_producer_id_are_fenced() {
        for row in [idle(3), open(3)] {
            assert!(is_fenced(&row, 5, 2));
            assert!(is_fenced(&row, 5, 4));
            assert!(is_fenced(&row, 6, 3));
            assert!(is_fenced(&row, -1, -1), "no identity is none of a row without a previous one");
        }
    }

    #[test]
    fn an_instance_that_took_over_without_an_identity_fences_the_one_that_gives_its_own() {
        let taken = ask(&idle(0), None);
        assert!(is_fenced(stored(&taken), 5, 0));
        let aborted = ask(&open(0), None);
        assert!(is_fenced(stored(&aborted), 5, 0), "already while the new one is to come again");
    }

    #[test]
    fn an_open_transaction_is_aborted_and_a_retry_without_an_identity_gets_the_next_epoch() {
        let step = ask(&open(0), None);
        assert_eq!(step.answer, Err(ProducerTransactionError::ConcurrentTransactions));
        let ending = step.ending.as_ref().unwrap();
        assert_eq!((ending.kind, ending.producer_id), (MarkerKind::Abort, 5));
        assert_eq!(ending.marker_epoch, 1);
        assert_eq!(ending.partitions, [PartitionId(1), PartitionId(3)]);
        assert_eq!(ending.groups, ["g"]);
        let row = stored(&step);
        assert_eq!(
            (row.current, row.state),
            (identity(5, 1), ProducerTransactionState::CompleteAbort)
        );
        assert!(row.partitions.is_empty() && row.groups.is_empty());
        assert_eq!(step.durability, Durability::Sync);
        let retry = ask(row, None);
        assert_eq!((retry.answer, retry.ending), (Ok(identity(5, 2)), None));
    }

    #[test]
    fn the_holder_aborts_its_own_transaction_and_a_retry_with_its_identity_gets_the_raised_epoch() {
        let step = ask(&open(0), Some((5, 0)));
        assert_eq!(step.answer, Err(ProducerTransactionError::ConcurrentTransactions));
        assert_eq!(step.ending.as_ref().unwrap().marker_epoch, 1);
        let retry = ask(stored(&step), Some((5, 0)));
        assert_eq!(retry.answer, Ok(identity(5, 1)));
        assert_eq!(stored(&retry).state, ProducerTransactionState::Empty);
    }

    #[test]
    fn a_late_copy_of_an_answered_request_does_not_abort_what_was_begun_since() {
        let row = ProducerTransactionRow { previous: identity(5, 3), ..open(4) };
        let copy = ask(&row, Some((5, 3)));
        assert_eq!((copy.row, copy.ending), (None, None));
        assert_eq!(copy.answer, Ok(identity(5, 4)));
    }

    #[test]
    fn epoch_32766_is_given_and_after_it_comes_a_new_producer_id() {
        assert_eq!(ask(&idle(32765), None).answer, Ok(identity(5, 32766)));
        let step = init(Some(&idle(32766)), &request(None), NOW, &mut || 9).unwrap();
        assert_eq!(step.answer, Ok(identity(9, 0)));
        assert!(is_fenced(stored(&step), 5, 32766));
        assert_eq!(ask(stored(&step), None).answer, Ok(identity(9, 1)));
    }

    #[test]
    fn who_gives_epoch_32766_gets_a_new_producer_id_and_on_retry_the_same_again() {
        let step = init(Some(&idle(32766)), &request(Some((5, 32766))), NOW, &mut || 9).unwrap();
        assert_eq!(step.answer, Ok(identity(9, 0)));
        assert_eq!(ask(stored(&step), Some((5, 32766))).answer, Ok(identity(9, 0)));
    }

    #[test]
    fn a_transaction_open_at_epoch_32766_is_aborted_by_the_marker_epoch_32767() {
        let step = init(Some(&open(32766)), &request(None), NOW, &mut || 9).unwrap();
        let ending = step.ending.as_ref().unwrap();
        assert_eq!((ending.producer_id, ending.marker_epoch), (5, 32767));
        assert_eq!(stored(&step).current, identity(9, 0));
        assert_eq!(ask(stored(&step), None).answer, Ok(identity(9, 1)));
        let own = init(Some(&open(32766)), &request(Some((5, 32766))), NOW, &mut || 9).unwrap();
        assert_eq!(ask(stored(&own), Some((5, 32766))).answer, Ok(identity(9, 0)));
    }

    #[test]
    fn a_transactional_id_has_at_least_one_byte_and_at_most_32767() {
        let length_bytes = 32768;
        assert_eq!(check_transactional_id("a"), Ok(()));
        assert_eq!(check_transactional_id(&"a".repeat(32767)), Ok(()));
        let empty = ProducerTransactionError::EmptyTransactionalId;
        assert_eq!(check_transactional_id(""), Err(empty));
        let long = ProducerTransactionError::TransactionalIdTooLong { length_bytes };
        assert_eq!(check_transactional_id(&"a".repeat(length_bytes)), Err(long));
    }
}
