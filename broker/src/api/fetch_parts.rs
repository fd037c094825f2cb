//! The partitions that a Fetch request asks for, in its order: what can be read, and what cannot
//! and why.

use std::collections::HashMap;

use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::{FetchRequest, TopicName};
use tidelog::types::TopicId;
use tidelog::{Partition, Topic};
use uuid::Uuid;

use crate::context::{Context, Session};
use crate::fault::Fault;
use crate::security::Action;

/// The first version that names topics by id.
const BY_ID: i16 = 13;

/// One partition to read.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) partition: Partition,
    pub(super) offset: i64,
    pub(super) max_bytes: usize,
    pub(super) leader_epoch: i32,
    pub(super) last_fetched_epoch: i32,
}

/// What can be said of a partition before it is read.
#[derive(Debug)]
pub(super) enum Slot {
    /// It is not there, or not for this user.
    Refused(Fault),
    /// It is to be read.
    Wanted(Wanted),
}

/// A topic of the request, with the partitions asked for.
#[derive(Debug)]
pub(super) struct AskedTopic {
    pub(super) name: TopicName,
    pub(super) id: Uuid,
    pub(super) partitions: Vec<(i32, Slot)>,
}

/// A whole request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) topics: Vec<AskedTopic>,
}

impl Asked {
    /// How many partitions are asked for, each once.
    pub(super) fn partition_count(&self) -> usize {
        self.topics.iter().map(|topic| topic.partitions.len()).sum()
    }

    /// The same, and each partition refused for a fault of the whole request.
    pub(super) fn refused(mut self, fault: &Fault) -> Self {
        let slots = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        slots.for_each(|(_, slot)| *slot = Slot::Refused(fault.clone()));
        self
    }

    /// What is to be read, in order.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        let slots = self.topics.iter().flat_map(|topic| &topic.partitions);
        slots.filter_map(|(_, slot)| match slot {
            Slot::Wanted(wanted) => Some(wanted),
            Slot::Refused(_) => None,
        })
    }
}

/// Looks up what is asked for. Of a partition twice the last counts, at the place of the first.
pub(super) fn of(
    context: &Context,
    session: &Session,
    version: i16,
    request: &FetchRequest,
) -> Asked {
    let mut topics: Vec<AskedTopic> = Vec::new();
    let mut places: HashMap<(&str, Uuid), usize> = HashMap::new();
    let mut seen: HashMap<(usize, i32), usize> = HashMap::new();
    for asked in &request.topics {
        let found = if version >= BY_ID {
            let id = TopicId::from_bytes(asked.topic_id.into_bytes());
            context.topic_by_id(&session.access, Action::KafkaRead, id)
        } else {
            context.topic(&session.access, Action::KafkaRead, &asked.topic)
        };
        let place = *places.entry((asked.topic.as_str(), asked.topic_id)).or_insert_with(|| {
            let (name, id) = (asked.topic.clone(), asked.topic_id);
            topics.push(AskedTopic { name, id, partitions: Vec::new() });
            topics.len() - 1
        });
        for partition in &asked.partitions {
            let slot = slot(&found, partition);
            let list = &mut topics[place].partitions;
            let at = *seen.entry((place, partition.partition)).or_insert(list.len());
            match list.get_mut(at) {
                Some(twice) => twice.1 = slot,
                None => list.push((partition.partition, slot)),
            }
        }
    }
    Asked { topics }
}

fn slot(topic: &Result<Topic, Fault>, asked: &FetchPartition) -> Slot {
    let topic = match topic {
        Ok(topic) => topic,
        Err(fault) => return Slot::Refused(fault.clone()),
    };
    match topic.partition(asked.partition) {
        Err(_) => Slot::Refused(Fault::unknown()),
        Ok(partition) => Slot::Wanted(Wanted {
            partition,
            offset: asked.fetch_offset,
            max_bytes: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
            leader_epoch: asked.current_leader_epoch,
            last_fetched_epoch: asked.last_fetched_epoch,
        }),
    }
}
