//! Parts come into a transaction: partitions and groups, asked for or by what is sent to them.

use super::{
    MAX_TRANSACTION_GROUPS, MAX_TRANSACTION_PARTITIONS, ProducerTransactionError, Step, holder,
    or_timed_out,
};
use crate::base::types::{Durability, PartitionId, ProducerIdentity, TimestampMs};
use crate::index::keyspace::{ProducerTransactionRow, ProducerTransactionState};

/// Adds partitions (AddPartitionsToTxn); opens a transaction where none is open, even without any
/// partition, as Kafka does.
///
/// # Errors
/// [`ProducerTransactionError::InvalidProducerIdMapping`],
/// [`ProducerTransactionError::ProducerFenced`] and
/// [`ProducerTransactionError::TooManyPartitions`].
pub fn add_partitions(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
    partitions: &[PartitionId],
    now: TimestampMs,
) -> Result<Step, ProducerTransactionError> {
    let row = unfenced(row, given)?;
    with_partitions(row, partitions, now)
}

/// Adds a group (AddOffsetsToTxn); opens a transaction where none is open.
///
/// # Errors
/// [`ProducerTransactionError::InvalidProducerIdMapping`],
/// [`ProducerTransactionError::ProducerFenced`] and [`ProducerTransactionError::TooManyGroups`].
pub fn add_group(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
    group: &str,
    now: TimestampMs,
) -> Result<Step, ProducerTransactionError> {
    let row = unfenced(row, given)?;
    with_group(row, group, now)
}

/// Whether transactional record batches may be appended (Produce). With `may_add`, as of Produce
/// version 12, partitions that are not in the transaction are added, and one is opened where none
/// is open: that row belongs into the commit of the append.
///
/// A producer id whose epochs ended fails by its epoch, as in Kafka in all partitions that know
/// it.
///
/// # Errors
/// [`ProducerTransactionError::InvalidProducerIdMapping`],
/// [`ProducerTransactionError::InvalidProducerEpoch`],
/// [`ProducerTransactionError::PartitionNotAdded`] without `may_add`, else
/// [`ProducerTransactionError::TooManyPartitions`].
pub fn check_append(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
    partitions: &[PartitionId],
    may_add: bool,
    now: TimestampMs,
) -> Result<Step, ProducerTransactionError> {
    if let Some(row) = row.filter(|row| row.previous == given && row.current != given) {
        return Err(stale(row, given));
    }
    let row = of_this_epoch(row, given)?;
    if may_add {
        return with_partitions(row, partitions, now);
    }
    match partitions.iter().find(|partition| row.partitions.binary_search(partition).is_err()) {
        Some(&partition) => Err(ProducerTransactionError::PartitionNotAdded { partition }),
        None => Ok(Step::unchanged(given)),
    }
}

/// Whether offsets of a group may be staged (TxnOffsetCommit). With `may_add`, as of version 5, a
/// group that is not in the transaction is added, and one is opened where none is open: that row
/// belongs into the commit that stages the offsets.
///
/// # Errors
/// [`ProducerTransactionError::InvalidProducerIdMapping`],
/// [`ProducerTransactionError::InvalidProducerEpoch`],
/// [`ProducerTransactionError::GroupNotAdded`] without `may_add`, else
/// [`ProducerTransactionError::TooManyGroups`].
pub fn stage_offsets(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
    group: &str,
    may_add: bool,
    now: TimestampMs,
) -> Result<Step, ProducerTransactionError> {
    let row = of_this_epoch(row, given)?;
    if may_add {
        return with_group(row, group, now);
    }
    match find_group(row, group) {
        Err(_) => Err(ProducerTransactionError::GroupNotAdded { group: group.to_owned() }),
        Ok(_) => Ok(Step::unchanged(given)),
    }
}

/// The row of the present holder, for requests to the coordinator.
fn unfenced(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
) -> Result<&ProducerTransactionRow, ProducerTransactionError> {
    let row = holder(row, given)?;
    if row.current != given {
        let refusal = ProducerTransactionError::ProducerFenced { given, current: row.current };
        return Err(or_timed_out(row, given, refusal));
    }
    Ok(row)
}

/// The row of the present holder, for what is sent to partitions and groups.
fn of_this_epoch(
    row: Option<&ProducerTransactionRow>,
    given: ProducerIdentity,
) -> Result<&ProducerTransactionRow, ProducerTransactionError> {
    let row = holder(row, given)?;
    if row.current != given { Err(stale(row, given)) } else { Ok(row) }
}

fn stale(row: &ProducerTransactionRow, given: ProducerIdentity) -> ProducerTransactionError {
    let (producer_epoch, current) = (given.producer_epoch, row.current);
    let refusal = ProducerTransactionError::InvalidProducerEpoch { producer_epoch, current };
    or_timed_out(row, given, refusal)
}

fn with_partitions(
    row: &ProducerTransactionRow,
    partitions: &[PartitionId],
    now: TimestampMs,
) -> Result<Step, ProducerTransactionError> {
    let is_open = row.state == ProducerTransactionState::Ongoing;
    let is_new = |partition: &&PartitionId| row.partitions.binary_search(partition).is_err();
    let new: Vec<_> = partitions.iter().filter(is_new).copied().collect();
    if is_open && new.is_empty() {
        return Ok(Step::unchanged(row.current));
    }
    let mut next = opened(row, now);
    next.partitions.extend(new);
    next.partitions.sort_unstable();
    next.partitions.dedup();
    let count = next.partitions.len();
    if count > MAX_TRANSACTION_PARTITIONS {
        return Err(ProducerTransactionError::TooManyPartitions { count });
    }
    Ok(Step::store(next, Durability::Buffered))
}

fn with_group(
    row: &ProducerTransactionRow,
    group: &str,
    now: TimestampMs,
) -> Result<Step, ProducerTransactionError> {
    let Err(place) = find_group(row, group) else { return Ok(Step::unchanged(row.current)) };
    let mut next = opened(row, now);
    next.groups.insert(place, group.to_owned());
    let count = next.groups.len();
    if count > MAX_TRANSACTION_GROUPS {
        return Err(ProducerTransactionError::TooManyGroups { count });
    }
    Ok(Step::store(next, Durability::Buffered))
}

fn find_group(row: &ProducerTransactionRow, group: &str) -> Result<usize, usize> {
    row.groups.binary_search_by(|known| known.as_str().cmp(group))
}

/// The row with a transaction open, now or since before.
fn opened(row: &ProducerTransactionRow, now: TimestampMs) -> ProducerTransactionRow {
    let is_open = row.state == ProducerTransactionState::Ongoing;
    ProducerTransactionRow {
        state: ProducerTransactionState::Ongoing,
        started_at: if is_open { row.started_at } else { now },
        updated_at: now,
        ..row.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{NOW, identity, idle, open, stored};
    use super::*;

    const P1: PartitionId = PartitionId(1);
    const P2: PartitionId = PartitionId(2);
    const P3: PartitionId = PartitionId(3);

    fn add(
        row: &ProducerTransactionRow,
        partitions: &[PartitionId],
    ) -> Result<Step, ProducerTransactionError> {
        add_partitions(Some(row), row.current, partitions, NOW + 1)
    }

    #[test]
    fn the_first_partition_opens_a_transaction_and_later_ones_do_not_move_its_time() {
        let first = add(&idle(0), &[P3]).unwrap();
        let row = stored(&first);
        assert_eq!((row.state, row.started_at), (ProducerTransactionState::Ongoing, NOW + 1));
        assert_eq!((row.partitions.as_slice(), &first.answer), (&[P3][..], &Ok(identity(5, 0))));
        assert_eq!((first.durability, &first.ending), (Durability::Buffered, &None));
        let second = add_partitions(Some(row), row.current, &[P2, P1, P1, P3], NOW + 5).unwrap();
        let row = stored(&second);
        assert_eq!((row.started_at, row.updated_at), (NOW + 1, NOW + 5));
        assert_eq!(row.partitions, [P1, P2, P3]);
    }

    #[test]
    fn partitions_that_are_there_change_nothing() {
        let again = add(&open(0), &[P3, P1, P1]).unwrap();
        assert_eq!((again.row, again.answer), (None, Ok(identity(5, 0))));
        assert_eq!(add(&open(0), &[]).unwrap().row, None);
    }

    #[test]
    fn no_partitions_at_all_open_a_transaction() {
        let step = add(&idle(0), &[]).unwrap();
        assert_eq!(stored(&step).state, ProducerTransactionState::Ongoing);
        assert!(stored(&step).partitions.is_empty());
    }

    #[test]
    fn a_transaction_after_an_ended_one_begins_now() {
        for state in
            [ProducerTransactionState::CompleteCommit, ProducerTransactionState::CompleteAbort]
        {
            let row = ProducerTransactionRow { state, started_at: 7, ..idle(0) };
            assert_eq!(stored(&add(&row, &[P1]).unwrap()).started_at, NOW + 1);
            let group = add_group(Some(&row), row.current, "g", NOW + 1).unwrap();
            assert_eq!(stored(&group).started_at, NOW + 1);
        }
    }

    #[test]
    fn an_unknown_transactional_id_and_another_producer_id_have_no_mapping() {
        let given = identity(6, 0);
        let known = open(0);
        for (row, held_by) in [(None, None), (Some(&known), Some(5))] {
            let refused = ProducerTransactionError::InvalidProducerIdMapping {
                producer_id: given.producer_id,
                held_by,
            };
            assert_eq!(add_partitions(row, given, &[P1], NOW), Err(refused.clone()));
            assert_eq!(add_group(row, given, "g", NOW), Err(refused.clone()));
            for may_add in [false, true] {
                let append = check_append(row, given, &[P1], may_add, NOW);
                assert_eq!(append, Err(refused.clone()));
                let staged = stage_offsets(row, given, "g", may_add, NOW);
                assert_eq!(staged, Err(refused.clone()));
            }
        }
    }

    #[test]
    fn an_older_or_newer_epoch_is_fenced_at_the_coordinator_and_invalid_with_data_and_offsets() {
        let row = open(2);
        for epoch in [1, 3, -1] {
            let given = identity(5, epoch);
            let fenced = ProducerTransactionError::ProducerFenced { given, current: row.current };
            assert_eq!(add_partitions(Some(&row), given, &[P1], NOW), Err(fenced.clone()));
            assert_eq!(add_group(Some(&row), given, "g", NOW), Err(fenced));
            let invalid = ProducerTransactionError::InvalidProducerEpoch {
                producer_epoch: epoch,
                current: row.current,
            };
            for may_add in [false, true] {
                let append = check_append(Some(&row), given, &[P1], may_add, NOW);
                assert_eq!(append, Err(invalid.clone()));
                let staged = stage_offsets(Some(&row), given, "g", may_add, NOW);
                assert_eq!(staged, Err(invalid.clone()));
            }
        }
    }

    #[test]
    fn a_batch_for_a_partition_that_was_not_added_is_refused_and_one_that_was_passes() {
        let row = open(0);
        let check =
            |row, partitions: &[_]| check_append(Some(row), identity(5, 0), partitions, false, NOW);
        assert_eq!(check(&row, &[P1, P3]), Ok(Step::unchanged(identity(5, 0))));
        let refused = ProducerTransactionError::PartitionNotAdded { partition: P2 };
        assert_eq!(check(&row, &[P1, P2]), Err(refused));
        let refused = ProducerTransactionError::PartitionNotAdded { partition: P1 };
        assert_eq!(check(&idle(0), &[P1]), Err(refused), "nothing is open");
    }

    #[test]
    fn a_batch_of_produce_12_adds_its_partitions_and_opens_the_transaction() {
        let check = |row: ProducerTransactionRow, partitions: &[_]| {
            check_append(Some(&row), identity(5, 0), partitions, true, NOW)
        };
        let step = check(idle(0), &[P2]).unwrap();
        assert_eq!(stored(&step).partitions, [P2]);
        assert_eq!(stored(&step).state, ProducerTransactionState::Ongoing);
        assert_eq!(step.durability, Durability::Buffered);
        assert_eq!(check(open(0), &[P1]).unwrap().row, None);
        assert_eq!(stored(&check(open(0), &[P2]).unwrap()).partitions, [P1, P2, P3]);
    }

    #[test]
    fn a_producer_id_whose_epochs_ended_is_refused_by_its_epoch_in_a_batch() {
        let row = ProducerTransactionRow {
            current: identity(9, 0),
            previous: identity(5, 32766),
            ..idle(0)
        };
        let refused = check_append(Some(&row), identity(5, 32766), &[P1], true, NOW);
        let (producer_epoch, current) = (32766, row.current);
        let error = ProducerTransactionError::InvalidProducerEpoch { producer_epoch, current };
        assert_eq!(refused, Err(error));
        let elsewhere = add_partitions(Some(&row), identity(5, 32766), &[P1], NOW);
        let (producer_id, held_by) = (5, Some(9));
        let error = ProducerTransactionError::InvalidProducerIdMapping { producer_id, held_by };
        assert_eq!(elsewhere, Err(error));
    }

    #[test]
    fn a_group_is_added_once_in_order_and_opens_the_transaction() {
        let row = idle(0);
        let first = add_group(Some(&row), row.current, "b", NOW + 1).unwrap();
        assert_eq!(stored(&first).state, ProducerTransactionState::Ongoing);
        let second = add_group(first.row.as_ref(), row.current, "a", NOW + 2).unwrap();
        assert_eq!(stored(&second).groups, ["a", "b"]);
        assert_eq!(stored(&second).started_at, NOW + 1);
        let again = add_group(second.row.as_ref(), row.current, "b", NOW + 3).unwrap();
        assert_eq!(again.row, None);
    }

    #[test]
    fn offsets_of_a_group_that_was_not_added_are_refused_and_by_version_5_added() {
        let given = identity(5, 0);
        let group = "h".to_owned();
        for row in [idle(0), open(0)] {
            let refused = stage_offsets(Some(&row), given, "h", false, NOW);
            let error = ProducerTransactionError::GroupNotAdded { group: group.clone() };
            assert_eq!(refused, Err(error));
            let added = stage_offsets(Some(&row), given, "h", true, NOW).unwrap();
            assert!(stored(&added).groups.contains(&group));
            assert_eq!(stored(&added).state, ProducerTransactionState::Ongoing);
        }
        let known = stage_offsets(Some(&open(0)), given, "g", false, NOW);
        assert_eq!(known, Ok(Step::unchanged(given)));
    }

    #[test]
    fn partitions_and_groups_end_at_their_limits_and_not_before() {
        let full: Vec<_> = (0..MAX_TRANSACTION_PARTITIONS as u32).map(PartitionId).collect();
        let row = stored(&add(&idle(0), &full).unwrap()).clone();
        let count = MAX_TRANSACTION_PARTITIONS + 1;
        let one_more = add(&row, &[PartitionId(u32::MAX)]);
        assert_eq!(one_more, Err(ProducerTransactionError::TooManyPartitions { count }));
        let groups = (0..MAX_TRANSACTION_GROUPS).map(|group| format!("{group:03}")).collect();
        let row = ProducerTransactionRow { groups, ..open(0) };
        let count = MAX_TRANSACTION_GROUPS + 1;
        let one_more = add_group(Some(&row), row.current, "one more", NOW);
        assert_eq!(one_more, Err(ProducerTransactionError::TooManyGroups { count }));
    }
}
