//! The broker as a process, with its log.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Client;

/// How long a line of the log may take to come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that is removed in the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidelog-operator-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file as a careful operator does: whole or not at all.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let new = self.path("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.path(name)).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A broker that runs.
pub(crate) struct Process {
    child: Child,
    log: Receiver<String>,
    pub(crate) serving: String,
    pub(crate) before: Vec<String>,
}

impl Process {
    /// Starts it on the folder `data`, with these options, and waits until it serves.
    pub(crate) fn start(folder: &Folder, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidelog-broker"));
        command.args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]).args(options);
        Self::spawn(command.arg("--data-dir").arg(folder.path("data")))
    }

    /// The same from a shell that has set a limit before.
    pub(crate) fn start_within(folder: &Folder, limit: &str) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!(
            "{limit} && exec {} --listen 127.0.0.1:0 --data-dir {}",
            env!("CARGO_BIN_EXE_tidelog-broker"),
            folder.path("data").display()
        ));
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the broker starts");
        let lines = BufReader::new(child.stderr.take().expect("its log is ours"));
        let (log, lines_of_log) = channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if log.send(line).is_err() {
                    break;
                }
            }
        });
        let mut process =
            Self { child, log: lines_of_log, serving: String::new(), before: Vec::new() };
        process.serving = process.line(" serving ");
        process
    }

    /// The next line of the log that has this in it.
    pub(crate) fn line(&mut self, with: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with {with:?}: {:?}", self.before));
            if line.contains(with) {
                return line;
            }
            self.before.push(line);
        }
    }

    /// A field of the line that says what is served.
    pub(crate) fn field(&self, name: &str) -> &str {
        let rest = self.serving.split(&format!(" {name}=")).nth(1).expect("the field is there");
        &rest[..rest.find(' ').unwrap_or(rest.len())]
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.field("listen").parse().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        // Its log ends with it.
        while self.log.recv_timeout(PATIENCE).is_ok() {}
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the process says that does not serve, and how it ends.
pub(crate) fn output(options: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelog-broker"));
    let output = command.args(options).envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
