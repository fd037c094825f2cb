//! The commits that change topics. Each is alone in its group, so it plans by what is published.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::error::{
    AddPartitionsError, AlterTopicError, CreateTopicError, DeleteTopicError, Settled,
};
use crate::base::rules::Rule;
use crate::base::types::{CommitSequence, Durability, PartitionId, TopicName};
use crate::commit::{Change, Failure, FramePlan};
use crate::config::{ConfigChange, TopicConfig, TopicConfigError, TopicSettings};
use crate::core::{PartitionIds, Shared, Span};
use crate::index::keyspace::{
    MetaKey, TopicRow, decode_group_key, encode_counter, partition_key, partition_range, topic_key,
};
use crate::index::store::Direction;
use crate::index::write_batch::{Family, WriteBatch};
use crate::state::catalog::{PartitionCell, Topic};
use crate::state::partition::PartitionState;
use crate::state::producer::Producers;

/// The families whose keys begin with a partition.
const OF_PARTITIONS: [Family; 5] =
    [Family::Partitions, Family::Batches, Family::Index, Family::Producers, Family::Aborted];

fn durability(shared: &Shared) -> Durability {
    if shared.pipeline.broken().breaks(Rule::D1TopicsSynced) {
        return Durability::Buffered;
    }
    Durability::Sync
}

/// What a change of topics that was not made tells.
fn failed<E: Settled>(failure: Failure<E>) -> E {
    match failure {
        Failure::Refused(reason) => reason,
        Failure::NotWritten(error) => E::not_written(error),
        Failure::Unknown(error) => E::unknown(error),
    }
}

/// Checks the limits of the whole engine.
pub(super) fn check_totals(
    shared: &Shared,
    new_topics: u64,
    new_partitions: u32,
) -> Result<(), CreateTopicError> {
    let (topics, partitions) = shared.catalog.counts();
    let (topic_count, partition_count) =
        (topics + new_topics, partitions + u64::from(new_partitions));
    let topic_limit = u64::from(shared.config.max_topics);
    let partition_limit = u64::from(shared.config.max_partitions);
    if topic_count > topic_limit || partition_count > partition_limit {
        return Err(CreateTopicError::EngineFull {
            topic_count,
            partition_count,
            topic_limit,
            partition_limit,
        });
    }
    Ok(())
}

/// Checks whether a topic may have this many partitions in all.
pub(super) fn check_growth(
    shared: &Shared,
    topic: &Topic,
    total_count: u32,
) -> Result<(), AddPartitionsError> {
    if topic.is_deleted() {
        return Err(AddPartitionsError::UnknownTopic { name: topic.name().to_string() });
    }
    let partition_count = topic.partition_count();
    if total_count <= partition_count {
        return Err(AddPartitionsError::NotMore { partition_count, total_count });
    }
    let limit = shared.config.max_partitions_per_topic;
    let fits = TopicConfig::new(total_count).check_partition_count(limit);
    fits.map_err(|error| AddPartitionsError::Limit(CreateTopicError::Config(error)))?;
    check_totals(shared, 0, total_count - partition_count).map_err(AddPartitionsError::Limit)
}

/// Partitions that nobody knows yet.
type NewPartitions = Vec<Arc<PartitionCell>>;

/// Gives out partition ids and puts the rows of new partitions.
fn new_partitions(
    partition_ids: &PartitionIds,
    first_index: u32,
    count: u32,
    batch: &mut WriteBatch,
) -> Option<NewPartitions> {
    let ids = partition_ids.give(count)?;
    let next = encode_counter(u64::from(ids.end));
    batch.put(Family::Meta, &MetaKey::NextPartitionId.key(), &next);
    let mut row = Vec::new();
    let cells = ids.zip(first_index..).map(|(id, index)| {
        let state = PartitionState::default();
        state.row().encode(&mut row);
        batch.put(Family::Partitions, &partition_key(PartitionId(id)), &row);
        let index = i32::try_from(index).expect("a topic's partitions are limited");
        Arc::new(PartitionCell::new(PartitionId(id), index, state, Producers::default()))
    });
    let cells: NewPartitions = cells.collect();
    assert!(cells.len() == count as usize, "as many as were asked for");
    Some(cells)
}

fn put_topic(
    batch: &mut WriteBatch,
    topic: &Topic,
    settings: &TopicSettings,
    new: &[Arc<PartitionCell>],
) {
    let cells = topic.cells();
    let config = settings.overrides().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let row = TopicRow {
        id: topic.id(),
        partitions: cells.iter().chain(new).map(|cell| cell.id()).collect(),
        config: config.collect(),
    };
    batch.put(Family::Topics, topic_key(topic.name()), &row.encode());
}

/// Makes a topic.
pub(super) struct CreateTopic {
    pub(super) shared: Arc<Shared>,
    pub(super) name: TopicName,
    pub(super) config: TopicConfig,
}

impl CreateTopic {
    fn try_plan(&self, plan: &mut FramePlan) -> Result<Topic, CreateTopicError> {
        if let Some(taken_by) = self.shared.catalog.taken_by(&self.name) {
            return Err(CreateTopicError::taken(&self.name, taken_by));
        }
        let partition_count = self.config.partition_count();
        check_totals(&self.shared, 1, partition_count)?;
        let cells =
            new_partitions(&self.shared.partition_ids, 0, partition_count, &mut plan.write_batch);
        let cells = cells.ok_or(CreateTopicError::PartitionIdsExhausted)?;
        let id = self.shared.new_topic_id();
        let topic = Topic::new(self.name.clone(), id, self.config.settings().clone(), cells);
        put_topic(&mut plan.write_batch, &topic, self.config.settings(), &[]);
        Ok(topic)
    }
}

impl Change for CreateTopic {
    type Planned = Topic;
    type Refusal = CreateTopicError;
    type Answer = Result<Topic, CreateTopicError>;

    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.config.partition_count())
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<Topic, CreateTopicError> {
        self.try_plan(frame)
    }

    fn durability(&self, _planned: &Topic) -> Durability {
        durability(&self.shared)
    }

    fn undo(&mut self, _planned: Topic) {
        // Partition ids that were given out stay unused: none is ever given twice.
    }

    fn publish(&mut self, topic: Topic, _sequence: CommitSequence) -> Self::Answer {
        self.shared.catalog.insert(topic.clone());
        Ok(topic)
    }

    fn fail(self, failure: Failure<CreateTopicError>) -> Self::Answer {
        Err(failed(failure))
    }
}

/// Deletes a topic.
pub(super) struct DeleteTopic {
    pub(super) shared: Arc<Shared>,
    pub(super) topic: Topic,
}

impl DeleteTopic {
    fn try_plan(&self, batch: &mut WriteBatch) -> Result<(), DeleteTopicError> {
        if self.topic.is_deleted() {
            return Err(DeleteTopicError::UnknownTopic { name: self.topic.name().to_string() });
        }
        batch.delete(Family::Topics, topic_key(self.topic.name()));
        let mut ids: Vec<PartitionId> = self.topic.cells().iter().map(|cell| cell.id()).collect();
        ids.sort_unstable();
        assert!(ids.is_sorted_by(|a, b| a < b), "a partition id is given once");
        for run in ids.chunk_by(|a, b| a.0 + 1 == b.0) {
            let (begin, _) = partition_range(run[0]);
            let (_, end) = partition_range(run[run.len() - 1]);
            for family in OF_PARTITIONS {
                let span = Span::look_up(&*self.shared.pipeline.store, family, &begin, &end);
                span.map_err(DeleteTopicError::Storage)?.delete(batch);
            }
        }
        self.delete_group_offsets(batch)
    }

    /// What groups have committed of the topic goes with it. The keys begin with the group, so all
    /// are looked at: topics are deleted rarely, and offsets are committed all the time.
    fn delete_group_offsets(&self, batch: &mut WriteBatch) -> Result<(), DeleteTopicError> {
        let mut failed = Ok(());
        let store = &self.shared.pipeline.store;
        let scanned =
            store.scan(Family::Groups, &[], &[0xff; 3], Direction::Forward, &mut |key, _| {
                match decode_group_key(key) {
                    Ok((topic, _)) if topic == self.topic.id() => batch.delete(Family::Groups, key),
                    Ok(_) => {}
                    Err(corruption) => failed = Err(corruption),
                }
                if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        scanned.map_err(DeleteTopicError::Storage)?;
        failed.map_err(|corruption| DeleteTopicError::Storage(corruption.into()))
    }
}

impl Change for DeleteTopic {
    type Planned = ();
    type Refusal = DeleteTopicError;
    type Answer = Result<(), DeleteTopicError>;

    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.topic.partition_count())
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<(), DeleteTopicError> {
        self.try_plan(&mut frame.write_batch)
    }

    fn durability(&self, _planned: &()) -> Durability {
        durability(&self.shared)
    }

    fn undo(&mut self, _planned: ()) {}

    fn publish(&mut self, _planned: (), _sequence: CommitSequence) -> Self::Answer {
        let cells = self.topic.cells();
        let known = cells.iter().map(|cell| cell.producers().len() as u64).sum();
        self.shared.forget_producers(known);
        self.shared.catalog.remove(&self.topic);
        // What died with it was not looked up: that would take too long here.
        self.shared.pipeline.live.forget();
        Ok(())
    }

    fn fail(self, failure: Failure<DeleteTopicError>) -> Self::Answer {
        Err(failed(failure))
    }
}

/// Adds partitions.
pub(super) struct GrowTopic {
    pub(super) shared: Arc<Shared>,
    pub(super) topic: Topic,
    pub(super) total_count: u32,
}

impl GrowTopic {
    fn try_plan(&self, batch: &mut WriteBatch) -> Result<NewPartitions, AddPartitionsError> {
        check_growth(&self.shared, &self.topic, self.total_count)?;
        let first = self.topic.partition_count();
        let cells =
            new_partitions(&self.shared.partition_ids, first, self.total_count - first, batch);
        let exhausted = AddPartitionsError::Limit(CreateTopicError::PartitionIdsExhausted);
        let cells = cells.ok_or(exhausted)?;
        let next = i32::try_from(first).unwrap_or(i32::MAX);
        debug_assert!(cells.first().is_none_or(|cell| cell.index() == next), "without a gap");
        put_topic(batch, &self.topic, &self.topic.settings(), &cells);
        Ok(cells)
    }
}

impl Change for GrowTopic {
    type Planned = NewPartitions;
    type Refusal = AddPartitionsError;
    type Answer = Result<Topic, AddPartitionsError>;

    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.total_count)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<NewPartitions, AddPartitionsError> {
        self.try_plan(&mut frame.write_batch)
    }

    fn durability(&self, _planned: &NewPartitions) -> Durability {
        durability(&self.shared)
    }

    fn undo(&mut self, _planned: NewPartitions) {
        // As with a topic that is made: their ids stay unused.
    }

    fn publish(&mut self, planned: NewPartitions, _sequence: CommitSequence) -> Self::Answer {
        self.shared.catalog.grow(&self.topic, planned);
        Ok(self.topic.clone())
    }

    fn fail(self, failure: Failure<AddPartitionsError>) -> Self::Answer {
        Err(failed(failure))
    }
}

/// Changes a topic's configuration.
pub(super) struct AlterTopic {
    pub(super) shared: Arc<Shared>,
    pub(super) topic: Topic,
    pub(super) alteration: Alteration,
}

/// What is to become of a topic's settings.
#[derive(Debug, Clone)]
pub enum Alteration {
    /// These changes, on top of what is set.
    Changes(Vec<ConfigChange>),
    /// These settings and no others.
    Replace(TopicSettings),
}

impl Alteration {
    pub(super) fn of(&self, settings: &TopicSettings) -> Result<TopicSettings, TopicConfigError> {
        match self {
            Self::Changes(changes) => settings.alter(changes),
            Self::Replace(settings) => Ok(settings.clone()),
        }
    }
}

impl AlterTopic {
    fn try_plan(&self, batch: &mut WriteBatch) -> Result<TopicSettings, AlterTopicError> {
        if self.topic.is_deleted() {
            return Err(AlterTopicError::UnknownTopic { name: self.topic.name().to_string() });
        }
        let settings = self.alteration.of(&self.topic.settings());
        let settings = settings.map_err(AlterTopicError::Config)?;
        put_topic(batch, &self.topic, &settings, &[]);
        Ok(settings)
    }
}

impl Change for AlterTopic {
    type Planned = TopicSettings;
    type Refusal = AlterTopicError;
    type Answer = Result<(), AlterTopicError>;

    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.topic.partition_count())
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, frame: &mut FramePlan) -> Result<TopicSettings, AlterTopicError> {
        self.try_plan(&mut frame.write_batch)
    }

    fn durability(&self, _planned: &TopicSettings) -> Durability {
        durability(&self.shared)
    }

    fn undo(&mut self, _planned: TopicSettings) {}

    fn publish(&mut self, planned: TopicSettings, _sequence: CommitSequence) -> Self::Answer {
        self.topic.set_settings(planned);
        Ok(())
    }

    fn fail(self, failure: Failure<AlterTopicError>) -> Self::Answer {
        Err(failed(failure))
    }
}
