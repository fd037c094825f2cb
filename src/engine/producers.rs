//! The engine's producers: a view of their ids, their transactions, and the handles that keep both.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::base::error::StorageError;
use crate::base::types::{ProducerId, ProducerIdentity};
use crate::core::{GroupOffset, Shared};
use crate::engine::handles::{IdempotentProducer, TransactionalProducer};
use crate::record::MarkerKind;
use crate::state::catalog::Partition;
use crate::state::producer::transaction::EndProtocol;
use crate::write::producer_transaction::{
    self as transactions, ExpireReport, GroupMembership, InitProducer, ProducerDescription,
    ProducerError, ProducerTransactionDescription,
};

/// The producers of an engine, their ids and their transactions: by [`Engine::producers`].
///
/// [`ProducerManager::idempotent`] and [`ProducerManager::transactional`] give handles that keep
/// id, epoch and sequences. The other methods are the requests of Kafka's transaction coordinator,
/// for whoever serves them to clients.
#[derive(Clone, Copy)]
pub struct ProducerManager<'a> {
    shared: &'a Arc<Shared>,
}

impl Engine {
    /// Producers, their ids and their transactions.
    #[must_use]
    pub fn producers(&self) -> ProducerManager<'_> {
        ProducerManager { shared: self.shared() }
    }
}

impl ProducerManager<'_> {
    /// A producer whose retried batches are stored once, with a new producer id.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-idempotent-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let orders = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let mut producer = engine.producers().idempotent()?;
    /// let records = vec![Record::keyless("a"), Record::keyless("b")];
    /// producer.append([(&orders, records.clone())], Durability::Sync)?;
    ///
    /// // Whoever cannot know whether that came through says who it was, and sends it again.
    /// let mut again = engine.producers().resume_idempotent(producer.identity());
    /// let committed = again.append([(&orders, records)], Durability::Sync)?;
    /// assert!(committed.batches[0].is_duplicate);
    /// assert_eq!(engine.watermarks(&orders)?.log_end, 2);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ProducerError::ProducerId`]: no id could be given.
    pub fn idempotent(&self) -> Result<IdempotentProducer, ProducerError> {
        let producer_id = self.new_id()?;
        Ok(self.resume_idempotent(ProducerIdentity { producer_id, producer_epoch: 0 }))
    }

    /// The producer that had this identity, from its first sequence on: it sends again what it has
    /// sent, or goes on where [`IdempotentProducer::set_next_sequence`] says.
    #[must_use]
    pub fn resume_idempotent(&self, identity: ProducerIdentity) -> IdempotentProducer {
        IdempotentProducer::new(self.shared, identity)
    }

    /// A producer with a transactional id, which fences whoever held that id; a transaction that
    /// was open is aborted. A transaction that is open for longer than `timeout` is aborted too.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-transactional-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use std::time::Duration;
    /// use tidelog::{Engine, EngineConfig, FetchOptions, GroupOffset, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let orders = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let bills = engine.create_topic("bills", TopicConfig::new(1))?.partition(0)?;
    /// let mut producer = engine.producers().transactional("billing", Duration::from_secs(60))?;
    ///
    /// // What was read, what came of it, and how far it was read: all of it or nothing.
    /// let mut transaction = producer.begin();
    /// transaction.append([(&bills, vec![Record::new("order-1", "9.90")])])?;
    /// let offset = GroupOffset::new(1);
    /// transaction.send_offsets("billing", vec![(orders.clone(), offset)])?;
    /// assert!(engine.fetch(&bills, 0, FetchOptions::new())?.records().next().is_none());
    /// transaction.commit()?;
    ///
    /// assert!(engine.fetch(&bills, 0, FetchOptions::new())?.records().next().is_some());
    /// assert_eq!(engine.group("billing").offset(&orders)?.map(|found| found.offset), Some(1));
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ProducerError`]: the id is empty or too long, the timeout is longer than
    /// `transaction_max_timeout_ms`, or the storage.
    pub fn transactional(
        &self,
        id: &str,
        timeout: Duration,
    ) -> Result<TransactionalProducer, ProducerError> {
        TransactionalProducer::init(self.shared, id, timeout)
    }

    /// A producer id that was never given before, also across power loss.
    ///
    /// # Errors
    /// [`ProducerError::ProducerId`]: the storage, where a block of ids has to be reserved.
    pub fn new_id(&self) -> Result<ProducerId, ProducerError> {
        transactions::new_producer_id(self.shared)
    }

    /// Gives a transactional id to a producer, and fences whoever held it (Kafka's
    /// `InitProducerId`). [`ProducerManager::transactional`] is the handle over this and the
    /// requests below.
    ///
    /// # Errors
    /// [`ProducerError`]; [`ConcurrentTransactions`] where a transaction was open and is aborted
    /// now: the request may be sent again.
    ///
    /// [`ConcurrentTransactions`]: crate::state::producer::transaction::ProducerTransactionError
    pub fn init(
        &self,
        transactional_id: &str,
        init: InitProducer,
    ) -> Result<ProducerIdentity, ProducerError> {
        transactions::init_producer(self.shared, transactional_id, init)
    }

    /// Adds partitions to the transaction of a producer; opens one where none is open (Kafka's
    /// `AddPartitionsToTxn`).
    ///
    /// # Errors
    /// [`ProducerError`]; then none is added.
    pub fn add_partitions(
        &self,
        transactional_id: &str,
        producer: ProducerIdentity,
        partitions: &[Partition],
    ) -> Result<(), ProducerError> {
        transactions::add_partitions(self.shared, transactional_id, producer, partitions)
    }

    /// Adds the partitions of an append that is about to be made, as Kafka's `Produce` does from
    /// version 12 on; costs nothing where all are in the transaction already.
    ///
    /// # Errors
    /// [`ProducerError`]; then none is added.
    pub fn add_partitions_of_append(
        &self,
        transactional_id: &str,
        producer: ProducerIdentity,
        partitions: &[Partition],
    ) -> Result<(), ProducerError> {
        transactions::add_partitions_of_append(self.shared, transactional_id, producer, partitions)
    }

    /// Adds a consumer group to the transaction of a producer (Kafka's `AddOffsetsToTxn`).
    ///
    /// # Errors
    /// [`ProducerError`].
    pub fn add_group(
        &self,
        transactional_id: &str,
        producer: ProducerIdentity,
        group: &str,
    ) -> Result<(), ProducerError> {
        transactions::add_group(self.shared, transactional_id, producer, group)
    }

    /// Holds offsets of a group in the open transaction of a producer: they become the group's
    /// when it is committed, unless later ones were committed meanwhile (Kafka's
    /// `TxnOffsetCommit`).
    ///
    /// # Errors
    /// [`ProducerError`]; then none is held.
    pub fn stage_offsets(
        &self,
        transactional_id: &str,
        producer: ProducerIdentity,
        group: &str,
        offsets: Vec<(Partition, GroupOffset)>,
        membership: GroupMembership,
    ) -> Result<(), ProducerError> {
        transactions::stage_offsets(
            self.shared,
            transactional_id,
            producer,
            group,
            offsets,
            membership,
        )
    }

    /// Ends the open transaction of a producer in one sync commit (Kafka's `EndTxn`); returns who
    /// the producer is from now on.
    ///
    /// # Errors
    /// [`ProducerError`].
    pub fn end(
        &self,
        transactional_id: &str,
        producer: ProducerIdentity,
        kind: MarkerKind,
        protocol: EndProtocol,
    ) -> Result<ProducerIdentity, ProducerError> {
        transactions::end_transaction(self.shared, transactional_id, producer, kind, protocol)
    }

    /// Aborts transactions that are open for longer than their timeouts, and forgets producers and
    /// transactional ids that were silent for too long: what rounds of maintenance do.
    ///
    /// # Errors
    /// [`StorageError`]: what the storage says, or the engine is closed.
    pub fn expire(&self) -> Result<ExpireReport, StorageError> {
        self.shared.check_open()?;
        transactions::expire(self.shared)
    }

    /// The producers that a partition remembers, by their ids.
    #[must_use]
    pub fn describe(&self, partition: &Partition) -> Vec<ProducerDescription> {
        transactions::describe_producers(self.shared, partition)
    }

    /// A transactional id, if it is known.
    #[must_use]
    pub fn describe_transactional_id(&self, id: &str) -> Option<ProducerTransactionDescription> {
        transactions::describe_transactional_id(self.shared, id)
    }

    /// All transactional ids, by name.
    #[must_use]
    pub fn transactional_ids(&self) -> Vec<ProducerTransactionDescription> {
        transactions::describe_transactional_ids(self.shared)
    }
}

impl fmt::Debug for ProducerManager<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProducerManager")
    }
}
