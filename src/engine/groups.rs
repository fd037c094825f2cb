//! What consumer groups have committed: a view of one group. Delegates only.

use std::fmt;
use std::sync::Arc;

use super::Engine;
use crate::base::types::{TimestampMs, TopicId};
use crate::core::{GroupOffset, Shared, check_offsets};
use crate::engine::handles::Consumer;
use crate::state::catalog::{Partition, Topic};
use crate::write::groups::{
    GroupError, Which, commit_group_offsets, group_offset, group_offsets, groups,
    remove_group_offsets,
};
use crate::write::producer_transaction::is_staged;

/// The offsets of one consumer group: by [`Engine::group`]. A group exists while it has committed
/// something; making this view costs nothing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "rocksdb")] {
/// # let name = format!("tidelog-doc-group-{}", std::process::id());
/// # let directory = std::env::temp_dir().join(name);
/// use tidelog::{Engine, EngineConfig, GroupOffset, TopicConfig};
///
/// # let engine = Engine::open(&directory, EngineConfig::default())?;
/// let orders = engine.create_topic("orders", TopicConfig::new(2))?;
/// let billing = engine.group("billing");
/// billing.commit([
///     (orders.partition(0)?, GroupOffset::new(17)),
///     (orders.partition(1)?, GroupOffset::new(4).metadata("half of a day")),
/// ])?;
/// assert_eq!(billing.offset(&orders.partition(0)?)?.map(|found| found.offset), Some(17));
/// assert_eq!(billing.offsets()?.len(), 2);
/// assert_eq!(engine.groups()?, ["billing"]);
/// # engine.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct ConsumerGroup<'a> {
    shared: &'a Arc<Shared>,
    name: &'a str,
}

impl Engine {
    /// What a consumer group has committed.
    #[must_use]
    pub fn group<'a>(&'a self, name: &'a str) -> ConsumerGroup<'a> {
        ConsumerGroup { shared: self.shared(), name }
    }

    /// The consumer groups that have committed something, in no order that means anything.
    ///
    /// # Errors
    /// [`GroupError`]: the storage.
    pub fn groups(&self) -> Result<Vec<String>, GroupError> {
        groups(self.shared())
    }

    /// A consumer of all partitions of a topic that goes on where its group has committed.
    ///
    /// # Errors
    /// [`GroupError`]: the group's name is too long, or the storage.
    pub fn consumer(&self, group: &str, topic: &Topic) -> Result<Consumer, GroupError> {
        Consumer::new(self.shared(), group, topic)
    }
}

impl<'a> ConsumerGroup<'a> {
    /// The name of the group.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// What the group has committed of a partition, if anything.
    ///
    /// # Errors
    /// [`GroupError`]: a name that is too long, or the storage.
    pub fn offset(&self, partition: &Partition) -> Result<Option<GroupOffset>, GroupError> {
        group_offset(self.shared, self.name, partition)
    }

    /// All that the group has committed.
    ///
    /// # Errors
    /// As [`ConsumerGroup::offset`].
    pub fn offsets(&self) -> Result<Vec<(Partition, GroupOffset)>, GroupError> {
        group_offsets(self.shared, self.name)
    }

    /// Commits offsets: all of them or none, buffered. Of one partition twice the last counts. They
    /// go with their topics.
    ///
    /// # Errors
    /// [`GroupError`]: a name that is too long, a negative offset, a topic that is gone, or the
    /// storage.
    pub fn commit(
        &self,
        offsets: impl IntoIterator<Item = (Partition, GroupOffset)>,
    ) -> Result<(), GroupError> {
        let offsets: Vec<_> = offsets.into_iter().collect();
        check_offsets(&offsets).map_err(GroupError::NegativeOffset)?;
        commit_group_offsets(self.shared, self.name, offsets)
    }

    /// Commits offsets as a client of the Kafka protocol has sent them: negative ones are kept as
    /// they are, because Kafka keeps them.
    ///
    /// # Errors
    /// As [`ConsumerGroup::commit`], but for negative offsets.
    pub fn commit_as_sent(
        &self,
        offsets: impl IntoIterator<Item = (Partition, GroupOffset)>,
    ) -> Result<(), GroupError> {
        commit_group_offsets(self.shared, self.name, offsets.into_iter().collect())
    }

    /// Whether an open producer transaction holds an offset of the group for this partition: what a
    /// consumer that asks for stable offsets must wait for (KIP-447).
    #[must_use]
    pub fn is_offset_staged(&self, partition: &Partition) -> bool {
        is_staged(self.shared, self.name, partition)
    }

    /// Forgets what the group has committed of these partitions. Returns of how many.
    ///
    /// # Errors
    /// As [`ConsumerGroup::offset`].
    pub fn remove_offsets(
        &self,
        partitions: impl IntoIterator<Item = Partition>,
    ) -> Result<usize, GroupError> {
        let which = Which::Of(partitions.into_iter().collect());
        remove_group_offsets(self.shared, self.name, which)
    }

    /// Forgets all that the group has committed. Returns of how many partitions.
    ///
    /// # Errors
    /// As [`ConsumerGroup::offset`].
    pub fn remove(&self) -> Result<usize, GroupError> {
        remove_group_offsets(self.shared, self.name, Which::All)
    }

    /// Forgets what the group has committed at this time of day or before, but for the partitions
    /// of some topics. Returns of how many partitions.
    ///
    /// # Errors
    /// As [`ConsumerGroup::offset`].
    pub fn expire_offsets(
        &self,
        committed_until: TimestampMs,
        except: Vec<TopicId>,
    ) -> Result<usize, GroupError> {
        remove_group_offsets(self.shared, self.name, Which::CommittedUntil(committed_until, except))
    }
}

impl fmt::Debug for ConsumerGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerGroup").field("name", &self.name).finish_non_exhaustive()
    }
}
