//! What may be there: every commit in its order, and the state that a first part of them makes.

use std::collections::{BTreeMap, BTreeSet};

use tidelog::record::MarkerKind;
use tidelog::types::ProducerIdentity;

/// What one commit does.
#[derive(Debug, Clone)]
pub enum Effect {
    Append(Vec<Sent>),
    /// A transactional id is held by this producer from now on; what was open is aborted.
    Init {
        id: usize,
        producer: ProducerIdentity,
    },
    Add {
        id: usize,
        partitions: Vec<usize>,
    },
    Stage {
        id: usize,
        group: usize,
        partition: usize,
        offset: i64,
    },
    Commit {
        group: usize,
        partition: usize,
        offset: i64,
    },
    /// The open transaction ends, if one is open, and the producer goes on as this one.
    End {
        id: usize,
        kind: MarkerKind,
        marker_epoch: i16,
        next: ProducerIdentity,
    },
}

/// A batch.
#[derive(Debug, Clone)]
pub struct Sent {
    pub partition: usize,
    pub producer: ProducerIdentity,
    pub first_sequence: i32,
    pub count: i32,
    pub value: String,
    pub is_transactional: bool,
}

/// A record or a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Record { value: String, producer_id: i64, is_transactional: bool },
    Marker { kind: MarkerKind, producer: ProducerIdentity },
}

/// What a partition knows of a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub epoch: i16,
    /// First sequence, count and base offset, the newest last; five at most.
    pub batches: Vec<(i32, i32, i64)>,
    pub open: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partition {
    pub log: Vec<Entry>,
    pub producers: BTreeMap<i64, Known>,
    /// Producer, first offset, marker.
    pub aborted: Vec<(i64, i64, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id {
    pub producer: ProducerIdentity,
    pub is_open: bool,
    pub partitions: BTreeSet<usize>,
    /// Offset and the commit that requested it, by group and partition.
    pub staged: BTreeMap<(usize, usize), (i64, usize)>,
}

/// The state behind some commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub partitions: Vec<Partition>,
    pub ids: BTreeMap<usize, Id>,
    /// Offset and the commit that requested it.
    pub groups: BTreeMap<(usize, usize), (i64, usize)>,
}

impl Partition {
    pub fn end(&self) -> i64 {
        i64::try_from(self.log.len()).expect("it is small")
    }

    pub fn last_stable(&self) -> i64 {
        self.producers.values().filter_map(|known| known.open).min().unwrap_or(self.end())
    }

    /// The values below an offset that belong to no open and no aborted transaction.
    pub fn committed(&self, below: i64) -> Vec<&str> {
        let stable = usize::try_from(below).expect("it is small");
        let visible = self.log[..stable].iter().zip(0i64..);
        let values = visible.filter_map(|(entry, offset)| match entry {
            Entry::Record { value, producer_id, is_transactional } => {
                let mut aborted = self.aborted.iter();
                let is_aborted = *is_transactional
                    && aborted.any(|(id, first, marker)| {
                        id == producer_id && (*first..=*marker).contains(&offset)
                    });
                let known = self.producers.get(producer_id);
                let open = known.and_then(|known| known.open);
                let is_open = *is_transactional && open.is_some_and(|first| first <= offset);
                (!is_aborted && !is_open).then_some(value.as_str())
            }
            Entry::Marker { .. } => None,
        });
        values.collect()
    }

    /// Where a batch of these sequences is stored already.
    pub fn stored(&self, sent: &Sent) -> Option<i64> {
        let known = self.producers.get(&sent.producer.producer_id)?;
        let mut batches = known.batches.iter();
        let same =
            batches.find(|(first, count, _)| (*first, *count) == (sent.first_sequence, sent.count));
        same.filter(|_| known.epoch == sent.producer.producer_epoch).map(|(_, _, base)| *base)
    }

    fn append(&mut self, sent: &Sent) {
        if self.stored(sent).is_some() {
            return;
        }
        let base = self.end();
        let known = self.of_epoch(sent.producer);
        known.batches.push((sent.first_sequence, sent.count, base));
        if known.batches.len() > 5 {
            known.batches.remove(0);
        }
        if sent.is_transactional {
            known.open = known.open.or(Some(base));
        }
        for at in 0..sent.count {
            self.log.push(Entry::Record {
                value: format!("{}-{at}", sent.value),
                producer_id: sent.producer.producer_id,
                is_transactional: sent.is_transactional,
            });
        }
    }

    fn of_epoch(&mut self, producer: ProducerIdentity) -> &mut Known {
        let epoch = producer.producer_epoch;
        let new = || Known { epoch, batches: Vec::new(), open: None };
        let known = self.producers.entry(producer.producer_id).or_insert_with(new);
        if known.epoch != epoch {
            known.batches.clear();
            known.epoch = epoch;
        }
        known
    }

    fn mark(&mut self, kind: MarkerKind, producer: ProducerIdentity) {
        let marker = self.end();
        let open = self.of_epoch(producer).open.take();
        if let (MarkerKind::Abort, Some(first)) = (kind, open) {
            self.aborted.push((producer.producer_id, first, marker));
        }
        self.log.push(Entry::Marker { kind, producer });
    }
}

impl State {
    fn new(partition_count: usize) -> Self {
        let partitions = vec![Partition::default(); partition_count];
        Self { partitions, ids: BTreeMap::new(), groups: BTreeMap::new() }
    }

    fn apply(&mut self, number: usize, effect: &Effect) {
        match effect {
            Effect::Append(batches) => {
                batches.iter().for_each(|sent| self.partitions[sent.partition].append(sent));
            }
            Effect::Init { id, producer } => {
                if let Some(before) = self.ids.get(id).filter(|held| held.is_open).cloned() {
                    let marker_epoch = before.producer.producer_epoch + 1;
                    self.end(*id, MarkerKind::Abort, marker_epoch, *producer, number);
                }
                let held = Id {
                    producer: *producer,
                    is_open: false,
                    partitions: BTreeSet::new(),
                    staged: BTreeMap::new(),
                };
                self.ids.insert(*id, held);
            }
            Effect::Add { id, partitions } => {
                let held = self.ids.get_mut(id).expect("it was initialized");
                held.is_open = true;
                held.partitions.extend(partitions);
            }
            Effect::Stage { id, group, partition, offset } => {
                let held = self.ids.get_mut(id).expect("it was initialized");
                held.is_open = true;
                held.staged.insert((*group, *partition), (*offset, number));
            }
            Effect::Commit { group, partition, offset } => {
                self.groups.insert((*group, *partition), (*offset, number));
            }
            Effect::End { id, kind, marker_epoch, next } => {
                self.end(*id, *kind, *marker_epoch, *next, number);
            }
        }
    }

    fn end(
        &mut self,
        id: usize,
        kind: MarkerKind,
        marker_epoch: i16,
        next: ProducerIdentity,
        _number: usize,
    ) {
        let held = self.ids.get_mut(&id).expect("it was initialized");
        let producer = ProducerIdentity { producer_epoch: marker_epoch, ..held.producer };
        for partition in std::mem::take(&mut held.partitions) {
            self.partitions[partition].mark(kind, producer);
        }
        for (place, staged) in std::mem::take(&mut held.staged) {
            let committed = self.groups.get(&place);
            if kind == MarkerKind::Commit && committed.is_none_or(|before| before.1 < staged.1) {
                self.groups.insert(place, staged);
            }
        }
        held.is_open = false;
        held.producer = next;
    }
}

/// The history, and how much of it must survive what.
#[derive(Debug)]
pub struct Model {
    effects: Vec<Effect>,
    /// The states behind 0, 1, 2 ... of them.
    states: Vec<State>,
    /// So many survive a power loss.
    synced: usize,
    /// So many were acknowledged.
    acknowledged: usize,
}

impl Model {
    pub fn new(partition_count: usize) -> Self {
        let states = vec![State::new(partition_count)];
        Self { effects: Vec::new(), states, synced: 0, acknowledged: 0 }
    }

    pub fn state(&self) -> &State {
        self.states.last().expect("there is the first one")
    }

    /// A commit that may exist from now on.
    pub fn attempt(&mut self, effect: Effect) {
        let mut state = self.state().clone();
        state.apply(self.effects.len() + 1, &effect);
        self.effects.push(effect);
        self.states.push(state);
    }

    /// All that was attempted is acknowledged.
    pub fn acknowledge(&mut self, is_synced: bool) {
        self.acknowledged = self.effects.len();
        if is_synced {
            self.synced = self.acknowledged;
        }
    }

    /// The states that may be found after a crash, the newest first.
    pub fn candidates(&self, is_power_loss: bool) -> impl Iterator<Item = (usize, &State)> {
        let least = if is_power_loss { self.synced } else { self.acknowledged };
        self.states.iter().enumerate().skip(least).rev()
    }

    /// After a crash so many commits are there, and survive whatever comes.
    pub fn recovered(&mut self, count: usize) {
        self.effects.truncate(count);
        self.states.truncate(count + 1);
        (self.synced, self.acknowledged) = (count, count);
    }
}
