//! A span of keys that is to be deleted: few of them one by one, many as one range (rule S5).

use std::ops::ControlFlow;

use crate::base::error::StorageError;
use crate::index::store::{Direction, Read};
use crate::index::write_batch::{Family, WriteBatch};

/// Spans with fewer entries are deleted one by one: a range delete costs every read behind it
/// until the next cut.
const MIN_RANGE_ENTRIES: usize = 64;

/// The keys of a family from `begin` up to, not including, `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    family: Family,
    begin: Vec<u8>,
    end: Vec<u8>,
    /// The entries, where they are few.
    keys: Option<Vec<Vec<u8>>>,
}

impl Span {
    /// Looks whether the span holds few entries or many. No entry may come into it later.
    ///
    /// # Errors
    /// [`StorageError`] if the index cannot be read.
    pub fn look_up(
        store: &dyn Read,
        family: Family,
        begin: &[u8],
        end: &[u8],
    ) -> Result<Self, StorageError> {
        let mut keys = Vec::new();
        store.scan(family, begin, end, Direction::Forward, &mut |key, _| {
            keys.push(key.to_vec());
            if keys.len() < MIN_RANGE_ENTRIES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let keys = (keys.len() < MIN_RANGE_ENTRIES).then_some(keys);
        Ok(Self { family, begin: begin.to_vec(), end: end.to_vec(), keys })
    }

    /// Deletes every entry of the span.
    pub fn delete(&self, batch: &mut WriteBatch) {
        match &self.keys {
            Some(keys) => keys.iter().for_each(|key| batch.delete(self.family, key)),
            None => batch.delete_range(self.family, &self.begin, &self.end),
        }
    }
}
