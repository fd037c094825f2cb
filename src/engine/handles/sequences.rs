//! The sequences that a producer has used, by partition; those of records that were not committed are given again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::ProduceError;
use crate::base::types::{Durability, ProducerIdentity, Sequence};
use crate::commit::{Promise, Ticket};
use crate::core::Shared;
use crate::record::{Codec, Record};
use crate::state::catalog::Partition;
use crate::write::append::{AppendTransaction, CommitError, Committed, FirstSequence, Stamp};

/// What a producer has sent of one epoch.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    next: Arc<Mutex<Table>>,
}

type Table = HashMap<Partition, Next>;

/// The next sequence of a partition.
#[derive(Debug, Clone, Copy, Default)]
struct Next {
    sequence: Sequence,
    /// How often it went back because an append was not committed. Those that were submitted after
    /// that append, and before it was answered, fail for its gap, and do not count again.
    rewinds: u64,
}

/// What an append uses of a partition's sequences.
#[derive(Debug)]
struct Used {
    partition: Partition,
    before: Next,
    next: Sequence,
}

/// Whose records are appended, and how.
pub(super) struct Sender<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) identity: ProducerIdentity,
    pub(super) transactional_id: Option<&'a str>,
    pub(super) codec: Codec,
}

impl Sequences {
    pub(super) fn next(&self, partition: &Partition) -> Sequence {
        self.get(partition).sequence
    }

    fn get(&self, partition: &Partition) -> Next {
        self.next.lock().get(partition).copied().unwrap_or_default()
    }

    pub(super) fn set_next(&mut self, partition: &Partition, next: Sequence) {
        self.next.lock().entry(partition.clone()).or_default().sequence = next;
    }

    /// Begins anew. What is under way counts no more.
    pub(super) fn clear(&mut self) {
        self.next = Arc::default();
    }

    /// Appends records in one append transaction after what the producer has sent.
    pub(super) fn append<'a>(
        &mut self,
        sender: &Sender<'_>,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
        durability: Durability,
    ) -> Result<Committed, ProduceError> {
        let (append, used) = self.pack(sender, records)?;
        let committed = append.commit(durability)?;
        advance(&self.next, &used);
        Ok(committed)
    }

    /// As [`Sequences::append`], without waiting. The sequences count at once, and are given again
    /// where the append is not committed; `on_failure` is called then, before the ticket is
    /// answered.
    pub(super) fn submit<'a>(
        &mut self,
        sender: &Sender<'_>,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
        durability: Durability,
        on_failure: impl FnOnce() + Send + 'static,
    ) -> Result<Ticket<Result<Committed, CommitError>>, ProduceError> {
        let (append, used) = self.pack(sender, records)?;
        // A partition that knows nothing of a producer takes any sequence as its first (KIP-98). So
        // nothing may follow a first batch that can still fail, but where a transaction says that
        // its first is zero.
        if sender.transactional_id.is_none() && used.iter().any(|one| one.before.sequence == 0) {
            let committed = append.commit(durability);
            if committed.is_ok() {
                advance(&self.next, &used);
            }
            let (promise, ticket) = Promise::new();
            promise.fulfil(committed);
            return Ok(ticket);
        }
        // Before it can be answered.
        advance(&self.next, &used);
        let used = Arc::new(used);
        let (table, rewound) = (Arc::clone(&self.next), Arc::clone(&used));
        let submitted = append.submit_with(durability, move || {
            rewind(&table, &rewound);
            on_failure();
        });
        if submitted.is_err() {
            take_back(&self.next, &used);
        }
        Ok(submitted?)
    }

    fn pack<'a>(
        &self,
        sender: &Sender<'_>,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
    ) -> Result<(AppendTransaction, Vec<Used>), ProduceError> {
        let mut append = AppendTransaction::new(Arc::clone(sender.shared));
        append.set_codec(sender.codec);
        if let Some(id) = sender.transactional_id {
            append.transactional_id(id, FirstSequence::Zero);
        }
        #[expect(clippy::mutable_key_type, reason = "a partition is hashed by its number alone")]
        let mut used: HashMap<&Partition, Used> = HashMap::new();
        for (partition, records) in records {
            let used = used.entry(partition).or_insert_with(|| {
                let before = self.get(partition);
                Used { partition: partition.clone(), before, next: before.sequence }
            });
            let is_transactional = sender.transactional_id.is_some();
            let identity = sender.identity;
            let mut stamp = Stamp { identity, next_sequence: used.next, is_transactional };
            append.records_of(partition, records, &mut stamp)?;
            used.next = stamp.next_sequence;
        }
        Ok((append, used.into_values().collect()))
    }
}

fn advance(table: &Mutex<Table>, used: &[Used]) {
    let mut table = table.lock();
    for Used { partition, next, .. } in used {
        table.entry(partition.clone()).or_default().sequence = *next;
    }
}

/// The append was not committed: its sequences are given again, and those of all after it.
fn rewind(table: &Mutex<Table>, used: &[Used]) {
    let mut table = table.lock();
    for Used { partition, before, .. } in used {
        let next = table.entry(partition.clone()).or_default();
        if next.rewinds == before.rewinds {
            *next = Next { sequence: before.sequence, rewinds: before.rewinds + 1 };
        }
    }
}

/// The append was not submitted, and nothing was submitted after it.
fn take_back(table: &Mutex<Table>, used: &[Used]) {
    let mut table = table.lock();
    for Used { partition, before, .. } in used {
        let next = table.entry(partition.clone()).or_default();
        if next.rewinds == before.rewinds {
            next.sequence = before.sequence;
        }
    }
}
