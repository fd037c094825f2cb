//! A transaction ends: its producer says so, or has let it stand for too long.

use super::{
    ProducerTransactionError, Step, complete, ended, fenced, holder, is_late, or_timed_out, raised,
};
use crate::base::types::{Durability, ProducerId, ProducerIdentity, TimestampMs};
use crate::index::keyspace::{ProducerTransactionRow, ProducerTransactionState};
use crate::record::MarkerKind;

/// What the end of a transaction does to the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndProtocol {
    /// It stays: EndTxn up to version 4.
    KeepsEpoch,
    /// It rises with every end, so that nothing of the ended transaction can come into the next
    /// one: EndTxn from version 5 (KIP-890).
    RaisesEpoch,
}

/// Ends the open transaction (EndTxn). A request that comes again gets the same answer: up to
/// version 4 by the state, later by the epoch, which is then the one before.
///
/// With nothing open, an abort of the second protocol raises the epoch alone: the producer does
/// not know what came through of what it sent.
///
/// # Errors
/// [`ProducerTransactionError::InvalidProducerIdMapping`],
/// [`ProducerTransactionError::ProducerFenced`] and
/// [`ProducerTransactionError::InvalidTxnState`].
pub fn end(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
    kind: MarkerKind,
    protocol: EndProtocol,
    now: TimestampMs,
    fresh: &mut dyn FnMut() -> ProducerId,
) -> Result<Step, ProducerTransactionError> {
    if protocol == EndProtocol::RaisesEpoch
        && let Some(row) = row
        && row.previous == given
        && row.previous != ProducerIdentity::NONE
    {
        return ended_before(row, given, kind).map_err(|refusal| or_timed_out(row, given, refusal));
    }
    let row = holder(row, given)?;
    if row.current != given {
        let refusal = ProducerTransactionError::ProducerFenced { given, current: row.current };
        return Err(or_timed_out(row, given, refusal));
    }
    let refused = ProducerTransactionError::InvalidTxnState { kind, state: row.state };
    match (row.state, protocol) {
        (ProducerTransactionState::Ongoing, EndProtocol::KeepsEpoch) => {
            Ok(ended(row, kind, given.producer_epoch, row.clone(), now))
        }
        (ProducerTransactionState::Ongoing, EndProtocol::RaisesEpoch) => {
            let next = with_raised_epoch(row, fresh);
            Ok(ended(row, kind, given.producer_epoch + 1, next, now))
        }
        (state, EndProtocol::KeepsEpoch) if state == complete(kind) => Ok(Step::unchanged(given)),
        (_, EndProtocol::RaisesEpoch) if kind == MarkerKind::Abort => {
            let next = ProducerTransactionRow {
                state: complete(kind),
                started_at: now,
                updated_at: now,
                ..with_raised_epoch(row, fresh)
            };
            Ok(Step::store(next, Durability::Sync))
        }
        _ => Err(refused),
    }
}

/// The answer to a request whose end has raised the epoch before.
fn ended_before(
    row: &ProducerTransactionRow,
    given: ProducerIdentity,
    kind: MarkerKind,
) -> Result<Step, ProducerTransactionError> {
    let fenced = ProducerTransactionError::ProducerFenced { given, current: row.current };
    match row.state {
        state if state == complete(kind) => Ok(Step::unchanged(row.current)),
        // The producer has asked for its epoch anew: what it sent before is void.
        ProducerTransactionState::Empty => Err(fenced),
        // Whoever commits has not aborted: the timeout did, and the producer can begin again
        // (KAFKA-20785).
        ProducerTransactionState::CompleteAbort if kind == MarkerKind::Commit => Err(fenced),
        // What was opened since belongs to the producer id that took the place of this one.
        ProducerTransactionState::Ongoing if given.producer_id != row.current.producer_id => {
            let (producer_id, held_by) = (given.producer_id, Some(row.current.producer_id));
            Err(ProducerTransactionError::InvalidProducerIdMapping { producer_id, held_by })
        }
        // A late copy of an end whose epoch the present transaction has left behind.
        ProducerTransactionState::Ongoing => Err(fenced),
        state => Err(ProducerTransactionError::InvalidTxnState { kind, state }),
    }
}

fn with_raised_epoch(
    row: &ProducerTransactionRow,
    fresh: &mut dyn FnMut() -> ProducerId,
) -> ProducerTransactionRow {
    let current = raised(row.current, fresh);
    ProducerTransactionRow { current, previous: row.current, ..row.clone() }
}

/// Aborts the transaction if it is open for longer than its timeout, under a raised epoch; `None`
/// if it is not. The producer may go on by naming who it was.
pub fn time_out(
    row: &ProducerTransactionRow,
    now: TimestampMs,
    fresh: &mut dyn FnMut() -> ProducerId,
) -> Option<Step> {
    let open = row.state == ProducerTransactionState::Ongoing;
    debug_assert!(row.timeout_ms > 0, "a transaction may be open for a while");
    (open && is_late(row, now)).then(|| fenced(row, row.current, now, fresh))
}

/// Whether a transactional id can be forgotten: nothing is open, and nothing was asked of it for
/// so long.
#[must_use]
pub fn is_expired(row: &ProducerTransactionRow, now: TimestampMs, expiry_ms: i64) -> bool {
    row.state != ProducerTransactionState::Ongoing
        && now.saturating_sub(row.updated_at) >= expiry_ms
}

#[cfg(test)]
mod tests {
    use super::super::Ending;
    use super::super::fixture::{NOW, identity, idle, no_fresh, open, stored};
    use super::super::{InitRequest, init};
    use super::*;
    use EndProtocol::{KeepsEpoch, RaisesEpoch};
    use MarkerKind::{Abort, Commit};

    type Ended = Result<Step, ProducerTransactionError>;

    fn ask(
        row: &ProducerTransactionRow,
        epoch: i16,
        kind: MarkerKind,
        protocol: EndProtocol,
    ) -> Ended {
        end(Some(row), identity(5, epoch), kind, protocol, NOW + 9, &mut no_fresh)
    }

    fn is_invalid_state(ended: &Ended) -> bool {
        let refused = ended.as_ref().err().map(ProducerTransactionError::as_kafka);
        matches!(refused, Some(ProducerTransactionError::InvalidTxnState { .. }))
    }

    fn is_fenced(ended: &Ended) -> bool {
        let refused = ended.as_ref().err().map(ProducerTransactionError::as_kafka);
        matches!(refused, Some(ProducerTransactionError::ProducerFenced { .. }))
    }

    fn is_unmapped(ended: &Ended) -> bool {
        let refused = ended.as_ref().err().map(ProducerTransactionError::as_kafka);
        matches!(refused, Some(ProducerTransactionError::InvalidProducerIdMapping { .. }))
    }

    #[test]
    fn the_first_protocol_ends_with_markers_of_the_same_epoch() {
        for kind in [Commit, Abort] {
            let step = ask(&open(2), 2, kind, KeepsEpoch).unwrap();
            let ending = Ending {
                kind,
                producer_id: 5,
                marker_epoch: 2,
                partitions: open(2).partitions,
                groups: open(2).groups,
            };
            assert_eq!((step.ending.as_ref(), step.durability), (Some(&ending), Durability::Sync));
            assert_eq!(step.answer, Ok(identity(5, 2)));
            let row = stored(&step);
            assert_eq!((row.state, row.started_at, row.updated_at), (complete(kind), NOW, NOW + 9));
            assert!(row.partitions.is_empty() && row.groups.is_empty());
        }
    }

    #[test]
    fn the_second_protocol_ends_with_markers_of_the_next_epoch_and_answers_it() {
        for kind in [Commit, Abort] {
            let step = ask(&open(2), 2, kind, RaisesEpoch).unwrap();
            assert_eq!(step.ending.as_ref().unwrap().marker_epoch, 3);
            assert_eq!((&step.answer, step.durability), (&Ok(identity(5, 3)), Durability::Sync));
            let row = stored(&step);
            assert_eq!((row.current, row.previous), (identity(5, 3), identity(5, 2)));
            assert_eq!(row.state, complete(kind));
        }
    }

    #[test]
    fn the_first_protocol_repeated_is_a_success_and_the_other_outcome_is_refused() {
        for (kind, other) in [(Commit, Abort), (Abort, Commit)] {
            let row = stored(&ask(&open(2), 2, kind, KeepsEpoch).unwrap()).clone();
            assert_eq!(ask(&row, 2, kind, KeepsEpoch), Ok(Step::unchanged(identity(5, 2))));
            assert!(is_invalid_state(&ask(&row, 2, other, KeepsEpoch)));
        }
    }

    #[test]
    fn the_second_protocol_repeated_answers_the_new_epoch_again_and_the_other_outcome_is_refused() {
        for (kind, other) in [(Commit, Abort), (Abort, Commit)] {
            let row = stored(&ask(&open(2), 2, kind, RaisesEpoch).unwrap()).clone();
            assert_eq!(ask(&row, 2, kind, RaisesEpoch), Ok(Step::unchanged(identity(5, 3))));
            let refused = ask(&row, 2, other, RaisesEpoch);
            match kind {
                Commit => assert!(is_invalid_state(&refused), "an abort of what is committed"),
                Abort => assert!(is_fenced(&refused), "a commit of what is aborted"),
            }
            assert!(is_fenced(&ask(&row, 1, kind, RaisesEpoch)), "two epochs before");
            assert!(is_fenced(&ask(&row, 2, kind, KeepsEpoch)), "only by the second protocol");
        }
    }

    #[test]
    fn with_nothing_open_the_first_protocol_refuses_both_outcomes() {
        for kind in [Commit, Abort] {
            assert!(is_invalid_state(&ask(&idle(0), 0, kind, KeepsEpoch)));
        }
    }

    #[test]
    fn with_nothing_open_the_second_protocol_refuses_a_commit_and_raises_the_epoch_with_an_abort() {
        let committed = stored(&ask(&open(0), 0, Commit, RaisesEpoch).unwrap()).clone();
        let aborted = stored(&ask(&open(0), 0, Abort, RaisesEpoch).unwrap()).clone();
        let fresh = ProducerTransactionRow { previous: ProducerIdentity::NONE, ..idle(1) };
        for row in [fresh, committed, aborted] {
            assert!(is_invalid_state(&ask(&row, 1, Commit, RaisesEpoch)), "{row:?}");
            let step = ask(&row, 1, Abort, RaisesEpoch).unwrap();
            assert_eq!((&step.ending, &step.answer), (&None, &Ok(identity(5, 2))));
            let next = stored(&step);
            assert_eq!(next.state, ProducerTransactionState::CompleteAbort);
            assert_eq!(ask(next, 1, Abort, RaisesEpoch), Ok(Step::unchanged(identity(5, 2))));
            let third = ask(next, 2, Abort, RaisesEpoch).unwrap();
            assert_eq!(third.answer, Ok(identity(5, 3)));
        }
    }

    #[test]
    fn an_empty_abort_with_the_epoch_that_the_commit_gave_is_never_fenced() {
        let raised = stored(&ask(&open(0), 0, Commit, RaisesEpoch).unwrap()).clone();
        assert!(ask(&raised, 1, Abort, RaisesEpoch).is_ok());
        assert!(is_invalid_state(&ask(&raised, 1, Abort, KeepsEpoch)));
    }

    #[test]
    fn a_wrong_epoch_is_fenced_and_another_producer_or_an_unknown_transactional_id_has_no_mapping()
    {
        for protocol in [KeepsEpoch, RaisesEpoch] {
            for epoch in [1, 3, 7, -1] {
                assert!(is_fenced(&ask(&open(2), epoch, Commit, protocol)), "epoch={epoch}");
            }
            for row in [Some(&open(2)), None] {
                let given = identity(12, 2);
                assert!(is_unmapped(&end(row, given, Commit, protocol, NOW, &mut no_fresh)));
            }
            let none = ProducerIdentity::NONE;
            let refused = end(Some(&open(2)), none, Commit, protocol, NOW, &mut no_fresh);
            assert!(is_unmapped(&refused), "no identity is no retry");
        }
    }

    #[test]
    fn a_late_copy_of_an_end_does_not_touch_the_transaction_that_was_opened_since() {
        let row = ProducerTransactionRow { previous: identity(5, 2), ..open(3) };
        for kind in [Commit, Abort] {
            assert!(is_fenced(&ask(&row, 2, kind, RaisesEpoch)));
        }
    }

    #[test]
    fn at_epoch_32766_the_second_protocol_answers_a_new_producer_id_and_marks_with_32767() {
        let step = end(Some(&open(32766)), identity(5, 32766), Commit, RaisesEpoch, NOW, &mut || 9);
        let step = step.unwrap();
        let ending = step.ending.as_ref().unwrap();
        assert_eq!((ending.producer_id, ending.marker_epoch), (5, 32767));
        assert_eq!(step.answer, Ok(identity(9, 0)));
        let row = stored(&step);
        let again = ask(row, 32766, Commit, RaisesEpoch);
        assert_eq!(again, Ok(Step::unchanged(identity(9, 0))));
        assert!(is_unmapped(&ask(row, 32766, Commit, KeepsEpoch)));
        let next = ProducerTransactionRow {
            current: identity(9, 1),
            previous: identity(9, 0),
            ..row.clone()
        };
        assert!(is_unmapped(&ask(&next, 32766, Commit, RaisesEpoch)), "one end later");
        let opened = ProducerTransactionRow {
            current: identity(9, 0),
            previous: identity(5, 32766),
            ..open(0)
        };
        assert!(is_unmapped(&ask(&opened, 32766, Commit, RaisesEpoch)), "the next is open");
    }

    #[test]
    fn at_epoch_32766_the_first_protocol_goes_on() {
        let step = ask(&open(32766), 32766, Commit, KeepsEpoch).unwrap();
        assert_eq!(step.answer, Ok(identity(5, 32766)));
    }

    #[test]
    fn a_transaction_times_out_one_millisecond_after_its_timeout() {
        let row = open(0);
        assert_eq!(time_out(&row, NOW + 60_000, &mut no_fresh), None);
        let step = time_out(&row, NOW + 60_001, &mut no_fresh).unwrap();
        let ending = step.ending.as_ref().unwrap();
        assert_eq!((ending.kind, ending.marker_epoch), (Abort, 1));
        assert_eq!(stored(&step).current, identity(5, 1));
        assert_eq!(stored(&step).state, ProducerTransactionState::CompleteAbort);
        assert_eq!(step.durability, Durability::Sync);
        assert_eq!(time_out(stored(&step), i64::MAX, &mut no_fresh), None);
        assert_eq!(time_out(&idle(0), i64::MAX, &mut no_fresh), None, "nothing is open");
    }

    #[test]
    fn after_a_timeout_the_second_protocol_answers_an_abort_and_fences_a_commit() {
        let step = time_out(&open(0), i64::MAX, &mut no_fresh).unwrap();
        let row = stored(&step);
        assert!(is_fenced(&ask(row, 0, Commit, RaisesEpoch)));
        assert_eq!(ask(row, 0, Abort, RaisesEpoch), Ok(Step::unchanged(identity(5, 1))));
        for kind in [Commit, Abort] {
            assert!(is_fenced(&ask(row, 0, kind, KeepsEpoch)));
        }
    }

    #[test]
    fn who_has_timed_out_is_told_so_until_another_takes_over() {
        let is_told = |ended: &Ended| ended.as_ref().is_err_and(|error| error.is_timed_out());
        let step = time_out(&open(0), NOW + 60_001, &mut no_fresh).unwrap();
        let late = stored(&step);
        for (kind, protocol) in [(Commit, RaisesEpoch), (Commit, KeepsEpoch), (Abort, KeepsEpoch)] {
            let refused = ask(late, 0, kind, protocol);
            assert!(is_told(&refused), "{refused:?}");
            assert!(!refused.unwrap_err().is_fenced(), "nobody has taken over");
        }
        assert!(!is_told(&ask(late, 7, Commit, RaisesEpoch)), "who it never was");
        // What its producer has aborted itself in time has not timed out.
        let own = ask(&open(0), 0, Abort, RaisesEpoch).unwrap();
        assert!(!is_told(&ask(stored(&own), 0, Commit, RaisesEpoch)));
        let request = InitRequest { timeout_ms: 1, max_timeout_ms: 1, expected: None };
        let other = init(Some(late), &request, NOW, &mut no_fresh).unwrap();
        for protocol in [RaisesEpoch, KeepsEpoch] {
            let refused = ask(stored(&other), 0, Commit, protocol);
            assert!(!is_told(&refused) && refused.unwrap_err().is_fenced());
        }
        // Also where the epochs have ended and another producer id goes on.
        let last = ProducerTransactionRow { current: identity(5, 32766), ..open(0) };
        let step = time_out(&last, NOW + 60_001, &mut || 9).unwrap();
        let refused = ask(stored(&step), 32766, Commit, KeepsEpoch);
        assert!(is_told(&refused) && is_unmapped(&refused), "{refused:?}");
    }

    #[test]
    fn after_a_timeout_the_producer_goes_on_by_naming_who_it_was_until_another_takes_over() {
        let step = time_out(&open(0), i64::MAX, &mut no_fresh).unwrap();
        let request = |expected| InitRequest { timeout_ms: 1, max_timeout_ms: 1, expected };
        let own = request(Some(identity(5, 0)));
        let again = init(step.row.as_ref(), &own, NOW, &mut no_fresh).unwrap();
        assert_eq!(again.answer, Ok(identity(5, 1)));
        assert_eq!(stored(&again).state, ProducerTransactionState::Empty);
        for kind in [Commit, Abort] {
            assert!(is_fenced(&ask(stored(&again), 0, kind, RaisesEpoch)), "it is void by now");
        }
        let other = init(step.row.as_ref(), &request(None), NOW, &mut no_fresh).unwrap();
        assert_eq!(other.answer, Ok(identity(5, 2)));
        assert!(init(other.row.as_ref(), &own, NOW, &mut no_fresh).is_err());
    }

    #[test]
    fn a_timeout_at_epoch_32766_leaves_a_new_producer_id() {
        let step = time_out(&open(32766), i64::MAX, &mut || 9).unwrap();
        assert_eq!(step.ending.as_ref().unwrap().marker_epoch, 32767);
        assert_eq!(step.answer, Ok(identity(9, 0)));
        assert_eq!(
            ask(stored(&step), 32766, Abort, RaisesEpoch),
            Ok(Step::unchanged(identity(9, 0)))
        );
    }

    #[test]
    fn an_idle_transactional_id_expires_at_its_time_and_an_open_one_never() {
        let week = 7 * 24 * 3_600_000;
        assert!(!is_expired(&idle(0), NOW + week - 1, week));
        assert!(is_expired(&idle(0), NOW + week, week));
        assert!(!is_expired(&open(0), i64::MAX, week));
        assert!(!is_expired(&idle(0), i64::MIN, week), "a clock that was set back");
    }
}
