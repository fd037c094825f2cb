//! What an open engine shows: topics, offsets, epochs and every byte; and what of it must be as the model says.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tidelog::internals::keyspace::TopicRow;
use tidelog::internals::store::{Direction, Read};
use tidelog::internals::write_batch::Family;
use tidelog::record::Batches;
use tidelog::{
    Engine, FetchOptions, LeaderEpoch, Partition, Topic, TopicId, Visibility, Watermarks,
};

use crate::model::{Given, State, TopicState};
use crate::operations::GROUP;

#[derive(Debug, PartialEq, Eq)]
pub struct Observed {
    topics: BTreeMap<String, ObservedTopic>,
    /// What the group has committed, by topic and partition.
    group: BTreeMap<(String, u32), i64>,
}

#[derive(Debug, PartialEq, Eq)]
struct ObservedTopic {
    id: TopicId,
    settings: BTreeMap<String, String>,
    partitions: Vec<ObservedPartition>,
}

#[derive(Debug, PartialEq, Eq)]
struct ObservedPartition {
    watermarks: Watermarks,
    bytes: Vec<u8>,
}

impl Observed {
    /// All that the engine shows, read whole.
    pub fn of(engine: &Engine) -> Result<Self, String> {
        let mut topics = BTreeMap::new();
        for topic in engine.topics().list() {
            topics.insert(topic.name().to_string(), ObservedTopic::of(engine, &topic)?);
        }
        let group = engine.group(GROUP).offsets().map_err(|error| error.to_string())?;
        let group = group.into_iter().map(|(partition, committed)| {
            let name = partition.topic().name().to_string();
            ((name, partition.index().unsigned_abs()), committed.offset)
        });
        Ok(Self { topics, group: group.collect() })
    }

    /// Whether this is the state of the model; the first difference where it is not.
    pub fn compare(&self, state: &State) -> Result<(), String> {
        let names: Vec<&String> = self.topics.keys().collect();
        let expected: Vec<&String> = state.topics.keys().collect();
        if names != expected {
            return Err(format!("the topics are {names:?}, not {expected:?}"));
        }
        for (name, topic) in &self.topics {
            let compared = topic.compare(&state.topics[name]);
            compared.map_err(|what| format!("topic {name}: {what}"))?;
        }
        if self.group != state.group {
            return Err(format!("offsets {:?}, not {:?}", self.group, state.group));
        }
        Ok(())
    }

    /// The ids of the topics, each with the commit that made it.
    pub fn ids(&self, state: &State) -> Vec<(usize, TopicId)> {
        let made_by = |name: &String| state.topics[name].made_by;
        self.topics.iter().map(|(name, topic)| (made_by(name), topic.id)).collect()
    }
}

impl ObservedTopic {
    fn of(engine: &Engine, topic: &Topic) -> Result<Self, String> {
        let settings = topic.settings();
        let settings = settings.overrides().map(|(name, value)| (name.into(), value.into()));
        let partitions = topic.partitions();
        let read = partitions.iter().map(|partition| ObservedPartition::of(engine, partition));
        let partitions: Result<Vec<_>, String> = read.collect();
        let partitions = partitions.map_err(|what| format!("topic {}: {what}", topic.name()))?;
        Ok(Self { id: topic.id(), settings: settings.collect(), partitions })
    }

    fn compare(&self, expected: &TopicState) -> Result<(), String> {
        if expected.id.is_some_and(|id| id != self.id) {
            return Err(format!("it is another topic: id {}, not {:?}", self.id, expected.id));
        }
        if self.settings != expected.settings {
            return Err(format!("settings {:?}, not {:?}", self.settings, expected.settings));
        }
        if self.partitions.len() != expected.partitions.len() {
            let (found, expected) = (self.partitions.len(), expected.partitions.len());
            return Err(format!("{found} partitions, not {expected}"));
        }
        for (index, partition) in self.partitions.iter().enumerate() {
            let compared = partition.compare(expected, index);
            compared.map_err(|what| format!("partition {index}: {what}"))?;
        }
        Ok(())
    }
}

impl ObservedPartition {
    fn of(engine: &Engine, partition: &Partition) -> Result<Self, String> {
        let marks = engine.watermarks(partition).map_err(|error| format!("{error}"))?;
        let applied = engine.watermarks_of(partition, Visibility::Synced);
        let synced = applied.map_err(|error| format!("{error}"))?;
        for marks in [marks, synced] {
            let ordered = [marks.log_start, marks.last_stable, marks.high_watermark, marks.log_end];
            if !ordered.is_sorted() {
                return Err(format!("the watermarks are out of order: {marks:?}"));
            }
        }
        let mut bytes = Vec::new();
        let mut offset = marks.log_start;
        while offset < marks.log_end {
            let fetched = engine.fetch(partition, offset, FetchOptions::new());
            let fetched = fetched.map_err(|error| format!("offset {offset}: {error}"))?;
            if fetched.next_offset <= offset {
                return Err(format!("nothing is at offset {offset} of {marks:?}"));
            }
            bytes.extend_from_slice(&fetched.bytes);
            offset = fetched.next_offset;
        }
        Ok(Self { watermarks: marks, bytes })
    }

    fn compare(&self, topic: &TopicState, index: usize) -> Result<(), String> {
        let marks = self.watermarks;
        let (start, end) = (topic.starts[index], topic.log_end(index));
        if (marks.log_start, marks.log_end) != (start, end) {
            return Err(format!("{marks:?}, and its log should be {start}..{end}"));
        }
        let mut found = Batches::new(self.bytes.clone().into());
        for batch in topic.live(index) {
            let base_offset = batch.base_offset;
            let served = match found.next() {
                Some(Ok(served)) => served,
                Some(Err(error)) => return Err(format!("at offset {base_offset}: {error}")),
                None => return Err(format!("the batch at offset {base_offset} is missing")),
            };
            if served.bytes()[..] != batch.served()[..] {
                return Err(format!("the batch at offset {base_offset} has other bytes"));
            }
        }
        match found.next() {
            None => Ok(()),
            Some(_) => Err("there are more batches".into()),
        }
    }
}

/// Each leader epoch that has records ended where the next one with records began.
pub fn check_epochs(engine: &Engine, state: &State) -> Result<(), String> {
    for (name, topic) in &state.topics {
        let handle = engine.topic(name).ok_or("a topic is gone")?;
        for index in 0..topic.partitions.len() {
            let partition = handle.partition(index as i32).map_err(|error| error.to_string())?;
            let mut epochs: Vec<(LeaderEpoch, i64)> = Vec::new();
            for batch in topic.live(index) {
                match epochs.last_mut() {
                    Some(last) if last.0 == batch.leader_epoch => last.1 = batch.end_offset(),
                    Some(last) if last.0 > batch.leader_epoch => {
                        return Err(format!("epochs of {name}-{index} go back"));
                    }
                    _ => epochs.push((batch.leader_epoch, batch.end_offset())),
                }
            }
            for (epoch, end) in epochs {
                let told = engine.epoch_end(&partition, epoch);
                if told.is_none_or(|told| (told.leader_epoch, told.end_offset) != (epoch, end)) {
                    return Err(format!("epoch {epoch} of {name}-{index}: {told:?}, not {end}"));
                }
            }
        }
    }
    Ok(())
}

/// Ids and names are given once, over all lives.
pub fn check_given(index: &dyn Read, state: &State, given: &mut Given) -> Result<(), String> {
    for topic in state.topics.values() {
        let id = topic.id.ok_or("a topic has no id")?;
        given.topic(id, topic.made_by)?;
        for (partition, batches) in (0..).zip(&topic.partitions) {
            batches.iter().try_for_each(|batch| given.batch(id, partition, batch))?;
        }
    }
    let mut rows = Vec::new();
    let end = [0xff; 255];
    let scanned = index.scan(Family::Topics, &[], &end, Direction::Forward, &mut |key, value| {
        rows.push(TopicRow::decode(key, value));
        ControlFlow::Continue(())
    });
    scanned.map_err(|error| error.to_string())?;
    for row in rows {
        let (_, row) = row.map_err(|error| error.to_string())?;
        for (place, partition) in row.partitions.iter().enumerate() {
            given.partition(*partition, row.id, place)?;
        }
    }
    Ok(())
}
