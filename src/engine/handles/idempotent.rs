//! A producer whose retried batches are stored once (KIP-98).

use std::sync::Arc;

use super::error::ProduceError;
use super::sequences::{Sender, Sequences};
use crate::base::types::{Durability, ProducerIdentity, Sequence};
use crate::commit::Ticket;
use crate::core::Shared;
use crate::record::{Codec, Record};
use crate::state::catalog::Partition;
use crate::write::append::{CommitError, Committed};

/// A producer whose retried batches are stored once: by
/// [`ProducerManager::idempotent`](crate::ProducerManager::idempotent).
#[derive(Debug)]
pub struct IdempotentProducer {
    shared: Arc<Shared>,
    identity: ProducerIdentity,
    codec: Codec,
    sequences: Sequences,
}

impl IdempotentProducer {
    pub(crate) fn new(shared: &Arc<Shared>, identity: ProducerIdentity) -> Self {
        let sequences = Sequences::default();
        Self { shared: Arc::clone(shared), identity, codec: Codec::None, sequences }
    }

    /// Who it is: what it takes to go on as this producer later.
    #[must_use]
    pub fn identity(&self) -> ProducerIdentity {
        self.identity
    }

    /// The codec of what is appended from now on; none at first.
    pub fn set_codec(&mut self, codec: Codec) -> &mut Self {
        self.codec = codec;
        self
    }

    /// The sequence of the next record to a partition.
    #[must_use]
    pub fn next_sequence(&self, partition: &Partition) -> Sequence {
        self.sequences.next(partition)
    }

    /// Goes on with this sequence in a partition: 0 at least.
    pub fn set_next_sequence(&mut self, partition: &Partition, next: Sequence) -> &mut Self {
        self.sequences.set_next(partition, next);
        self
    }

    /// Appends records to any number of partitions, all of them or none. What was not committed,
    /// or of which nobody knows, may be given again in the same batches.
    ///
    /// # Errors
    /// [`ProduceError`]; the sequences are as they were.
    pub fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
        durability: Durability,
    ) -> Result<Committed, ProduceError> {
        let sender = sender(&self.shared, self.identity, self.codec);
        self.sequences.append(&sender, records, durability)
    }

    /// Puts records into the commit queue and returns at once, as
    /// [`AppendTransaction::submit`](crate::AppendTransaction::submit): many may be under way. What
    /// is not committed uses no sequence; what was submitted after it is then refused for the gap,
    /// and all of it may be given again in the same order. The first batch of a partition is waited
    /// for: a partition that knows nothing of a producer takes whatever comes first.
    ///
    /// # Errors
    /// [`ProduceError`]: nothing was submitted, and the sequences are as they were.
    pub fn submit<'a>(
        &mut self,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
        durability: Durability,
    ) -> Result<Ticket<Result<Committed, CommitError>>, ProduceError> {
        let sender = sender(&self.shared, self.identity, self.codec);
        self.sequences.submit(&sender, records, durability, || ())
    }
}

fn sender(shared: &Arc<Shared>, identity: ProducerIdentity, codec: Codec) -> Sender<'_> {
    Sender { shared, identity, transactional_id: None, codec }
}
