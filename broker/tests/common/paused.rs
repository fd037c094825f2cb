//! A broker whose time stands still until a test moves it: its clock, and the timers of its runtime.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tidelog::clock::Clock;
use tidelog::testing::{ManualClock, MemoryDisk, SystemFiles};
use tidelog::{Engine, EngineConfig};
use tidelog_broker::context::Context;
use tidelog_broker::server::{Broker, Config};

use super::client::Client;
use super::config;

/// The time of day at first.
const NOW_MS: i64 = 1_700_000_000_000;

/// What the thread of the broker is told.
enum Order {
    Advance(Duration, mpsc::Sender<()>),
    Stop,
}

/// A broker on a temporary folder, with the index in memory.
pub struct PausedBroker {
    pub engine: Engine,
    pub context: Arc<Context>,
    clock: Arc<ManualClock>,
    address: SocketAddr,
    directory: PathBuf,
    orders: tokio::sync::mpsc::UnboundedSender<Order>,
    thread: Option<JoinHandle<()>>,
    limits: tidelog_broker::context::Limits,
    disk: MemoryDisk,
}

impl PausedBroker {
    pub fn new() -> Self {
        Self::start(config())
    }

    pub fn start(config: Config) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidelog-broker-paused-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let disk = MemoryDisk::new();
        let limits = config.limits;
        let engine = open(&directory, &disk, &clock);
        let (address, context, orders, thread) = run(config, engine.clone(), &clock);
        let thread = Some(thread);
        Self { engine, context, clock, address, directory, orders, thread, limits, disk }
    }

    /// Stops the broker, and starts another on its data.
    pub fn restart(&mut self) {
        self.stop();
        let mut config = config();
        config.limits = self.limits;
        self.engine = open(&self.directory, &self.disk, &self.clock);
        let (address, context, orders, thread) = run(config, self.engine.clone(), &self.clock);
        self.address = address;
        self.context = context;
        self.orders = orders;
        self.thread = Some(thread);
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Lets time pass, and whatever is due happen.
    pub fn advance(&self, time: Duration) {
        self.clock.advance_ms(u64::try_from(time.as_millis()).expect("a time of a test"));
        let (done, wait) = mpsc::channel();
        self.orders.send(Order::Advance(time, done)).expect("the broker runs");
        wait.recv().expect("the broker runs");
    }

    /// Lets time pass on the clock only: no timer sees it.
    pub fn advance_quietly(&self, time: Duration) {
        self.clock.advance_ms(u64::try_from(time.as_millis()).expect("a time of a test"));
    }

    pub fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.orders.send(Order::Stop);
            thread.join().expect("the broker stops cleanly");
        }
    }
}

impl Drop for PausedBroker {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn open(directory: &std::path::Path, disk: &MemoryDisk, clock: &Arc<ManualClock>) -> Engine {
    Engine::builder(directory)
        .config(EngineConfig::default().segment_bytes(1 << 20).disk_reserve_bytes(0))
        .clock(Arc::clone(clock) as Arc<dyn Clock>)
        .files(Arc::new(SystemFiles))
        .store(Arc::new(disk.clone()))
        .open()
        .expect("the engine opens")
}

type Running =
    (SocketAddr, Arc<Context>, tokio::sync::mpsc::UnboundedSender<Order>, JoinHandle<()>);

/// Runs a broker on a thread of its own. Its runtime would move its time forward by itself when it
/// has nothing to do, but not while something blocks: so something does, to the end.
fn run(config: Config, engine: Engine, clock: &Arc<ManualClock>) -> Running {
    let (orders, mut ordered) = tokio::sync::mpsc::unbounded_channel();
    let (started, wait) = mpsc::channel();
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime starts");
        let (ended, end) = mpsc::channel::<()>();
        runtime.spawn_blocking(move || end.recv());
        runtime.block_on(async {
            let broker = Broker::start(config, engine, clock).await.expect("the broker starts");
            let told = (broker.address(), Arc::clone(broker.context()));
            started.send(told).expect("the test waits");
            while let Some(Order::Advance(time, done)) = ordered.recv().await {
                settle().await;
                tokio::time::advance(time).await;
                settle().await;
                let _ = done.send(());
            }
            broker.stop().await.expect("the broker stops cleanly");
        });
        drop(ended);
    });
    let (address, context) = wait.recv().expect("the broker starts");
    (address, context, orders, thread)
}

/// Lets every task run that can.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
