//! An engine on a machine that crashes, and the random work of producers that is done on it.

use tidelog::internals::rules::BrokenRules;
use tidelog::producer::transaction::EndProtocol;
use tidelog::record::{BatchBuilder, MarkerKind};
use tidelog::testing::PowerLoss;
use tidelog::types::ProducerIdentity;
use tidelog::{
    CommitError, Committed, Durability, Engine, FirstSequence, GroupMembership, GroupOffset,
    InitProducer, Partition, ProducerError, Record, TopicConfig,
};

use super::model::{Effect, Model, Sent};
use super::observed::{expected, observed};
use crate::common::{TestEngine, assert_verified};

pub const GROUPS: usize = 2;
const PARTITIONS: usize = 3;
const IDS: u64 = 3;

/// How often what was done.
#[derive(Debug, Clone, Default)]
pub struct Did {
    appends: u32,
    duplicates: u32,
    refusals: u32,
    commits: u32,
    aborts: u32,
    fences: u32,
    kills: u32,
    power_losses: u32,
    lost: u32,
}

impl Did {
    pub fn add(&mut self, other: &Self) {
        self.appends += other.appends;
        self.duplicates += other.duplicates;
        self.refusals += other.refusals;
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.fences += other.fences;
        self.kills += other.kills;
        self.power_losses += other.power_losses;
        self.lost += other.lost;
    }

    pub fn is_varied(&self) -> bool {
        [
            self.appends,
            self.duplicates,
            self.refusals,
            self.commits,
            self.aborts,
            self.fences,
            self.kills,
            self.power_losses,
            self.lost,
        ]
        .iter()
        .all(|count| *count > 0)
    }
}

pub struct World {
    test: TestEngine,
    engine: Option<Engine>,
    model: Model,
    random: u64,
    value: u32,
    /// Idempotent producers, whose ids were given.
    idempotent: Vec<ProducerIdentity>,
    broken: BrokenRules,
    pub did: Did,
}

/// Whether the engine did it: a machine that stops in the middle tells nothing.
enum Outcome<T> {
    Done(T),
    Refused(i16),
    Stopped,
}

impl World {
    pub fn new(seed: u64, broken: BrokenRules) -> Self {
        let test = TestEngine::with(|config| config.segment_bytes(16 << 10));
        let engine = test.builder().broken(broken).open().expect("a good disk");
        let topic = TopicConfig::new(PARTITIONS as u32);
        engine.create_topic("t", topic).expect("the disk is good");
        let idempotent = [0; 2].map(|_| ProducerIdentity {
            producer_id: engine.producers().new_id().expect("the disk is good"),
            producer_epoch: 0,
        });
        let mut model = Model::new(PARTITIONS);
        for id in 0..IDS as usize {
            let init = InitProducer { timeout_ms: 60_000, expected: None };
            let producer = engine.producers().init(&format!("id{id}"), init).expect("a good disk");
            model.attempt(Effect::Init { id, producer });
        }
        model.acknowledge(true);
        Self {
            test,
            engine: Some(engine),
            model,
            random: seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1,
            value: 0,
            idempotent: idempotent.to_vec(),
            broken,
            did: Did::default(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) % bound
    }

    fn engine(&self) -> Engine {
        self.engine.clone().expect("it is open")
    }

    fn partition(&self, index: usize) -> Partition {
        let topic = self.engine().topic("t").expect("it was made");
        topic.partition(index as i32).expect("it has so many")
    }

    /// Holds the engine against the model.
    pub fn check(&mut self, when: &str) {
        let engine = self.engine();
        assert_verified(&engine);
        let (observed, expected) = (observed(&engine), expected(self.model.state()));
        for (observed, expected) in observed.iter().zip(&expected) {
            assert_eq!(observed, expected, "{when}");
        }
        assert_eq!(observed.len(), expected.len(), "{when}: {observed:?}");
    }

    /// Does something; tells what.
    pub fn step(&mut self) -> &'static str {
        if self.below(12) == 0 {
            let calls = self.below(14);
            self.test.disk.crash_after_calls(calls);
            while !self.test.disk.has_crashed() {
                self.work();
            }
            return self.crash();
        }
        match self.below(30) {
            0 => {
                self.engine().maintenance().checkpoint().expect("the disk is good");
                self.model.acknowledge(true);
                "a checkpoint"
            }
            1 => {
                self.engine().sync().expect("the disk is good");
                self.model.acknowledge(true);
                "a sync"
            }
            2 => self.crash(),
            _ => self.work(),
        }
    }

    fn work(&mut self) -> &'static str {
        match self.below(100) {
            0..30 => self.append_idempotent(),
            30..55 => self.append_transactional(),
            55..65 => self.init(),
            65..75 => self.stage(),
            75..80 => self.commit_offset(),
            _ => self.end(),
        }
    }

    fn crash(&mut self) -> &'static str {
        let is_power_loss = self.below(2) == 0;
        let seed = self.below(1 << 30);
        self.engine = None;
        if is_power_loss {
            self.test.disk.power_loss(PowerLoss::Random(seed));
            self.did.power_losses += 1;
        } else {
            self.test.disk.kill();
            self.did.kills += 1;
        }
        self.test.disk.clear_faults();
        self.test.store.crash(seed);
        let engine = self.test.builder().broken(self.broken).open();
        let engine = engine.expect("the disk is good again");
        let found = observed(&engine);
        self.engine = Some(engine);
        let mut candidates = self.model.candidates(is_power_loss);
        let newest = candidates.next().expect("there is the newest");
        let is_found = |state: &(usize, &super::model::State)| expected(state.1) == found;
        let chosen = if is_found(&newest) { Some(newest) } else { candidates.find(is_found) };
        let Some((count, _)) = chosen else {
            assert_eq!(found, expected(newest.1), "no first part of the commits is found");
            unreachable!("they differ");
        };
        let lost = newest.0 - count;
        drop(candidates);
        self.did.lost += lost as u32;
        self.model.recovered(count);
        if is_power_loss { "a power loss" } else { "a kill" }
    }

    fn committed(&mut self, committed: Result<Committed, CommitError>) -> Outcome<Committed> {
        match committed {
            Ok(committed) => Outcome::Done(committed),
            Err(CommitError::Refused { reason, .. }) => Outcome::Refused(reason.code()),
            Err(_) => Outcome::Stopped,
        }
    }

    fn asked<T>(&mut self, asked: Result<T, ProducerError>) -> Outcome<T> {
        match asked {
            Ok(done) => Outcome::Done(done),
            Err(ProducerError::Refused(_)) => Outcome::Refused(0),
            Err(ProducerError::NotWritten(_) | ProducerError::OutcomeUnknown(_)) => {
                Outcome::Stopped
            }
            Err(ProducerError::ProducerId(_)) => Outcome::Stopped,
            Err(other) => panic!("{other}"),
        }
    }

    /// A batch behind the last one of its producer, one of the last again, or one that is wrong.
    fn next_batch(&mut self, producer: ProducerIdentity, is_transactional: bool) -> Sent {
        let partition = self.below(PARTITIONS as u64) as usize;
        self.value += 1;
        let known = self.model.state().partitions[partition].producers.get(&producer.producer_id);
        let known = known.filter(|known| known.epoch == producer.producer_epoch).cloned();
        let batches = known.map(|known| known.batches).unwrap_or_default();
        let next = batches.last().map_or(0, |(first, count, _)| first + count);
        let mut sent = Sent {
            partition,
            producer,
            first_sequence: next,
            count: 1 + self.below(3) as i32,
            value: format!("v{}", self.value),
            is_transactional,
        };
        match self.below(6) {
            0 if !batches.is_empty() => {
                let again = batches[self.below(batches.len() as u64) as usize];
                (sent.first_sequence, sent.count) = (again.0, again.1);
            }
            1 => sent.first_sequence += 1 + self.below(3) as i32,
            _ => {}
        }
        sent
    }

    /// What the engine must answer: the offset, whether it is stored, or the code.
    fn verdict(&self, sent: &Sent) -> Result<(i64, bool), i16> {
        let partition = &self.model.state().partitions[sent.partition];
        if let Some(base) = partition.stored(sent) {
            return Ok((base, true));
        }
        let next = |known: &super::model::Known| {
            known.batches.last().map_or(0, |(first, count, _)| first + count)
        };
        match partition.producers.get(&sent.producer.producer_id) {
            Some(known) if known.epoch > sent.producer.producer_epoch => Err(47),
            Some(known)
                if known.epoch < sent.producer.producer_epoch && sent.first_sequence != 0 =>
            {
                Err(45)
            }
            Some(known)
                if known.epoch == sent.producer.producer_epoch
                    && next(known) != sent.first_sequence =>
            {
                Err(45)
            }
            None if sent.is_transactional && sent.first_sequence != 0 => Err(45),
            _ => Ok((partition.end(), false)),
        }
    }

    fn send(&mut self, sent: Vec<Sent>, id: Option<usize>) -> &'static str {
        let mut append = self.engine().append_transaction();
        if let Some(id) = id {
            append.transactional_id(&format!("id{id}"), FirstSequence::Zero);
        }
        for one in &sent {
            let ProducerIdentity { producer_id, producer_epoch } = one.producer;
            let builder =
                BatchBuilder::new().producer(producer_id, producer_epoch, one.first_sequence);
            let mut builder = if one.is_transactional { builder.transactional() } else { builder };
            for at in 0..one.count {
                builder.push(&Record::keyless(format!("{}-{at}", one.value))).expect("small");
            }
            let batch = builder.finish().expect("there is a record");
            append.batch(&self.partition(one.partition), batch).expect("the batch is good");
        }
        let is_sync = self.below(4) == 0;
        let durability = if is_sync { Durability::Sync } else { Durability::Buffered };
        let verdicts: Vec<_> = sent.iter().map(|one| self.verdict(one)).collect();
        let refused = verdicts.iter().find_map(|verdict| verdict.err());
        let committed = append.commit(durability);
        match self.committed(committed) {
            Outcome::Refused(code) => {
                assert_eq!(Some(code), refused, "{sent:?}");
                self.did.refusals += 1;
            }
            Outcome::Done(committed) => {
                let verdicts = verdicts.into_iter().map(|verdict| verdict.expect("it was taken"));
                let answers = committed.batches.iter();
                let answers = answers.map(|batch| (batch.base_offset, batch.is_duplicate));
                assert!(answers.clone().eq(verdicts), "{sent:?}");
                self.did.duplicates += answers.filter(|(_, duplicate)| *duplicate).count() as u32;
                self.did.appends += 1;
                self.model.attempt(Effect::Append(sent));
                self.model.acknowledge(is_sync);
            }
            Outcome::Stopped if refused.is_none() => self.model.attempt(Effect::Append(sent)),
            Outcome::Stopped => {}
        }
        "an append"
    }

    fn append_idempotent(&mut self) -> &'static str {
        let chosen = self.below(self.idempotent.len() as u64) as usize;
        let producer = self.idempotent[chosen];
        let mut sent = vec![self.next_batch(producer, false)];
        let other = self.next_batch(producer, false);
        if other.partition != sent[0].partition {
            sent.push(other);
        }
        self.send(sent, None)
    }

    /// A transactional id, and who holds it by the model.
    fn held(&mut self) -> (usize, ProducerIdentity) {
        let id = self.below(IDS) as usize;
        (id, self.model.state().ids[&id].producer)
    }

    fn append_transactional(&mut self) -> &'static str {
        let (id, producer) = self.held();
        let sent = self.next_batch(producer, true);
        let partition = self.partition(sent.partition);
        let is_in = self.model.state().ids[&id].partitions.contains(&sent.partition);
        let name = format!("id{id}");
        let added =
            self.engine().producers().add_partitions_of_append(&name, producer, &[partition]);
        match self.asked(added) {
            Outcome::Done(()) if !is_in => {
                self.model.attempt(Effect::Add { id, partitions: vec![sent.partition] });
                self.model.acknowledge(false);
            }
            Outcome::Done(()) => {}
            Outcome::Refused(_) => panic!("who holds the id may add partitions"),
            Outcome::Stopped => {
                self.model.attempt(Effect::Add { id, partitions: vec![sent.partition] });
                return "an append whose partition was not added";
            }
        }
        self.send(vec![sent], Some(id))
    }

    fn init(&mut self) -> &'static str {
        let id = self.below(IDS) as usize;
        let held = self.model.state().ids[&id].clone();
        let init = InitProducer { timeout_ms: 60_000, expected: None };
        let asked = self.engine().producers().init(&format!("id{id}"), init);
        match self.asked(asked) {
            Outcome::Done(producer) => {
                assert!(!held.is_open, "an open transaction is aborted first");
                let next = held.producer.producer_epoch + 1;
                assert_eq!(producer, ProducerIdentity { producer_epoch: next, ..held.producer });
                self.model.attempt(Effect::Init { id, producer });
                self.model.acknowledge(true);
            }
            Outcome::Refused(_) => {
                assert!(held.is_open, "only what is open is refused");
                let epoch = held.producer.producer_epoch + 1;
                let producer = ProducerIdentity { producer_epoch: epoch, ..held.producer };
                self.model.attempt(Effect::Init { id, producer });
                self.model.acknowledge(true);
                self.did.fences += 1;
            }
            Outcome::Stopped => {
                let epoch = held.producer.producer_epoch + 1;
                let producer = ProducerIdentity { producer_epoch: epoch, ..held.producer };
                self.model.attempt(Effect::Init { id, producer });
            }
        }
        "an init"
    }

    fn stage(&mut self) -> &'static str {
        let (id, producer) = self.held();
        let group = self.below(GROUPS as u64) as usize;
        let partition = self.below(PARTITIONS as u64) as usize;
        let offset = self.below(1000) as i64;
        let staged = GroupOffset::new(offset).metadata("m");
        let asked = self.engine().producers().stage_offsets(
            &format!("id{id}"),
            producer,
            &format!("g{group}"),
            vec![(self.partition(partition), staged)],
            GroupMembership::Implied,
        );
        let outcome = self.asked(asked);
        assert!(!matches!(outcome, Outcome::Refused(_)), "who holds the id may stage offsets");
        self.model.attempt(Effect::Stage { id, group, partition, offset });
        if matches!(outcome, Outcome::Done(())) {
            self.model.acknowledge(false);
        }
        "offsets in a transaction"
    }

    fn commit_offset(&mut self) -> &'static str {
        let group = self.below(GROUPS as u64) as usize;
        let partition = self.below(PARTITIONS as u64) as usize;
        let offset = self.below(1000) as i64;
        let committed = GroupOffset::new(offset);
        let offsets = vec![(self.partition(partition), committed)];
        let done = self.engine().group(&format!("g{group}")).commit(offsets);
        self.model.attempt(Effect::Commit { group, partition, offset });
        if done.is_ok() {
            self.model.acknowledge(false);
        }
        "offsets of a group"
    }

    fn end(&mut self) -> &'static str {
        let (id, producer) = self.held();
        let is_open = self.model.state().ids[&id].is_open;
        let kind = if self.below(3) == 0 { MarkerKind::Abort } else { MarkerKind::Commit };
        let raises = self.below(2) == 0;
        let protocol = if raises { EndProtocol::RaisesEpoch } else { EndProtocol::KeepsEpoch };
        let raised = ProducerIdentity { producer_epoch: producer.producer_epoch + 1, ..producer };
        let next = if raises { raised } else { producer };
        if !is_open {
            return "no end, because nothing is open";
        }
        let ended = self.engine().producers().end(&format!("id{id}"), producer, kind, protocol);
        let effect = Effect::End { id, kind, marker_epoch: next.producer_epoch, next };
        match self.asked(ended) {
            Outcome::Done(answer) => {
                assert_eq!(answer, next);
                self.model.attempt(effect);
                self.model.acknowledge(true);
                match kind {
                    MarkerKind::Commit => self.did.commits += 1,
                    MarkerKind::Abort => self.did.aborts += 1,
                }
            }
            Outcome::Refused(_) => panic!("who holds the id may end what is open"),
            Outcome::Stopped => self.model.attempt(effect),
        }
        "an end"
    }
}
