//! What a pass has learned of the dirty part when it goes through the other batches.

use super::dirty::Known;
use super::gather::Gathered;
use super::key_set::KeySet;
use super::rules::Newer;
use crate::base::types::Offset;
use crate::core::Located;

/// What is known of the dirty part.
#[derive(Debug)]
pub(super) enum Learned {
    /// The newest offset of each key; none of its batches is cleaned yet.
    Gathered(Gathered),
    /// The keys alone; all its batches are clean.
    Cleaned {
        /// Each key that has a record in it.
        keys: KeySet,
        /// The offset after its last record.
        end: Offset,
    },
}

impl Learned {
    /// The offset after the last record that counts.
    pub(super) fn end(&self) -> Offset {
        match self {
            Self::Gathered(gathered) => gathered.end,
            Self::Cleaned { end, .. } => *end,
        }
    }

    /// How many keys have a record in it.
    pub(super) fn key_count(&self) -> u64 {
        match self {
            Self::Gathered(gathered) => gathered.keys.key_count(),
            Self::Cleaned { keys, .. } => keys.key_count(),
        }
    }

    /// What is known of a batch without its bytes.
    pub(super) fn known(&self, located: &Located) -> Known {
        match self {
            Self::Gathered(gathered) => {
                gathered.dirty.known(located.last_offset, located.entry.record_count)
            }
            Self::Cleaned { .. } => Known::Open,
        }
    }

    /// Where it is known which records of a batch have a newer one of their key.
    pub(super) fn newer(&self, located: &Located) -> Newer<'_> {
        match self {
            Self::Gathered(gathered) => match gathered.dirty.superseded(located.last_offset) {
                Some(superseded) => Newer::Noted(superseded),
                None => Newer::Looked(&gathered.keys),
            },
            Self::Cleaned { keys, .. } => Newer::Seen(keys),
        }
    }
}
