//! The process `tidelog-broker`: reads its options, opens the engine, serves until it is to stop.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use parking_lot::Mutex;
use tidelog::clock::{Clock, SystemClock};
use tidelog::{Engine, EngineConfig, Recovered};
use tidelog_broker::audit::Audit;
use tidelog_broker::cluster_id;
use tidelog_broker::context::{Context, Limits};
use tidelog_broker::fault::sentence;
use tidelog_broker::options::open_files::{self, Room};
use tidelog_broker::options::{self, LogFormat, Problems, Serve, Source, Task};
use tidelog_broker::profile::Rules;
use tidelog_broker::security::tls::Certificate;
use tidelog_broker::security::users::{MAX_PASSWORD_BYTES, hash_password};
use tidelog_broker::security::{Loaded, SecurityFiles};
use tidelog_broker::server::{Broker, Config, End};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long the engine may take to close once requests have ended or were dropped.
const CLOSING: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let mut command = options::command();
    let matches = command.get_matches_mut();
    let outcome = match options::read(&matches) {
        Ok(task) => perform(task),
        Err(problems) => Err(problems.into()),
    };
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    if let Some(problems) = failure.downcast_ref::<Problems>() {
        command.error(ErrorKind::ValueValidation, problems).exit();
    }
    complain(&*failure);
    ExitCode::FAILURE
}

fn perform(task: Task) -> Result<(), Failure> {
    match task {
        Task::HashPassword => print_hash(),
        Task::Print(values) => {
            options::settle(&values)?;
            Ok(std::io::stdout().write_all(options::print(&values).as_bytes())?)
        }
        Task::Serve(values) => {
            let (serve, engine) = options::settle(&values)?;
            run(&serve, engine, values.source("max-connections") == Source::Default)
        }
    }
}

/// Writes an error and its causes to standard error.
fn complain(failure: &dyn Error) {
    // Where standard error is closed, nobody wants to know.
    let _ = writeln!(std::io::stderr(), "tidelog-broker: {}", sentence(failure));
}

fn print_hash() -> Result<(), Failure> {
    let mut password = Vec::new();
    let limit = MAX_PASSWORD_BYTES as u64 + 3;
    std::io::stdin().lock().take(limit).read_to_end(&mut password)?;
    let end = password.iter().position(|&byte| byte == b'\n' || byte == b'\r');
    password.truncate(end.unwrap_or(password.len()));
    writeln!(std::io::stdout(), "{}", hash_password(&password)?)?;
    Ok(())
}

fn run(serve: &Serve, engine: EngineConfig, are_default: bool) -> Result<(), Failure> {
    log_to_stderr(serve);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data_dir = %serve.data_dir.display(),
        pid = std::process::id(),
        "starting"
    );
    for name in options::unknown_variables(variables()) {
        tracing::warn!(%name, "a variable of the environment looks like an option and is none");
    }
    let room = Room::new(open_files::raise(), serve.metrics_max_connections);
    let limits = serve.limits(room.settle(serve.max_connections, are_default)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let files = security_files(serve);
    let loaded = files.load()?;
    warn_of(&loaded);
    for folder in [Some(&serve.data_dir), serve.log_dir.as_ref()].into_iter().flatten() {
        make_private(folder).map_err(|error| at(folder, &error))?;
    }
    let audit = match &serve.audit_log {
        Some(path) => Audit::open(path, Arc::clone(&clock)).map_err(|error| at(path, &error))?,
        None => Audit::default(),
    };
    let certificate = loaded.certificate.clone();
    let mut config = config(serve, limits, loaded, audit.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Before the engine is opened, which may take long: it must not end the process meanwhile.
    let hangup = {
        let _entered = runtime.enter();
        signal(SignalKind::hangup())?
    };
    let engine = open(serve, engine, &clock)?;
    // The folder is this process's from now on.
    config.cluster_id = cluster_id::of(&serve.data_dir)?;
    let reload = Reload { files, certificate, audit: audit.clone(), turn: Mutex::default() };
    let stay = serve.stay_when_halted;
    let served = runtime.block_on(until_stopped(config, engine, clock, (reload, hangup), stay));
    audit.flush();
    // What is still computed for clients that are gone is not waited for.
    runtime.shutdown_background();
    served
}

fn variables() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

/// Makes a folder for its owner alone, where it is not there.
fn make_private(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mode = std::fs::metadata(folder)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let (folder, mode) = (folder.display(), format!("{mode:o}"));
        tracing::warn!(%folder, mode, "others than its owner may enter the folder of the data");
    }
    Ok(())
}

fn open(serve: &Serve, limits: EngineConfig, clock: &Arc<dyn Clock>) -> Result<Engine, Failure> {
    let mut builder = Engine::builder(&serve.data_dir).config(limits).clock(Arc::clone(clock));
    if let Some(folder) = &serve.log_dir {
        builder = builder.log_dir(folder);
    }
    let engine = builder.open()?;
    report_recovery(&engine);
    Ok(engine)
}

/// What is read again when the operator asks for it.
struct Reload {
    files: SecurityFiles,
    certificate: Option<Certificate>,
    audit: Audit,
    turn: Mutex<()>,
}

impl Reload {
    fn run(&self, context: &Context) {
        let _turn = self.turn.lock();
        let security = &context.security;
        match self.files.reload(security, self.certificate.as_ref()) {
            Ok(()) => tracing::info!(
                users = security.users.as_ref().map(|users| users.count()),
                grants = security.grants.as_ref().map(|grants| grants.count()),
                tls = self.certificate.is_some(),
                "the files of users, grants and certificates were read again, and hold from now on"
            ),
            Err(error) => tracing::error!(
                path = %error.path.display(),
                error = sentence(&error),
                "users, grants and certificates stay as they were"
            ),
        }
        if let Err(error) = self.audit.reopen() {
            tracing::error!(%error, "the audit log cannot be opened again, and stays as it was");
        }
    }
}

/// Tells what the end of the log has lost, loudly where whole commits lay beyond it: after a power
/// loss these were not synced, and after anything else the disk may be damaged.
fn report_recovery(engine: &Engine) {
    let recovered = engine.recovered();
    if recovered.dropped_commits > 0 {
        tracing::warn!(
            dropped_commits = recovered.dropped_commits,
            dropped_bytes = recovered.dropped_bytes,
            torn_bytes = recovered.torn_bytes,
            "whole commits lay beyond the end of the log, after one that is torn or damaged, and \
             are dropped; if the machine has not lost its power, check the disk"
        );
    } else if recovered.torn_bytes > 0 {
        tracing::info!(torn_bytes = recovered.torn_bytes, "the end of the log was torn");
    }
}

async fn until_stopped(
    config: Config,
    engine: Engine,
    clock: Arc<dyn Clock>,
    (reload, mut hangup): (Reload, Signal),
    stay_when_halted: bool,
) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (rules, limits) = (config.rules, config.limits);
    let recovered = engine.recovered();
    let broker = Broker::start(config, engine, clock).await?;
    announce(&broker, &recovered, rules, &limits, &reload);
    let reload = Arc::new(reload);
    let end = loop {
        tokio::select! {
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            // A disk that hangs must not keep it from stopping.
            _ = hangup.recv() => {
                let (reload, context) = (Arc::clone(&reload), Arc::clone(broker.context()));
                tokio::task::spawn_blocking(move || reload.run(&context));
            }
            end = broker.end(), if !stay_when_halted => break Some(end),
            () = lost(&broker), if stay_when_halted => break Some(End::FolderLost),
        }
    };
    tracing::info!("stopping");
    end_in_time(limits.drain);
    let stopped = broker.stop().await;
    match end {
        Some(End::Halted) => return Err("the engine has halted".into()),
        Some(End::FolderLost) => return Err("the data folder is lost".into()),
        None => stopped?,
    }
    tracing::info!("stopped");
    Ok(())
}

/// Waits until the folder of the data is lost, which nobody can go on with.
async fn lost(broker: &Broker) {
    if broker.end().await != End::FolderLost {
        std::future::pending::<()>().await;
    }
}

/// The first line for whoever reads the log: what is served, to whom, and within what.
fn announce(
    broker: &Broker,
    recovered: &Recovered,
    rules: Rules,
    limits: &Limits,
    reload: &Reload,
) {
    let security = &broker.context().security;
    // The address comes first: who starts a broker on any port reads it here.
    tracing::info!(
        listen = %broker.address(),
        version = env!("CARGO_PKG_VERSION"),
        metrics = ?broker.metrics_address(),
        profile = %rules.profile,
        independent_partitions = rules.independent_partitions,
        is_new = recovered.is_new,
        closed_cleanly = recovered.closed_cleanly,
        replayed_commits = recovered.replayed_commits,
        torn_bytes = recovered.torn_bytes,
        topics = broker.context().engine.topics().list().len(),
        users = security.users.as_ref().map(|users| users.count()),
        grants = security.grants.as_ref().map(|grants| grants.count()),
        tls = reload.certificate.is_some(),
        max_connections = limits.max_connections,
        max_connections_per_address = limits.max_connections_per_address,
        max_request_bytes = limits.max_request_bytes,
        max_memory_bytes = limits.max_memory_bytes,
        "serving"
    );
}

/// Ends the process where it has not ended by itself in time, whatever is still under way.
fn end_in_time(drain: Duration) {
    std::thread::spawn(move || {
        let (_nobody, wait) = std::sync::mpsc::channel::<()>();
        // Nobody sends: it waits until the time is over, or ends with the process.
        let _ = wait.recv_timeout(drain + CLOSING);
        tracing::error!("the broker did not stop in time, and is ended");
        std::process::exit(1);
    });
}

fn security_files(serve: &Serve) -> SecurityFiles {
    SecurityFiles {
        users: serve.users.clone(),
        grants: serve.grants.clone(),
        tls: serve.tls_cert.clone().zip(serve.tls_key.clone()),
    }
}

fn warn_of(loaded: &Loaded) {
    for user in loaded.users_without_login() {
        tracing::warn!(%user, "grants name a user that cannot log in");
    }
    if loaded.grants.as_ref().is_some_and(|grants| grants.count() == 0) {
        tracing::warn!("the file of grants has no line, so nobody may do anything");
    }
}

fn config(serve: &Serve, limits: Limits, loaded: Loaded, audit: Audit) -> Result<Config, Failure> {
    let tls = loaded.certificate.as_ref().map(Certificate::acceptor).transpose()?;
    let log_dir = serve.log_dir.clone().unwrap_or_else(|| serve.data_dir.join("log"));
    Ok(Config {
        cluster_id: String::new(),
        listen: serve.listen,
        advertise: serve.advertise.clone(),
        metrics_listen: serve.metrics_listen,
        rules: Rules::new(serve.profile, serve.independent_partitions, serve.acks1),
        security: loaded.into_security(),
        tls,
        insecure: serve.insecure,
        limits,
        audit,
        landmarks: vec![serve.data_dir.join("LOCK"), log_dir],
    })
}

fn at(path: &Path, error: &dyn Error) -> Failure {
    format!("{}: {error}", path.display()).into()
}

fn log_to_stderr(serve: &Serve) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(serve.log_level)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    match serve.log_format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
