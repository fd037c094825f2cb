//! What a run does to an engine, drawn from its seed and from what exists.

use bytes::Bytes;
use tidelog::record::{BatchBuilder, Record};
use tidelog::{Durability, TimestampMs};

use crate::model::{Appended, RETENTION_BYTES, State};
use crate::random::Random;

/// The consumer group that commits offsets.
pub const GROUP: &str = "readers";

const NAMES: [&str; 4] = ["orders", "audit", "prices", "log-time"];
const TEN_YEARS_MS: i64 = 10 * 366 * 24 * 3600 * 1000;
const MAX_PARTITIONS: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Append(Append),
    /// Submitted one by one, and committed as one group.
    Together(Vec<Append>),
    Create {
        name: &'static str,
        partition_count: u32,
        log_time: bool,
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
        setting: &'static str,
        value: Option<String>,
    },
    Sync,
    /// Appends in the middle of a sync, before anything of the sync has ended.
    SyncWith(Append),
    Checkpoint,
    CheckpointWith(Append),
    Maintain,
    /// Deletes the records of a partition below an offset.
    DeleteRecords {
        name: String,
        partition: u32,
        offset: i64,
    },
    /// The group commits an offset.
    CommitOffset {
        name: String,
        partition: u32,
        offset: i64,
    },
    StepClock(i64),
    Close,
    Drop,
}

/// An append transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    pub parts: Vec<Part>,
    pub durability: Durability,
}

/// A batch of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub partition: u32,
    pub record_count: u32,
    pub value_bytes: usize,
}

impl Part {
    /// The batch; its content is unlike that of any other number.
    pub fn build(&self, number: u64, now_ms: TimestampMs) -> Appended {
        let mut builder = BatchBuilder::new();
        for record in 0..u64::from(self.record_count) {
            let mut content = Random::at(&[number, record]);
            let value: Vec<u8> = (0..self.value_bytes).map(|_| content.next() as u8).collect();
            let key = format!("key-{number:08}-{record:02}");
            let record = Record::new(key.as_str(), &value[..]).header("of", "tidelog");
            builder.push(&record.timestamp(now_ms)).expect("it is small");
        }
        let bytes: Bytes = builder.finish().expect("it has records");
        let record_count = self.record_count;
        Appended { name: self.name.clone(), partition: self.partition, bytes, record_count }
    }
}

/// What else a run may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds {
    /// Chance in a hundred that commits come in the middle of syncs.
    pub interleave_percent: u64,
    /// Whether lives end by closing and dropping too.
    pub reopens: bool,
}

impl Operation {
    /// The next operation of a run.
    pub fn invent(random: &mut Random, state: &State, kinds: Kinds) -> Self {
        let names: Vec<&String> = state.topics.keys().collect();
        if names.is_empty() {
            return Self::create(random, state).expect("no name is taken");
        }
        let name = names[random.below(names.len() as u64) as usize].clone();
        match random.below(100) {
            0..=5 => Self::create(random, state).unwrap_or(Self::Delete { name }),
            6..=9 => Self::Delete { name },
            10..=12 => {
                let count = state.topics[&name].partitions.len() as u32;
                match count < MAX_PARTITIONS {
                    true => Self::Grow { name, total_count: count + 1 },
                    false => Self::Delete { name },
                }
            }
            13..=15 => Self::alter(random, name),
            16..=20 => match random.chance(kinds.interleave_percent) {
                true => Self::SyncWith(append(random, state, Durability::Buffered)),
                false => Self::Sync,
            },
            21..=25 => match random.chance(kinds.interleave_percent) {
                true => Self::CheckpointWith(append(random, state, Durability::Buffered)),
                false => Self::Checkpoint,
            },
            26..=30 => Self::Maintain,
            31..=34 => {
                let topic = &state.topics[&name];
                let partition = random.below(topic.partitions.len() as u64) as u32;
                let end = topic.log_end(partition as usize);
                let offset = random.below(end as u64 + 1) as i64;
                // Often all of it, so that segments are freed.
                let offset = if random.chance(50) { end } else { offset };
                match random.chance(60) {
                    true => Self::DeleteRecords { name, partition, offset },
                    false => Self::CommitOffset { name, partition, offset },
                }
            }
            35..=38 => Self::StepClock(match random.below(4) {
                0 => TEN_YEARS_MS,
                1 => -TEN_YEARS_MS,
                _ => random.below(10_000) as i64 - 1000,
            }),
            39..=40 if kinds.reopens => Self::Close,
            41..=42 if kinds.reopens => Self::Drop,
            39..=50 => {
                let count = 2 + random.below(3);
                let appends = (0..count).map(|_| {
                    let durability = any_durability(random, 30);
                    append(random, state, durability)
                });
                Self::Together(appends.collect())
            }
            _ => {
                let durability = any_durability(random, 35);
                Self::Append(append(random, state, durability))
            }
        }
    }

    fn create(random: &mut Random, state: &State) -> Option<Self> {
        let free = NAMES.iter().filter(|&&name| !state.topics.contains_key(name));
        let free: Vec<&'static str> = free.copied().collect();
        let name = *free.get(random.below(NAMES.len() as u64) as usize).or(free.first())?;
        let partition_count = 1 + random.below(3) as u32;
        Some(Self::Create { name, partition_count, log_time: name == "log-time" })
    }

    fn alter(random: &mut Random, name: String) -> Self {
        let (setting, value) = match random.below(4) {
            0 => (RETENTION_BYTES, Some((500 + random.below(4000)).to_string())),
            1 => (RETENTION_BYTES, None),
            2 => ("message.timestamp.type", Some("LogAppendTime".to_owned())),
            _ => ("message.timestamp.type", Some("CreateTime".to_owned())),
        };
        Self::Alter { name, setting, value }
    }
}

fn any_durability(random: &mut Random, sync_percent: u64) -> Durability {
    if random.chance(sync_percent) { Durability::Sync } else { Durability::Buffered }
}

/// Batches for some partitions of what exists, at times two for one of them.
pub fn append(random: &mut Random, state: &State, durability: Durability) -> Append {
    let partitions: Vec<(&String, u32)> = state
        .topics
        .iter()
        .flat_map(|(name, topic)| (0..topic.partitions.len() as u32).map(move |at| (name, at)))
        .collect();
    let count = random.pick(&[1, 1, 2, 3, 4]);
    let is_large = random.chance(3);
    let part = |_| {
        let (name, partition) = partitions[random.below(partitions.len() as u64) as usize];
        // Few sizes, so that batches and frames of different commits are of equal length.
        let value_bytes = match is_large {
            true => 5000,
            false => random.pick(&[0, 30, 30, 30, 300, 300, 900]),
        };
        let record_count = random.pick(&[1, 1, 1, 2, 5]);
        Part { name: name.clone(), partition, record_count, value_bytes }
    };
    Append { parts: (0..count).map(part).collect(), durability }
}
