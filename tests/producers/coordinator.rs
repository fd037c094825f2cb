//! The coordinator's rules under random requests of several producers: what holds whatever comes in which order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidelog::internals::keyspace::{ProducerTransactionRow, ProducerTransactionState};
use tidelog::producer::transaction::{
    EndProtocol, InitRequest, ProducerTransactionError, Step, add_group, add_partitions,
    check_append, end, init, is_expired, stage_offsets, time_out,
};
use tidelog::record::MarkerKind;
use tidelog::types::{
    Durability, MAX_PRODUCER_EPOCH, PartitionId, ProducerEpoch, ProducerId, ProducerIdentity,
};

const TIMEOUT_MS: i32 = 1_000;
const EXPIRY_MS: i64 = 100_000;

/// Which identity a request carries.
#[derive(Debug, Clone, Copy)]
enum Who {
    Present,
    Before,
    Ahead,
    Any { producer_id: ProducerId, producer_epoch: ProducerEpoch },
}

#[derive(Debug, Clone)]
enum Request {
    Init { who: Option<Who> },
    AddPartitions { who: Who, partitions: Vec<u32> },
    AddGroup { who: Who, group: u8 },
    Append { who: Who, partitions: Vec<u32>, may_add: bool },
    StageOffsets { who: Who, group: u8, may_add: bool },
    End { who: Who, commit: bool, raises: bool },
    TimeOut,
    Expire,
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        6 => Just(Who::Present),
        3 => Just(Who::Before),
        1 => Just(Who::Ahead),
        1 => (-1..8i64, -1..4i16)
            .prop_map(|(producer_id, producer_epoch)| Who::Any { producer_id, producer_epoch }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let partitions = || prop::collection::vec(0..6u32, 0..4);
    prop_oneof![
        prop::option::of(who()).prop_map(|who| Request::Init { who }),
        (who(), partitions()).prop_map(|(who, p)| Request::AddPartitions { who, partitions: p }),
        (who(), 0..3u8).prop_map(|(who, group)| Request::AddGroup { who, group }),
        (who(), partitions(), any::<bool>())
            .prop_map(|(who, partitions, may_add)| Request::Append { who, partitions, may_add }),
        (who(), 0..3u8, any::<bool>()).prop_map(|(who, group, may_add)| Request::StageOffsets {
            who,
            group,
            may_add
        }),
        (who(), any::<bool>(), any::<bool>()).prop_map(|(who, commit, raises)| Request::End {
            who,
            commit,
            raises
        }),
        Just(Request::TimeOut),
        Just(Request::Expire),
    ]
}

/// The coordinator with the rows of three transactional ids, and what must hold of them.
struct Coordinator {
    rows: [Option<ProducerTransactionRow>; 3],
    now: i64,
    next_producer_id: ProducerId,
    /// The transactional id that a producer id was given to.
    given_to: BTreeMap<ProducerId, usize>,
    /// The greatest epoch that a producer id has had.
    epochs: BTreeMap<ProducerId, ProducerEpoch>,
    /// What the open transaction of a transactional id has, as the requests told.
    parts: [Option<(BTreeSet<PartitionId>, BTreeSet<String>)>; 3],
}

impl Coordinator {
    fn new(first_epoch: ProducerEpoch) -> Self {
        let mut coordinator = Self {
            rows: [None, None, None],
            now: 1,
            next_producer_id: 100,
            given_to: BTreeMap::new(),
            epochs: BTreeMap::new(),
            parts: [None, None, None],
        };
        for (id, row) in coordinator.rows.iter_mut().enumerate().take(2) {
            let producer_id = id as ProducerId;
            let request = InitRequest { timeout_ms: 1_000, max_timeout_ms: 1_000, expected: None };
            let step = init(None, &request, 0, &mut || producer_id).expect("the id is not known");
            let mut first = step.row.expect("a first row");
            first.current.producer_epoch = first_epoch;
            *row = Some(first);
            coordinator.given_to.insert(producer_id, id);
            coordinator.epochs.insert(producer_id, first_epoch);
        }
        coordinator
    }

    fn identity(&self, id: usize, who: Who) -> ProducerIdentity {
        let row = self.rows[id].as_ref();
        let present = row.map_or(ProducerIdentity::NONE, |row| row.current);
        match who {
            Who::Present => present,
            Who::Before => row.map_or(ProducerIdentity::NONE, |row| row.previous),
            Who::Ahead => ProducerIdentity {
                producer_epoch: present.producer_epoch.saturating_add(1),
                ..present
            },
            Who::Any { producer_id, producer_epoch } => {
                ProducerIdentity { producer_id, producer_epoch }
            }
        }
    }

    /// What a request makes of a transactional id; `None` where the server has nothing to do.
    fn ask(
        &self,
        id: usize,
        request: &Request,
        identity: Option<ProducerIdentity>,
        fresh: &mut dyn FnMut() -> ProducerId,
    ) -> Option<Result<Step, ProducerTransactionError>> {
        let (row, now) = (self.rows[id].as_ref(), self.now);
        let given = identity.unwrap_or(ProducerIdentity::NONE);
        let ids =
            |partitions: &[u32]| partitions.iter().copied().map(PartitionId).collect::<Vec<_>>();
        Some(match request {
            Request::Init { .. } => {
                let request = InitRequest {
                    timeout_ms: TIMEOUT_MS,
                    max_timeout_ms: TIMEOUT_MS,
                    expected: identity,
                };
                init(row, &request, now, fresh)
            }
            Request::AddPartitions { partitions, .. } => {
                add_partitions(row, given, &ids(partitions), now)
            }
            Request::AddGroup { group, .. } => add_group(row, given, &group.to_string(), now),
            Request::Append { partitions, may_add, .. } => {
                check_append(row, given, &ids(partitions), *may_add, now)
            }
            Request::StageOffsets { group, may_add, .. } => {
                stage_offsets(row, given, &group.to_string(), *may_add, now)
            }
            Request::End { commit, raises, .. } => {
                let kind = if *commit { MarkerKind::Commit } else { MarkerKind::Abort };
                let protocol =
                    if *raises { EndProtocol::RaisesEpoch } else { EndProtocol::KeepsEpoch };
                end(row, given, kind, protocol, now, fresh)
            }
            Request::TimeOut => Ok(time_out(row?, now, fresh)?),
            Request::Expire => return None,
        })
    }

    fn play(&mut self, id: usize, request: &Request) {
        if let Request::Expire = request {
            if self.rows[id].as_ref().is_some_and(|row| is_expired(row, self.now, EXPIRY_MS)) {
                assert_eq!(self.parts[id], None, "what is open never expires");
                self.rows[id] = None;
            }
            return;
        }
        let who = match request {
            Request::Init { who } => *who,
            Request::AddPartitions { who, .. }
            | Request::AddGroup { who, .. }
            | Request::Append { who, .. }
            | Request::StageOffsets { who, .. }
            | Request::End { who, .. } => Some(*who),
            Request::TimeOut | Request::Expire => None,
        };
        let identity = who.map(|who| self.identity(id, who));
        let mut next = self.next_producer_id;
        let mut fresh = || {
            next += 1;
            next
        };
        let Some(asked) = self.ask(id, request, identity, &mut fresh) else { return };
        self.next_producer_id = next;
        let Ok(step) = asked else { return };
        self.check(id, request, identity, &step);
        if let Some(row) = step.row.clone() {
            self.rows[id] = Some(row);
        }
        self.check_retry(id, request, identity, &step);
    }

    /// What every step has to keep.
    fn check(
        &mut self,
        id: usize,
        request: &Request,
        identity: Option<ProducerIdentity>,
        step: &Step,
    ) {
        let before = self.rows[id].clone();
        let after = step.row.clone().or_else(|| before.clone()).expect("a step leaves a row");
        let key = b"k";
        let read_back = ProducerTransactionRow::decode(key, &after.encode());
        assert_eq!(read_back.as_ref(), Ok(&after), "every row can be stored");

        let ProducerIdentity { producer_id, producer_epoch } = after.current;
        assert!((0..=MAX_PRODUCER_EPOCH).contains(&producer_epoch));
        assert_eq!(*self.given_to.entry(producer_id).or_insert(id), id, "an id was given twice");
        let highest = self.epochs.entry(producer_id).or_insert(0);
        assert!(producer_epoch >= *highest, "an epoch went back");
        *highest = producer_epoch;

        let was_open =
            before.as_ref().is_some_and(|row| row.state == ProducerTransactionState::Ongoing);
        assert_eq!(was_open, self.parts[id].is_some());
        if let Some(ending) = &step.ending {
            let row = before.as_ref().expect("what ends was there");
            let (partitions, groups) = self.parts[id].take().expect("only what is open ends");
            assert!(partitions.iter().eq(&ending.partitions) && groups.iter().eq(&ending.groups));
            assert_eq!(ending.producer_id, row.current.producer_id);
            assert!(ending.marker_epoch >= row.current.producer_epoch);
            assert_eq!(step.durability, Durability::Sync);
            assert_ne!(after.state, ProducerTransactionState::Ongoing);
        }
        if before.as_ref().is_none_or(|row| row.current != after.current) {
            assert_eq!(step.durability, Durability::Sync, "an epoch that is given must last");
        }
        self.note_parts(id, request, &after);
        let by_another = identity.is_some_and(|given| {
            before.as_ref().is_some_and(|row| row.current != given && row.previous != given)
        });
        assert!(!by_another, "only the holder, or who was it just before, changes anything");
    }

    /// Adds what an accepted request brings into the transaction.
    fn note_parts(&mut self, id: usize, request: &Request, after: &ProducerTransactionRow) {
        if after.state != ProducerTransactionState::Ongoing {
            assert_eq!(self.parts[id], None, "a transaction is gone without its end");
            return;
        }
        let (partitions, groups) = self.parts[id].get_or_insert_default();
        match request {
            Request::AddPartitions { partitions: new, .. }
            | Request::Append { partitions: new, may_add: true, .. } => {
                partitions.extend(new.iter().copied().map(PartitionId));
            }
            Request::AddGroup { group, .. }
            | Request::StageOffsets { group, may_add: true, .. } => {
                groups.insert(group.to_string());
            }
            _ => {}
        }
        assert!(partitions.iter().eq(&after.partitions) && groups.iter().eq(&after.groups));
    }

    /// The same request again, at once: the same answer, and nothing ends by it.
    fn check_retry(
        &self,
        id: usize,
        request: &Request,
        identity: Option<ProducerIdentity>,
        step: &Step,
    ) {
        // A request without an identity is that of yet another instance.
        let named = identity.is_some_and(|given| {
            given.producer_id >= 0 && (0..=MAX_PRODUCER_EPOCH).contains(&given.producer_epoch)
        });
        if !named || step.answer.is_err() {
            return;
        }
        let mut none = || panic!("a retry needs no new producer id");
        let again = self.ask(id, request, identity, &mut none).expect("it can be asked again");
        let again = again.expect("what was accepted is accepted again");
        assert_eq!((&again.answer, &again.ending), (&step.answer, &None), "{request:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn epochs_rise_ids_are_given_once_transactions_end_once_and_retries_agree(
        first_epoch in prop_oneof![Just(0), Just(MAX_PRODUCER_EPOCH - 2), Just(MAX_PRODUCER_EPOCH)],
        requests in prop::collection::vec((0..3usize, request(), 0..400i64), 1..120),
    ) {
        let mut coordinator = Coordinator::new(first_epoch);
        for (id, request, wait_ms) in requests {
            // Now and then a long pause, so that transactions time out and ids expire.
            coordinator.now += if wait_ms > 390 { EXPIRY_MS } else { wait_ms };
            coordinator.play(id, &request);
        }
    }
}
