//! A producer with a transactional id: begin, append, send offsets, commit or abort (KIP-98, KIP-447, KIP-890).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::ProduceError;
use super::sequences::{Sender, Sequences};
use crate::base::types::{Durability, ProducerIdentity};
use crate::commit::Ticket;
use crate::core::{GroupOffset, Shared, check_offsets};
use crate::record::{Codec, MarkerKind, Record};
use crate::state::catalog::Partition;
use crate::state::producer::transaction::{EndProtocol, ProducerTransactionError};
use crate::write::append::{CommitError, Committed};
use crate::write::producer_transaction::{
    GroupMembership, InitProducer, ProducerError, add_partitions_of_append, end_own_transaction,
    init_producer, stage_offsets,
};

/// How often a transactional id is asked for while its open transaction is being aborted. One
/// request aborts it; more are needed only where others ask for the id too.
const MAX_TRIES: u32 = 100;

/// A producer with a transactional id: by
/// [`ProducerManager::transactional`](crate::ProducerManager::transactional).
#[derive(Debug)]
pub struct TransactionalProducer {
    shared: Arc<Shared>,
    id: String,
    identity: ProducerIdentity,
    codec: Codec,
    sequences: Sequences,
    /// Whether a transaction was opened and its end is not known to be written.
    is_unended: bool,
    /// Whether an append that was submitted in the open transaction was not committed.
    has_failed: Arc<AtomicBool>,
}

impl TransactionalProducer {
    pub(crate) fn init(
        shared: &Arc<Shared>,
        id: &str,
        timeout: Duration,
    ) -> Result<Self, ProducerError> {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let init = InitProducer { timeout_ms, expected: None };
        let mut tries = 0;
        let identity = loop {
            tries += 1;
            match init_producer(shared, id, init) {
                Err(ProducerError::Refused(ProducerTransactionError::ConcurrentTransactions))
                    if tries < MAX_TRIES => {}
                settled => break settled?,
            }
        };
        Ok(Self {
            shared: Arc::clone(shared),
            id: id.to_owned(),
            identity,
            codec: Codec::None,
            sequences: Sequences::default(),
            is_unended: false,
            has_failed: Arc::default(),
        })
    }

    /// The transactional id.
    #[must_use]
    pub fn transactional_id(&self) -> &str {
        &self.id
    }

    /// Who it is now: the epoch rises with every transaction.
    #[must_use]
    pub fn identity(&self) -> ProducerIdentity {
        self.identity
    }

    /// The codec of what is appended from now on; none at first.
    pub fn set_codec(&mut self, codec: Codec) -> &mut Self {
        self.codec = codec;
        self
    }

    /// Begins a transaction. It costs nothing before something is appended.
    pub fn begin(&mut self) -> ProducerTransaction<'_> {
        ProducerTransaction { producer: self, is_open: false }
    }

    fn sender(&mut self) -> (Sender<'_>, &mut Sequences, &Arc<AtomicBool>) {
        let sender = Sender {
            shared: &self.shared,
            identity: self.identity,
            transactional_id: Some(&self.id),
            codec: self.codec,
        };
        (sender, &mut self.sequences, &self.has_failed)
    }

    fn end(&mut self, kind: MarkerKind) -> Result<(), ProducerError> {
        let (protocol, has_failed) = (EndProtocol::RaisesEpoch, &self.has_failed);
        let (shared, id) = (&self.shared, &self.id);
        self.identity = end_own_transaction(shared, id, self.identity, kind, protocol, has_failed)?;
        self.sequences.clear();
        self.has_failed = Arc::default();
        self.is_unended = false;
        Ok(())
    }
}

/// An open producer transaction. Dropping it aborts it.
#[derive(Debug)]
#[must_use = "dropping a transaction aborts it"]
pub struct ProducerTransaction<'a> {
    producer: &'a mut TransactionalProducer,
    /// Whether the engine knows of it.
    is_open: bool,
}

impl ProducerTransaction<'_> {
    /// Appends records to any number of partitions, buffered: what makes them last is the commit.
    /// What was not committed may be given again in the same batches. An append that is refused
    /// leaves the transaction as it was: it can be committed without those records.
    ///
    /// # Errors
    /// [`ProduceError`]: where it [is fenced](ProduceError::is_fenced), this producer must end;
    /// where it [has timed out](ProduceError::is_timed_out), it can begin another transaction.
    pub fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
    ) -> Result<Committed, ProduceError> {
        let records: Vec<(&Partition, Vec<Record>)> = records.into_iter().collect();
        self.add_partitions(&records)?;
        let (sender, sequences, _) = self.producer.sender();
        sequences.append(&sender, records, Durability::Buffered)
    }

    /// Puts records into the commit queue, buffered, and returns at once: many appends may be under
    /// way. Only the first append to a partition waits, for a commit that adds the partition to
    /// the transaction. If any of them is not committed, the transaction cannot be committed.
    ///
    /// # Errors
    /// As [`ProducerTransaction::append`]; nothing was submitted.
    pub fn submit<'a>(
        &mut self,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
    ) -> Result<Ticket<Result<Committed, CommitError>>, ProduceError> {
        let records: Vec<(&Partition, Vec<Record>)> = records.into_iter().collect();
        self.add_partitions(&records)?;
        let (sender, sequences, has_failed) = self.producer.sender();
        let has_failed = Arc::clone(has_failed);
        let on_failure = move || has_failed.store(true, Ordering::SeqCst);
        sequences.submit(&sender, records, Durability::Buffered, on_failure)
    }

    fn add_partitions(
        &mut self,
        records: &[(&Partition, Vec<Record>)],
    ) -> Result<(), ProduceError> {
        let partitions: Vec<Partition> =
            records.iter().map(|(partition, _)| (*partition).clone()).collect();
        self.open()?;
        let producer = &*self.producer;
        let (shared, identity) = (&producer.shared, producer.identity);
        Ok(add_partitions_of_append(shared, &producer.id, identity, &partitions)?)
    }

    /// Has the transaction commit these offsets of a consumer group.
    ///
    /// # Errors
    /// [`ProducerError`].
    pub fn send_offsets(
        &mut self,
        group: &str,
        offsets: impl IntoIterator<Item = (Partition, GroupOffset)>,
    ) -> Result<(), ProducerError> {
        let offsets: Vec<_> = offsets.into_iter().collect();
        check_offsets(&offsets).map_err(ProducerError::NegativeOffset)?;
        self.open()?;
        let producer = &*self.producer;
        let (shared, identity) = (&producer.shared, producer.identity);
        let membership = GroupMembership::Implied;
        stage_offsets(shared, &producer.id, identity, group, offsets, membership)
    }

    /// Commits: records and offsets appear in all partitions and groups in one instant, and
    /// survive power loss. A transaction that holds nothing is not written.
    ///
    /// # Errors
    /// [`ProducerError`]; [`ProducerError::AppendFailed`] where an append that was submitted in it
    /// was not committed. After [`ProducerError::NotWritten`] the transaction is still open, and
    /// is aborted when it is dropped here; who has to know takes the records again.
    pub fn commit(mut self) -> Result<(), ProducerError> {
        self.finish(MarkerKind::Commit)
    }

    /// Aborts: nobody who reads committed data ever sees a record of it.
    ///
    /// # Errors
    /// [`ProducerError`].
    pub fn abort(mut self) -> Result<(), ProducerError> {
        self.finish(MarkerKind::Abort)
    }

    /// What was given up before and could not be aborted must not come into this transaction.
    fn open(&mut self) -> Result<(), ProducerError> {
        if !self.is_open && self.producer.is_unended {
            self.producer.end(MarkerKind::Abort)?;
        }
        self.is_open = true;
        self.producer.is_unended = true;
        Ok(())
    }

    fn finish(&mut self, kind: MarkerKind) -> Result<(), ProducerError> {
        if !self.is_open {
            return Ok(());
        }
        self.producer.end(kind)?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for ProducerTransaction<'_> {
    fn drop(&mut self) {
        // Nobody is left to tell of an error: the next transaction, the next producer of the id, or
        // the timeout aborts.
        let _ = self.finish(MarkerKind::Abort);
    }
}
