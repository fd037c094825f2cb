//! The audit log: a JSON line for each login, each refusal by grants, and each change.
//!
//! Lines are written by a thread of their own, so that a slow disk delays no connection. What a
//! client can cause without end, logins that fail and refusals, is limited for each who causes it;
//! the next line of theirs says how many were left out. No line has a password, nor the name of a
//! user that does not exist: people type passwords into the wrong field.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tidelog::clock::Clock;

/// Lines that wait to be written.
const WAITING: usize = 8192;
/// Lines of failures that one may cause at once, and how long until one more may follow.
const AT_ONCE: u32 = 20;
const ONE_MORE: Duration = Duration::from_secs(1);
/// Those whose failures are limited one by one; above it they share one limit.
const KEPT: usize = 4096;
/// Letters of a name that a line has at most: those of every legal topic.
const MAX_NAME_LENGTH: usize = 256;
/// How long lines that wait may take to be written at the end.
const LAST_LINES: Duration = Duration::from_secs(5);
/// Kafka's code of a change that may have been made.
const OUTCOME_UNKNOWN: i16 = 7;
/// The value of `--audit-log` that means standard error.
const STDERR: &str = "stderr";

/// Where events are noted; nowhere by default.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Inner>>);

struct Inner {
    lines: SyncSender<Message>,
    clock: Arc<dyn Clock>,
    failures: Mutex<Failures>,
    dropped: AtomicU64,
}

enum Message {
    Line(String),
    Reopen(SyncSender<io::Result<()>>),
    Flush(SyncSender<()>),
}

/// Something that somebody did, or was not allowed to.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// `login`, `refusal` or `change`.
    pub kind: &'static str,
    /// Who, where that is known.
    pub user: Option<&'a str>,
    /// From where.
    pub address: IpAddr,
    /// What was to be done.
    pub action: &'static str,
    /// To what.
    pub resource: Option<&'a str>,
    /// Kafka's code; 0 is success.
    pub code: i16,
}

/// A line as it is written.
#[derive(Serialize)]
struct Line<'a> {
    time_ms: i64,
    event: &'static str,
    user: Option<String>,
    address: IpAddr,
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    result: &'static str,
    code: i16,
    #[serde(skip_serializing_if = "is_none")]
    left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Audit {
    /// Appends to this file, which only its owner can read if it is made; `stderr` is standard
    /// error.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut writer = Writer::open(path)?;
        let (lines, waiting) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || writer.run(&waiting))?;
        let (failures, dropped) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self(Some(Arc::new(Inner { lines, clock, failures, dropped }))))
    }

    /// Notes an event.
    pub fn note(&self, event: &Event<'_>) {
        let Some(inner) = &self.0 else { return };
        let mut left_out = 0;
        if event.code != 0 && event.code != OUTCOME_UNKNOWN {
            let by = event.user.map_or_else(|| event.address.to_string(), str::to_owned);
            match inner.failures.lock().take(&by, inner.clock.monotonic()) {
                Some(before) => left_out = before,
                None => return,
            }
        }
        let line = Line {
            time_ms: inner.clock.now_ms(),
            event: event.kind,
            user: event.user.map(short),
            address: event.address,
            action: event.action,
            resource: event.resource.map(short),
            result: match event.code {
                0 => "ok",
                OUTCOME_UNKNOWN => "unknown",
                _ => "failed",
            },
            code: event.code,
            left_out,
        };
        let Ok(line) = serde_json::to_string(&line) else { return };
        if inner.lines.try_send(Message::Line(line)).is_err() {
            let dropped = inner.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::error!(dropped, "the audit log is too slow, and lines of it are dropped");
            }
        }
    }

    /// Lines that could not be written because too many waited.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.dropped.load(Ordering::Relaxed))
    }

    /// Opens the file again by its name, once it was renamed.
    ///
    /// # Errors
    /// It cannot be opened; the old one is written on.
    pub fn reopen(&self) -> io::Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let (done, wait) = sync_channel(1);
        let gone = || io::Error::other("the thread of the audit log has ended");
        inner.lines.send(Message::Reopen(done)).map_err(|_| gone())?;
        wait.recv().map_err(|_| gone())?
    }

    /// Waits until what was noted is written, for a few seconds at most.
    pub fn flush(&self) {
        let Some(inner) = &self.0 else { return };
        let (done, wait) = sync_channel(1);
        if inner.lines.try_send(Message::Flush(done)).is_ok() {
            // It is late, or the thread has ended: either way there is nobody to wait for.
            let _ = wait.recv_timeout(LAST_LINES);
        }
    }
}

fn short(name: &str) -> String {
    name.chars().take(MAX_NAME_LENGTH).collect()
}

/// How much of what fails is noted, by who causes it.
#[derive(Debug, Default)]
struct Failures(HashMap<String, Bucket>);

#[derive(Debug, Default)]
struct Bucket {
    /// When all that was noted is forgotten.
    forgotten: Duration,
    left_out: u64,
}

impl Failures {
    /// One more failure: how many were left out before it, or nothing where it is left out, too.
    fn take(&mut self, by: &str, now: Duration) -> Option<u64> {
        if self.0.len() >= KEPT && !self.0.contains_key(by) {
            self.0.retain(|_, bucket| bucket.forgotten > now || bucket.left_out > 0);
        }
        let by = if self.0.len() >= KEPT && !self.0.contains_key(by) { "" } else { by };
        let bucket = self.0.entry(by.to_owned()).or_default();
        let forgotten = bucket.forgotten.max(now) + ONE_MORE;
        if forgotten > now + ONE_MORE * AT_ONCE {
            bucket.left_out += 1;
            return None;
        }
        bucket.forgotten = forgotten;
        Some(std::mem::take(&mut bucket.left_out))
    }
}

/// What writes the lines.
struct Writer {
    path: PathBuf,
    /// Standard error, where there is no file.
    file: Option<File>,
    has_failed: bool,
}

impl Writer {
    fn open(path: &Path) -> io::Result<Self> {
        let file = if path == Path::new(STDERR) { None } else { Some(append_to(path)?) };
        Ok(Self { path: path.to_owned(), file, has_failed: false })
    }

    fn run(&mut self, waiting: &Receiver<Message>) {
        for message in waiting {
            match message {
                Message::Line(line) => self.write(line),
                // Who asked may not wait any more.
                Message::Reopen(done) => drop(done.send(self.reopen())),
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, mut line: String) {
        line.push('\n');
        let written = match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
        if let Err(error) = &written
            && !self.has_failed
        {
            let path = self.path.display();
            tracing::error!(%path, %error, "the audit log cannot be written, and lines are lost");
        }
        self.has_failed = written.is_err();
    }

    fn reopen(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            self.file = Some(append_to(&self.path)?);
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_failures_are_noted_at_once_then_one_a_second_which_says_how_many_were_left_out() {
        let mut failures = Failures::default();
        let now = Duration::from_secs(100);
        let noted = (0..1000).filter_map(|_| failures.take("ann", now)).count();
        assert_eq!(noted, 20);
        assert_eq!(failures.take("bob", now), Some(0), "another is not held up");
        assert_eq!(failures.take("ann", now + ONE_MORE), Some(980));
        assert_eq!(failures.take("ann", now + ONE_MORE), None);
    }

    #[test]
    fn however_many_fail_only_some_are_kept() {
        let mut failures = Failures::default();
        for number in 0..20_000 {
            failures.take(&number.to_string(), Duration::ZERO);
        }
        assert!(failures.0.len() <= KEPT + 1);
    }
}
