//! Worlds for tests that say each step themselves.

use tidelog::internals::rules::BrokenRules;
use tidelog::{Durability, TopicConfig};

use crate::machine::Stop;
use crate::operations::{Append, Kinds, Operation, Part};
use crate::recovery::Disturbance;
use crate::world::{Flow, World};

pub const SCRIPTED: Kinds = Kinds { interleave_percent: 0, reopens: true };

/// An engine that was made just now, with the topics `orders` (3 partitions) and `audit` (1).
pub fn started(seed: u64, broken: BrokenRules) -> World {
    let mut world = World::new(seed, broken, SCRIPTED);
    assert_eq!(world.try_open(0), Ok(true));
    for (name, partition_count) in [("orders", 3), ("audit", 1)] {
        let made = world.run(&Operation::Create { name, partition_count, log_time: false });
        assert_eq!(made, Ok(Flow::GoesOn));
    }
    world
}

/// A batch of one record for each of these partitions, with a value of so many bytes.
pub fn append(parts: &[(&str, u32, usize)], durability: Durability) -> Append {
    let part = |&(name, partition, value_bytes): &(&str, u32, usize)| Part {
        name: name.to_owned(),
        partition,
        record_count: 1,
        value_bytes,
    };
    Append { parts: parts.iter().map(part).collect(), durability }
}

/// The parts of a transaction over three partitions of two topics.
pub const THREE: [(&str, u32, usize); 3] =
    [("orders", 0, 100), ("audit", 0, 30), ("orders", 2, 300)];

impl World {
    pub fn commit(&mut self, parts: &[(&str, u32, usize)], durability: Durability) -> Flow {
        let operation = Operation::Append(append(parts, durability));
        self.must(&operation)
    }

    /// Runs an operation that breaks no promise.
    pub fn must(&mut self, operation: &Operation) -> Flow {
        let ran = self.run(operation);
        ran.unwrap_or_else(|what| panic!("{what}\n{}", self.trace.join("\n")))
    }

    /// Stops, opens again and holds what is there against the model.
    pub fn restart(&mut self, stop: Stop) -> Result<(), String> {
        self.stop(stop);
        self.recover(stop, Disturbance::None).map(|_| ())
    }

    pub fn must_restart(&mut self, stop: Stop) {
        let restarted = self.restart(stop);
        restarted.unwrap_or_else(|what| panic!("{what}\n{}", self.trace.join("\n")));
    }

    /// The same world after its engine was left alone: on a copy of its machine.
    pub fn image(&self, seed: u64) -> Self {
        self.fork(crate::random::Random::at(&[seed]))
    }
}

/// A topic's configuration that takes records of any time.
pub fn any_time(partition_count: u32) -> TopicConfig {
    let config = TopicConfig::new(partition_count);
    config.set("message.timestamp.after.max.ms", "9223372036854775807").expect("it is legal")
}
