//! The running broker: its listeners, its connections, and their end.

mod connection;
mod health;
mod listener;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tidelog::Engine;
use tidelog::clock::Clock;
use tidelog::error::StorageError;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub use self::health::End;

use self::health::Landmark;
use crate::audit::Audit;
use crate::context::{
    Context, LISTS_AT_A_TIME, LOOKUPS_AT_A_TIME, Limits, Node, OFFSET_READS_AT_A_TIME,
    decompressions_at_a_time,
};
use crate::groups::Coordinator;
use crate::metrics::{self, Metrics, engine as engine_figures, http};
use crate::profile::Rules;
use crate::security::Security;
use crate::wire::budget::MemoryBudget;

/// How a broker is started.
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The host and port that clients are told; where they listen, if it is none.
    pub advertise: Option<(String, u16)>,
    /// Where `/metrics` is, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
    /// The id of the cluster of one.
    pub cluster_id: String,
    /// The rules of producing and reading.
    pub rules: Rules,
    /// Users and grants.
    pub security: Security,
    /// TLS, where connections want it.
    pub tls: Option<TlsAcceptor>,
    /// Whether anybody may connect from elsewhere without logging in.
    pub insecure: bool,
    /// Every limit.
    pub limits: Limits,
    /// Where logins, refusals and changes are noted.
    pub audit: Audit,
    /// Files of the engine that stay what they are for as long as it is open: where one is gone or
    /// another, its folder was removed or replaced.
    pub landmarks: Vec<PathBuf>,
}

impl Config {
    /// A broker there, by these rules, of the cluster with this id, that asks nobody to log in,
    /// with every limit at its default.
    #[must_use]
    pub fn new(listen: SocketAddr, rules: Rules, cluster_id: impl Into<String>) -> Self {
        Self {
            listen,
            advertise: None,
            metrics_listen: None,
            cluster_id: cluster_id.into(),
            rules,
            security: Security::default(),
            tls: None,
            insecure: false,
            limits: Limits::default(),
            audit: Audit::default(),
            landmarks: Vec::new(),
        }
    }
}

/// Why a broker does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Others than this machine could connect without logging in.
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// The listener is on every address, and none was given for clients to use.
    NoName {
        /// The address.
        listen: SocketAddr,
    },
    /// A file of the engine that cannot be found.
    Landmark {
        /// Where it should be.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system answered.
        source: io::Error,
    },
}

/// A broker that runs.
#[derive(Debug)]
pub struct Broker {
    context: Arc<Context>,
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    end: watch::Receiver<Option<End>>,
    slots: Arc<Semaphore>,
    accepting: JoinHandle<()>,
    /// What runs beside the connections.
    beside: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Listens, and answers from now on.
    ///
    /// # Errors
    /// [`StartError`]; nothing listens then.
    pub async fn start(
        config: Config,
        engine: Engine,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let Config { listen, advertise, security, limits, .. } = config;
        if security.users.is_none() && !listen.ip().is_loopback() && !config.insecure {
            return Err(StartError::Open { listen });
        }
        if advertise.is_none() && listen.ip().is_unspecified() {
            return Err(StartError::NoName { listen });
        }
        let landmarks = config.landmarks.iter().map(|path| {
            let source = |source| StartError::Landmark { path: path.clone(), source };
            Landmark::new(path).map_err(source)
        });
        let landmarks = landmarks.collect::<Result<Vec<_>, _>>()?;
        let (listener, address) = bind(listen).await?;
        let figures = match config.metrics_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let (host, port) = advertise.unwrap_or_else(|| (address.ip().to_string(), address.port()));
        let (stop, draining) = watch::channel(false);
        let coordinator = Coordinator::new(engine.clone(), Arc::clone(&clock), limits.groups);
        let context = Arc::new(Context {
            node: Node { host, port, cluster_id: config.cluster_id },
            groups: Arc::new(coordinator),
            engine,
            rules: config.rules,
            security,
            limits,
            budget: MemoryBudget::new(limits.max_memory_bytes),
            lists: Semaphore::new(LISTS_AT_A_TIME),
            decompressions: Semaphore::new(decompressions_at_a_time()),
            offset_reads: Semaphore::new(OFFSET_READS_AT_A_TIME),
            lookups: Semaphore::new(LOOKUPS_AT_A_TIME),
            audit: config.audit,
            metrics: Metrics::default(),
            clock,
            draining,
        });
        let slots = Arc::new(Semaphore::new(limits.connections() as usize));
        let accepting = tokio::spawn(listener::accept(
            Arc::clone(&context),
            listener,
            config.tls,
            Arc::clone(&slots),
        ));
        let metrics_address = figures.as_ref().map(|&(_, address)| address);
        let mut beside = run_groups(&context.groups);
        let (ended, end) = watch::channel(None);
        beside.push(tokio::spawn(health::watch(Arc::clone(&context), landmarks, ended)));
        if let Some((listener, _)) = figures {
            let pages = Arc::new(pages(&context, &end));
            let (connections, time) = (limits.metrics_connections, limits.metrics_timeout);
            let limits = http::Limits { connections, time };
            beside.push(tokio::spawn(http::serve(listener, pages, limits)));
        }
        Ok(Self { context, address, metrics_address, stop, end, slots, accepting, beside })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/metrics` is.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// What the handlers borrow.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until the broker cannot go on as it did, which was logged with its cause.
    pub async fn end(&self) -> End {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        match ended {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    /// Accepts nothing more, lets requests that are under way end, and closes the engine.
    ///
    /// # Errors
    /// What the engine says on closing.
    pub async fn stop(self) -> Result<(), StorageError> {
        self.stop.send_replace(true);
        self.accepting.abort();
        let limits = &self.context.limits;
        let all = limits.connections();
        if timeout(limits.drain, self.slots.acquire_many(all)).await.is_err() {
            let left = all as usize - self.slots.available_permits();
            tracing::warn!(connections = left, "connections did not end in time and are dropped");
        }
        for task in &self.beside {
            task.abort();
        }
        let engine = self.context.engine.clone();
        tokio::task::spawn_blocking(move || engine.close())
            .await
            .expect("closing the engine does not panic")
    }
}

/// Lets groups do what is due, and their offsets expire.
fn run_groups(groups: &Arc<Coordinator>) -> Vec<JoinHandle<()>> {
    let due = Arc::clone(groups);
    let due = tokio::spawn(async move { due.run().await });
    vec![due, tokio::spawn(Arc::clone(groups).run_expiry())]
}

/// What is served beside the listener of clients.
fn pages(context: &Arc<Context>, end: &watch::Receiver<Option<End>>) -> http::Pages {
    let figures = {
        let context = Arc::clone(context);
        move || {
            let own = context.metrics.text() + &context.groups.text();
            let audit = metrics::audit_text(context.audit.dropped());
            own + &audit + &engine_figures::text(&context.engine.metrics())
        }
    };
    let (end, draining) = (end.clone(), context.draining.clone());
    let ready = move || match *end.borrow() {
        Some(End::Halted) => Err("the engine has halted"),
        Some(End::FolderLost) => Err("the data folder is lost"),
        None if *draining.borrow() => Err("the broker stops"),
        None => Ok(()),
    };
    http::Pages { figures: Box::new(figures), ready: Box::new(ready) }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("rules", &self.rules)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { listen } => write!(
                f,
                "others could connect without logging in: give `--users`, or `--insecure` if \
                 that is meant: listen={listen}"
            ),
            Self::NoName { listen } => write!(
                f,
                "a broker on every address must say what clients call it: give `--advertise`: \
                 listen={listen}"
            ),
            Self::Listen { address, .. } => write!(f, "could not listen: address={address}"),
            Self::Landmark { path, .. } => {
                write!(f, "a file of the engine cannot be found: path={}", path.display())
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. } | Self::Landmark { source, .. } => Some(source),
            Self::Open { .. } | Self::NoName { .. } => None,
        }
    }
}
