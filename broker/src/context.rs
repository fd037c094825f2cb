//! What every handler borrows: the engine, the rules, security, limits and figures.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tidelog::clock::Clock;
use tidelog::types::TopicId;
use tidelog::{Engine, Topic};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinError;

use crate::audit::Audit;
use crate::fault::Fault;
use crate::groups::{Coordinator, Settings};
use crate::metrics::Metrics;
use crate::profile::Rules;
use crate::security::{Access, Action, Security};
use crate::wire::budget::MemoryBudget;

/// The id of the only node.
pub const NODE_ID: i32 = 1;

/// Answers that list all there is, and are made at the same time.
pub const LISTS_AT_A_TIME: usize = 4;

/// Requests whose batches are decompressed at the same time, where there are fewer processors.
const LEAST_DECOMPRESSIONS: usize = 4;

/// How many requests have their batches decompressed at the same time. Each may hold what the
/// engine lets one batch decompress to, 64 MiB; more than there are processors would be no faster.
#[must_use]
pub fn decompressions_at_a_time() -> usize {
    available_parallelism().map_or(0, NonZero::get).max(LEAST_DECOMPRESSIONS)
}

/// Requests for many committed offsets that read them at the same time.
pub const OFFSET_READS_AT_A_TIME: usize = 16;

/// Records that are looked for by time at the same time.
pub const LOOKUPS_AT_A_TIME: usize = 4;

/// How this broker is called by clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The host that clients are told to connect to.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The id of the cluster of one.
    pub cluster_id: String,
}

/// Every limit of the broker.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest request, as Kafka's `socket.request.max.bytes`.
    pub max_request_bytes: usize,
    /// The largest request before the login.
    pub max_login_bytes: usize,
    /// What all requests and answers together may hold in memory.
    pub max_memory_bytes: usize,
    /// Connections at a time; more are closed at once.
    pub max_connections: usize,
    /// Connections from one address at a time; more are closed at once.
    pub max_connections_per_address: usize,
    /// The most that one Fetch answers with, however much is asked for.
    pub max_fetch_bytes: usize,
    /// The longest that one Fetch waits, however long it wants to.
    pub max_fetch_wait: Duration,
    /// How long a connection may be silent between two requests.
    pub idle: Duration,
    /// How long the next piece of a request may take to come, or of an answer to go.
    pub stall: Duration,
    /// How long a login may take from the connection on.
    pub login: Duration,
    /// How long requests under way may take once the broker is told to stop.
    pub drain: Duration,
    /// Connections to the listener of figures at a time.
    pub metrics_connections: usize,
    /// How long each of them may take.
    pub metrics_timeout: Duration,
    /// What holds for consumer groups.
    pub groups: Settings,
}

impl Limits {
    /// Connections at a time; as many as 32 bits can count are all.
    pub(crate) fn connections(&self) -> u32 {
        u32::try_from(self.max_connections).unwrap_or(u32::MAX)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_request_bytes: 100 * 1024 * 1024,
            max_login_bytes: 16 * 1024,
            max_memory_bytes: 512 * 1024 * 1024,
            max_connections: 4096,
            max_connections_per_address: 2048,
            max_fetch_bytes: 55 * 1024 * 1024,
            max_fetch_wait: Duration::from_secs(300),
            idle: Duration::from_secs(600),
            stall: Duration::from_secs(30),
            login: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            metrics_connections: 16,
            metrics_timeout: Duration::from_secs(10),
            groups: Settings::default(),
        }
    }
}

/// What every handler borrows.
#[derive(Debug)]
pub struct Context {
    /// The storage engine.
    pub engine: Engine,
    /// Consumer groups.
    pub groups: Arc<Coordinator>,
    /// How clients call this broker.
    pub node: Node,
    /// The rules of producing and reading.
    pub rules: Rules,
    /// Who may do what.
    pub security: Security,
    /// Every limit.
    pub limits: Limits,
    /// The memory of requests and answers.
    pub budget: MemoryBudget,
    /// Turns to make an answer that may be very long.
    pub lists: Semaphore,
    /// Turns to check a request with compressed batches: each is decompressed whole.
    pub decompressions: Semaphore,
    /// Turns to read many committed offsets.
    pub offset_reads: Semaphore,
    /// Turns to look for one record by time: its batch is decompressed, too.
    pub lookups: Semaphore,
    /// Where logins, refusals and changes are noted.
    pub audit: Audit,
    /// Figures for `/metrics`.
    pub metrics: Metrics,
    /// For figures only.
    pub clock: Arc<dyn Clock>,
    /// True once the broker is told to stop.
    pub draining: watch::Receiver<bool>,
}

/// What one connection is allowed to do, and how it calls itself.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// What it may do.
    pub access: Access,
}

impl Context {
    /// The topic of this name, where the connection may do this with it.
    ///
    /// # Errors
    /// The code for a missing grant goes before that for a missing topic.
    pub fn topic(&self, access: &Access, action: Action, name: &str) -> Result<Topic, Fault> {
        if !access.allows(action, name) {
            access.note_refusal(action, name);
            return Err(Fault::not_allowed());
        }
        self.engine.topic(name).ok_or_else(Fault::unknown)
    }

    /// The topic of this id, where the connection may do this with it.
    ///
    /// # Errors
    /// An id that nothing has is unknown to everybody.
    pub fn topic_by_id(
        &self,
        access: &Access,
        action: Action,
        id: TopicId,
    ) -> Result<Topic, Fault> {
        let topic = self.engine.topics().by_id(id).ok_or_else(Fault::unknown_id)?;
        if !access.allows(action, topic.name().as_str()) {
            access.note_refusal(action, topic.name().as_str());
            return Err(Fault::not_allowed());
        }
        Ok(topic)
    }
}

/// Runs work that waits for a disk, or computes for long, where no other connection waits for it.
/// A panic in it goes on in the caller, whose connection ends with it.
pub async fn off_the_loop<T, F>(context: &Arc<Context>, work: F) -> T
where
    T: Send + 'static,
    F: FnOnce(&Context) -> T + Send + 'static,
{
    let context = Arc::clone(context);
    match tokio::task::spawn_blocking(move || work(&context))
        .await
        .map_err(JoinError::try_into_panic)
    {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime is going down, and this task with it.
        Err(Err(_)) => std::future::pending().await,
    }
}
