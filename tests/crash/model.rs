//! What the engine has promised: every commit in its order, and which of them must be there after a stop.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use tidelog::record::{HEADER_BYTES, stamp};
use tidelog::types::PartitionId;
use tidelog::{Offset, TopicId};

pub const TIMESTAMP_TYPE: &str = "message.timestamp.type";
pub const RETENTION_BYTES: &str = "retention.bytes";
pub const LOG_TIME: &str = "LogAppendTime";

/// What one commit does.
#[derive(Debug, Clone)]
pub enum Effect {
    /// A life of the engine begins or ends, or batches are moved: no state changes.
    Silent,
    Create {
        name: String,
        partition_count: u32,
        settings: BTreeMap<String, String>,
        /// Once the engine has told it.
        id: Option<TopicId>,
    },
    Delete {
        name: String,
    },
    Grow {
        name: String,
        total_count: u32,
    },
    Alter {
        name: String,
        setting: String,
        value: Option<String>,
    },
    /// A log start moves, as somebody asked.
    Trim {
        name: String,
        partition: u32,
        offset: Offset,
    },
    /// Retention takes what is too much in each partition.
    Retain,
    GroupOffset {
        name: String,
        partition: u32,
        offset: Offset,
    },
    Append {
        leader_epoch: i32,
        append_time_ms: i64,
        batches: Vec<Appended>,
    },
}

/// A batch as the caller gave it.
#[derive(Debug, Clone)]
pub struct Appended {
    pub name: String,
    pub partition: u32,
    pub bytes: Bytes,
    pub record_count: u32,
}

/// The topics at one place of the history.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub topics: BTreeMap<String, TopicState>,
    /// What the one group has committed, by topic and partition.
    pub group: BTreeMap<(String, u32), Offset>,
}

#[derive(Debug, Clone)]
pub struct TopicState {
    pub id: Option<TopicId>,
    /// The commit that made it.
    pub made_by: usize,
    pub settings: BTreeMap<String, String>,
    /// All batches that were ever there.
    pub partitions: Vec<Vec<Batch>>,
    /// The log starts.
    pub starts: Vec<Offset>,
}

/// A batch in its partition.
#[derive(Debug, Clone)]
pub struct Batch {
    pub base_offset: Offset,
    pub record_count: u32,
    pub leader_epoch: i32,
    /// The time that its header has in place of the producer's.
    pub log_time_ms: Option<i64>,
    pub bytes: Bytes,
}

impl Batch {
    pub fn end_offset(&self) -> Offset {
        self.base_offset + i64::from(self.record_count)
    }

    /// The batch as it must be served, to the byte.
    pub fn served(&self) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        if let Some(time) = self.log_time_ms {
            bytes[22] |= 0x08;
            bytes[35..43].copy_from_slice(&time.to_be_bytes());
            let crc = crc32c::crc32c(&bytes[21..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        assert!(bytes.len() > HEADER_BYTES);
        stamp(&mut bytes, self.base_offset, self.leader_epoch);
        bytes
    }
}

impl TopicState {
    pub fn log_end(&self, partition: usize) -> Offset {
        self.partitions[partition].last().map_or(0, Batch::end_offset)
    }

    /// The batches that are still there: the log start may lie inside of the first.
    pub fn live(&self, partition: usize) -> impl Iterator<Item = &Batch> {
        let start = self.starts[partition];
        self.partitions[partition].iter().filter(move |batch| batch.end_offset() > start)
    }

    /// Where retention by size moves the log start.
    fn retained_start(&self, partition: usize) -> Offset {
        let limit = self.settings.get(RETENTION_BYTES).and_then(|limit| limit.parse().ok());
        let mut start = self.starts[partition];
        let Some(limit) = limit else { return start };
        let mut left: usize = self.live(partition).map(|batch| batch.bytes.len()).sum();
        for batch in self.live(partition) {
            left -= batch.bytes.len();
            if left < limit {
                break;
            }
            start = batch.end_offset();
        }
        start
    }

    fn keeps_log_time(&self) -> bool {
        self.settings.get(TIMESTAMP_TYPE).is_some_and(|value| value == LOG_TIME)
    }
}

impl State {
    /// Whether a run of retention finds anything.
    pub fn exceeds_limits(&self) -> bool {
        let exceeds = |topic: &TopicState| {
            (0..topic.starts.len()).any(|index| topic.retained_start(index) > topic.starts[index])
        };
        self.topics.values().any(exceeds)
    }

    /// The state behind the commit of this number. A commit that cannot follow changes nothing: it
    /// was refused, or stands behind one that is not there.
    fn apply(&mut self, number: usize, effect: &Effect) {
        match effect {
            Effect::Silent => {}
            Effect::Create { name, partition_count, settings, id } => {
                let topic = TopicState {
                    id: *id,
                    made_by: number,
                    settings: settings.clone(),
                    partitions: vec![Vec::new(); *partition_count as usize],
                    starts: vec![0; *partition_count as usize],
                };
                self.topics.insert(name.clone(), topic);
            }
            Effect::Delete { name } => {
                self.topics.remove(name);
                self.group.retain(|(topic, _), _| topic != name);
            }
            Effect::Trim { name, partition, offset } => {
                let Some(topic) = self.topics.get_mut(name) else { return };
                let start = &mut topic.starts[*partition as usize];
                *start = (*start).max(*offset);
            }
            Effect::Retain => {
                for topic in self.topics.values_mut() {
                    let partitions = 0..topic.starts.len();
                    topic.starts = partitions.map(|index| topic.retained_start(index)).collect();
                }
            }
            Effect::GroupOffset { name, partition, offset } => {
                if self.topics.contains_key(name) {
                    self.group.insert((name.clone(), *partition), *offset);
                }
            }
            Effect::Grow { name, total_count } => {
                if let Some(topic) = self.topics.get_mut(name) {
                    topic.partitions.resize(*total_count as usize, Vec::new());
                    topic.starts.resize(*total_count as usize, 0);
                }
            }
            Effect::Alter { name, setting, value } => {
                let Some(topic) = self.topics.get_mut(name) else { return };
                match value {
                    Some(value) => topic.settings.insert(setting.clone(), value.clone()),
                    None => topic.settings.remove(setting),
                };
            }
            Effect::Append { leader_epoch, append_time_ms, batches } => {
                for batch in batches {
                    self.append(*leader_epoch, *append_time_ms, batch);
                }
            }
        }
    }

    fn append(&mut self, leader_epoch: i32, append_time_ms: i64, appended: &Appended) {
        let Some(topic) = self.topics.get_mut(&appended.name) else { return };
        let partition = appended.partition as usize;
        let batch = Batch {
            base_offset: topic.log_end(partition),
            record_count: appended.record_count,
            leader_epoch,
            log_time_ms: topic.keeps_log_time().then_some(append_time_ms),
            bytes: appended.bytes.clone(),
        };
        topic.partitions[partition].push(batch);
    }
}

/// What may never be given to two: over all lives, and whatever a crash takes.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The checksum of the batch that a leader epoch and an offset of a partition name.
    names: HashMap<(TopicId, u32, i32, Offset), u32>,
    /// The commit that made a topic.
    topics: HashMap<TopicId, usize>,
    partitions: HashMap<PartitionId, (TopicId, usize)>,
}

impl Given {
    pub fn batch(&mut self, topic: TopicId, partition: u32, batch: &Batch) -> Result<(), String> {
        let served = batch.served();
        let crc = crc32c::crc32c(&served[21..]);
        for offset in batch.base_offset..batch.end_offset() {
            let name = (topic, partition, batch.leader_epoch, offset);
            if *self.names.entry(name).or_insert(crc) != crc {
                return Err(format!(
                    "epoch {} and offset {offset} of partition {partition} of {topic} name two \
                     records",
                    batch.leader_epoch
                ));
            }
        }
        Ok(())
    }

    pub fn topic(&mut self, topic: TopicId, made_by: usize) -> Result<(), String> {
        if *self.topics.entry(topic).or_insert(made_by) != made_by {
            return Err(format!("the topic id {topic} was given twice"));
        }
        Ok(())
    }

    pub fn partition(
        &mut self,
        id: PartitionId,
        topic: TopicId,
        index: usize,
    ) -> Result<(), String> {
        let (owner, place) = *self.partitions.entry(id).or_insert((topic, index));
        if (owner, place) != (topic, index) {
            return Err(format!("the partition id {id} was given twice: {owner} and {topic}"));
        }
        Ok(())
    }
}

/// The history, and how much of it must survive what.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Commit n is at n - 1. Those behind `acked` may exist or not.
    history: Vec<Effect>,
    /// This many must be there after a killed process.
    acked: usize,
    /// This many must be there after a power loss.
    synced: usize,
    /// The state after all that is acknowledged.
    state: State,
    /// The state after all that is synced.
    synced_state: State,
    pub given: Given,
}

impl Model {
    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn commit_count(&self) -> usize {
        self.history.len()
    }

    pub fn effect(&self, number: usize) -> &Effect {
        &self.history[number - 1]
    }

    pub fn acked(&self) -> usize {
        self.acked
    }

    pub fn synced(&self) -> usize {
        self.synced
    }

    /// Notes a commit that may exist from now on; tells its number.
    pub fn attempt(&mut self, effect: Effect) -> usize {
        self.history.push(effect);
        self.history.len()
    }

    /// The commits from this one on do not exist, and never will.
    pub fn withdraw(&mut self, number: usize) {
        assert!(number > self.acked, "what was acknowledged is not withdrawn");
        self.history.truncate(number - 1);
    }

    /// Up to this commit all was acknowledged.
    pub fn acknowledge(&mut self, number: usize) {
        while self.acked < number {
            self.acked += 1;
            self.state.apply(self.acked, &self.history[self.acked - 1]);
        }
    }

    /// Up to this commit all survives a power loss.
    pub fn settle(&mut self, number: usize) {
        while self.synced < number {
            self.synced += 1;
            self.synced_state.apply(self.synced, &self.history[self.synced - 1]);
        }
    }

    /// Notes the id that a topic got.
    pub fn name_topic(&mut self, number: usize, topic: TopicId) {
        if let Effect::Create { id, .. } = &mut self.history[number - 1] {
            *id = Some(topic);
        }
        for state in [&mut self.state, &mut self.synced_state] {
            let made = state.topics.values_mut().find(|made| made.made_by == number);
            if let Some(made) = made {
                made.id = Some(topic);
            }
        }
    }

    /// The state behind this many commits. REQUIRES: not less than are synced.
    pub fn state_at(&self, number: usize) -> State {
        let mut state = self.synced_state.clone();
        for at in self.synced..number {
            state.apply(at + 1, &self.history[at]);
        }
        state
    }

    /// The engine was opened with this many commits, and some that only began a life.
    pub fn reopened(&mut self, number: usize, sessions: usize) {
        let state = self.state_at(number);
        self.history.truncate(number);
        self.history.resize_with(number + sessions, || Effect::Silent);
        self.acked = number + sessions;
        self.synced = self.acked;
        self.state = state.clone();
        self.synced_state = state;
    }
}
