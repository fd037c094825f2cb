//! The commits that change topics. Each is alone in its group, so it plans by what is published.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::error::{
    AddPartitionsError, AlterTopicError, CreateTopicError, DeleteTopicError, Settled,
};
use crate::base::rules::Rule;
use crate::base::types::{CommitSequence, Durability, PartitionId, TopicName};
use crate::commit::{Change, FramePlan, Moment, Outcome, Promise, Verdict};
use crate::config::{ConfigChange, TopicConfig, TopicConfigError, TopicSettings};
use crate::core::{Shared, Span};
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

/// The promise of a change of topics.
pub(super) type Told<T, E> = Promise<Result<T, E>>;

fn durability(shared: &Shared) -> Durability {
    if shared.pipeline.broken().breaks(Rule::D1TopicsSynced) {
        return Durability::Buffered;
    }
    Durability::Sync
}

fn tell<T: Send + 'static, E: Settled>(
    told: Told<T, E>,
    outcome: Outcome,
    done: impl FnOnce() -> T,
    refused: Option<E>,
) {
    told.fulfil(match outcome {
        Outcome::Committed { .. } => Ok(done()),
        Outcome::Refused => Err(refused.expect("a refused change keeps its reason")),
        Outcome::NotWritten(error) => Err(E::not_written(error)),
        Outcome::Unknown(error) => Err(E::unknown(error)),
    });
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

/// Gives out partition ids and puts the rows of new partitions.
fn new_partitions(
    shared: &Shared,
    first_index: u32,
    count: u32,
    batch: &mut WriteBatch,
) -> Option<Vec<Arc<PartitionCell>>> {
    let mut next = shared.next_partition_id.lock();
    // The greatest id is never given: it has no range behind it.
    let end = next.0.checked_add(count).filter(|end| *end < u32::MAX)?;
    let ids = next.0..end;
    next.0 = end;
    drop(next);
    batch.put(Family::Meta, &MetaKey::NextPartitionId.key(), &encode_counter(u64::from(end)));
    let mut row = Vec::new();
    let cells = ids.zip(first_index..).map(|(id, index)| {
        let state = PartitionState::default();
        state.row().encode(&mut row);
        batch.put(Family::Partitions, &partition_key(PartitionId(id)), &row);
        let index = i32::try_from(index).expect("a topic's partitions are limited");
        Arc::new(PartitionCell::new(PartitionId(id), index, state, Producers::default()))
    });
    Some(cells.collect())
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
    shared: Arc<Shared>,
    name: TopicName,
    config: TopicConfig,
    told: Told<Topic, CreateTopicError>,
    planned: Option<Topic>,
    refused: Option<CreateTopicError>,
}

impl CreateTopic {
    pub(super) fn new(
        shared: Arc<Shared>,
        name: TopicName,
        config: TopicConfig,
        told: Told<Topic, CreateTopicError>,
    ) -> Self {
        Self { shared, name, config, told, planned: None, refused: None }
    }

    fn try_plan(&self, plan: &mut FramePlan) -> Result<Topic, CreateTopicError> {
        if let Some(taken_by) = self.shared.catalog.taken_by(&self.name) {
            return Err(CreateTopicError::taken(&self.name, taken_by));
        }
        let partition_count = self.config.partition_count();
        check_totals(&self.shared, 1, partition_count)?;
        let cells = new_partitions(&self.shared, 0, partition_count, &mut plan.write_batch);
        let cells = cells.ok_or(CreateTopicError::PartitionIdsExhausted)?;
        let id = self.shared.new_topic_id();
        let topic = Topic::new(self.name.clone(), id, self.config.settings().clone(), cells);
        put_topic(&mut plan.write_batch, &topic, self.config.settings(), &[]);
        Ok(topic)
    }
}

impl Change for CreateTopic {
    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.config.partition_count())
    }

    fn durability(&self) -> Durability {
        durability(&self.shared)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        match self.try_plan(plan) {
            Ok(topic) => self.planned = Some(topic),
            Err(error) => {
                self.refused = Some(error);
                return Verdict::Refused;
            }
        }
        Verdict::Planned
    }

    fn undo(&mut self) {
        // Partition ids that were given out stay unused: none is ever given twice.
        self.planned = None;
    }

    fn publish(&mut self, _sequence: CommitSequence) {
        let topic = self.planned.clone().expect("a published change was planned");
        self.shared.catalog.insert(topic);
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        let planned = self.planned;
        let done = || planned.expect("a committed change was planned");
        tell(self.told, outcome, done, self.refused);
    }
}

/// Deletes a topic.
pub(super) struct DeleteTopic {
    shared: Arc<Shared>,
    topic: Topic,
    told: Told<(), DeleteTopicError>,
    refused: Option<DeleteTopicError>,
}

impl DeleteTopic {
    pub(super) fn new(shared: Arc<Shared>, topic: Topic, told: Told<(), DeleteTopicError>) -> Self {
        Self { shared, topic, told, refused: None }
    }

    fn try_plan(&self, batch: &mut WriteBatch) -> Result<(), DeleteTopicError> {
        if self.topic.is_deleted() {
            return Err(DeleteTopicError::UnknownTopic { name: self.topic.name().to_string() });
        }
        batch.delete(Family::Topics, topic_key(self.topic.name()));
        let mut ids: Vec<PartitionId> = self.topic.cells().iter().map(|cell| cell.id()).collect();
        ids.sort_unstable();
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
    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.topic.partition_count())
    }

    fn durability(&self) -> Durability {
        durability(&self.shared)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        match self.try_plan(&mut plan.write_batch) {
            Ok(()) => Verdict::Planned,
            Err(error) => {
                self.refused = Some(error);
                Verdict::Refused
            }
        }
    }

    fn undo(&mut self) {}

    fn publish(&mut self, _sequence: CommitSequence) {
        let cells = self.topic.cells();
        let known = cells.iter().map(|cell| cell.producers().len() as u64).sum();
        self.shared.forget_producers(known);
        self.shared.catalog.remove(&self.topic);
        // What died with it was not looked at: that would take too long here.
        self.shared.pipeline.space.forget();
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        tell(self.told, outcome, || (), self.refused);
    }
}

/// Adds partitions.
pub(super) struct GrowTopic {
    shared: Arc<Shared>,
    topic: Topic,
    total_count: u32,
    told: Told<Topic, AddPartitionsError>,
    planned: Vec<Arc<PartitionCell>>,
    refused: Option<AddPartitionsError>,
}

impl GrowTopic {
    pub(super) fn new(
        shared: Arc<Shared>,
        topic: Topic,
        total_count: u32,
        told: Told<Topic, AddPartitionsError>,
    ) -> Self {
        Self { shared, topic, total_count, told, planned: Vec::new(), refused: None }
    }

    fn try_plan(&mut self, batch: &mut WriteBatch) -> Result<(), AddPartitionsError> {
        check_growth(&self.shared, &self.topic, self.total_count)?;
        let first = self.topic.partition_count();
        let cells = new_partitions(&self.shared, first, self.total_count - first, batch);
        let exhausted = AddPartitionsError::Limit(CreateTopicError::PartitionIdsExhausted);
        self.planned = cells.ok_or(exhausted)?;
        put_topic(batch, &self.topic, &self.topic.settings(), &self.planned);
        Ok(())
    }
}

impl Change for GrowTopic {
    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.total_count)
    }

    fn durability(&self) -> Durability {
        durability(&self.shared)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        match self.try_plan(&mut plan.write_batch) {
            Ok(()) => Verdict::Planned,
            Err(error) => {
                self.refused = Some(error);
                Verdict::Refused
            }
        }
    }

    fn undo(&mut self) {
        self.planned.clear();
    }

    fn publish(&mut self, _sequence: CommitSequence) {
        self.shared.catalog.grow(&self.topic, std::mem::take(&mut self.planned));
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        let topic = self.topic;
        tell(self.told, outcome, || topic, self.refused);
    }
}

/// Changes a topic's configuration.
pub(super) struct AlterTopic {
    shared: Arc<Shared>,
    topic: Topic,
    alteration: Alteration,
    told: Told<(), AlterTopicError>,
    planned: Option<TopicSettings>,
    refused: Option<AlterTopicError>,
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
    pub(super) fn new(
        shared: Arc<Shared>,
        topic: Topic,
        alteration: Alteration,
        told: Told<(), AlterTopicError>,
    ) -> Self {
        Self { shared, topic, alteration, told, planned: None, refused: None }
    }

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
    fn queued_bytes(&self) -> u64 {
        128 * u64::from(self.topic.partition_count())
    }

    fn durability(&self) -> Durability {
        durability(&self.shared)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn may_use_reserve(&self) -> bool {
        true
    }

    fn plan(&mut self, _moment: &Moment, plan: &mut FramePlan) -> Verdict {
        match self.try_plan(&mut plan.write_batch) {
            Ok(settings) => self.planned = Some(settings),
            Err(error) => {
                self.refused = Some(error);
                return Verdict::Refused;
            }
        }
        Verdict::Planned
    }

    fn undo(&mut self) {
        self.planned = None;
    }

    fn publish(&mut self, _sequence: CommitSequence) {
        self.topic.set_settings(self.planned.take().expect("a published change was planned"));
    }

    fn answer(self: Box<Self>, outcome: Outcome) {
        tell(self.told, outcome, || (), self.refused);
    }
}
