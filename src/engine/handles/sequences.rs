//! The sequences that a producer has used, by partition; they count only once a commit is answered.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::ProduceError;
use crate::base::types::{Durability, ProducerIdentity, Sequence};
use crate::core::Shared;
use crate::record::{Codec, Record};
use crate::state::catalog::Partition;
use crate::write::append::{AppendTransaction, Committed, Stamp};

/// What a producer has sent of one epoch.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    next: HashMap<Partition, Sequence>,
}

impl Sequences {
    pub(super) fn next(&self, partition: &Partition) -> Sequence {
        self.next.get(partition).copied().unwrap_or(0)
    }

    pub(super) fn set_next(&mut self, partition: &Partition, next: Sequence) {
        self.next.insert(partition.clone(), next);
    }

    pub(super) fn clear(&mut self) {
        self.next.clear();
    }

    /// Appends records in one append transaction behind what the producer has sent.
    pub(super) fn append<'a>(
        &mut self,
        shared: &Arc<Shared>,
        identity: ProducerIdentity,
        transactional_id: Option<&str>,
        codec: Codec,
        records: impl IntoIterator<Item = (&'a Partition, Vec<Record>)>,
        durability: Durability,
    ) -> Result<Committed, ProduceError> {
        let mut append = AppendTransaction::new(Arc::clone(shared));
        append.set_codec(codec);
        if let Some(id) = transactional_id {
            append.transactional_id(id, true);
        }
        #[expect(clippy::mutable_key_type, reason = "a partition is hashed by its number alone")]
        let mut used: HashMap<&Partition, Sequence> = HashMap::new();
        for (partition, records) in records {
            let next = used.entry(partition).or_insert_with(|| self.next(partition));
            let is_transactional = transactional_id.is_some();
            let mut stamp = Stamp { identity, next_sequence: *next, is_transactional };
            append.records_of(partition, records, &mut stamp)?;
            *next = stamp.next_sequence;
        }
        let committed = append.commit(durability)?;
        for (partition, next) in used {
            self.next.insert(partition.clone(), next);
        }
        Ok(committed)
    }
}
