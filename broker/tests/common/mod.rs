//! What the tests and the demo share: a client of raw requests, and a broker in this process.
#![allow(dead_code, reason = "each test file uses its part of this")]

pub mod bodies;
pub mod client;
pub mod direct;
pub mod paused;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidelog::clock::{Clock, SystemClock};
use tidelog::testing::{MemoryDisk, SystemFiles};
use tidelog::{Engine, EngineConfig, TopicConfig};
use tidelog_broker::context::Context;
use tidelog_broker::profile::{Profile, Rules};
use tidelog_broker::server::{Broker, Config};
use tokio::runtime::Runtime;

pub use client::Client;

/// A broker on a temporary folder, with the index in memory.
pub struct TestBroker {
    pub engine: Engine,
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub context: Arc<Context>,
    disk: MemoryDisk,
    directory: PathBuf,
    broker: Option<Broker>,
    runtime: Runtime,
}

/// The configuration of a broker of the tests: any port of loopback, the kafka profile.
pub fn config() -> Config {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Config::new(listen, Rules::new(Profile::Kafka, false, None), "dGlkZWxvZy10ZXN0cy0xMg")
}

impl TestBroker {
    pub fn new() -> Self {
        Self::start(config())
    }

    pub fn start(config: Config) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidelog-broker-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let disk = MemoryDisk::new();
        let engine = Engine::builder(&directory)
            .config(EngineConfig::default().segment_bytes(1 << 20).disk_reserve_bytes(0))
            .clock(Arc::clone(&clock))
            .files(Arc::new(SystemFiles))
            .store(Arc::new(disk.clone()))
            .open()
            .expect("the engine opens");
        let runtime = Runtime::new().expect("a runtime starts");
        let broker = runtime
            .block_on(Broker::start(config, engine.clone(), clock))
            .expect("the broker starts");
        Self {
            engine,
            address: broker.address(),
            metrics: broker.metrics_address(),
            context: Arc::clone(broker.context()),
            disk,
            directory,
            broker: Some(broker),
            runtime,
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn topic(&self, name: &str, partitions: u32) {
        self.engine.create_topic(name, TopicConfig::new(partitions)).expect("the topic is made");
    }

    /// The end of each partition of a topic.
    pub fn ends(&self, topic: &str) -> Vec<i64> {
        let topic = self.engine.topic(topic).expect("the topic exists");
        let end = |partition| self.engine.watermarks(partition).expect("it is there").log_end;
        topic.partitions().iter().map(end).collect()
    }

    /// Lets every write of the index fail from now on, as a broken disk does.
    pub fn break_index(&self) {
        self.disk.fail_write_after(0);
    }

    /// Whether the broker notices in time that its engine has halted.
    pub fn notices_halt(&self) -> bool {
        let broker = self.broker.as_ref().expect("the broker runs");
        let noticed = async { tokio::time::timeout(Duration::from_secs(20), broker.end()).await };
        self.runtime.block_on(noticed).is_ok()
    }

    /// Stops the broker as SIGTERM does.
    pub fn stop(&mut self) {
        if let Some(broker) = self.broker.take() {
            // A halted engine says so once more.
            let stopped = self.runtime.block_on(broker.stop());
            assert!(stopped.is_ok() || self.engine.metrics().halted, "{stopped:?}");
        }
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
