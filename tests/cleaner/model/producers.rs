//! Producers of both kinds in random work: what the partition remembers of them, and what they send.

use bytes::Bytes;
use tidelog::internals::keyspace::ProducerTransactionState;
use tidelog::producer::transaction::{EndProtocol, ProducerTransactionError};
use tidelog::record::{BatchBuilder, MarkerKind, RecordBatch};
use tidelog::types::ProducerIdentity;
use tidelog::{
    CommittedBatch, Durability, Engine, FirstSequence, InitProducer, Partition,
    ProducerDescription, ProducerError,
};

use super::world::World;
use super::{Model, Outcome};

const TIMEOUT_MS: i32 = 4000;

/// What the partition remembers of its producers: only what they do changes it, and a crash.
#[derive(Default)]
pub struct KnownProducers {
    /// After each change: the log end behind it, and what is remembered.
    history: Vec<(i64, Vec<ProducerDescription>)>,
    /// The last batches that were sent.
    sent: Vec<Sent>,
}

/// A batch that was stored.
struct Sent {
    producer: ProducerIdentity,
    last_sequence: i32,
    bytes: Bytes,
    has_keys: bool,
    committed: CommittedBatch,
}

/// Who sends.
#[derive(Default)]
pub struct Senders {
    idempotent: Vec<ProducerIdentity>,
    transactional: Vec<Transactional>,
}

#[derive(Clone, Copy)]
struct Transactional {
    id: &'static str,
    producer: ProducerIdentity,
    /// The open transaction, by its number in the model.
    open: Option<usize>,
}

pub fn make_senders(engine: &Engine) -> Senders {
    let id = || engine.producers().new_id().expect("the disk is good");
    let idempotent =
        (0..2).map(|_| ProducerIdentity { producer_id: id(), producer_epoch: 0 }).collect();
    let transactional = ["p", "q"].map(|id| {
        let init = InitProducer { timeout_ms: TIMEOUT_MS, expected: None };
        let producer = engine.producers().init(id, init).expect("the disk is good");
        Transactional { id, producer, open: None }
    });
    Senders { idempotent, transactional: transactional.into() }
}

impl KnownProducers {
    fn known(&self) -> &[ProducerDescription] {
        self.history.last().map_or(&[], |(_, known)| known)
    }

    /// The sequence of the next batch.
    fn next_sequence(&self, producer: ProducerIdentity) -> i32 {
        let known = self.known().iter().find(|known| known.producer_id == producer.producer_id);
        let known = known.filter(|known| known.producer_epoch == producer.producer_epoch);
        known.map_or(0, |known| known.last_sequence + 1)
    }

    /// A producer did something, which made this log end.
    fn note(&mut self, log_end: i64, engine: &Engine, partition: &Partition) {
        self.history.push((log_end, engine.producers().describe(partition)));
    }

    pub fn crashed(&mut self, log_end: i64) {
        self.history.retain(|(end, _)| *end <= log_end);
        self.sent.retain(|sent| sent.committed.last_offset < log_end);
    }

    /// The last batch of a producer, if the partition remembers it.
    fn last_sent(&self, known: &ProducerDescription) -> Option<&Sent> {
        self.sent.iter().rev().find(|sent| {
            let ProducerIdentity { producer_id, producer_epoch } = sent.producer;
            (producer_id, producer_epoch) == (known.producer_id, known.producer_epoch)
                && sent.last_sequence == known.last_sequence
        })
    }

    /// Nothing but producers changes what is remembered, and the log alone tells last sequences.
    pub fn check(&self, engine: &Engine, partition: &Partition, batches: &[RecordBatch]) {
        assert_eq!(engine.producers().describe(partition), self.known());
        let start = engine.watermarks(partition).expect("the partition exists").log_start;
        for known in self.known() {
            let Some(sent) = self.last_sent(known) else { continue };
            let last_offset = sent.committed.last_offset;
            let is_it = |batch: &&RecordBatch| batch.header().last_offset() == last_offset;
            let Some(batch) = batches.iter().find(is_it) else {
                assert!(last_offset < start, "the last batch of {known:?} is gone");
                continue;
            };
            let header = batch.header();
            let identity = (header.producer_id(), header.producer_epoch());
            assert_eq!(identity, (known.producer_id, known.producer_epoch));
            let ahead = header.last_offset() - header.base_offset();
            assert_eq!(i64::from(header.base_sequence()) + ahead, i64::from(known.last_sequence));
        }
    }
}

impl World {
    fn send(
        &mut self,
        model: &mut Model,
        producer: ProducerIdentity,
        transaction: Option<(&str, usize)>,
    ) {
        let sequence = model.producers.next_sequence(producer);
        let mut builder =
            BatchBuilder::new().producer(producer.producer_id, producer.producer_epoch, sequence);
        if transaction.is_some() {
            builder = builder.transactional();
        }
        let (bytes, records) = self.batch(builder);
        let committed = self.commit(bytes.clone(), transaction.map(|(id, _)| id));
        assert!(!committed.is_duplicate);
        let has_keys = records.iter().all(|record| record.key.is_some());
        let last_sequence = sequence + i32::try_from(records.len()).expect("they are few") - 1;
        model.append(committed.base_offset, records, transaction.map(|(_, index)| index));
        let (engine, partition) = (self.engine(), self.partition());
        model.producers.note(model.log_end, &engine, &partition);
        model.producers.sent.push(Sent { producer, last_sequence, bytes, has_keys, committed });
    }

    fn commit(&self, bytes: Bytes, transactional_id: Option<&str>) -> CommittedBatch {
        let mut append = self.engine().append_transaction();
        if let Some(id) = transactional_id {
            append.transactional_id(id, FirstSequence::Any);
        }
        append.batch(&self.partition(), bytes).expect("the batch is good");
        append.commit(Durability::Buffered).expect("the sequence is right").batches[0]
    }

    /// Sends the last batch of a producer again: it is known, whatever was cleaned.
    fn send_again(&self, model: &Model, producer: ProducerIdentity) -> bool {
        let mut known = model.producers.known().iter();
        let known = known.find(|known| known.producer_id == producer.producer_id);
        let known = known.filter(|known| known.producer_epoch == producer.producer_epoch);
        let Some(sent) = known.and_then(|known| model.producers.last_sent(known)) else {
            return false;
        };
        if !sent.has_keys && self.policy != "delete" {
            // It is refused for that before anybody asks whether it is known.
            return false;
        }
        let again = self.commit(sent.bytes.clone(), None);
        assert!(again.is_duplicate);
        assert_eq!(again.base_offset, sent.committed.base_offset);
        true
    }

    pub fn append_idempotent(&mut self, model: &mut Model) -> &'static str {
        let which = self.below(2) as usize;
        let producer = self.senders.idempotent[which];
        match self.below(4) {
            0 if self.send_again(model, producer) => return "a batch once more",
            1 => self.senders.idempotent[which].producer_epoch += 1,
            _ => {}
        }
        self.send(model, self.senders.idempotent[which], None);
        "a batch of an idempotent producer"
    }

    pub fn append_in_transaction(&mut self, model: &mut Model) -> &'static str {
        let which = self.below(2) as usize;
        let Transactional { id, producer, open } = self.senders.transactional[which];
        let index = open.unwrap_or_else(|| {
            let (engine, partition) = (self.engine(), self.partition());
            let added = engine.producers().add_partitions(id, producer, &[partition]);
            added.expect("the producer is the newest");
            model.transactions.push(Outcome::Open);
            model.transactions.len() - 1
        });
        self.senders.transactional[which].open = Some(index);
        if open.is_none() && self.below(5) == 0 {
            return "a transaction without data";
        }
        self.send(model, producer, Some((id, index)));
        "a batch in a transaction"
    }

    /// A transaction has ended, and its marker is in the log.
    fn ended(&mut self, model: &mut Model, which: usize, outcome: Outcome) {
        let index = self.senders.transactional[which].open.take();
        model.transactions[index.expect("it was open")] = outcome;
        model.log_end += 1;
        model.producers.note(model.log_end, &self.engine(), &self.partition());
        model.note_synced();
    }

    pub fn end_transaction(&mut self, model: &mut Model) -> &'static str {
        let which = self.below(2) as usize;
        self.end(model, which)
    }

    fn end(&mut self, model: &mut Model, which: usize) -> &'static str {
        let Transactional { id, producer, open } = self.senders.transactional[which];
        if open.is_none() {
            return "nothing";
        }
        let (kind, outcome) = match self.below(2) {
            0 => (MarkerKind::Commit, Outcome::Committed),
            _ => (MarkerKind::Abort, Outcome::Aborted),
        };
        let protocols = [EndProtocol::KeepsEpoch, EndProtocol::RaisesEpoch];
        let protocol = protocols[self.below(2) as usize];
        let next = self.engine().producers().end(id, producer, kind, protocol);
        self.senders.transactional[which].producer = next.expect("the producer is the newest");
        self.ended(model, which, outcome);
        if kind == MarkerKind::Commit { "a commit" } else { "an abort" }
    }

    /// Another producer takes a transactional id over; what was open is aborted.
    pub fn take_over(&mut self, model: &mut Model) -> &'static str {
        let which = self.below(2) as usize;
        let id = self.senders.transactional[which].id;
        let init = InitProducer { timeout_ms: TIMEOUT_MS, expected: None };
        let producer = loop {
            match self.engine().producers().init(id, init) {
                Ok(producer) => break producer,
                Err(ProducerError::Refused(ProducerTransactionError::ConcurrentTransactions)) => {
                    self.ended(model, which, Outcome::Aborted);
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(self.senders.transactional[which].open, None);
        self.senders.transactional[which].producer = producer;
        model.note_synced();
        "a producer that takes an id over"
    }

    pub fn expire_producers(&mut self, model: &mut Model) -> &'static str {
        self.engine().producers().expire().expect("the disk is good");
        for which in 0..2 {
            let id = self.senders.transactional[which].id;
            let found =
                self.engine().producers().describe_transactional_id(id).expect("it is young");
            let is_open = found.state == ProducerTransactionState::Ongoing;
            if self.senders.transactional[which].open.is_some() && !is_open {
                self.ended(model, which, Outcome::Aborted);
            }
            self.senders.transactional[which].producer = found.producer;
        }
        // What was forgotten stays forgotten.
        self.engine().sync().expect("the disk is good");
        model.note_synced();
        model.producers.history.clear();
        model.producers.note(model.log_end, &self.engine(), &self.partition());
        "an expiry of producers"
    }

    /// What was added to a transaction may be lost, with all that came behind it.
    pub fn reopened(&mut self, model: &mut Model) {
        for transactional in &mut self.senders.transactional {
            let engine = self.engine.as_ref().expect("it is open");
            let found = engine
                .producers()
                .describe_transactional_id(transactional.id)
                .expect("it was synced");
            assert_eq!(found.producer, transactional.producer);
            if found.state != ProducerTransactionState::Ongoing {
                let lost = transactional.open.take();
                let mut left = model.records.values();
                assert!(lost.is_none() || left.all(|appended| appended.transaction != lost));
            }
        }
    }

    pub fn end_all(&mut self, model: &mut Model) {
        for which in 0..2 {
            self.end(model, which);
        }
    }
}
