//! The worlds that were, in the order of commits, and which of them a crash may leave.

use std::collections::HashMap;

use tidelog::{Record, TopicId};

use super::world::World;

/// INVARIANT: `synced <= certain < worlds.len()`.
pub(super) struct History {
    worlds: Vec<World>,
    /// All up to this one were written and published; what is behind it may exist or not.
    certain: usize,
    /// All up to this one survive power loss.
    synced: usize,
    /// What was read under a leader epoch: topic, partition, epoch and offset name one record.
    named: HashMap<(TopicId, usize, i32, i64), Record>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { worlds: vec![World::default()], certain: 0, synced: 0, named: HashMap::new() }
    }

    /// The newest world that may be.
    pub(super) fn last(&self) -> &World {
        &self.worlds[self.worlds.len() - 1]
    }

    /// Whether it is known which world there is.
    pub(super) fn is_certain(&self) -> bool {
        self.certain + 1 == self.worlds.len()
    }

    /// A commit was made that readers see, and so all before it. Gives its place in the order.
    pub(super) fn push(&mut self, world: World) -> usize {
        self.worlds.push(world);
        self.certain = self.worlds.len() - 1;
        self.certain
    }

    /// A commit failed in a way that leaves open whether it exists.
    pub(super) fn push_unknown(&mut self, world: World) {
        self.worlds.push(world);
    }

    /// All commits up to this one were acknowledged as synced.
    pub(super) fn sync_through(&mut self, place: usize) {
        self.synced = self.synced.max(place.min(self.certain));
    }

    /// All that was published is synced.
    pub(super) fn sync_all(&mut self) {
        self.synced = self.certain;
    }

    /// The worlds from the last one that is synced up to the published one, each with its place.
    pub(super) fn since_synced(&self) -> impl Iterator<Item = (usize, &World)> {
        self.worlds.iter().enumerate().take(self.certain + 1).skip(self.synced)
    }

    /// Takes the world that an engine shows while it runs.
    pub(super) fn check_live(&mut self, read: &World) {
        let allowed = &self.worlds[self.certain..];
        assert!(
            allowed.iter().any(|world| world.is(read)),
            "a reader sees {read:#?}\nand not one of the {} worlds up to {:#?}",
            allowed.len(),
            self.last()
        );
        self.note(read);
    }

    /// Takes the world that an open found, and forgets all others.
    pub(super) fn settle(&mut self, read: World, keeps_written: bool) {
        let least = if keeps_written { self.certain } else { self.synced };
        let found = self.worlds[least..].iter().any(|world| world.is(&read));
        assert!(
            found,
            "recovery found {read:#?}\nwhich is none of the worlds from number {least}, {:#?},\n\
             to number {}, {:#?}; it is number {:?}",
            self.worlds[least],
            self.worlds.len() - 1,
            self.last(),
            self.worlds.iter().position(|world| world.is(&read))
        );
        self.note(&read);
        self.worlds = vec![read];
        (self.certain, self.synced) = (0, 0);
    }

    fn note(&mut self, read: &World) {
        for topic in read.topics.values() {
            let id = topic.id.expect("an engine knows the ids of its topics");
            for (index, log) in topic.partitions.iter().enumerate() {
                for kept in log.iter() {
                    let name = (id, index, kept.leader_epoch, kept.record.offset);
                    let known = self.named.entry(name).or_insert_with(|| kept.record.clone());
                    assert_eq!(*known, kept.record, "{name:?} names two records");
                }
            }
        }
    }
}
