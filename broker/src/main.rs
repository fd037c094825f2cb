//! The process `tidelog-broker`: reads its command line, opens the engine, serves until it is told
//! to stop.

use std::error::Error;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidelog::clock::{Clock, SystemClock};
use tidelog::{Engine, EngineConfig};
use tidelog_broker::args::{Command, LogFormat, Other, Serve};
use tidelog_broker::context::Limits;
use tidelog_broker::fault::sentence;
use tidelog_broker::profile::Rules;
use tidelog_broker::security::users::{MAX_PASSWORD_BYTES, hash_password};
use tidelog_broker::security::{Grants, Security, Users, tls};
use tidelog_broker::server::{Broker, Config};
use tokio::signal::unix::{SignalKind, signal};

/// How long the engine may take to close once requests have ended or were dropped.
const CLOSING: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let command = Command::parse();
    let outcome = match command.other {
        Some(Other::HashPassword) => print_hash(),
        None => run(&command.serve),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&*failure);
            ExitCode::FAILURE
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

fn run(serve: &Serve) -> Result<(), Failure> {
    log_to_stderr(serve);
    raise_open_files();
    let config = config(serve)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let engine = open(serve, &clock)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served =
        runtime.block_on(until_told_to_stop(config, engine, clock, serve.stay_when_halted));
    // What is still computed for clients that are gone is not waited for.
    runtime.shutdown_background();
    served
}

/// Connections and files of the store each need an open file, and the soft limit is often 1,024
/// for the sake of programs that this is none of.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    match raised {
        Ok(()) => tracing::debug!(open_files = ?limit.maximum, "may open so many files"),
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
}

/// A request is one append transaction, so the engine takes as large ones as the broker.
fn open(serve: &Serve, clock: &Arc<dyn Clock>) -> Result<Engine, Failure> {
    let request_bytes = serve.max_request_bytes as u64;
    let limits = EngineConfig::default();
    let queue_bytes = limits.commit_queue_bytes.max(request_bytes);
    let limits = limits.max_transaction_bytes(request_bytes).commit_queue_bytes(queue_bytes);
    Ok(Engine::builder(&serve.data_dir).config(limits).clock(Arc::clone(clock)).open()?)
}

async fn until_told_to_stop(
    config: Config,
    engine: Engine,
    clock: Arc<dyn Clock>,
    stay_when_halted: bool,
) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (rules, drain) = (config.rules, config.limits.drain);
    let broker = Broker::start(config, engine, clock).await?;
    tracing::info!(
        listen = %broker.address(),
        metrics = ?broker.metrics_address(),
        profile = %rules.profile,
        independent_partitions = rules.independent_partitions,
        "serving"
    );
    let halted = tokio::select! {
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
        () = broker.halted(), if !stay_when_halted => true,
    };
    tracing::info!("stopping");
    end_in_time(drain);
    let stopped = broker.stop().await;
    if halted {
        return Err("the engine has halted".into());
    }
    stopped?;
    tracing::info!("stopped");
    Ok(())
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

fn config(serve: &Serve) -> Result<Config, Failure> {
    let users = match &serve.users {
        Some(path) => Some(Users::parse(&read(path)?).map_err(|error| at(path, &error))?),
        None => None,
    };
    let grants = match &serve.grants {
        Some(path) => {
            Some(Arc::new(Grants::parse(&read(path)?).map_err(|error| at(path, &error))?))
        }
        None => None,
    };
    let tls = match (&serve.tls_cert, &serve.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(tls::acceptor(read(certificate)?.as_bytes(), read(key)?.as_bytes())?)
        }
        _ => None,
    };
    Ok(Config {
        listen: serve.listen,
        advertise: serve.advertise.clone(),
        metrics_listen: serve.metrics_listen,
        rules: Rules::new(serve.profile, serve.independent_partitions, serve.acks1),
        security: Security { users, grants, ..Security::default() },
        tls,
        insecure: serve.insecure,
        limits: Limits {
            max_request_bytes: serve.max_request_bytes,
            max_memory_bytes: serve.max_memory_bytes,
            max_connections: serve.max_connections,
            max_connections_per_address: serve
                .max_connections_per_address
                .unwrap_or(serve.max_connections.div_ceil(2)),
            groups: serve.groups.settings(),
            ..Limits::default()
        },
    })
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| at(path, &error))
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
